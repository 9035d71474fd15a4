"""Values that stand for many are added up as if all of those were there."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.estimators import mean, standard_error, variance
from gymcli.metrics.weighted import Weighted, terms

pairs = st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(1, 40)), min_size=1, max_size=12)


def all_of(pairs):
    """Give each value as many times as the number beside it says."""
    return [value for value, times in pairs for _ in range(times)]


@given(pairs)
def test_terms_have_the_sum_of_all_values_rounded_once(pairs):
    assert math.fsum(terms(pairs)) == math.fsum(all_of(pairs))


@pytest.mark.parametrize(
    ("times", "expected"), [(0, []), (1, [0.1]), (8, [0.8]), (11, [0.1, 0.2, 0.8])]
)
def test_terms_are_few(times, expected):
    assert list(terms([(0.1, times)])) == expected


@given(pairs)
def test_mean_and_variance_are_those_of_all_values(pairs):
    weighted, values = Weighted(pairs), all_of(pairs)

    assert len(weighted) == len(values)
    assert weighted.mean == mean(values)
    if len(values) > 1:
        assert weighted.variance == variance(values)
    assert weighted.standard_error == standard_error(values)


def test_mean_of_one_value_many_times_is_that_value():
    assert Weighted([(0.1, 3)]).mean == 0.1
