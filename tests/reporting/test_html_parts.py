"""Cells show rounded numbers, and figures are valid for plotly."""

import pytest

from gymcli.metrics.results import Estimate, Interval
from gymcli.reporting.html_parts import (
    ESTIMATE_HEAD,
    MAX_POINTS,
    Curve,
    Shown,
    amount_cell,
    bars,
    count_cell,
    distinct_labels,
    estimate_cells,
    interval_cell,
    lines,
    number_cell,
    points,
    ranges,
    sample_of,
    share_cell,
)

INTERVAL = Interval(low=0.25, high=0.75, level=0.95, method="t")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (number_cell(2 / 3), "0.667"),
        (number_cell(-1e-9), "0.000"),
        (number_cell(12345.5), "12,345.500"),
        (amount_cell(0.1234), "0.12"),
        (amount_cell(12.34), "12.3"),
        (amount_cell(-1234.5), "-1,234"),
        (count_cell(1234), "1,234"),
        (share_cell(0.5), "50.0 %"),
        (share_cell(0.99999), "99.9 %"),
        (share_cell(0.00001), "0.1 %"),
        (share_cell(1.0), "100.0 %"),
        (share_cell(0.0), "0.0 %"),
    ],
)
def test_numbers_are_rounded_as_they_are_shown(given, text):
    assert given.text == text


@pytest.mark.parametrize("show", [number_cell, amount_cell, share_cell])
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
    assert interval_cell(None) is None


LINE = Curve("pass@k", [1, 2, 4], [0.5, 0.6, 0.7], [0.4, None, 0.6], [0.6, None, 0.8])

FIGURES = {
    "bars": bars(["0", "1"], [3, 4], x_title="reward", y_title="attempts"),
    "flat bars": bars(["a", "b"], [3, 4], x_title="attempts", y_title="", flat=True),
    "lines": lines([LINE, LINE], x_title="k", y_title="", ticks=[1, 2, 4], is_log=True, best=1.0),
    "points": points([1, 2], [0, 1], x_title="tokens", y_title="reward", mean=LINE),
    "pairs": points([1], [0], x_title="A", y_title="B", labels=["task"], diagonal=(0.0, 1.0)),
    "ranges": ranges(["a", "b"], [0.5, 1.0], [INTERVAL, None], x_title="mean", mark=0.5),
}

FIGURES_MANY = bars(["a"], [6], x_title="", y_title="")


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_takes_the_figure(name):
    """Unknown properties are refused by plotly."""
    graph_objects = pytest.importorskip("plotly.graph_objects", reason="needs the extra `report`")
    given = FIGURES[name]
    assert len(graph_objects.Figure(given).data) == len(given["data"])


def test_a_band_is_drawn_where_both_its_ends_are_known():
    band, line = lines([LINE], x_title="k", y_title="")["data"]
    assert band["x"] == [1, 4, 4, 1]
    assert band["y"] == [0.6, 0.8, 0.6, 0.4]
    assert line["y"] == [0.5, 0.6, 0.7]


def test_a_line_without_a_band_stands_alone():
    (line,) = lines([Curve("a", [1], [0.5])], x_title="k", y_title="")["data"]
    assert line["name"] == "a"


def test_ticks_of_few_counts_are_whole():
    assert bars(["a"], [5], x_title="", y_title="")["layout"]["yaxis"]["dtick"] == 1
    assert bars(["a"], [2], x_title="", y_title="", flat=True)["layout"]["xaxis"]["dtick"] == 1
    assert "dtick" not in FIGURES_MANY["layout"]["yaxis"]


def test_labels_beneath_a_chart_leave_each_other_room():
    short, long = (
        bars([f"{number:0{width}}" for number in range(20)], [9] * 20, x_title="", y_title="")
        for width in (4, 30)
    )
    assert short["layout"]["xaxis"]["nticks"] == 4
    assert long["layout"]["xaxis"]["nticks"] == 2


def test_a_flat_chart_is_as_high_as_its_bars_need():
    few, many = (
        bars([str(n) for n in range(num)], [9] * num, x_title="", y_title="", flat=True)["layout"]
        for num in (1, 40)
    )
    assert few["height"] < 200
    assert many["height"] > 40 * 20


def test_ranges_reach_to_the_ends_of_intervals():
    (trace,) = FIGURES["ranges"]["data"]
    assert trace["error_x"]["array"] == [0.25, 0.0]
    assert trace["error_x"]["arrayminus"] == [0.25, 0.0]


def test_labels_are_short_and_distinct():
    assert distinct_labels(["x" * 50, "x" * 60, "y"]) == [f"{'x' * 39}…", f"{'x' * 39}… (2)", "y"]


def test_a_sample_is_the_same_every_time():
    values = range(MAX_POINTS + 500)
    sample = sample_of(values, seed="a")
    assert len(sample) == len(set(sample)) == MAX_POINTS
    assert list(sample) == sorted(sample)
    assert sample_of(values, seed="a") == sample != sample_of(values, seed="b")
    assert sample_of(values[:MAX_POINTS], seed="a") == values[:MAX_POINTS]
