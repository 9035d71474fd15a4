"""Percentiles against numpy, whether the values are in order or not."""

from array import array
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.percentiles import percentile, percentiles

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)
fractions = st.floats(0.0, 1.0)


@given(values, fractions)
def test_percentile_agrees_with_numpy(values, fraction):
    expected = np.quantile(values, fraction)

    assert percentile(sorted(values), fraction) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(values, st.lists(fractions, max_size=5))
def test_percentiles_are_those_of_the_values_in_order(values, fractions):
    ordered = sorted(values)

    found = percentiles(array("d", values), fractions)

    assert found == [percentile(ordered, fraction) for fraction in fractions]


@pytest.mark.parametrize("num_values", [1 << 14, (1 << 14) + 1, 50_000])
def test_percentiles_of_more_values_than_are_sorted_at_once(num_values):
    random = Random(num_values)
    values = array("d", (random.choice([0.5, random.random()]) for _ in range(num_values)))
    fractions = (0.99, 0.0, 0.5, 0.5, 1.0)

    found = percentiles(values, fractions)

    assert found == [percentile(sorted(values), fraction) for fraction in fractions]


def test_percentiles_may_be_asked_again_though_the_order_is_another():
    random = Random(0)
    values = array("d", (random.random() for _ in range(20_000)))
    kept = sorted(values)

    assert percentiles(values, (0.5, 0.9)) == percentiles(values, (0.5, 0.9))
    assert sorted(values) == kept
