"""Percentiles, of values in order or of many that are in none.

Type 7 of Hyndman and Fan 1996, "Sample quantiles in statistical packages": interpolated between
neighbours.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["percentile", "percentiles"]

_RUN_LENGTH = 1 << 13
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
    """Give several percentiles of values in any order, which is another one from then on.

    They are put in order part by part, where they are: there is never an object for each, nor any
    of them twice.
    """
    wanted = [_Between.of(len(values), fraction) for fraction in fractions]
    runs = []
    for start in range(0, len(values), _RUN_LENGTH):
        run = array("d", sorted(values[start : start + _RUN_LENGTH]))
        values[start : start + len(run)] = run
        runs.append((start, start + len(run)))
    ranks = {rank for one in wanted for rank in (one.below, one.above)}
    found = {rank: _value_of_rank(values, runs, rank) for rank in ranks}
    return [one.value(found[one.below], found[one.above]) for one in wanted]


def _value_of_rank(values: array[float], runs: Sequence[tuple[int, int]], rank: int) -> float:
    """Give the value that so many others come before, of runs (start, end) in order each.

    The middle of the longest run that is left halves what has to be looked at, time and again.
    """
    left = runs
    while True:
        start, end = max(left, key=lambda run: run[1] - run[0])
        pivot = values[(start + end) // 2]
        below = [(start, bisect_left(values, pivot, start, end)) for start, end in left]
        above = [(bisect_right(values, pivot, start, end), end) for start, end in left]
        num_below = sum(end - start for start, end in below)
        num_above = sum(end - start for start, end in above)
        num_left = sum(end - start for start, end in left)
        if rank < num_below:
            left = below
        elif rank >= num_left - num_above:
            rank -= num_left - num_above
            left = above
        else:
            return pivot
