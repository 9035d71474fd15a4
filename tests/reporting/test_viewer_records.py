"""The record of an attempt, and its failures among those of many."""

import pytest

from gymcli.errors import RunFileError
from gymcli.reporting.viewer_lists import failures_of
from gymcli.store.run_index import RunIndex
from tests.reporting.viewer_runs import failure, lines, rollout, write_run


def errors(run, task="a", attempt=0):
    with RunIndex(run) as index:
        row = index.find("arithmetic", task, attempt)
        return [each.error.error_class for each in failures_of(run, row)]


def test_only_those_of_the_attempt_are_given_in_their_order(tmp_path):
    others = [failure("a", 1, "Other"), failure("aa", 0, "Other"), failure("b", 0, "a")]
    own = [failure("a", 0, name) for name in ("First", "Second", "Third")]
    run = write_run(tmp_path, [rollout("a")], failures=[own[0], *others, *own[1:]])
    assert errors(run) == ["First", "Second", "Third"]
    assert errors(run, "b") == ["a"]


def test_of_many_the_last_ones_are_given(tmp_path):
    run = write_run(tmp_path, failures=[failure("a", 0, f"E{n}") for n in range(80)])
    assert errors(run) == [f"E{n}" for n in range(30, 80)]


def test_a_line_that_is_not_finished_is_left_out(tmp_path):
    run = write_run(tmp_path, failures=[failure("a", 0, "First")])
    with (run / "failures.jsonl").open("ab") as file:
        file.write(lines([failure("a", 0, "Second")])[:-10])
    assert errors(run) == ["First"]


def test_a_damaged_line_is_told(tmp_path):
    run = write_run(tmp_path, [rollout("a")], failures=[failure("b")])
    with RunIndex(run) as index:
        row = index.find("arithmetic", "a", 0)
        with (run / "failures.jsonl").open("ab") as file:
            file.write(b'{"task_id":"a",\n')
        with pytest.raises(RunFileError, match=r"failures.jsonl:2: is damaged"):
            failures_of(run, row)


def test_a_bare_file_has_no_history(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(lines([rollout("a")]))
    with RunIndex(file) as index:
        assert failures_of(file, index.rows[0]) == []
