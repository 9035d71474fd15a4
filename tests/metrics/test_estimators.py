"""Each estimator against its definition, scipy or statsmodels, and against its laws."""

import math
import statistics

import numpy as np
import pytest
import scipy.stats
import statsmodels.api
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from gymcli.metrics.estimators import (
    clustered_standard_error,
    mean,
    mean_of,
    mean_of_attempts,
    percentile,
    row_means,
    row_sums,
    standard_error,
    sum_of,
    variance,
)
from gymcli.metrics.run_metrics import variance_parts

rewards = st.floats(0.0, 1.0)
any_rewards = st.floats(-1e6, 1e6)
groups = st.lists(st.lists(rewards, min_size=1, max_size=6), min_size=2, max_size=8)
square_groups = st.integers(1, 5).flatmap(
    lambda size: st.lists(st.lists(rewards, min_size=size, max_size=size), min_size=2, max_size=8)
)


def groups_of(tasks):
    """Draw the rewards of tasks as matrices, one for each number of attempts."""
    sizes = sorted({len(task) for task in tasks})
    return [np.array([task for task in tasks if len(task) == size]) for size in sizes]


@given(st.lists(any_rewards, min_size=1, max_size=30))
def test_mean_is_the_mean_and_lies_between_the_extremes(values):
    assert mean(values) == pytest.approx(statistics.mean(values))
    assert min(values) <= mean(values) <= max(values)


def test_mean_of_equal_values_is_exact():
    assert mean([0.1, 0.1, 0.1]) == 0.1
    assert variance([0.1, 0.1, 0.1]) == 0.0


@given(st.lists(any_rewards, min_size=1, max_size=20), st.randoms())
def test_mean_does_not_depend_on_the_order(values, random):
    shuffled = random.sample(values, len(values))

    assert mean(shuffled) == mean(values)


@given(st.lists(any_rewards, min_size=2, max_size=20))
def test_variance_agrees_with_numpy(values):
    expected = np.var(values, ddof=1)

    assert variance(values) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(rewards, min_size=2, max_size=20))
def test_standard_error_agrees_with_scipy(means):
    assert standard_error(means) == pytest.approx(scipy.stats.sem(means), abs=1e-12)


def test_standard_errors_need_two_tasks():
    assert standard_error([0.5]) is None
    assert clustered_standard_error(groups_of([[0.0, 1.0]])) is None


@given(square_groups)
def test_clustered_standard_error_is_that_of_task_means_where_attempts_are_equally_many(tasks):
    over_tasks = standard_error([mean(task) for task in tasks])

    assert clustered_standard_error(groups_of(tasks)) == pytest.approx(over_tasks, abs=1e-12)


def test_clustered_standard_error_agrees_with_statsmodels():
    """The CR1 of statsmodels has a further factor (N - 1)/(N - p), which is 1 for a mean."""
    tasks = [[1.0, 0.0, 1.0], [0.0], [0.25, 0.5], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0]]
    values = [value for task in tasks for value in task]
    labels = [number for number, task in enumerate(tasks) for _ in task]
    fit = statsmodels.api.OLS(values, np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(labels)}
    )

    assert clustered_standard_error(groups_of(tasks)) == pytest.approx(fit.bse[0])


@given(square_groups)
def test_variance_parts_add_up_to_the_variance_of_task_means(tasks):
    parts = variance_parts(groups_of(tasks))
    assume(parts is not None and parts.between > 0.0)
    size = len(tasks[0])

    assert variance([mean(task) for task in tasks]) == pytest.approx(
        parts.between + parts.within / size
    )
    assert 0.0 <= parts.intraclass_correlation <= 1.0
    assert 1.0 <= parts.design_effect <= size


def test_variance_parts_by_hand():
    """Means 1, 0, 1/2; variances within tasks 0, 0, 1/2, so 1/6; between tasks 1/4 - 1/12."""
    parts = variance_parts(groups_of([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))

    assert parts.within == pytest.approx(1 / 6)
    assert parts.between == pytest.approx(1 / 6)
    assert parts.intraclass_correlation == pytest.approx(1 / 2)
    assert parts.design_effect == pytest.approx(3 / 2)


def test_variance_parts_without_any_variance_have_no_correlation():
    parts = variance_parts(groups_of([[1.0, 1.0], [1.0, 1.0]]))

    assert astuple(parts) == (0.0, 0.0, None, None)


@pytest.mark.parametrize("tasks", [[[1.0, 0.0]], [[1.0], [0.0]]])
def test_variance_parts_need_two_tasks_and_two_attempts(tasks):
    assert variance_parts(groups_of(tasks)) is None


@given(st.lists(any_rewards, min_size=2, max_size=20))
def test_arrays_have_the_numbers_of_sequences(values):
    array = np.array(values)

    assert mean_of(array) == mean(values)
    assert variance(array) == variance(values)
    assert sum_of(array) == math.fsum(values)


@given(square_groups)
def test_rows_have_the_numbers_of_sequences(tasks):
    matrix = np.array(tasks)

    assert row_sums(matrix).tolist() == [math.fsum(task) for task in tasks]
    assert row_means(matrix).tolist() == [mean(task) for task in tasks]


def test_rows_of_more_tasks_than_are_summed_at_once():
    matrix = np.arange(40_000.0).reshape(20_000, 2)

    assert row_sums(matrix).tolist() == matrix.sum(axis=1).tolist()


@given(groups)
def test_mean_of_attempts_weighs_each_attempt_alike(tasks):
    flat = [reward for task in tasks for reward in task]

    assert mean_of_attempts(groups_of(tasks)) == mean(flat)


def test_variance_of_values_that_hardly_differ():
    values = [1e8 + 0.25, 1e8, 1e8 + 0.5]

    assert variance(values) == 0.0625


values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)
fractions = st.floats(0.0, 1.0)


@given(values, fractions)
def test_percentile_agrees_with_numpy(values, fraction):
    expected = np.quantile(values, fraction)

    assert percentile(sorted(values), fraction) == pytest.approx(expected, rel=1e-9, abs=1e-6)
