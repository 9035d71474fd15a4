"""The verdict, and what would decide."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import TTestPower

from gymcli.metrics.comparison.verdict import Rule, equivalence_p, verdict_of
from gymcli.metrics.results import Interval
from tests.metrics.comparison.tasks import compared, drawn, paired


def interval(low, high):
    return Interval(low=low, high=high, level=0.9, method="t")


@pytest.mark.parametrize(
    ("low", "high", "verdict", "strict"),
    [
        (-0.01, 0.05, "PASS", "PASS"),
        (-0.015, -0.005, "PASS", "PASS"),
        (-0.03, -0.01, "FAIL", "INCONCLUSIVE"),
        (-0.05, -0.03, "FAIL", "FAIL"),
        (-0.03, 0.01, "INCONCLUSIVE", "INCONCLUSIVE"),
        (-0.02, 0.5, "INCONCLUSIVE", "INCONCLUSIVE"),
    ],
)
def test_verdict_is_by_the_ends_of_the_interval(low, high, verdict, strict):
    assert verdict_of(interval(low, high), 0.02, is_strict=False) == verdict
    assert verdict_of(interval(low, high), 0.02, is_strict=True) == strict


def test_without_an_interval_nothing_is_decided():
    assert verdict_of(None, 1.0, is_strict=False) == "INCONCLUSIVE"


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_larger_margin_never_turns_a_verdict_for_the_worse(low, width, margin, more):
    order = {"FAIL": 0, "INCONCLUSIVE": 1, "PASS": 2}
    found = interval(low, low + width)
    for is_strict in (False, True):
        before = order[verdict_of(found, margin, is_strict=is_strict)]
        assert order[verdict_of(found, margin + more, is_strict=is_strict)] >= before


def test_tasks_needed_agree_with_the_power_of_the_t_test():
    """Of the one-sided test that B is not worse by the margin, by statsmodels."""
    found = compared(paired(drawn(60, 2)), margin=0.05)
    assert found.verdict == "INCONCLUSIVE"
    spread = found.difference.standard_error * math.sqrt(found.num_tasks)
    effect = (found.difference.value + found.margin) / spread
    expected = TTestPower().solve_power(effect, alpha=0.05, power=0.8, alternative="larger")
    assert found.tasks_needed == pytest.approx(expected, rel=0.02)
    assert f"about {found.tasks_needed} tasks" in found.way_out


def test_so_many_tasks_decide():
    """The same tasks as often as it takes, which leaves difference and variance as they are."""
    tasks = drawn(60, 2)
    before = compared(paired(tasks), margin=0.05)
    copies = math.ceil(before.tasks_needed / len(tasks))
    assert before.verdict == "INCONCLUSIVE"
    assert compared(paired(tasks * copies), margin=0.05).verdict == "PASS"


def test_attempts_needed_follow_the_split_of_the_variance():
    """omega^2 + (sigma_A^2 + sigma_B^2) / K has to be as small as the distance asks for."""
    found = compared(paired(drawn(150, 3, seed=2)), margin=0.05)
    assert found.verdict == "INCONCLUSIVE"
    assert found.attempts_needed > 3
    assert f"or {found.attempts_needed} attempts a task" in found.way_out


def test_no_number_of_attempts_decides_where_tasks_differ_too_much():
    """Every attempt of a task gives the same: more of them tell nothing new."""
    tasks = paired([([1.0] * 4, [0.0] * 4), ([0.0] * 4, [1.0] * 4)] * 10)
    found = compared(tasks, margin=0.1)
    assert (found.verdict, found.attempts_needed) == ("INCONCLUSIVE", None)
    assert "no number of attempts does" in found.way_out


def test_one_attempt_a_task_cannot_tell_what_more_would():
    found = compared(paired(drawn(40, 1)), margin=0.01)
    assert (found.verdict, found.attempts_needed) == ("INCONCLUSIVE", None)
    assert "cannot be told from one attempt a task" in found.way_out


def test_attempts_of_one_run_tell_of_both():
    tasks = [(a[:1], b) for a, b in drawn(150, 4, seed=2)]
    found = compared(paired(tasks), margin=0.04)
    assert found.verdict == "INCONCLUSIVE"
    assert found.attempts_needed is not None


def test_just_at_the_margin_no_number_decides():
    found = compared(paired([([1.0], [0.0]), ([0.0], [1.0])] * 6), margin=0.0)
    assert (found.verdict, found.tasks_needed) == ("INCONCLUSIVE", None)
    assert "no number of tasks decides" in found.way_out


def test_a_margin_that_has_no_square_decides_all_the_same():
    found = compared(paired([([1.0], [0.0])] * 2), margin=1e200)
    assert (found.verdict, found.tasks_needed) == ("INCONCLUSIVE", 5)


def test_of_pass_at_k_attempts_are_not_planned():
    found = compared(paired(drawn(50, 4)), metric="pass@2", margin=0.01)
    assert (found.verdict, found.attempts_needed) == ("INCONCLUSIVE", None)
    assert found.tasks_needed is not None


def test_equivalence_has_no_p_value_without_an_error():
    assert equivalence_p(0.0, 0.0, 0.1, num_tasks=5) is None
    assert Rule().margin is None
