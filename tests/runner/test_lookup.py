"""One attempt on record."""

from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.runner.lookup import find_record
from gymcli.types import Failure, Rollout
from tests.commands.running import add_up, write_sums
from tests.runner.collecting import collect_all


def behave(request):
    return refusal_of(400, "no") if "0 + 1" in last_user_text(request) else add_up(request)


def test_find_record(tmp_path):
    """A rollout, with or without its attempt; a failure; or nothing."""
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 2), behave, out=out, repeats=2)
    found = find_record(out, "sum-1")
    assert isinstance(found, Rollout)
    assert (found.task_id, found.attempt) == ("sum-1", 0)
    assert find_record(out, "sum-1/1").attempt == 1
    failure = find_record(out, "sum-0/1")
    assert isinstance(failure, Failure)
    assert failure.attempt == 1
    assert isinstance(find_record(out, "sum-0"), Failure)
    assert find_record(out, "sum-0", env="mcqa") is None
    assert find_record(out, "sum-7") is None
    assert isinstance(find_record(out / "rollouts.jsonl", "sum-1"), Rollout)


def test_find_record_of_a_run_of_failures(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 1), behave, out=out)
    assert not (out / "rollouts.jsonl").exists()
    assert isinstance(find_record(out, "sum-0"), Failure)
