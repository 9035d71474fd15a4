"""The verdict on one difference, and the adjustment for many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from gymcli.comparison.comparison_results import Difference
from gymcli.comparison.difference_verdict import (
    adjust_for_multiplicity,
    correlation,
    equivalence_p,
    holm,
    verdict_of,
)
from gymcli.metrics.results import Estimate, Interval

p_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30)
eighths = st.integers(0, 8).map(lambda number: number / 8)


def interval(low, high):
    return Interval(low=low, high=high, level=0.9, method="t")


def test_one_of_many_parts_fails_only_if_holm_confirms_it():
    failing = Difference(verdict="FAIL", p_value=0.03)
    others = {str(number): Difference(verdict="PASS", p_value=0.6) for number in range(9)}
    assert adjust_for_multiplicity({"x": failing}, 0.95)["x"].verdict == "FAIL"
    found = adjust_for_multiplicity({"x": failing, **others}, 0.95)
    assert found["x"].p_adjusted == pytest.approx(0.3)
    assert found["x"].verdict == "INCONCLUSIVE"
    assert "chance alone" in found["x"].way_out
    clear = adjust_for_multiplicity(
        {"x": Difference(verdict="FAIL", p_value=0.001), **others}, 0.95
    )
    assert clear["x"].verdict == "FAIL"
    assert failing.p_adjusted is None, "the argument must not change"


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


def test_equivalence_has_no_p_value_without_an_error():
    same = Estimate(value=0.0, estimator="", num_values=10, num_clusters=5, standard_error=0.0)
    assert equivalence_p(same, 0.1) is None


@pytest.mark.slow
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


@given(st.lists(st.tuples(eighths, eighths), min_size=3, max_size=30))
def test_correlation_agrees_with_numpy(pairs):
    first, second = (np.array(values) for values in zip(*pairs, strict=True))
    found = correlation(first, second)
    if found is None:
        assert len(set(first)) == 1 or len(set(second)) == 1
    else:
        assert found == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-9)
