"""Format numbers, shares, intervals and untrusted texts for tables, files and pages.

Commands print with these functions too, so this module imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from gymcli.metrics.results import Bounds, Interval, Metrics

__all__ = [
    "Clean",
    "between",
    "cost",
    "headline",
    "legible",
    "number",
    "one_line",
    "p_value",
    "plain",
    "share",
    "signed",
]

Clean: TypeAlias = Callable[[str], str]
"""Remove secrets from a text."""

_LARGE = 1e5
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Characters that XML forbids, that reorder or hide text, and non-character code points."""


def number(value: float | None, spec: str = ".3f", *, unknown: str = "-") -> str:
    """Format a number, with three decimals by default."""
    return unknown if value is None else format(value, spec)


def signed(value: float | None) -> str:
    """Format a difference with its sign."""
    return number(value, "+.3f")


def share(value: float | None, *, unknown: str = "-") -> str:
    """Format a share in per cent."""
    return number(value, ".1%", unknown=unknown)


def cost(value: float | None) -> str:
    """Format an amount of money."""
    return number(value, ",.4f", unknown="unknown")


def p_value(value: float | None, *, digits: int = 3) -> str:
    """Format a p-value; one that rounds to 0 is shown as less than the last digit."""
    least = 10.0**-digits
    if value is not None and value < least:
        return f"< {least:.{digits}f}"
    return number(value, f".{digits}f")


def between(
    interval: Interval | Bounds | None,
    spec: str = ".3f",
    *,
    separator: str = " .. ",
    unknown: str = "-",
) -> str:
    """Format both ends of an interval."""
    if interval is None:
        return unknown
    return f"{interval.low:{spec}}{separator}{interval.high:{spec}}"


def headline(parts: Sequence[Metrics]) -> tuple[list[str], list[list[str]]]:
    """Return the numbers that are shown first: their names, and a row for each part of a run.

    Left out is what says nothing: coverage if all attempts are scored, and pass@n, pass^n and flaky
    tasks if each task has one attempt.
    """
    columns = {"tasks": [f"{one.num_tasks:,}" for one in parts]}
    if any(one.coverage != 1.0 for one in parts):
        columns["scored"] = [
            f"{one.num_scored:,}"
            + ("" if one.num_expected is None else f" of {one.num_expected:,}")
            for one in parts
        ]
        columns["coverage"] = [share(one.coverage, unknown="unknown") for one in parts]
    columns["mean reward"] = [number(one.mean_reward) for one in parts]
    columns["95 %"] = [between(one.interval) for one in parts]
    sizes = {one.usual_num_attempts for one in parts} - {0}
    is_repeated = any(size > 1 for size in sizes)
    k = str(*sizes) if len(sizes) == 1 else "n"
    for name, curves in (
        ("pass@", [one.pass_at_k for one in parts]),
        ("pass^", [one.pass_hat_k for one in parts]),
    ):
        is_new = is_repeated or (name == "pass@" and any(one.is_graded for one in parts))
        if is_new and any(curves):
            columns[f"{name}{k}"] = [
                number((curve or {}).get(str(one.usual_num_attempts)))
                + (f" (n = {one.usual_num_attempts})" if curve and k == "n" else "")
                for one, curve in zip(parts, curves, strict=True)
            ]
    if is_repeated and any(one.num_flaky_tasks is not None for one in parts):
        columns["flaky"] = [number(one.num_flaky_tasks, ",") for one in parts]
    return [*columns], [list(row) for row in zip(*columns.values(), strict=True)]


def legible(value: float | None, sign: str = "-", *, digits: int = 3) -> str:
    """Format a number with `digits` decimals, or significant digits if it is tiny or huge.

    Fixed decimals would show a tiny number as 0 and a huge one as a long row of digits.
    """
    if value is None:
        return "-"
    value = value or 0.0  # -0.0 would be printed with a sign
    is_usual = not value or 10.0**-digits <= abs(value) < _LARGE
    return f"{value:{sign}.{digits}{'f' if is_usual else 'g'}}"


def plain(text: str, max_characters: int) -> str:
    """Remove invisible characters and those that XML forbids; a text that is cut ends with `…`."""
    fit = _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text[:max_characters])
    return fit if len(text) <= max_characters else f"{fit[:-1]}…"


def one_line(text: str, max_characters: int = 100) -> str:
    """Like `plain`, but on one line."""
    # A text may have megabytes; what follows this start is not worth splitting.
    start = text[: 4 * max_characters]
    mark = "…" if len(text) > len(start) else ""
    return plain(" ".join(start.split()) + mark, max_characters)
