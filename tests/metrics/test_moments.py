"""Mean and standard error without a second pass, against the two-pass estimators."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.estimators import mean, standard_error
from gymcli.metrics.moments import Moments

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def moments_of(numbers):
    """Give the moments of values, each added once."""
    moments = Moments()
    for number in numbers:
        moments.add(number)
    return moments


@given(values)
def test_moments_agree_with_two_passes(numbers):
    moments = moments_of(numbers)
    assert moments.mean == mean(numbers)
    assert moments.num_values == len(numbers)
    assert (moments.lowest, moments.highest) == (min(numbers), max(numbers))
    expected = standard_error(numbers)
    if expected is None:
        assert moments.standard_error is None
    else:
        assert moments.standard_error == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(values, st.randoms(use_true_random=False))
def test_moments_do_not_depend_on_the_order(numbers, random):
    shuffled = random.sample(numbers, len(numbers))
    one, other = moments_of(numbers), moments_of(shuffled)
    assert (one.mean, one.standard_error) == (other.mean, other.standard_error)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 3000)), min_size=1, max_size=3))
def test_moments_of_many_equal_values_are_those_of_each(kinds):
    taken, single = Moments(), Moments()
    for value, times in kinds:
        taken.add(value, times, num_attempts=2)
        for _ in range(times):
            single.add(value, num_attempts=2)
    assert taken.mean == single.mean
    assert taken.standard_error == single.standard_error
    assert taken.num_attempts == single.num_attempts == 2 * taken.num_values


@given(values, values)
def test_moments_of_two_are_those_of_all_values(numbers, others):
    one, other, none = moments_of(numbers), moments_of(others), Moments()
    one.add_all(other)
    one.add_all(none)
    none.add_all(one)
    whole = moments_of(numbers + others)
    for found in (one, none):
        assert (found.mean, found.standard_error) == (whole.mean, whole.standard_error)
        assert (found.lowest, found.highest) == (whole.lowest, whole.highest)
        assert found.num_attempts == found.num_values == whole.num_values
    assert (other.mean, other.num_values) == (mean(others), len(others))


def test_moments_are_exact_where_values_hardly_differ():
    """Squares of 1e8 and a bit agree in 16 digits; what they differ in is the variance."""
    numbers = [1e8, 1e8 + 1.0, 1e8 + 2.0]
    assert moments_of(numbers).standard_error == math.sqrt(Fraction(1, 3))


def test_moments_of_equal_values_have_no_error():
    assert moments_of([0.1] * 1234).standard_error == 0.0


def test_moments_of_values_too_large_to_square_have_a_mean_only():
    moments = moments_of([1e200, 1.0, -1.0])
    assert moments.mean == pytest.approx(1e200 / 3)
    assert moments.standard_error is None
