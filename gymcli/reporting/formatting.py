"""How tables, files and pages write a number, a share, an interval and a foreign text.

Commands print with these functions too, so this module imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from gymcli.metrics.results import Bounds, Interval

__all__ = [
    "Clean",
    "between",
    "cost",
    "legible",
    "number",
    "one_line",
    "p_value",
    "plain",
    "share",
    "signed",
]

Clean: TypeAlias = Callable[[str], str]
"""Takes secrets out of a text."""

_LARGE = 1e5
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""What XML forbids, what reorders or hides text, and code points that are no characters."""


def number(value: float | None, spec: str = ".3f", *, unknown: str = "-") -> str:
    """Return a number by a format specification, with three decimals by default."""
    return unknown if value is None else format(value, spec)


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    return number(value, "+.3f")


def share(value: float | None, *, unknown: str = "-") -> str:
    """Return a share in per cent."""
    return number(value, ".1%", unknown=unknown)


def cost(value: float | None) -> str:
    """Return a sum of money."""
    return number(value, ",.4f", unknown="unknown")


def p_value(value: float | None, *, digits: int = 3) -> str:
    """Return a p-value; one that would round to 0 is shown as less than the last digit."""
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
    """Return the ends of an interval, each by the format specification."""
    if interval is None:
        return unknown
    return f"{interval.low:{spec}}{separator}{interval.high:{spec}}"


def legible(value: float | None, sign: str = "-", *, digits: int = 3) -> str:
    """Return a number with `digits` decimals, or significant digits if it is tiny or huge.

    Decimals alone would show nothing of a tiny number, and a long row of digits of a huge one.
    """
    if value is None:
        return "-"
    value = value or 0.0  # without a sign
    is_usual = not value or 10.0**-digits <= abs(value) < _LARGE
    return f"{value:{sign}.{digits}{'f' if is_usual else 'g'}}"


def plain(text: str, max_characters: int) -> str:
    """Return a text without what XML forbids or nobody can see; a longer one ends with `…`."""
    fit = _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text[:max_characters])
    return fit if len(text) <= max_characters else f"{fit[:-1]}…"


def one_line(text: str, max_characters: int = 100) -> str:
    """Return a text like `plain`, as one line."""
    start = text[: 4 * max_characters]
    mark = "…" if len(text) > len(start) else ""
    return plain(" ".join(start.split()) + mark, max_characters)
