"""Validation finds every problem of every file, with its line, and what is no mistake."""

from pathlib import Path

import msgspec
import pytest

from gymcli.data.validation import validate
from gymcli.errors import UnknownNameError, UsageError

GOOD = {"id": "a", "prompt": "What is 1 + 1?", "answer": 2}


def write(path, *rows):
    lines = [row if isinstance(row, bytes) else msgspec.json.encode(row) for row in rows]
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    assert reasons[3].startswith('another row than tasks.jsonl:1 has the same id "a"')
    assert reasons[4].startswith("no prompt")
    assert (found.num_rows, found.num_tasks, found.num_wrong) == (35, 1, 34)
    assert not found.is_checked


def test_validate_compares_fields_and_tools_where_an_environment_is_given(path):
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    wrong = {"id": "b", "prompt": "?", "answer": "x", "tools": [tool]}
    other = {"id": "c", "env": "no_such", "prompt": "?"}
    files = [write(path, GOOD, {"id": "d", "prompt": "?"}, wrong, other)]

    assert validate(files).problems == []
    found = validate(files, env="arithmetic")
    assert [(problem.place, problem.reason.partition(" (")[0]) for problem in found.problems] == [
        ("tasks.jsonl:2", '"answer" is missing'),
        (
            "tasks.jsonl:3",
            '"answer": Input should be a valid integer, unable to parse string as an integer',
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
        "1 rows are copies of others: more attempts of one task",
        "1 tasks have no id: a hash of their content is one, which any edit changes",
        "rows set model, n: ignored, the command line decides these",
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
