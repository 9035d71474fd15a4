"""Percentiles, of values in order or of many that are in none.

Type 7 of Hyndman and Fan 1996, "Sample quantiles in statistical packages": interpolated between
neighbours.
"""

from __future__ import annotations

import heapq
import itertools
import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["percentile", "percentiles"]

_RUN_LENGTH = 1 << 14
"""Values that are sorted as objects, of 32 bytes each where an array takes 8."""


class _Between(NamedTuple):
    """The two values by rank that a percentile lies between, and how far it is to the second."""

    below: int
    above: int
    share: float

    @classmethod
    def of(cls, num_values: int, fraction: float) -> _Between:
        place = (num_values - 1) * fraction
        below = math.floor(place)
        return cls(below, min(below + 1, num_values - 1), place - below)

    def value(self, below: float, above: float) -> float:
        return below + self.share * (above - below)


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Give a percentile of values in ascending order."""
    between = _Between.of(len(ordered), fraction)
    return between.value(ordered[between.below], ordered[between.above])


def percentiles(values: array[float], fractions: Sequence[float]) -> list[float]:
    """Give several percentiles of values in any order, never with an object for each at once."""
    wanted = [_Between.of(len(values), fraction) for fraction in fractions]
    runs = [
        array("d", sorted(values[start : start + _RUN_LENGTH]))
        for start in range(0, len(values), _RUN_LENGTH)
    ]
    ordered = iter(runs[0]) if len(runs) == 1 else heapq.merge(*runs)
    found: dict[int, float] = {}
    num_passed = 0
    for rank in sorted({rank for one in wanted for rank in (one.below, one.above)}):
        found[rank] = next(itertools.islice(ordered, rank - num_passed, None))
        num_passed = rank + 1
    return [one.value(found[one.below], found[one.above]) for one in wanted]
