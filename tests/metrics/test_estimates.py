"""Numbers with their intervals: against statsmodels and scipy, and by their laws."""

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from gymcli.metrics.estimates import estimate_of, interval_of, moments_of

means = st.lists(st.just(0.0) | st.floats(1e-100, 1), min_size=2, max_size=40)
LEVEL = 0.95


def of(values, *, best, num_attempts=4):
    """Give the estimate of tasks' values."""
    moments = moments_of((value, num_attempts, 1) for value in values)
    return estimate_of(moments, estimator="mean of task means", best=best, level=LEVEL)


@given(means, st.floats(0.01, 1e6))
def test_estimate_interval_contains_the_value_within_the_range(values, best):
    found = of([best * value for value in values], best=best)
    assert found.interval.method == "wilson-neff"
    assert 0.0 <= found.interval.low <= found.value <= found.interval.high <= best


@given(means, st.floats(0.01, 1e3))
def test_estimate_scales_with_its_range(values, best):
    unit, scaled = of(values, best=1.0), of([best * value for value in values], best=best)
    assert scaled.value == pytest.approx(best * unit.value, rel=1e-9, abs=1e-12)
    expected = (best * unit.interval.low, best * unit.interval.high)
    assert (scaled.interval.low, scaled.interval.high) == pytest.approx(expected, abs=1e-6 * best)


@given(means)
def test_estimate_of_one_attempt_a_task_is_wilson_of_no_more_trials(values):
    """Passes and failures of single attempts: the effective size is G - 1, before the t."""
    passes = [float(value > 0.5) for value in values]
    num_tasks, rate = len(passes), sum(passes) / len(passes)
    found = of(passes, best=1.0, num_attempts=1)
    ratio = scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, num_tasks - 1)
    size = (num_tasks - 1 if 0 < rate < 1 else num_tasks) * ratio**2
    expected = proportion_confint(rate * size, size, alpha=0.05, method="wilson")
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, abs=1e-9)


def test_estimate_error_is_that_of_a_clustered_regression():
    """With equally many attempts: OLS on a constant, errors clustered by task (CR1)."""
    rewards = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1.0]])
    tasks = np.repeat(np.arange(5), 4)
    model = sm.OLS(rewards.ravel(), np.ones(20))
    # statsmodels' factor is G/(G-1) * (N-1)/(N-k), which is CR1's for a constant.
    fitted = model.fit(cov_type="cluster", cov_kwds={"groups": tasks})
    found = of(list(rewards.mean(axis=1)), best=1.0)
    assert found.standard_error == pytest.approx(fitted.bse[0])
    assert (found.num_values, found.num_clusters) == (20, 5)


def test_estimate_of_values_outside_the_range_has_a_t_interval():
    values = [0.5, 1.5, 2.0, -1.0]
    found = of(values, best=1.0)
    expected = scipy.stats.t.interval(LEVEL, 3, np.mean(values), scipy.stats.sem(values))
    assert found.interval.method == "t"
    assert (found.interval.low, found.interval.high) == pytest.approx(expected)


@pytest.mark.parametrize("best", [None, 0.0, 1.0])
def test_estimate_of_one_task_has_no_interval(best):
    found = of([0.5], best=best)
    assert (found.standard_error, found.interval) == (None, None)


def test_estimate_of_nothing_is_none():
    assert of([], best=1.0) is None


def test_interval_of_t_without_width_is_none():
    assert interval_of(3.0, 0.0, best=None, num_values=9, num_clusters=3, level=LEVEL) is None


@given(means, st.integers(2, 8))
def test_estimate_is_no_surer_by_attempts_that_repeat_one_another(values, times):
    """The same rewards again: neither the error nor, but for its cap, the interval shrinks."""
    passes = [float(value > 0.3) for value in values]
    once, again = of(passes, best=1.0, num_attempts=1), of(passes, best=1.0, num_attempts=times)
    assert once.standard_error == again.standard_error
    assert once.interval == again.interval
