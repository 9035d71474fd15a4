"""Holm's method, against statsmodels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from gymcli.metrics.comparison.holm import holm

p_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30)


@settings(max_examples=25)
@given(p_values)
def test_holm_agrees_with_statsmodels(values):
    expected = multipletests(values, method="holm")[1]
    assert holm(values) == pytest.approx(list(expected), abs=1e-12)


@given(p_values)
def test_holm_keeps_the_order_and_never_makes_a_p_value_smaller(values):
    adjusted = holm(values)
    assert all(p <= q <= 1.0 for p, q in zip(values, adjusted, strict=True))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert sorted(adjusted) == [adjusted[place] for place in order]


def test_holm_of_one_p_value_leaves_it():
    assert holm([0.03]) == [0.03]
    assert holm([]) == []
