"""A number to be reached, and whether another reaches it, or all of an interval does."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gymcli.metrics.results import Interval

__all__ = ["Sign", "Threshold"]

Sign = Literal[">=", ">", "<=", "<", "=="]

_TURNED: dict[Sign, Sign] = {">=": "<=", ">": "<", "<=": ">=", "<": ">", "==": "=="}


class Threshold(NamedTuple):
    """`>= 0.8`, say: what stands on the right of a comparison."""

    sign: Sign
    number: float

    def turned(self) -> Threshold:
        """Give the same where the number stood on the left."""
        return Threshold(_TURNED[self.sign], self.number)

    @property
    def is_lower(self) -> bool:
        """Whether more is better."""
        return self.sign in (">=", ">")

    def holds(self, value: float) -> bool:
        """Say whether a number reaches it."""
        match self.sign:
            case ">=":
                return value >= self.number
            case ">":
                return value > self.number
            case "<=":
                return value <= self.number
            case "<":
                return value < self.number
        return value == self.number

    def holds_within(self, interval: Interval) -> bool | None:
        """Say whether all of an interval reaches it, or none of it; None: a part does."""
        low, high = self.holds(interval.low), self.holds(interval.high)
        return low if low == high else None
