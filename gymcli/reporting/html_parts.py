"""The parts of the page: table cells, and plotly figures in the colours of the page.

A colour is a variable of the page's style sheet; the script resolves it as it draws, so that a
figure fits light and dark mode. No text here is markup: the page escapes all of them for plotly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from gymcli.metrics.results import Bounds, Estimate, Interval
from gymcli.reporting.formatting import between, share
from gymcli.types import JSONObject

MAX_DRAWN = 40
"""The most rows of a table that its chart draws."""
MAX_POINTS = 1500
"""The most points of a chart; of more, a random sample is drawn, the same one every time."""
_MAX_LABEL = 40
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
"""Lines and points differ in shape too, for readers who cannot tell their colours apart."""
_NUM_COLOURS = 5
_MAX_LABELS = 12
"""The most bars that all have a label below."""
_MAX_CHARACTERS = 64
"""Labels that fit next to each other below a chart on a phone."""
_MAX_WHOLE = 5
"""Up to this count, plotly would put ticks between whole numbers."""

_PIXELS, _PIXELS_A_LABEL = 90, 30
"""Height of a chart whose labels are stacked."""

_Value = TypeVar("_Value")


class Shown(NamedTuple):
    """A number and its text."""

    value: float
    text: str


Cell: TypeAlias = Shown | str | None
"""None is unknown and shown as a dash."""


class Card(NamedTuple):
    """One number at the top of a run, with a note."""

    title: str
    value: Cell
    note: str


class Table(NamedTuple):
    """A table of numbers; the first cell of a row names its subject."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def numeric(self) -> frozenset[int]:
        """The columns, counted from 0, that hold numbers."""
        return frozenset(
            column for row in self.rows for column, cell in enumerate(row) if type(cell) is Shown
        )


class Chart(NamedTuple):
    """A figure, a sentence about it, and its numbers."""

    name: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    words: str
    figure: JSONObject | None
    """For plotly, with colours as `var(--...)`; None where the table is enough."""
    table: Table


def number_cell(value: float | None) -> Shown | None:
    """Show a reward or a rate with three decimals; None if it is unknown or not finite."""
    if value is None or not math.isfinite(value):
        return None
    text = f"{value:,.3f}"
    return Shown(value, "0.000" if text == "-0.000" else text)


def amount_cell(value: float | None) -> Shown | None:
    """Show a time, a number of tokens or money with about three digits."""
    if value is None or not math.isfinite(value):
        return None
    size = abs(value)
    return Shown(value, f"{value:,.0f}" if size >= 100 else f"{value:,.{1 if size >= 10 else 2}f}")


def count_cell(value: int | None) -> Shown | None:
    return None if value is None else Shown(value, f"{value:,}")


def total_cell(value: int) -> Shown:
    """Show a possibly large total; from ten million on, in millions with one decimal."""
    return Shown(value, f"{value / 1e6:,.1f} M" if value >= 10_000_000 else f"{value:,}")


def share_cell(value: float | None) -> Shown | None:
    """Show a share in per cent; only exactly 1 is 100.0 %, and only exactly 0 is 0.0 %."""
    if value is None or not math.isfinite(value):
        return None
    text = share(value)
    if text == "100.0%" and value < 1.0:
        text = "99.9%"
    elif text == "0.0%" and value > 0.0:
        text = "0.1%"
    return Shown(value, text.replace("%", " %"))


def interval_cell(interval: Interval | Bounds | None) -> str | None:
    return None if interval is None else between(interval, ",.3f")


def method_cell(interval: Interval | None) -> str | None:
    return None if interval is None else f"{100 * interval.level:g} % {interval.method}"


ESTIMATE_HEAD = ("value", "interval", "method", "standard error", "attempts", "tasks", "estimator")


def estimate_cells(estimate: Estimate) -> tuple[Cell, ...]:
    error = estimate.standard_error
    return (
        number_cell(estimate.value),
        interval_cell(estimate.interval),
        method_cell(estimate.interval),
        None if error is None else Shown(error, f"{error:.4f}"),
        count_cell(estimate.num_values),
        count_cell(estimate.num_clusters),
        estimate.estimator,
    )


def distinct_labels(texts: Iterable[str]) -> list[str]:
    """Cut texts to fit next to a chart; those that become equal are numbered."""
    labels: list[str] = []
    for text in texts:
        short = text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"
        label, times = short, 1
        while label in labels:
            times += 1
            label = f"{short} ({times})"
        labels.append(label)
    return labels


def sample_of(values: Sequence[_Value], *, seed: str) -> Sequence[_Value]:
    """Return a random sample of at most as many values as a chart draws, in their order."""
    if len(values) <= MAX_POINTS:
        return values
    return [values[place] for place in sorted(Random(seed).sample(range(len(values)), MAX_POINTS))]


class Curve(NamedTuple):
    """One line of a figure."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """The ends of the band around it; empty without a band."""


def bars(
    labels: Sequence[str],
    values: Sequence[int],
    *,
    x_title: str,
    y_title: str,
    flat: bool = False,
) -> JSONObject:
    """Draw a bar for each label; `flat` makes the bars horizontal, the first one on top."""
    along, across = ("y", "x") if flat else ("x", "y")
    trace: JSONObject = {
        "type": "bar",
        along: list(labels),
        across: list(values),
        "orientation": "h" if flat else "v",
        "marker": {"color": "var(--c0)"},
        "hoverinfo": "x+y",
    }
    whole_number_ticks = {"dtick": 1} if max(values) <= _MAX_WHOLE else {}
    few = {}
    if len(labels) > _MAX_LABELS:
        few = {"nticks": max(2, min(4, _MAX_CHARACTERS // max(map(len, labels)))), "tickangle": 0}
    layout: JSONObject = {
        "xaxis": _axis(x_title, **whole_number_ticks)
        if flat
        else _axis(x_title, type="category", **few),
        "yaxis": _axis(y_title, type="category", autorange="reversed")
        if flat
        else _axis(y_title, rangemode="tozero", **whole_number_ticks),
        "bargap": 0.15 if len(labels) > 3 else 0.6,
    }
    if flat:
        layout["height"] = _PIXELS + _PIXELS_A_LABEL * len(labels)
    return {"data": [trace], "layout": layout}


def lines(
    curves: Sequence[Curve],
    *,
    x_title: str,
    y_title: str,
    ticks: Sequence[float] = (),
    is_log: bool = False,
    best: float | None = None,
) -> JSONObject:
    """Draw lines, with their bands if they have any; `best` is the highest possible reward."""
    traces: list[object] = []
    for place, line in enumerate(curves):
        colour = f"--c{place % _NUM_COLOURS}"
        banded = [
            (x, low, high)
            for x, low, high in zip(line.x, line.low, line.high, strict=False)
            if low is not None and high is not None
        ]
        if banded:
            # One closed outline: along the upper ends, and back along the lower ones.
            xs, lows, highs = zip(*banded, strict=True)
            band = _scatter("lines", [*xs, *reversed(xs)], [*highs, *reversed(lows)], "skip")
            band |= {"fill": "toself", "fillcolor": f"var({colour}-band)", "line": {"width": 0}}
            traces.append({**band, "legendgroup": str(place), "showlegend": False})
        mode = "lines+markers" if len(line.x) <= 32 else "lines"
        traces.append(
            {
                **_scatter(mode, line.x, line.y, "x+y+name"),
                "name": line.name,
                "line": {"color": f"var({colour})", "dash": _DASHES[place % len(_DASHES)]},
                "marker": {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 8},
                "legendgroup": str(place),
            }
        )
    axis = _axis(x_title, type="log" if is_log else "linear")
    if ticks:
        axis |= {"tickvals": list(ticks), "ticktext": [f"{tick:g}" for tick in ticks]}
    layout = {"xaxis": axis, "yaxis": _reward_axis(y_title, best), "showlegend": len(curves) > 1}
    return {"data": traces, "layout": layout}


def points(
    x: Sequence[float],
    y: Sequence[float],
    *,
    x_title: str,
    y_title: str,
    labels: Sequence[str] = (),
    sizes: Sequence[int] = (),
    mean: Curve | None = None,
    diagonal: tuple[float, float] | None = None,
    best: float | None = None,
    step: float | None = None,
) -> JSONObject:
    """Draw points, with a line of means or the diagonal between two values on top.

    `sizes` is the number of values behind each point, if not one; `step` is the distance of the
    ticks.
    """
    diameters = [min(40.0, 6.0 + 3.0 * math.sqrt(size)) for size in sizes]
    cloud: JSONObject = {
        **_scatter("markers", x, y, "x+y+text" if labels else "x+y"),
        "name": "attempts" if mean else "tasks",
        "marker": {"color": "var(--c0)", "size": diameters or 7, "opacity": 0.45},
        "cliponaxis": False,
    }
    if labels:
        cloud["text"] = list(labels)
    traces: list[object] = [cloud]
    if mean is not None:
        traces.append(
            {
                **_scatter("lines+markers", mean.x, mean.y, "x+y+name"),
                "name": mean.name,
                "line": {"color": "var(--c1)", "width": 2},
                "marker": {"symbol": "diamond", "size": 9},
            }
        )
    if diagonal is not None:
        line = {"color": "var(--muted)", "dash": "dot", "width": 1}
        traces.append(
            {**_scatter("lines", diagonal, diagonal, "skip"), "name": "equal", "line": line}
        )
    layout: JSONObject = {
        "xaxis": _axis(x_title, rangemode="tozero", **({"dtick": step} if step else {})),
        "yaxis": _reward_axis(y_title, best),
        "showlegend": len(traces) > 1,
    }
    return {"data": traces, "layout": layout}


def ranges(
    labels: Sequence[str],
    values: Sequence[float],
    intervals: Sequence[Interval | None],
    *,
    x_title: str,
    mark: float | None = None,
) -> JSONObject:
    """Draw a point and its interval for each label, the first on top; `mark` is a vertical line."""
    ends = [
        (value, value) if interval is None else (interval.low, interval.high)
        for value, interval in zip(values, intervals, strict=True)
    ]
    trace: JSONObject = {
        **_scatter("markers", values, labels, "x+y"),
        # Plotly takes the lengths of error bars, not their ends.
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
            "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
            "color": "var(--c0)",
        },
        "marker": {"color": "var(--c0)", "size": 9},
    }
    layout: JSONObject = {
        "xaxis": _axis(x_title),
        # Plotly puts the first category at the bottom unless the axis is reversed.
        "yaxis": _axis("", type="category", autorange="reversed"),
        "height": _PIXELS + _PIXELS_A_LABEL * len(labels),
    }
    if mark is not None:
        line = {"color": "var(--muted)", "dash": "dot", "width": 1}
        ends_of_line = {"x0": mark, "x1": mark, "y0": 0, "y1": 1, "yref": "paper"}
        layout["shapes"] = [{"type": "line", **ends_of_line, "line": line}]
    return {"data": [trace], "layout": layout}


def _scatter(mode: str, x: Sequence[object], y: Sequence[object], hover: str) -> JSONObject:
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), "hoverinfo": hover}


def _reward_axis(title: str, best: float | None) -> JSONObject:
    """Return an axis of rewards; plotly chooses its range if their bounds are unknown."""
    if best is None:
        return _axis(title, rangemode="tozero")
    # A little wider than the rewards, so that points at 0 and at the best are drawn whole.
    return _axis(title, range=[-0.04 * best, 1.04 * best])


def _axis(title: str, **more: object) -> JSONObject:
    # Without a fixed range, dragging would zoom the chart and not scroll the page on a phone.
    return {"title": {"text": title}, "automargin": True, "fixedrange": True, **more}
