"""Figures are what plotly takes."""

import pytest

from gymcli.metrics import Interval
from gymcli.reporting.html_figures import Line, bars, lines, points, ranges

graph_objects = pytest.importorskip("plotly.graph_objects", reason="needs the extra `report`")

INTERVAL = Interval(low=0.25, high=0.75, level=0.95, method="t")
LINE = Line("pass@k", [1, 2, 4], [0.5, 0.6, 0.7], [0.4, None, 0.6], [0.6, None, 0.8])

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
    """It refuses what it does not know."""
    given = FIGURES[name]
    figure = graph_objects.Figure(given)
    assert len(figure.data) == len(given["data"])


def test_a_band_is_drawn_where_both_its_ends_are_known():
    band, line = lines([LINE], x_title="k", y_title="")["data"]
    assert band["x"] == [1, 4, 4, 1]
    assert band["y"] == [0.6, 0.8, 0.6, 0.4]
    assert line["y"] == [0.5, 0.6, 0.7]


def test_a_line_without_a_band_stands_alone():
    (line,) = lines([Line("a", [1], [0.5])], x_title="k", y_title="")["data"]
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
