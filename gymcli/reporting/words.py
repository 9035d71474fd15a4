"""Texts of models and tasks made fit for a file that others read: plain, one line, not too long."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from gymcli.metrics import Interval

__all__ = ["Clean", "between", "number", "one_line", "plain", "signed"]

Clean: TypeAlias = Callable[[str], str]
"""Takes secrets out of a text."""

_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""What XML forbids, what reorders or hides what is read, and what stands for no character."""


def plain(text: str, max_characters: int) -> str:
    """Give a text without what XML forbids and readers cannot see; a longer one ends with `…`."""
    fit = _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text[:max_characters])
    return fit if len(text) <= max_characters else f"{fit[:-1]}…"


def one_line(text: str, max_characters: int = 100) -> str:
    """Give the same as one line."""
    start = text[: 4 * max_characters]
    mark = "…" if len(text) > len(start) else ""
    return plain(" ".join(start.split()) + mark, max_characters)


def number(value: float | None) -> str:
    """Give a number as tables show it."""
    return "-" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Give a difference as tables show it."""
    return "-" if value is None else f"{value:+.3f}"


def between(interval: Interval | None) -> str:
    """Give an interval as tables show it."""
    return "-" if interval is None else f"{interval.low:.3f} .. {interval.high:.3f}"
