"""Tests of which rows of files are selected, and of their order."""

import gzip
import operator
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.benchmarks.resolution import task_inputs
from gymcli.environment.registry import Registry
from gymcli.errors import TasksError, UsageError
from gymcli.tasks.task_files import RowProblem, with_shared_ids
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_source import Survey, TaskFile, TaskSource, survey
from gymcli.types import TaskRow
from tests.builders import FLAKY, write_rows, write_sums


def source_of(paths, **options) -> TaskSource:
    """Return a source whose files were read once."""
    source = TaskSource(task_inputs(paths), TaskOptions(**options), Registry())
    list(source.read())
    return source


def selected(paths, **options) -> list[str]:
    return [row.id for row in source_of(paths, **options).selected()]


def test_selected_shuffles_the_same_for_one_seed(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 20)
    in_order = selected([tasks])
    first = selected([tasks], shuffle=True, seed=1)
    assert first == selected([tasks], shuffle=True, seed=1)
    assert first != in_order
    assert sorted(first) == sorted(in_order)
    assert selected([tasks], shuffle=True, seed=2) != first


def test_selected_takes_the_first_rows_of_each_file(tmp_path):
    first = write_sums(tmp_path / "a.jsonl", 2)
    second = tmp_path / "b.jsonl"
    second.write_text(write_sums(second, 3).read_text().replace("sum", "more"))
    assert selected([first, second], limit=2) == ["sum-0", "sum-1", "more-0", "more-1"]
    assert selected([first, second], limit=3)[2:] == ["more-0", "more-1", "more-2"]
    assert len(selected([first, second], limit=1, shuffle=True)) == 2


def test_rows_that_were_added_after_the_first_reading_are_read_and_compared(tmp_path):
    """This happens when a run waits; attempts of copies are numbered on."""
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    source = source_of([tasks])
    lines = tasks.read_text().splitlines()
    tasks.write_text("\n".join([*lines, lines[0], lines[1].replace("sum-1", "sum-9")]))
    rows = [(row.id, row.first_attempt) for row in source.selected()]
    assert rows == [("sum-0", 0), ("sum-1", 0), ("sum-2", 0), ("sum-0", 1), ("sum-9", 0)]


@pytest.mark.parametrize(
    "row", [b"{", b"[]", b"\xff", b'{"prompt":3}', b'{"id":"sum-0","prompt":"Hm"}', b"[" * 100_000]
)
def test_a_row_that_is_no_task_any_more_is_named(tmp_path, row):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    source = source_of([tasks])
    with tasks.open("ab") as file:
        file.write(row + b"\n")
    rows = source.rows()
    assert next(rows).id == "sum-0"
    with pytest.raises(TasksError, match=r"t\.jsonl:2: was changed after it was checked"):
        next(rows)


def test_a_file_that_is_gone_is_named(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    source = source_of([tasks])
    tasks.unlink()
    with pytest.raises(UsageError, match=r"t\.jsonl: cannot be read"):
        next(source.rows())


def test_a_misspelt_environment_has_a_suggestion():
    with pytest.raises(TasksError, match='has tasks; did you mean "arithmetic"'):
        task_inputs(["arithmatic"])


ROWS = st.fixed_dictionaries(
    {"answer": st.integers(0, 2)},
    optional={
        "prompt": st.sampled_from(["Hi", "", [{"role": "user", "content": "Hi", "name": None}]]),
        "messages": st.sampled_from([[], [{"role": "user", "content": "Ho"}], [{"role": "x"}]]),
        "responses_create_params": st.sampled_from([{"input": "Hm", "temperature": 1}]),
        "params": st.sampled_from([{"top_k": 5, "model": "n"}]),
        "id": st.sampled_from(["a", "b", 3]),
        "env": st.sampled_from(["arithmetic", "mcqa"]),
        "_ng_task_index": st.integers(0, 2),
    },
)


@pytest.mark.slow
@given(st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=2), st.booleans(), st.booleans())
def test_rows_are_those_of_the_first_reading(tmp_path_factory, files, is_prefixed, is_templated):
    """There are copies in one file and across files, and a file may be given twice."""
    folder = tmp_path_factory.mktemp("tasks")
    paths = [folder / f"{number}.jsonl" for number in range(len(files))]
    for path, rows in zip(paths, files, strict=True):
        path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b"\n")
    template = folder / "prompt.yaml"
    template.write_text('user: "Say {answer}"')
    options = TaskOptions(
        env="arithmetic",
        id_by_file=is_prefixed,
        prompt=template if is_templated else None,
    )
    source = TaskSource(task_inputs([*paths, paths[0]]), options, Registry())

    def read(shared_ids):
        source.shared_ids = shared_ids
        return list(source.read())

    items = with_shared_ids(read)
    if not any(isinstance(item, RowProblem) for item in items):
        tasks = [item for item in items if isinstance(item, TaskRow)]
        assert list(source.rows()) == tasks
        assert list(source.rows()) == tasks


@pytest.mark.parametrize(
    "data",
    [
        b'{"prompt":"a"}\n\n  \n{"prompt":"b"}',
        b'\xef\xbb\xbf{"prompt":"a"}\r\n{"prompt":"b"}\r\n',
        b'\x1e{"prompt":"a"}\n\x1e{"prompt":"b"}\n',
        b'{"prompt":"a"}\n{"prompt":"a"}\n{"prompt":"a","_ng_rollout_index":1}\n',
    ],
    ids=["blank lines", "byte order mark", "separators", "copies"],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_rows_are_found_however_the_lines_are_written(tmp_path, data, suffix):
    path = tmp_path / f"t.jsonl{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    source = TaskSource([TaskFile(path)], TaskOptions(env="arithmetic"), Registry())
    items = list(source.read())
    assert list(source.rows()) == items
    assert len(items) > 1


def looked_at(paths, **options) -> tuple[TaskSource, Survey]:
    registry = Registry()
    source = TaskSource(task_inputs(paths), TaskOptions(**options), registry)
    return source, survey(source, registry)


@given(
    limit=st.none() | st.integers(1, 12),
    shuffle=st.booleans(),
    task_ids=st.lists(st.sampled_from(["sum-1", "sum-3", "sum-7"]), unique=True),
    seed=st.none() | st.integers(0, 3),
)
def test_survey_counts_what_is_selected(tmp_path_factory, limit, shuffle, task_ids, seed):
    """Whatever is selected, the first pass counts the rows that the second one yields."""
    tasks = tmp_path_factory.mktemp("tasks") / "t.jsonl"
    write_sums(tasks, 9).write_text(tasks.read_text() + tasks.read_text()[:200].split("\n")[0])
    more = write_sums(tasks.with_name("more.jsonl"), 4)
    more.write_text(more.read_text().replace("sum-", "more-"))
    options = {"limit": limit, "shuffle": shuffle, "task_ids": tuple(task_ids), "seed": seed}
    source, found = looked_at([tasks, more], **options)
    rows = list(source.selected())
    assert found.num_selected == len(rows)
    if shuffle and limit:
        assert found.num_tasks == len({row.id for row in rows})


VALID_ROWS = st.fixed_dictionaries(
    {
        "answer": st.integers(0, 2),
        "options": st.just([{"A": "x"}]),
        "expected_answer": st.just("A"),
    },
    optional={
        "prompt": st.sampled_from(["Hi", [{"role": "user", "content": "Hi"}]]),
        "responses_create_params": st.sampled_from(
            [{"input": "Hm", "temperature": 1}, {"input": [], "max_output_tokens": 9, "tools": []}]
        ),
        "params": st.sampled_from([{"top_k": 5, "model": "n"}, {"seed": None}, {}, None]),
        "id": st.sampled_from(["a", "b", 3]),
        "env": st.sampled_from(["arithmetic", "mcqa", None]),
        "agent_ref": st.just({"name": "mcqa_simple_agent"}),
        "_ng_task_index": st.integers(0, 2),
    },
)


@pytest.mark.slow
@given(
    st.lists(st.lists(VALID_ROWS, min_size=1, max_size=6), min_size=1, max_size=2),
    st.integers(1, 4),
    st.booleans(),
    st.none() | st.just("answer"),
)
def test_a_limit_changes_no_task_and_no_identity(tmp_path_factory, files, limit, by_file, id_field):
    folder = tmp_path_factory.mktemp("tasks")
    paths = [folder / f"{number}.jsonl" for number in range(len(files))]
    for path, rows in zip(paths, files, strict=True):
        path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b"\n")
    (folder / "prompt.yaml").write_text('user: "Say {answer}"')
    names = {name for rows in files for row in rows for name in row}
    has_prompts = not names.isdisjoint(("prompt", "responses_create_params"))
    prompt = None if has_prompts else folder / "prompt.yaml"
    options = {"env": "arithmetic", "id_by_file": by_file, "id_field": id_field, "prompt": prompt}
    try:
        whole, all_rows = looked_at([*paths, paths[0]], **options)
    except TasksError:
        return
    first, few_rows = looked_at([*paths, paths[0]], limit=limit, **options)
    num_by_file = Counter()
    expected = []
    for row in whole.rows():
        num_by_file[row.place.rpartition(":")[0]] += 1
        if num_by_file[row.place.rpartition(":")[0]] <= limit:
            expected.append(row)
    # A copy of a row is numbered after the copies that are read.
    selected = [msgspec.structs.replace(row, first_attempt=0) for row in first.selected()]
    assert selected == [msgspec.structs.replace(row, first_attempt=0) for row in expected]
    assert list(first.rows()) == list(whole.rows())
    assert few_rows.files == all_rows.files
    assert few_rows.environments.keys() == all_rows.environments.keys()
    assert few_rows.param_names == all_rows.param_names


def test_rows_after_the_limit_are_not_checked(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    lines = tasks.read_text().splitlines()
    repeated = lines[0].replace("answer", "result")
    tasks.write_text("\n".join([*lines, "{", '{"prompt": 3}', repeated, '{"env": "mcqa", "x": 1}']))
    source, found = looked_at([tasks], limit=3)
    assert [row.id for row in source.selected()] == ["sum-0", "sum-1", "sum-2"]
    assert [row.id for row in source.rows()] == ["sum-0", "sum-1", "sum-2"]
    assert found.files[0]["num_rows"] == 6  # all that can be decoded
    for options in ({"limit": 4}, {"limit": 3, "shuffle": True}, {"task_ids": ["sum-0"]}, {}):
        with pytest.raises(TasksError, match=r"t\.jsonl:4: is not JSON"):
            looked_at([tasks], **options)


def test_selected_rows_are_held_until_a_file_changes(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    for options in ({}, {"limit": 2}, {"shuffle": True, "limit": 2}, {"task_ids": ["sum-1"]}):
        source, _ = looked_at([tasks], **options)
        before = list(source.selected())
    assert all(map(operator.is_, source.selected(), before))
    source, _ = looked_at([tasks])
    tasks.write_text(tasks.read_text() + '{"env": "arithmetic", "prompt": "1 + 1?", "answer": 2}\n')
    assert len(list(source.selected())) == 4


def test_many_selected_rows_are_read_again(tmp_path):
    tasks = tmp_path / "t.jsonl"
    row = {"env": "arithmetic", "prompt": "x" * 1_000_000, "answer": 2}
    tasks.write_bytes(b"".join(msgspec.json.encode({**row, "id": n}) + b"\n" for n in range(6)))
    source, _ = looked_at([tasks])
    assert next(source.selected()) is not next(source.selected())
    assert [row.id for row in source.selected()] == list("012345")
    source, _ = looked_at([tasks], limit=2)
    assert next(source.selected()) is next(source.selected())


def test_survey_names_a_file_as_it_is_called(tmp_path):
    """The name is escaped to stay on one line."""
    path = tmp_path / "two  spaces\nand a line.jsonl"
    path.write_text('{"env": "arithmetic", "prompt": "x"}\n')
    with pytest.raises(TasksError, match="two  spaces and a line"):
        looked_at([path])


def test_survey_describes_files(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    _, found = looked_at([tasks])
    (file,) = found.files
    assert (file["path"], file["num_rows"]) == (str(tasks), 3)
    assert len(str(file["sha256"])) == 64


def test_survey_takes_shipped_tasks_each_for_its_environment():
    _, found = looked_at(["mcqa", "arithmetic"])
    assert found.num_rows == {"mcqa": 60, "arithmetic": 60}


def test_survey_gives_shipped_tasks_to_the_environment_that_is_asked_for(tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    spec = f"{tmp_path / 'flaky.py'}:Flaky"
    options = TaskOptions(env=spec, limit=1)
    registry = Registry((spec,))
    found = survey(TaskSource(task_inputs(["arithmetic"]), options, registry), registry)
    assert found.num_rows == {"flaky": 1}


def test_survey_collects_parameters_of_rows(tmp_path):
    row = {"env": "arithmetic", "prompt": "x", "answer": 1, "params": {"top_k": 5, "model": "n"}}
    (tmp_path / "t.jsonl").write_bytes(msgspec.json.encode(row))
    _, found = looked_at([tmp_path / "t.jsonl"])
    assert found.param_names == {"top_k"}
    assert found.ignored == {"model"}


def test_survey_warns_of_an_env_option_that_no_row_uses(tmp_path):
    tasks = tmp_path / "t.jsonl"
    tasks.write_text('{"env": "arithmetic", "prompt": "1 + 1?", "answer": 2}\n')
    registry = Registry()
    _, found = looked_at([tasks], env="mcqa")
    assert found.env_warnings("mcqa", registry) == [
        "--env mcqa is not used: every row names arithmetic"
    ]
    assert found.env_warnings("arithmetic", registry) == found.env_warnings(None, registry) == []


def test_survey_tells_rows_of_nemo_gym_apart(tmp_path):
    """Equal rows share an id, and reading the file again yields the same ids."""
    rows = [
        {"id": 7, "answer": number, "responses_create_params": {"input": f"{number} + 0?"}}
        for number in (1, 2, 2)
    ]
    tasks = tmp_path / "t.jsonl"
    write_rows(tasks, rows)
    source, found = looked_at([tasks], env="arithmetic")
    assert found.num_selected == 3
    assert found.num_tasks == 2
    (warning,) = source.id_warnings
    assert warning.startswith('different rows of NeMo Gym share 1 ids, such as "7": ')
    names = [row.id for row in source.selected()]
    assert names[0] != names[1] == names[2]
    tasks.touch()
    assert [row.id for row in source.rows()] == names
