"""When the whole endpoint dies, and when it returns."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from gymcli.errors import UsageError

__all__ = ["Outage"]

_FOR_EVER = "for-ever"


class Outage(NamedTuple):
    """One death of the endpoint."""

    after_seconds: float | None = None
    """Since it first listened."""
    after_requests: int | None = None
    """The request after these finds it dying."""
    seconds: float | None = None
    """How long it stays away; None: until it is brought back."""

    @classmethod
    def parse(cls, after: str | None, lasts: str | None = None) -> Self:
        """Read `5s` or `100r`, and `20s` or `for-ever`; without the first, there is no death.

        Raises:
            UsageError: One of them is neither, or the second comes alone.

        """
        if after is None:
            if lasts is not None:
                raise UsageError(f"--down-for {lasts}: needs --down-after")
            return cls()
        seconds = None
        if lasts not in (None, _FOR_EVER):
            seconds = _seconds("--down-for", lasts, f"20s or {_FOR_EVER}")
        if after.endswith("r") and after[:-1].isascii() and after[:-1].isdigit():
            return cls(None, int(after[:-1]), seconds)
        return cls(_seconds("--down-after", after, "5s or 100r"), None, seconds)


def _seconds(option: str, text: str, forms: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        raise UsageError(f"{option} {text}: expected {forms}") from None
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{option} {text}: expected {forms}")
    return seconds
