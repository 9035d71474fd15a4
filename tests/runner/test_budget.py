"""What a run spent, read from its files: every conversation once, every scoring of it once."""

import msgspec
import pytest

from gymcli.errors import BudgetReachedError, RunFileError
from gymcli.runner.options import CollectOptions
from gymcli.runner.stopping import Budget, spent_on_record
from gymcli.types import ErrorRecord, Failure, RoleUse, Rollout, Timing, Usage


def line(kind, attempt, *, at=1.0, policy=10, **roles):
    """Give a record of an attempt, whose conversation began at some time."""
    rest = {"error": ErrorRecord(error_class="RoleError", phase="role")} if kind is Failure else {}
    use = {role: RoleUse(model="j", usage=tokens(number)) for role, number in roles.items()}
    return kind(
        task_id="t",
        env="e",
        attempt=attempt,
        usage=tokens(policy),
        role_usage=use,
        timing=Timing(started_at=at),
        **rest,
    )


def tokens(number):
    return Usage(prompt_tokens=number - 1, completion_tokens=1)


def write(folder, name, *records):
    (folder / name).write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))


def test_a_conversation_counts_once_and_each_of_its_scorings(tmp_path):
    """The judge failed twice, after a call each time; the simulated user was asked only once."""
    write(tmp_path, "generations.jsonl", line(Rollout, 0, user=5))
    write(
        tmp_path,
        "failures.jsonl",
        line(Failure, 0, user=5, judge=3),
        line(Failure, 0, user=5, judge=4),
    )
    write(tmp_path, "rollouts.jsonl", line(Rollout, 0, user=5, judge=7))
    spent = spent_on_record(tmp_path)
    assert spent.policy == tokens(10)
    assert spent.roles["user"] == tokens(5)
    assert spent.roles["judge"] == Usage(prompt_tokens=3 + 4 + 7 - 3, completion_tokens=3)


def test_each_try_of_an_attempt_counts(tmp_path):
    write(tmp_path, "failures.jsonl", line(Failure, 0, at=1.0), line(Failure, 0, at=2.0, policy=4))
    write(tmp_path, "rollouts.jsonl", line(Rollout, 0, at=3.0), line(Rollout, 1, at=3.0))
    assert spent_on_record(tmp_path).policy == Usage(prompt_tokens=30, completion_tokens=4)


def test_what_was_saved_twice_counts_once(tmp_path):
    write(tmp_path, "generations.jsonl", line(Rollout, 0, judge=2), line(Rollout, 0, judge=2))
    spent = spent_on_record(tmp_path)
    assert (spent.policy, spent.roles) == (tokens(10), {"judge": tokens(2)})


def test_a_run_of_which_nothing_is_on_record_spent_nothing(tmp_path):
    assert spent_on_record(tmp_path) == (Usage(), {})


def test_a_damaged_line_is_told(tmp_path):
    (tmp_path / "failures.jsonl").write_text('{"env": 3}\n')
    with pytest.raises(RunFileError, match=r"failures\.jsonl:1: is damaged"):
        spent_on_record(tmp_path)


def test_a_budget_says_which_of_two_is_reached():
    causes = []
    options = CollectOptions(model="oracle", max_tokens_total=100, max_cost=2.5)
    budget = Budget(options, causes.append)
    budget.add(tokens(60), 1.0)
    assert not causes
    budget.add(tokens(10), 1.5)
    (cause,) = causes
    assert isinstance(cause, BudgetReachedError)
    assert str(cause) == "the budget --max-cost 2.5 is reached"
    budget.add(tokens(30), None)
    assert str(causes[-1]) == "the budget --max-tokens-total 100 is reached"
    assert budget.spent_text() == "100 tokens and a cost of 2.5 are spent"


def test_a_budget_stops_where_it_cannot_count():
    causes = []
    budget = Budget(CollectOptions(model="oracle", max_cost=1.0, max_tokens_total=9), causes.append)
    budget.add(Usage(), 0.0)
    (cause,) = causes
    assert "so --max-tokens-total and --max-cost cannot be kept" in str(cause)
    assert budget.spent_text() == ""
