"""Many values made few: bins of equal width, groups of about equal size, samples."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeVar

from gymcli.metrics.estimators import mean

__all__ = ["MAX_POINTS", "Bin", "Group", "bins_of", "groups_of", "sample_of"]

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
