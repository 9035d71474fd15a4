"""What sections are made of: numbers as they are shown, tables, and charts with their tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from gymcli.metrics import Estimate, Interval
from gymcli.types import JSONObject

__all__ = [
    "ESTIMATE_HEAD",
    "Card",
    "Cell",
    "Chart",
    "Shown",
    "Table",
    "amount",
    "between",
    "count",
    "estimate_cells",
    "method_of",
    "number",
    "share",
    "total",
]


class Shown(NamedTuple):
    """A number as it is, and as it is written."""

    value: float
    text: str


Cell: TypeAlias = Shown | str | None
"""None is what cannot be said; it is written as a dash."""


class Card(NamedTuple):
    """One number at the head of a run, with what qualifies it."""

    title: str
    value: Cell
    note: str


class Table(NamedTuple):
    """Numbers under their heads; a row begins with what it is about."""

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
    """A picture, what it shows in words, and its numbers."""

    name: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    words: str
    figure: JSONObject | None
    """For plotly, with colours as `var(--...)`; None where a table says it all."""
    table: Table


def number(value: float | None) -> Shown | None:
    """Show a reward or a rate with three decimals; what is not finite or known is None."""
    if value is None or not math.isfinite(value):
        return None
    text = f"{value:,.3f}"
    return Shown(value, "0.000" if text == "-0.000" else text)


def amount(value: float | None) -> Shown | None:
    """Show a time, a sum of tokens or money with about three digits."""
    if value is None or not math.isfinite(value):
        return None
    size = abs(value)
    return Shown(value, f"{value:,.0f}" if size >= 100 else f"{value:,.{1 if size >= 10 else 2}f}")


def count(value: int | None) -> Shown | None:
    """Show a whole number."""
    return None if value is None else Shown(value, f"{value:,}")


def total(value: int) -> Shown:
    """Show a sum that may be large: millions with one decimal."""
    return Shown(value, f"{value / 1e6:,.1f} M" if value >= 10_000_000 else f"{value:,}")


def share(value: float | None) -> Shown | None:
    """Show a share in per cent; only what is whole is 100.0 %, and only nothing 0.0 %."""
    if value is None or not math.isfinite(value):
        return None
    text = f"{value:.1%}"
    if text == "100.0%" and value < 1.0:
        text = "99.9%"
    elif text == "0.0%" and value > 0.0:
        text = "0.1%"
    return Shown(value, text.replace("%", " %"))


def between(interval: Interval | None) -> str | None:
    """Show the ends of an interval."""
    return None if interval is None else f"{interval.low:,.3f} .. {interval.high:,.3f}"


def method_of(interval: Interval | None) -> str | None:
    """Name the level and the method of an interval."""
    return None if interval is None else f"{100 * interval.level:g} % {interval.method}"


ESTIMATE_HEAD = ("value", "interval", "method", "standard error", "attempts", "tasks", "estimator")


def estimate_cells(estimate: Estimate) -> tuple[Cell, ...]:
    """Show a number with all that says how sure it is, under `ESTIMATE_HEAD`."""
    error = estimate.standard_error
    return (
        number(estimate.value),
        between(estimate.interval),
        method_of(estimate.interval),
        None if error is None else Shown(error, f"{error:.4f}"),
        count(estimate.num_values),
        count(estimate.num_clusters),
        estimate.estimator,
    )
