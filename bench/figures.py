"""Figures: the results of measurements with their goals, printed as a table or saved to a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gymcli.commands.console import print_table

__all__ = ["TIMES", "Figure", "cells", "print_figures", "run_script", "save"]

TIMES = "\N{MULTIPLICATION SIGN}"
"""The unit of a ratio."""


class Figure(msgspec.Struct, kw_only=True):
    """One line of the table: what was measured, the value, and the goal."""

    what: str
    goal: str = ""
    """The goal as text, such as "≤ 2.0"; empty if there is none."""
    limit: float | None = None
    """The number of the goal; None if there is none."""
    is_at_least: bool = False
    """Whether the limit is a lower one; otherwise the value must not exceed it."""
    value: float
    unit: str = TIMES
    lowest: float | None = None
    highest: float | None = None
    """Spread over the runs whose median is `value`."""
    details: dict[str, float | str | list[float]] = {}
    """Absolute numbers behind the value: microseconds, MB, requests."""

    @property
    def is_met(self) -> bool:
        """Whether the value reaches the goal; True without a goal."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.is_at_least else self.value <= self.limit


def print_figures(figures: Sequence[Figure]) -> None:
    """Print a table of figures, and below it the absolute numbers of each."""
    head = ("what", "value", "spread", "goal", "met")
    print_table(head, [cells(figure) for figure in figures])
    for figure in figures:
        if figure.details:
            shown = ", ".join(f"{name} {_shown(value)}" for name, value in figure.details.items())
            print(f"{figure.what}: {shown}")


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    """Return the cells of a figure's row: what, value, spread, goal, met."""
    has_spread = figure.lowest is not None and figure.highest is not None
    spread = f"{_shown(figure.lowest)} to {_shown(figure.highest)}" if has_spread else ""
    met = "" if figure.limit is None else "yes" if figure.is_met else "NO"
    unit = figure.unit if figure.unit == TIMES else f" {figure.unit}"
    return figure.what, f"{_shown(figure.value)}{unit}", spread, figure.goal, met


def save(figures: Sequence[Figure], path: Path) -> None:
    """Write figures to a file as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(list(figures))) + b"\n")


def run_script(
    description: str,
    measure: Callable[[float], list[Figure]],
    *,
    size: str = "100,000 rollouts, 2 GB",
) -> None:
    """Measure at the scale of the command line, print the figures, and save them if requested."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", type=float, default=1.0, help=f"1: {size}")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures = measure(options.scale)
    print_figures(figures)
    if options.json is not None:
        save(figures, options.json)


def _shown(value: float | str | list[float] | None) -> str:
    if isinstance(value, list):
        return " ".join(_shown(one) for one in value)
    if value is None or isinstance(value, str):
        return value or ""
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
