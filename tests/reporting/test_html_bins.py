"""Values in bins and groups: nothing is lost, and equal values stay together."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from gymcli.reporting.html_figures import MAX_POINTS, Bin, bins_of, groups_of, sample_of

REWARDS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)
PAIRS = st.lists(st.tuples(st.integers(0, 60), st.floats(-10, 10)), min_size=1, max_size=200)


def test_few_values_have_a_bin_each():
    assert bins_of([1.0, 0.0, 1.0]) == [Bin(0.0, 0.0, 1), Bin(1.0, 1.0, 2)]
    assert bins_of([]) == []


def test_bins_end_where_rewards_do():
    values = [number / 40 for number in range(40)]
    bins = bins_of(values, most=1.0)
    assert (bins[0].low, bins[-1].high) == (0.0, 1.0)
    assert [one.num_values for one in bins] == [2] * 20
    assert bins_of([*values, 2.0], most=1.0)[-1].high == 2.0


@given(REWARDS)
def test_every_value_is_in_one_bin(values):
    bins = bins_of(values)
    assert sum(one.num_values for one in bins) == len(values)
    assert bins[0].low == min(values)
    assert bins[-1].high == max(values)
    for one in bins[:-1]:
        if one.low < one.high:
            assert sum(one.low <= value < one.high for value in values) == one.num_values


@given(PAIRS)
def test_every_pair_is_in_one_group(pairs):
    groups = groups_of(pairs)
    assert sum(one.num_values for one in groups) == len(pairs)
    for one, following in itertools.pairwise(groups):
        assert one.high < following.low
    for one in groups:
        inside = [pair for pair in pairs if one.low <= pair[0] <= one.high]
        assert len(inside) == one.num_values
        assert math.isclose(one.mean_y, math.fsum(y for _, y in inside) / len(inside), abs_tol=1e-9)
        assert one.low <= one.mean_x <= one.high


def test_many_values_are_grouped_in_tenths():
    groups = groups_of([(number, 0.0) for number in range(1000)])
    assert [one.num_values for one in groups] == [100] * 10
    assert groups_of([]) == []


def test_a_sample_is_the_same_every_time():
    values = range(MAX_POINTS + 500)
    sample = sample_of(values, seed="a")
    assert len(sample) == len(set(sample)) == MAX_POINTS
    assert list(sample) == sorted(sample)
    assert sample_of(values, seed="a") == sample != sample_of(values, seed="b")
    assert sample_of(values[:MAX_POINTS], seed="a") == values[:MAX_POINTS]
