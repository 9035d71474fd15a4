"""Task files: validation reports all problems, rendering keeps tasks, generation repeats."""

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.data.validation import compare_generated, generated_rows, rendered_rows, validate
from gymcli.environment.registry import shipped_tasks
from gymcli.errors import TasksError, UnknownNameError, UsageError
from gymcli.nemo_gym.rows import own_task_id
from gymcli.tasks.task_files import read_tasks
from gymcli.tasks.task_row import PromptTemplate, TaskReading
from tests.builders import write_rows

GOOD = {"id": "a", "prompt": "What is 1 + 1?", "answer": 2}


def write(path, *rows):
    lines = [row if isinstance(row, bytes) else msgspec.json.encode(row) for row in rows]
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.fixture
def path(working_folder):
    return Path("tasks.jsonl")


def test_validate_lists_all_problems_of_the_shape(path):
    rows = [GOOD, b"{", b"3", {"prompt": 3}, {**GOOD, "answer": 3}]
    found = validate([write(path, *rows, *[{"answer": 1}] * 30)])

    assert [problem.place for problem in found.problems] == [
        f"tasks.jsonl:{n}" for n in range(2, 36)
    ]
    reasons = [problem.reason for problem in found.problems]
    assert reasons[1] == "must be a JSON object"
    assert reasons[2] == '"prompt" must be text, or a list of chat messages'
    assert reasons[3].startswith('another row, tasks.jsonl:1, has the same id "a"')
    assert reasons[4].startswith("no prompt")
    assert (found.num_rows, found.num_tasks, found.num_wrong) == (35, 1, 34)
    assert not found.is_checked


def test_validate_compares_fields_and_tools_where_an_environment_is_given(path):
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    wrong = {"id": "b", "prompt": "?", "answer": "x", "tools": [tool]}
    other = {"id": "c", "env": "no_such", "prompt": "?"}
    files = [write(path, GOOD, {"id": "d", "prompt": "?"}, wrong, other)]

    [problem] = validate(files).problems
    assert problem.reason.startswith('no environment "no_such"')
    found = validate(files, env="arithmetic")
    assert [(problem.place, problem.reason.partition(" (")[0]) for problem in found.problems] == [
        ("tasks.jsonl:2", '"answer" is missing'),
        (
            "tasks.jsonl:3",
            '"answer": is not a whole number',
        ),
        ("tasks.jsonl:3", 'tool "look" is not one of environment arithmetic'),
        ("tasks.jsonl:4", 'no environment "no_such"'),
    ]
    assert (found.num_rows, found.num_tasks, found.num_wrong) == (4, 1, 3)
    assert found.environments == {"arithmetic": 1}
    assert found.is_checked


def test_validate_compares_where_a_file_is_named_by_its_environment(path):
    found = validate(["mcqa", "arithmetic"])

    assert found.is_checked
    assert (found.problems, found.warnings) == ([], [])
    assert found.environments == {"mcqa": 60, "arithmetic": 60}


def test_validate_warns_of_what_may_not_be_meant(path):
    row = {"prompt": "?", "params": {"model": "m", "n": 2}}
    found = validate([write(path, row, row, GOOD, {**GOOD, "id": "b"})])

    assert found.problems == []
    assert found.ignored_params == {"model": 2, "n": 2}
    assert found.warnings == [
        "1 rows are copies of others: each adds an attempt to its task",
        "tasks without an id: 1; a hash of their content is used, which any edit changes",
        "rows set model, n: ignored, since the command line sets these",
    ]


def test_validate_reads_ids_as_it_is_told(path):
    twice = [{"prompt": "?", "name": "x"}, {"prompt": "!", "name": "x"}]
    files = [write(path, twice[0]), write(Path("other.jsonl"), twice[1])]

    assert len(validate(files, id_field="name").problems) == 1
    assert validate(files, id_field="name", id_by_file=True).problems == []
    assert validate(files, id_field="name", id_by_file=True).warnings == []
    assert "must be a whole number" in validate(files, id_field="no").problems[0].reason


def test_validate_fills_a_template(path):
    Path("prompt.yaml").write_text('user: "{question}"')
    found = validate([write(path, {"question": "?"}, {"id": "b"})], prompt=Path("prompt.yaml"))

    assert [problem.place for problem in found.problems] == ["tasks.jsonl:2"]
    assert found.num_tasks == 1


def test_validate_wants_rows(path):
    problems = validate([write(path), write(Path("other.jsonl"))]).problems

    reason = "no tasks; expected one JSON object a line"
    assert problems == [("tasks.jsonl", reason), ("other.jsonl", reason)]


def test_validate_refuses_what_cannot_be_read(path):
    with pytest.raises(UsageError, match=r"tasks\.jsonl: no such file"):
        validate([path])
    with pytest.raises(UnknownNameError):
        validate([write(path, GOOD)], env="no_such")


PROMPT = 'system: "Answer {how}."\nuser: "{question} {{x}}"\n'
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
FLAT_TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}

RAW_ROWS = [
    {"question": "1+1?", "how": "shortly", "id": 7},
    {"question": "1+1?", "how": "shortly"},
    {"question": "", "how": None, "prompt": "", "messages": None, "uuid": "u", "env": "maths"},
    {"question": "?", "how": "", "params": {"temperature": 0, "n": 2}, "max_turns": 3},
    {"question": "?", "how": "", "agent_ref": {"name": "maths"}, "_ng_task_index": 5},
    {"question": "?", "how": "", "messages": [], "tools": [FLAT_TOOL]},
    {"question": "?", "how": "", "responses_create_params": {"temperature": 0.5}},
]

CREATE_PARAMS = {
    "input": [
        {"role": "developer", "content": "Look."},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
                {"type": "input_text", "text": "What is it?"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAAA",
        },
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "fc"},
        {"type": "function_call_output", "call_id": "c", "output": "seen"},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"role": "assistant", "content": "A dot."},
        {"role": "user", "content": "Sure?"},
    ],
    "tools": [FLAT_TOOL, {"type": "web_search"}],
    "max_output_tokens": 9,
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
    "tool_choice": {"type": "function", "name": "look"},
    "model": "other",
    "temperature": None,
}

ROWS = [
    {"prompt": "Hi", "answer": 7},
    {"prompt": "Hi", "messages": None, "tools": None, "id": None},
    {"prompt": [{"role": "user", "content": [IMAGE]}], "tools": [], "id": "a"},
    {
        "messages": [
            {"role": "user", "content": "Hi", "name": "ann"},
            {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c", "content": "seen"},
        ],
        "tools": [FLAT_TOOL],
        "prompt": "a field",
        "verifier_metadata": {"answer": 1},
        "params": {"top_p": 0.5, "stop": None},
    },
    {"messages": [], "task_id": "opens"},
    {"responses_create_params": CREATE_PARAMS, "prompt": 3, "uuid": "u", "_ng_task_index": 1},
    {"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": "maths"}, "max_turns": 2},
    {"responses_create_params": {"input": []}, "env": "maths"},
]


def tasks_of(path, template=None, **reading):
    """Return the tasks of a run, without the id in their fields, which rendering may add."""
    tasks = []
    for task in read_tasks([path], TaskReading(default_env="quiz", template=template, **reading)):
        if hasattr(task, "name"):  # an ignored parameter
            continue
        fields = {name: value for name, value in task.fields.items() if value != task.id}
        task.fields = {k: v for k, v in fields.items() if (k, v) != ("messages", None)}
        tasks.append(msgspec.structs.replace(task, hash="", place=""))
    return tasks


@pytest.mark.parametrize(("rows", "prompt"), [(ROWS, None), (RAW_ROWS, PROMPT)])
def test_rendered_rows_are_the_same_tasks(tmp_path, rows, prompt):
    """There are two copies of each row; identical rows stay one task."""
    path = write_rows(tmp_path / "raw.jsonl", [row for row in rows for _ in range(2)])
    template = None
    if prompt:
        (tmp_path / "prompt.yaml").write_text(prompt)
        template = PromptTemplate.read(tmp_path / "prompt.yaml")
    rendered = list(rendered_rows(path, prompt=prompt and tmp_path / "prompt.yaml"))

    expected = tasks_of(path, template)
    assert len(expected) == 2 * len(rows)
    assert tasks_of(write_rows(tmp_path / "plain.jsonl", rendered)) == expected
    assert not any("responses_create_params" in row or "agent_ref" in row for row in rendered)
    assert list(rendered_rows(tmp_path / "plain.jsonl")) == rendered


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(st.sampled_from(ROWS), st.dictionaries(st.sampled_from("abcd"), JSON))),
)
def test_rendered_rows_keep_any_fields(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("rows")
    path = write_rows(
        folder / "raw.jsonl",
        [{**more, **row, "task_id": f"t{n}"} for n, (row, more) in enumerate(parts)],
    )
    plain = write_rows(folder / "plain.jsonl", rendered_rows(path))

    assert tasks_of(plain) == tasks_of(path)


def test_rendered_rows_of_an_environment_name_it():
    [row] = rendered_rows("mcqa", limit=1)

    assert row["env"] == "mcqa"
    first = msgspec.json.decode(shipped_tasks("mcqa").read_bytes().splitlines()[0])
    assert row["messages"] == [{"role": "user", "content": first["prompt"]}]


@pytest.mark.parametrize(
    ("ids", "name"),
    [({}, "id"), ({"id": None}, "task_id"), ({"id": "", "task_id": 1.5, "uuid": None}, "id")],
)
def test_rendered_row_without_id_is_named_by_the_hash_of_the_raw_one(tmp_path, ids, name):
    path = write_rows(tmp_path / "raw.jsonl", [{"prompt": "Hi", **ids}])
    [row] = rendered_rows(path)

    assert row.pop(name) == tasks_of(path)[0].id
    messages = [{"role": "user", "content": "Hi"}]
    assert row == {**{key: ids[key] for key in ids if key != name}, "messages": messages}


def test_rendered_rows_keep_the_field_that_holds_the_id(tmp_path):
    """The rows share one `id`, but `--id-field` names another field."""
    rows = [{"id": 1, "name": name, "prompt": "Hi"} for name in "ab"]
    path = write_rows(tmp_path / "raw.jsonl", rows)
    plain = write_rows(tmp_path / "plain.jsonl", rendered_rows(path, id_field="name"))

    assert tasks_of(plain, id_field="name") == tasks_of(path, id_field="name")


@pytest.mark.parametrize("name", ["messages", "tools"])
def test_rendered_rows_refuse_a_field_that_would_be_a_prompt(tmp_path, name):
    row = {"responses_create_params": {"input": "Hi"}, name: []}
    path = write_rows(tmp_path / "raw.jsonl", [row])

    with pytest.raises(TasksError) as raised:
        list(rendered_rows(path))
    expected = f'the field "{name}" would be read as the {name} of the prompt; rename it'
    assert str(raised.value) == f"{path}:1: {expected}"


def test_rendered_rows_end_with_the_wrong_ones(tmp_path):
    path = write_rows(tmp_path / "raw.jsonl", [{"prompt": 3}, {"prompt": "Hi"}, {"answer": 1}])
    rows = rendered_rows(path)

    assert next(rows)["messages"][0]["content"] == "Hi"
    with pytest.raises(TasksError) as raised:
        next(rows)
    assert [line.partition(": ")[0] for line in str(raised.value).splitlines()] == [
        f"{path}:1",
        f"{path}:3",
    ]


def test_rendered_rows_name_only_options_that_rendering_has(tmp_path):
    rows = [{"id": "a", "prompt": "?"}, {"id": "a", "prompt": "!"}]
    with pytest.raises(TasksError, match=r'has the same id "a"; use --id-field F$'):
        list(rendered_rows(write_rows(tmp_path / "t.jsonl", rows)))


def test_rendered_rows_need_a_file_that_is_there():
    with pytest.raises(UsageError, match="no such file, and no environment"):
        next(rendered_rows(Path("no.jsonl")))


def test_rendered_rows_of_nemo_gym_keep_the_names_that_tell_them_apart(tmp_path):
    rows = [
        {name: 7, "responses_create_params": {"input": text}}
        for name in ("id", "task_id")
        for text in "ab"
    ]
    source, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_rows(source, rows)
    rendered = list(rendered_rows(source))
    write_rows(out, rendered)
    assert [own_task_id(row) for row in rendered] == [
        own_task_id(row) for row in rendered_rows(out)
    ]
    assert len({own_task_id(row) for row in rendered}) == 4
    assert validate([source]).num_shared_ids == 1
    assert validate([out]).problems == []


OWN = '''"""Environments of somebody else's."""

from gymcli import Environment, Task


class Few(Environment[Task]):
    """Generates less than it is asked for."""

    @classmethod
    def generate(cls, rng, num):
        yield {"prompt": str(rng.random())}
        if num > 5:
            raise RuntimeError("no more than\\nfive")


class Barren(Environment[Task]):
    """Generates nothing."""
'''


@pytest.fixture
def module(working_folder):
    """Write a module with the name of a built-in environment, and return its path."""
    Path("mcqa.py").write_text(OWN)
    return "mcqa.py"


def test_generated_rows_are_those_that_ship():
    assert b"".join(generated_rows("mcqa")) == shipped_tasks("mcqa").read_bytes()


def test_generated_rows_follow_number_and_seed(module):
    rows = list(generated_rows("mcqa", 3, seed=1))

    assert rows == list(generated_rows("mcqa", 3, seed=1))
    assert len(rows) == 3
    assert rows != list(generated_rows("mcqa", 3))
    assert len(list(generated_rows("mcqa.py:Few", 1))) == 1


@pytest.mark.parametrize(
    ("spec", "num", "expected"),
    [
        ("mcqa.py:Few", 2, "environment mcqa generated 1 rows, not 2"),
        (
            "mcqa.py:Few",
            None,
            "environment mcqa cannot generate 60 rows: RuntimeError: no more than five",
        ),
        ("mcqa.py:Barren", 1, "environment mcqa generates no tasks"),
        (
            "arithmetic",
            362,
            "environment arithmetic cannot generate 362 rows: ValueError: Sample larger",
        ),
        ("mqca", 1, 'no environment "mqca"; did you mean "mcqa"'),
    ],
)
def test_generated_rows_refuse_what_cannot_be_had(module, spec, num, expected):
    with pytest.raises(UsageError) as raised:
        list(generated_rows(spec, num))
    assert str(raised.value).startswith(expected)


def test_generated_rows_are_given_as_they_come(module):
    assert len(list(itertools.islice(generated_rows("mcqa.py:Few", 9), 1))) == 1


def test_compare_generated_finds_the_same():
    compared = compare_generated("arithmetic")

    assert (compared.env, compared.num_rows, compared.difference) == ("arithmetic", 60, None)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (lambda lines: [*lines[:2], b"{}\n", *lines[3:]], "line 3 differs"),
        (lambda lines: [*lines[:-1], lines[-1].strip()], "line 60 differs"),
        (lambda lines: lines * 7, "ValueError: Sample larger than population or is negative"),
    ],
)
def test_compare_generated_finds_the_first_difference(tmp_path, changed, difference):
    lines = list(generated_rows("arithmetic"))
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(changed(lines)))

    assert compare_generated("arithmetic", tmp_path / "tasks.jsonl").difference == difference


def test_compare_generated_needs_a_file(module):
    with pytest.raises(UsageError, match="environment mcqa ships no tasks to compare with"):
        compare_generated("mcqa.py:Few")
