"""Thresholds hold of numbers as Python compares them, and of intervals as of both of their ends."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics import Interval
from gymcli.metrics.thresholds import Threshold

SIGNS = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}
NUMBERS = st.floats(-2.0, 2.0).map(lambda number: round(number, 1))


@given(st.sampled_from(sorted(SIGNS)), NUMBERS, NUMBERS)
def test_threshold_holds_as_python_compares(sign, value, number):
    threshold = Threshold(sign, number)
    assert threshold.holds(value) == SIGNS[sign](value, number)
    assert threshold.turned().turned() == threshold
    assert Threshold(sign, value).turned().holds(number) == SIGNS[sign](value, number)


@pytest.mark.parametrize(
    ("low", "high", "held"), [(0.5, 0.9, True), (0.4, 0.9, None), (0.1, 0.4, False)]
)
def test_threshold_holds_of_all_of_an_interval_or_none(low, high, held):
    interval = Interval(low=low, high=high, level=0.95, method="t")
    assert Threshold(">=", 0.5).holds_within(interval) is held
