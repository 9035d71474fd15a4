"""As many tasks as are said to decide a gate do, and it takes fewer the farther it is away."""

import math

import pytest

from gymcli.metrics import EnvironmentFacts, ScoredLine, aggregate
from gymcli.metrics.deciding import needed
from gymcli.metrics.gates import judge, parse_gate
from gymcli.metrics.thresholds import Threshold

FACTS = {"e": EnvironmentFacts(max_reward=1.0)}


def run(num_tasks: int, num_attempts: int, *, num_passes: int):
    """Give the numbers of tasks of which a third fails, and the others pass so many times."""
    lines = [
        ScoredLine(
            env="e",
            task_id=str(task),
            attempt=attempt,
            reward=float(task % 3 > 0 and attempt < num_passes),
        )
        for task in range(num_tasks)
        for attempt in range(num_attempts)
    ]
    return aggregate(lines, facts=FACTS)


def needs(text: str, num_tasks: int = 30):
    metrics = run(num_tasks, 4, num_passes=3)
    return judge(parse_gate(text), metrics)


def test_so_many_tasks_decide():
    """Those of the same kind: their number stays what it is."""
    for text, verdict in (("mean_reward >= 0.4", "PASS"), ("mean_reward >= 0.6", "FAIL")):
        found = needs(text)
        assert found.verdict == "INCONCLUSIVE"
        enough = run(3 * math.ceil(found.tasks_needed / 3), 4, num_passes=3)
        assert judge(parse_gate(text), enough).verdict == verdict
        # With a chance of 80 % takes more than just enough, but not many times as much.
        few = run(3 * math.ceil(found.tasks_needed / 15), 4, num_passes=3)
        assert judge(parse_gate(text), few).verdict == "INCONCLUSIVE"


def test_the_farther_the_fewer():
    tasks = [needs(f"mean_reward >= {number}").tasks_needed for number in (0.49, 0.45, 0.41)]
    assert tasks == sorted(tasks, reverse=True)
    assert len(set(tasks)) == 3


def test_both_ends_of_a_chain_are_decided():
    one = needs("mean_reward >= 0.41").tasks_needed
    other = needs("mean_reward <= 0.56").tasks_needed
    both = needs("0.41 <= mean_reward <= 0.56").tasks_needed
    assert both == max(one, other)


def test_of_a_chain_one_end_that_fails_is_enough():
    """At 0.5 it lies outside 0.55 .. 0.9, however far it is from 0.9."""
    chain, end = needs("0.55 <= mean_reward <= 0.9"), needs("mean_reward >= 0.55")
    assert chain.tasks_needed == end.tasks_needed


def test_nothing_decides_at_the_number_itself():
    found = needs("mean_reward >= 0.5")
    assert found.verdict == "INCONCLUSIVE"
    assert (found.tasks_needed, found.attempts_needed) == (None, None)
    assert "no number of tasks would decide" in found.way_out


def test_attempts_decide_where_the_variance_lies_within_tasks():
    """All tasks alike, each passing half of the time: more attempts tell as much as more tasks."""
    lines = [
        ScoredLine(env="e", task_id=str(task), attempt=attempt, reward=float((task + attempt) % 2))
        for task in range(20)
        for attempt in range(3)
    ]
    found = judge(parse_gate("mean_reward >= 0.45"), aggregate(lines, facts=FACTS))
    assert found.verdict == "INCONCLUSIVE"
    assert found.attempts_needed > 3
    assert f"or {found.attempts_needed:,} attempts a task, would decide" in found.way_out


def test_attempts_do_not_decide_where_tasks_differ():
    lines = [
        ScoredLine(env="e", task_id=str(task), attempt=attempt, reward=float(task % 2))
        for task in range(20)
        for attempt in range(3)
    ]
    found = judge(parse_gate("mean_reward >= 0.45"), aggregate(lines, facts=FACTS))
    assert found.tasks_needed is not None
    assert found.attempts_needed is None


@pytest.mark.parametrize("most", [10.0, 1.0])
def test_rewards_of_any_range_are_decided(most):
    """Also where the interval is Student's, of rewards that can be negative."""
    lines = [
        ScoredLine(env="e", task_id=str(task), reward=most * (-1.0 if task % 3 else 1.0))
        for task in range(12)
    ]
    metrics = aggregate(lines, facts={"e": EnvironmentFacts(can_be_negative=True)})
    estimate = metrics.estimates["mean_reward"]
    assert estimate.interval.method == "t"
    number = estimate.value - 0.5 * estimate.standard_error
    found = needed(estimate, (Threshold(">=", number),), metrics)
    assert found.num_tasks > 12
    assert found.way_out.startswith(f"about {found.num_tasks} tasks")
