"""Many values made few: bins of equal width, groups of about equal size, samples."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeVar

from gymcli.metrics import Interval
from gymcli.metrics.estimators import mean
from gymcli.types import JSONObject

__all__ = [
    "MAX_POINTS",
    "Bin",
    "Group",
    "Line",
    "bars",
    "bins_of",
    "groups_of",
    "lines",
    "points",
    "ranges",
    "sample_of",
]


_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
"""Lines and points differ in shape too, for whoever cannot tell their colours."""
_NUM_COLOURS = 5
_MAX_LABELS = 12
"""Bars that all have a label beneath."""
_MAX_CHARACTERS = 64
"""That fit side by side beneath a chart on a phone."""
_MAX_WHOLE = 5
"""Counts up to which an axis would have ticks between whole numbers."""


class Line(NamedTuple):
    """One line of a figure."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """The ends of the band around it; empty: there is none."""


def bars(
    labels: Sequence[str],
    values: Sequence[int],
    *,
    x_title: str,
    y_title: str,
    flat: bool = False,
) -> JSONObject:
    """Draw a bar for each label and its count; `flat` lays them down, the first one on top."""
    along, across = ("y", "x") if flat else ("x", "y")
    trace: JSONObject = {
        "type": "bar",
        along: list(labels),
        across: list(values),
        "orientation": "h" if flat else "v",
        "marker": {"color": "var(--c0)"},
        "hoverinfo": "x+y",
    }
    whole = {"dtick": 1} if max(values) <= _MAX_WHOLE else {}
    few = {}
    if len(labels) > _MAX_LABELS:
        few = {"nticks": max(2, min(4, _MAX_CHARACTERS // max(map(len, labels)))), "tickangle": 0}
    layout: JSONObject = {
        "xaxis": _axis(x_title, **whole) if flat else _axis(x_title, type="category", **few),
        "yaxis": _axis(y_title, type="category", autorange="reversed")
        if flat
        else _axis(y_title, rangemode="tozero", **whole),
        "bargap": 0.15 if len(labels) > 3 else 0.6,
    }
    if flat:
        layout["height"] = _height(labels)
    return {"data": [trace], "layout": layout}


def lines(
    given: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    ticks: Sequence[float] = (),
    is_log: bool = False,
    best: float | None = None,
) -> JSONObject:
    """Draw lines, each with its band where it has one; `best` is what no reward is above."""
    traces: list[object] = []
    for place, line in enumerate(given):
        colour = f"--c{place % _NUM_COLOURS}"
        banded = [
            (x, low, high)
            for x, low, high in zip(line.x, line.low, line.high, strict=False)
            if low is not None and high is not None
        ]
        if banded:
            xs, lows, highs = zip(*banded, strict=True)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": [*xs, *reversed(xs)],
                    "y": [*highs, *reversed(lows)],
                    "fill": "toself",
                    "fillcolor": f"var({colour}-band)",
                    "line": {"width": 0},
                    "hoverinfo": "skip",
                    "legendgroup": str(place),
                    "showlegend": False,
                }
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(line.x) <= 32 else "lines",
                "name": line.name,
                "x": list(line.x),
                "y": list(line.y),
                "line": {"color": f"var({colour})", "dash": _DASHES[place % len(_DASHES)]},
                "marker": {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 8},
                "legendgroup": str(place),
                "hoverinfo": "x+y+name",
            }
        )
    axis = _axis(x_title, type="log" if is_log else "linear")
    if ticks:
        axis |= {"tickvals": list(ticks), "ticktext": [f"{tick:g}" for tick in ticks]}
    layout: JSONObject = {
        "xaxis": axis,
        "yaxis": _axis(y_title, **_from_zero_to(best)),
        "showlegend": len(given) > 1,
    }
    return {"data": traces, "layout": layout}


def points(
    x: Sequence[float],
    y: Sequence[float],
    *,
    x_title: str,
    y_title: str,
    labels: Sequence[str] = (),
    sizes: Sequence[int] = (),
    mean: Line | None = None,
    diagonal: tuple[float, float] | None = None,
    best: float | None = None,
    step: float | None = None,
) -> JSONObject:
    """Draw points; over them a line of means, or the diagonal from one value to another.

    `sizes` says how many each point stands for, where that is not one; `step` is from tick to
    tick.
    """
    cloud: JSONObject = {
        "type": "scatter",
        "mode": "markers",
        "name": "attempts" if mean else "tasks",
        "x": list(x),
        "y": list(y),
        "marker": {
            "color": "var(--c0)",
            "size": [min(40.0, 6.0 + 3.0 * math.sqrt(size)) for size in sizes] or 7,
            "opacity": 0.45,
        },
        "cliponaxis": False,
        "hoverinfo": "x+y",
    }
    if labels:
        cloud |= {"text": list(labels), "hoverinfo": "x+y+text"}
    traces: list[object] = [cloud]
    if mean is not None:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": mean.name,
                "x": list(mean.x),
                "y": list(mean.y),
                "line": {"color": "var(--c1)", "width": 2},
                "marker": {"symbol": "diamond", "size": 9},
                "hoverinfo": "x+y+name",
            }
        )
    if diagonal is not None:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "equal",
                "x": list(diagonal),
                "y": list(diagonal),
                "line": {"color": "var(--muted)", "dash": "dot", "width": 1},
                "hoverinfo": "skip",
            }
        )
    layout: JSONObject = {
        "xaxis": _axis(x_title, rangemode="tozero", **({"dtick": step} if step else {})),
        "yaxis": _axis(y_title, **_from_zero_to(best)),
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
    """Draw a point for each label with its interval, the first one on top; `mark` is a line."""
    ends = [
        (value, value) if found is None else (found.low, found.high)
        for value, found in zip(values, intervals, strict=True)
    ]
    trace: JSONObject = {
        "type": "scatter",
        "mode": "markers",
        "x": list(values),
        "y": list(labels),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
            "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
            "color": "var(--c0)",
        },
        "marker": {"color": "var(--c0)", "size": 9},
        "hoverinfo": "x+y",
    }
    layout: JSONObject = {
        "xaxis": _axis(x_title),
        "yaxis": _axis("", type="category", autorange="reversed"),
        "height": _height(labels),
    }
    if mark is not None:
        line = {"color": "var(--muted)", "dash": "dot", "width": 1}
        layout["shapes"] = [
            {
                "type": "line",
                "x0": mark,
                "x1": mark,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": line,
            }
        ]
    return {"data": [trace], "layout": layout}


def _height(labels: Sequence[str]) -> int:
    """Give the height of a chart with these labels beneath each other, in pixels."""
    return 90 + 30 * len(labels)


def _from_zero_to(best: float | None) -> JSONObject:
    """Give the range of an axis of rewards; its own choice where they have no known ends."""
    return {"rangemode": "tozero"} if best is None else {"range": [-0.04 * best, 1.04 * best]}


def _axis(title: str, **more: object) -> JSONObject:
    return {"title": {"text": title}, "automargin": True, "fixedrange": True, **more}


MAX_POINTS = 1500
"""Points of one chart; of more as many are drawn at random, the same ones every time."""

_NUM_BINS = 20
_NUM_GROUPS = 10
_FEW = 12
"""Values that are told apart one by one."""


_Value = TypeVar("_Value")


class Bin(NamedTuple):
    """How many values lie from `low` on and below `high`; the last bin has its own end too.

    Where `low` and `high` are one value, those that are equal to it.
    """

    low: float
    high: float
    num_values: int


class Group(NamedTuple):
    """What values of y go with values of x from `low` to `high`, both among them."""

    low: float
    high: float
    num_values: int
    mean_x: float
    mean_y: float


def bins_of(values: Sequence[float], *, most: float | None = None) -> list[Bin]:
    """Count values: each by itself where they are few, else in bins of equal width.

    Args:
        values: The values, all finite.
        most: Where the bins end if they begin at 0; None: from the least to the greatest value.

    """
    if not values:
        return []
    distinct = Counter(values)
    if len(distinct) <= _FEW:
        return [Bin(value, value, distinct[value]) for value in sorted(distinct)]
    low, high = min(distinct), max(distinct)
    if most is not None and low >= 0.0 and high <= most:
        low, high = 0.0, most
    # By shares of both ends, as the width of the widest range is no number.
    between = (low * (1.0 - i / _NUM_BINS) + high * (i / _NUM_BINS) for i in range(_NUM_BINS))
    edges = [*accumulate(between, max)]  # rounding may put one below the edge before it
    counts = [0] * _NUM_BINS
    for value, times in distinct.items():
        counts[max(0, bisect_right(edges, value) - 1)] += times
    return [*map(Bin, edges, [*edges[1:], high], counts)]


def groups_of(pairs: Sequence[tuple[float, float]]) -> list[Group]:
    """Group pairs by x: each x by itself where they are few, else tenths; equal x stay together."""
    ordered = sorted(pairs)
    num = len(ordered)
    distinct = {x for x, _ in ordered}
    num_groups = num if len(distinct) <= _FEW else _NUM_GROUPS
    groups = []
    start = 0
    for number in range(1, num_groups + 1):
        end = number * num // num_groups
        if end <= start:
            continue
        while end < num and ordered[end][0] == ordered[end - 1][0]:
            end += 1
        groups.append(_group(ordered[start:end]))
        start = end
    return groups


def sample_of(values: Sequence[_Value], *, seed: str) -> Sequence[_Value]:
    """Give as many values as a chart draws, in their order."""
    if len(values) <= MAX_POINTS:
        return values
    return [values[place] for place in sorted(Random(seed).sample(range(len(values)), MAX_POINTS))]


def _group(pairs: Sequence[tuple[float, float]]) -> Group:
    return Group(
        low=pairs[0][0],
        high=pairs[-1][0],
        num_values=len(pairs),
        mean_x=mean([x for x, _ in pairs]),
        mean_y=mean([y for _, y in pairs]),
    )
