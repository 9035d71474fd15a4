"""The difference over paired tasks, against scipy and statsmodels."""

import random
from array import array

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.weightstats import ttost_paired

from gymcli.metrics import EnvironmentFacts
from gymcli.metrics.comparison.paired import among, correlation
from gymcli.metrics.comparison.results import Difference
from tests.metrics.comparison.tasks import compared, drawn, paired

means = st.integers(0, 8).map(lambda number: number / 8)


def means_of(tasks):
    a = np.array([np.mean(task.values_a) for task in tasks])
    b = np.array([np.mean(task.values_b) for task in tasks])
    return a, b


@pytest.mark.parametrize(("num_tasks", "num_attempts"), [(12, 1), (40, 4), (300, 2)])
def test_interval_agrees_with_the_paired_t_test_of_scipy(num_tasks, num_attempts):
    tasks = paired(drawn(num_tasks, num_attempts, 0.05))
    a, b = means_of(tasks)
    expected = scipy.stats.ttest_rel(b, a)

    found = compared(tasks)

    assert found.difference.value == pytest.approx(np.mean(b - a))
    assert found.mean_b - found.mean_a == pytest.approx(found.difference.value)
    assert found.difference.standard_error == pytest.approx(scipy.stats.sem(b - a))
    for level, interval in (
        (0.95, found.difference.interval),
        (0.9, found.deciding_interval),
    ):
        assert interval.level == level
        assert (interval.low, interval.high) == pytest.approx(
            tuple(expected.confidence_interval(level))
        )
    assert found.difference.num_clusters == num_tasks
    assert found.difference.num_values == 2 * num_tasks * num_attempts


def test_equivalence_agrees_with_the_tost_of_statsmodels():
    tasks = paired(drawn(200, 4))
    a, b = means_of(tasks)
    for margin in (0.02, 0.05, 0.2):
        expected = ttost_paired(b, a, -margin, margin)[0]
        found = compared(tasks, margin=margin)
        assert found.p_equivalent == pytest.approx(expected, abs=1e-9)
        assert found.is_equivalent == (expected < 0.05)


def test_correlation_and_what_pairing_gains():
    """SE^2 = SE_A^2 + SE_B^2 - 2 rho SE_A SE_B, and so many more tasks without the last part."""
    tasks = paired(drawn(100, 4))
    a, b = means_of(tasks)
    found = compared(tasks)
    rho = np.corrcoef(a, b)[0, 1]
    var_a, var_b = np.var(a, ddof=1), np.var(b, ddof=1)
    assert found.correlation == pytest.approx(rho)
    gained = 2 * rho * np.sqrt(var_a * var_b) / (var_a + var_b)
    assert found.variance_reduction == pytest.approx(gained)
    assert found.num_unpaired_tasks == pytest.approx(100 / (1 - gained))


@given(st.lists(st.tuples(means, means), min_size=3, max_size=30))
def test_correlation_agrees_with_numpy(pairs):
    first, second = (array("d", values) for values in zip(*pairs, strict=True))
    found = correlation(first, second)
    if found is None:
        assert len(set(first)) == 1 or len(set(second)) == 1
    else:
        assert found == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-9)


@given(st.lists(st.tuples(means, means), min_size=2, max_size=20), st.floats(0.5, 0.999))
def test_intervals_lie_in_the_possible_range_around_the_difference(pairs, level):
    found = compared(paired([([a], [b]) for a, b in pairs]), level=max(level, 0.51))
    interval = found.difference.interval
    if interval is not None:
        assert -1.0 <= interval.low <= found.difference.value <= interval.high <= 1.0


def test_single_attempts_with_two_rewards_are_tested_by_mcnemar():
    tasks = paired([([1.0], [0.0])] * 9 + [([0.0], [1.0])] * 3 + [([1.0], [1.0])] * 20)
    found = compared(tasks)
    assert found.test == "mcnemar-mid-p"
    exact = scipy.stats.binomtest(3, 12).pvalue
    assert found.p_value == pytest.approx(exact - scipy.stats.binom.pmf(3, 12, 0.5))


@pytest.mark.parametrize(
    "pairs",
    [
        [([1.0], [0.0]), ([0.0], [0.5])] * 3,
        [([1.0], [0.0, 1.0]), ([0.0], [1.0, 1.0])] * 3,
    ],
    ids=["three rewards", "two attempts"],
)
def test_anything_else_is_tested_by_sign_flips(pairs):
    assert compared(paired(pairs)).test == "sign-flip-exact"


def test_many_rewards_of_any_size_are_tested_by_seeded_flips():
    draw = random.Random(1)
    pairs = [([draw.random()], [draw.random()]) for _ in range(60)]
    assert compared(paired(pairs)).test == "sign-flip"


def test_default_margin_is_a_share_of_the_range():
    tasks = paired([([3.0], [4.0]), ([5.0], [4.5]), ([1.0], [2.0])])
    ten = {"e": EnvironmentFacts(max_reward=10.0)}
    unbounded = {"e": EnvironmentFacts(can_be_negative=True)}
    assert compared(tasks, facts=ten).margin == pytest.approx(0.2)
    penalties = {"e": EnvironmentFacts(max_reward=-0.5)}
    assert compared(tasks, facts=unbounded).margin == 0.0
    assert compared(tasks, facts=penalties).margin == 0.0
    assert compared(tasks, facts=unbounded, margin=0.5).margin == 0.5


def test_all_tasks_that_differ_by_the_same_are_sure_from_five_on():
    """An interval without width says something only where chance would hardly do that."""
    for num_tasks, verdict in ((2, "INCONCLUSIVE"), (4, "INCONCLUSIVE"), (5, "FAIL")):
        found = compared(paired([([1.0], [0.0])] * num_tasks))
        assert found.verdict == verdict
        if verdict == "INCONCLUSIVE":
            assert found.difference.interval is None
            assert found.tasks_needed == 5


def test_among_many_parts_one_fails_only_where_holm_bears_it_out():
    failing = Difference(verdict="FAIL", p_value=0.03)
    others = {str(number): Difference(verdict="PASS", p_value=0.6) for number in range(9)}
    assert among({"x": failing}, 0.95)["x"].verdict == "FAIL"
    found = among({"x": failing, **others}, 0.95)
    assert found["x"].p_adjusted == pytest.approx(0.3)
    assert found["x"].verdict == "INCONCLUSIVE"
    assert "chance alone" in found["x"].way_out
    clear = among({"x": Difference(verdict="FAIL", p_value=0.001), **others}, 0.95)
    assert clear["x"].verdict == "FAIL"
    assert failing.p_adjusted is None, "what was given stays as it was"


def test_what_rounding_leaves_is_no_difference():
    """Nor is it a variance: 0.3 - 0.2 and 0.2 - 0.1 are the same."""
    twice = compared(paired([([0.1, 0.2], [0.1, 0.2]), ([0.3], [0.1 + 0.2])]))
    assert (twice.difference.value, twice.p_value, twice.verdict) == (0.0, 1.0, "PASS")
    even = compared(paired([([1.0], [2 / 3]), ([1.0], [2 / 3]), ([0.0], [2 / 3])] * 10))
    assert even.difference.value == 0.0
    same = compared(paired([([0.2], [0.3]), ([0.1], [0.2]), ([0.6], [0.7])]))
    assert (same.difference.standard_error, same.num_unpaired_tasks) == (0.0, None)
    assert (same.verdict, same.tasks_needed) == ("INCONCLUSIVE", 5)
