"""Local tables become task files, as a whole or not at all, with a record of their source."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from gymcli.data.validation import rendered_rows, validate
from gymcli.errors import TasksError, UsageError
from gymcli.tasks.pulling import pull
from tests.builders import lines_of, write_rows

MAP = """
def task(row):
    if row["level"] > 2:
        return None
    answer = int(row["solution"].removeprefix("#### "))
    return {"id": row["name"], "question": row["question"], "answer": answer, "env": "arithmetic"}
"""
FUNCTION = Path("map.py:task")

ROWS = [
    {"name": "a", "question": "1 + 1?", "solution": "#### 2", "level": 1},
    {"name": "b", "question": "2 + 1?", "solution": "none", "level": 1},
    {"name": "c", "question": "3 + 1?", "solution": "#### 4", "level": 3},
    {"name": "a", "question": "4 + 1?", "solution": "#### 5", "level": 2},
    {"name": "d", "question": "5 + 1?", "solution": "#### 6", "level": 2},
]


@pytest.fixture
def out(tmp_path, working_folder):
    """Return the path to write to, in a folder with a table and a map."""
    (tmp_path / "map.py").write_text(MAP)
    write(Path("table.jsonl"), ROWS)
    return Path("out.jsonl")


def write(path, rows):
    write_rows(path, rows)
    return str(path)


def test_pull_writes_rows_and_where_they_come_from(out):
    table = write(Path("table.jsonl"), [ROWS[0], ROWS[2], ROWS[4]])
    pulled = pull(str(Path(table).resolve()), out, map_file=FUNCTION, limit=9)

    assert lines_of(out) == [
        {"id": "a", "question": "1 + 1?", "answer": 2, "env": "arithmetic"},
        {"id": "d", "question": "5 + 1?", "answer": 6, "env": "arithmetic"},
    ]
    assert pulled.problems == []
    hashes = [
        hashlib.sha256(Path(name).read_bytes()).hexdigest()
        for name in ("table.jsonl", "map.py", "out.jsonl")
    ]
    assert msgspec.json.decode(Path("out.jsonl.source.json").read_bytes()) == {
        "source": "table.jsonl",
        "source_sha256": hashes[0],
        "map_sha256": hashes[1],
        "limit": 9,
        "num_rows": 2,
        "sha256": hashes[2],
    }


def test_pull_lists_rows_that_cannot_be_tasks_and_writes_nothing(out):
    out.write_bytes(b"before")
    with pytest.raises(TasksError) as raised:
        pull("table.jsonl", out, map_file=FUNCTION)

    first, second = str(raised.value).splitlines()
    assert first.startswith("table.jsonl:2: map.py:task fails: ValueError: invalid literal for int")
    assert second == (
        'table.jsonl:4: another row, table.jsonl:1, has the same id "a"; '
        'map "id" to a column with unique values'
    )
    assert out.read_bytes() == b"before"
    assert not Path("out.jsonl.source.json").exists()


def test_pull_leaves_bad_rows_out_where_it_is_told_to(out):
    pulled = pull("table.jsonl", out, map_file=FUNCTION, skip_bad=True)

    assert [row["id"] for row in lines_of(out)] == ["a", "d"]
    assert (pulled.provenance.num_rows, pulled.provenance.num_skipped) == (2, 2)
    assert [line.partition(": ")[0] for line in pulled.problems] == [
        "table.jsonl:2",
        "table.jsonl:4",
    ]


@pytest.mark.parametrize(("limit", "names"), [(1, ["a"]), (2, None), (9, None)])
def test_pull_counts_the_rows_that_are_wanted(out, limit, names):
    """The second row is bad and counts towards the limit."""
    if names is None:
        with pytest.raises(TasksError, match=r"table\.jsonl:2: map\.py"):
            pull("table.jsonl", out, map_file=FUNCTION, limit=limit)
    else:
        pull("table.jsonl", out, map_file=FUNCTION, limit=limit)
        assert [row["id"] for row in lines_of(out)] == names


def test_pull_without_a_map_takes_rows_as_they_are(out):
    """Rows may have any shape, and a copy of a row stays a copy."""
    rows = [{"prompt": "Hi", "id": 1}, {"responses_create_params": {"input": "Hi"}}] * 2
    pull(write(Path("own.jsonl"), rows), out)

    assert lines_of(out) == rows


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"prompt": "Hi"}, {"prompt": 3}], 'own.jsonl:2: "prompt" must be text'),
        (
            [{"prompt": "Hi"}, {"answer": 3}],
            'own.jsonl:2: no prompt: .*; rows without a prompt need "user" in a map',
        ),
        (
            [{"answer": 3}, {"prompt": "Hi"}],
            'own.jsonl:2: the row already has a prompt; the first row has none; .* "where"',
        ),
        ([{"answer": 3, "params": 3}], 'own.jsonl:1: "params" must be an object'),
        ([{"messages": [{"role": "wizard"}]}], 'own.jsonl:1: "messages": Invalid enum value'),
        ([[1]], "own.jsonl:1: must be a JSON object"),
        ([], "own.jsonl: no rows to write"),
    ],
)
def test_pull_writes_only_what_can_be_collected(out, rows, reason):
    with pytest.raises(TasksError, match=reason):
        pull(write(Path("own.jsonl"), rows), out)
    assert not out.exists()


def test_pull_with_a_template_gives_what_rendering_the_raw_rows_gives(out):
    fields = "fields: {id: name, question: question}"
    Path("raw.yaml").write_text(fields)
    Path("filled.yaml").write_text(f'{fields}\nuser: "Answer: {{question}}"\nsystem: "Be brief."')
    Path("prompt.yaml").write_text('user: "Answer: {question}"\nsystem: "Be brief."')
    table = write(Path("own.jsonl"), ROWS[:3])
    pull(table, Path("raw.jsonl"), map_file=Path("raw.yaml"))
    pull(table, out, map_file=Path("filled.yaml"))

    assert lines_of(out) == list(rendered_rows("raw.jsonl", prompt=Path("prompt.yaml")))


def test_pull_of_csv_makes_tasks_that_hold(out):
    Path("sums.csv").write_text('prompt,answer\n"What is 1 + 1?",2\n"What is 2 + 1?",3\n')
    Path("sums.py").write_text("def task(row):\n    return row | {'answer': int(row['answer'])}")
    pull("sums.csv", out, map_file=Path("sums.py:task"))

    assert validate([out], env="arithmetic").problems == []


def test_pull_takes_rows_that_are_nested_and_refuses_those_that_are_too_deep(out):
    """The deepest level depends on the interpreter; the error is always one sentence."""
    reasons = []
    for depth in range(100, 1_100, 100):
        nested = f'{{"prompt": "Hi", "x": {"[" * depth}{"]" * depth}}}'
        Path("own.jsonl").write_text(nested)
        try:
            reasons.append(pull("own.jsonl", out).problems)
        except TasksError as error:
            reasons.append(str(error))

    assert reasons[0] == []
    assert reasons[-1].endswith("it is nested too deeply")
    assert all(not reason or reason.endswith("it is nested too deeply") for reason in reasons)


def test_pull_names_a_column_in_one_line(out):
    Path("map.yaml").write_text("fields: {question: none}")
    with pytest.raises(TasksError) as raised:
        pull(write(Path("own.jsonl"), [{"a\nb": 1}]), out, map_file=Path("map.yaml"))

    assert str(raised.value) == 'own.jsonl:1: there is no column "none" (the row has: a b)'


def test_questions_that_a_map_makes_are_read_by_a_bare_letter(out):
    row = {"prompt": "q", "options": [{"A": "x"}], "expected_answer": "A"}
    nemo = {"responses_create_params": {"input": "q"}, "expected_answer": "A"}
    table = write(Path("own.jsonl"), [{"env": "mcqa", **row}, {"env": "mcqa", **nemo}])
    Path("map.yaml").write_text("drop_empty: true")
    for map_file, modes in ((Path("map.yaml"), ["letter", None]), (None, [None, None])):
        pull(table, out, map_file=map_file)
        assert [row.get("grading_mode") for row in lines_of(out)] == modes


@pytest.mark.parametrize("name", ["table.jsonl", "link.jsonl", "map.py", "noted"])
def test_pull_does_not_write_over_what_it_reads(out, name):
    Path("link.jsonl").symlink_to("table.jsonl")
    table = Path("table.jsonl") if name != "noted" else Path("noted.source.json.jsonl")
    Path("noted.source.json").write_text("drop_empty: true")
    map_file = Path("noted.source.json") if name == "noted" else FUNCTION
    write(table, ROWS[:1])
    before = {path: path.read_bytes() for path in Path().iterdir()}
    with pytest.raises(UsageError, match="is an input and would be overwritten"):
        pull(str(table), Path(name), map_file=map_file)

    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_pull_refuses_a_record_that_leads_to_its_rows(out):
    """Rows and record would be written to the same file."""
    Path(f"{out}.source.json").symlink_to(out)
    with pytest.raises(UsageError, match="is an input and would be overwritten"):
        pull(write(Path("own.jsonl"), [{"prompt": "a"}]), out)

    assert not out.exists()


@pytest.mark.parametrize("name", ["out.jsonl", "folder/out.jsonl", "x" * 238])
def test_pull_writes_both_files_or_none(out, name):
    """The record, the folder or the longer file name cannot be written; no row is read before."""
    Path("out.jsonl.source.json").mkdir()
    with pytest.raises(UsageError, match=rf"{name}.*: (is not a regular file|cannot be written)"):
        pull("no.jsonl", Path(name))

    assert {path.name for path in Path().iterdir()} == {
        "map.py",
        "table.jsonl",
        "out.jsonl.source.json",
    }


def test_pull_refuses_options_of_the_hub_for_files(out):
    with pytest.raises(UsageError, match="--config, --split and --revision need hf:ORG/NAME"):
        pull("table.jsonl", out, split="train")


@pytest.mark.slow
def test_pull_refuses_a_row_that_no_line_could_hold(tmp_path):
    """Columns within the limit may make a row that is too long to be read again."""
    source = tmp_path / "long.csv"
    cell = "\x01" * (22 << 20)  # six characters each in JSON
    source.write_text(f"prompt,env\n{cell},arithmetic\nWhat is 1 + 1?,arithmetic\n")
    out = tmp_path / "out.jsonl"
    with pytest.raises(TasksError, match=r"long\.csv:2: is longer than the limit of 128 MB"):
        pull(str(source), out)
    assert not out.exists()
    pulled = pull(str(source), out, skip_bad=True)
    assert (pulled.provenance.num_rows, pulled.provenance.num_skipped) == (1, 1)
