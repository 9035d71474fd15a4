"""Numbers as they are shown."""

import pytest

from gymcli.metrics import Estimate, Interval
from gymcli.reporting.html_parts import (
    ESTIMATE_HEAD,
    Shown,
    amount,
    between,
    count,
    estimate_cells,
    number,
    share,
)

INTERVAL = Interval(low=0.25, high=0.75, level=0.95, method="t")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (number(2 / 3), "0.667"),
        (number(-1e-9), "0.000"),
        (number(12345.5), "12,345.500"),
        (amount(0.1234), "0.12"),
        (amount(12.34), "12.3"),
        (amount(-1234.5), "-1,234"),
        (count(1234), "1,234"),
        (share(0.5), "50.0 %"),
        (share(0.99999), "99.9 %"),
        (share(0.00001), "0.1 %"),
        (share(1.0), "100.0 %"),
        (share(0.0), "0.0 %"),
    ],
)
def test_numbers_are_rounded_as_they_are_shown(given, text):
    assert given.text == text


@pytest.mark.parametrize("show", [number, amount, share])
def test_what_is_no_number_is_not_shown_as_one(show):
    assert show(None) is None
    assert show(float("nan")) is None
    assert show(float("inf")) is None
    assert show(0.25).value == 0.25


def test_an_estimate_says_how_sure_it_is():
    found = Estimate(
        value=0.5,
        estimator="mean of task means",
        num_values=8,
        num_clusters=2,
        standard_error=0.125,
        interval=INTERVAL,
    )
    cells = dict(zip(ESTIMATE_HEAD, estimate_cells(found), strict=True))
    assert cells == {
        "value": Shown(0.5, "0.500"),
        "interval": "0.250 .. 0.750",
        "method": "95 % t",
        "standard error": Shown(0.125, "0.1250"),
        "attempts": Shown(8, "8"),
        "tasks": Shown(2, "2"),
        "estimator": "mean of task means",
    }


def test_an_estimate_without_an_interval_has_none():
    found = Estimate(value=0.5, estimator="mean", num_values=1, num_clusters=1)
    assert estimate_cells(found)[1:4] == (None, None, None)
    assert between(None) is None
