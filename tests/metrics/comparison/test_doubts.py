"""What makes a difference doubtful."""

import pytest

from gymcli.metrics import EnvironmentFacts
from gymcli.metrics.comparison import Rule, RunSide, doubts
from gymcli.metrics.results import Bounds
from tests.metrics.comparison.tasks import compared, drawn, paired


def side(coverage, low=0.5, high=0.5):
    return RunSide(run="r", coverage=coverage, bounds=Bounds(low=low, high=high))


def doubts_of(tasks, rule=None, **more):
    return doubts(compared(tasks, **more), rule or Rule())


def test_a_sound_comparison_has_none():
    assert doubts_of(paired(drawn(40, 2)), a=side(1.0), b=side(1.0)) == []
    assert doubts_of(paired(drawn(40, 2)), a=side(0.96), b=side(0.96)) == []
    assert doubts_of(paired(drawn(40, 2))) == [], "coverage of bare files is not known"


@pytest.mark.parametrize(("one", "other"), [(1.0, 0.99), (0.9, 0.9)])
def test_missing_attempts_may_fake_a_difference(one, other):
    found = doubts_of(paired(drawn(40, 2)), a=side(one, 0.5, 0.6), b=side(other, 0.5, 0.6))
    assert len(found) == 1
    assert f"coverage is {one:.1%} in A and {other:.1%} in B" in found[0]
    assert "lies in -0.100 .. +0.100" in found[0]


def test_missing_attempts_without_bounds():
    a, b = side(0.9), RunSide(run="b", coverage=0.8)
    found = doubts_of(paired(drawn(40, 2)), a=a, b=b)
    assert found[0].endswith("may fake a difference")


def test_missing_attempts_of_the_run_that_knows_its_own():
    a, b = RunSide(run="a", coverage=0.4), RunSide(run="b")
    tasks = paired(drawn(40, 2))
    assert "coverage is 40.0% in A and unknown in B" in doubts_of(tasks, a=a, b=b)[0]
    assert doubts_of(tasks, a=side(0.96), b=b) == []


def test_tasks_of_one_run_only():
    found = doubts_of(paired([*drawn(40, 2), ([1.0], None), (None, [1.0])]))
    assert found[0].startswith("2 tasks are in one run only")


def test_few_tasks():
    assert doubts_of(paired(drawn(9, 2)))[0].startswith("fewer than 10 tasks")


def test_no_width():
    """The rule of three: 3 / n of other tasks may differ."""
    [said] = doubts_of(paired([([1.0], [1.0])] * 300))
    assert said.startswith("all tasks differ by 0, so that the interval has no width")
    assert "up to 1% may differ" in said


def test_no_known_range():
    facts = {"e": EnvironmentFacts()}
    tasks = paired(drawn(40, 2))
    assert "give --margin" in doubts_of(tasks, facts=facts)[0]
    assert doubts_of(tasks, Rule(margin=0.0), facts=facts, margin=0.0) == []
