"""Sums and means of values that are not kept, against those of all values at once."""

import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.estimators import mean
from gymcli.metrics.sums import RunningMean, RunningSum

numbers = st.floats(-1e300, 1e300)


def sum_of(values):
    total = RunningSum()
    for value in values:
        total.add(value)
    return total


def mean_of(values):
    found = RunningMean()
    for value in values:
        found.add(value)
    return found


@given(st.lists(numbers, max_size=20), st.lists(numbers, max_size=20))
def test_sums_of_parts_add_up_to_that_of_all_rounded_once(first, second):
    total = sum_of(first)
    total.add_all(sum_of(second))

    assert total.total == math.fsum(first + second)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_running_mean_is_the_mean(values):
    assert mean_of(values).mean == mean(values)


@pytest.mark.parametrize("num_values", [1_000, 1_001, 2_002, 5_000])
def test_many_values_are_rounded_once(num_values):
    """Of numbers that cancel out, so that any rounding on the way would show."""
    random = Random(num_values)
    values = [random.choice([-1.0, 1.0]) * 10.0 ** random.randrange(-20, 20) for _ in range(4_999)]
    values = values[:num_values]
    values += [-value for value in values[1:]]
    random.shuffle(values)

    assert sum_of(values).total == math.fsum(values)
    assert mean_of(values).mean == mean(values)
    assert mean_of(values).num_values == len(values)


def test_running_mean_of_many_equal_values_is_exact():
    assert mean_of([0.1] * 2_500).mean == 0.1


@given(st.lists(st.tuples(numbers, st.integers(1, 1_500)), min_size=1, max_size=5))
def test_running_mean_takes_a_value_as_if_it_came_so_many_times(pairs):
    found = RunningMean()
    for value, times in pairs:
        found.add(value, times)

    values = [value for value, times in pairs for _ in range(times)]
    assert (found.mean, found.num_values) == (mean(values), len(values))


def test_running_mean_may_be_asked_while_values_come():
    found = mean_of([1.0, 0.0])
    assert found.mean == 0.5
    found.add(0.5)
    found.add(0.5)
    assert (found.mean, found.num_values) == (0.5, 4)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_sum_with_an_infinite_value_is_infinite(value):
    assert sum_of([*([1.0] * 1_500), value, *([1.0] * 1_500)]).total == value


def test_sum_with_what_is_no_number_is_none():
    assert math.isnan(sum_of([*([1.0] * 1_500), math.nan, *([1.0] * 1_500)]).total)


@given(st.lists(st.floats(-1e100, 1e100), max_size=50))
def test_running_sum_is_exact(values):
    assert sum_of(values * 30).exact == sum(map(Fraction, values * 30), Fraction())
