"""Sums and means of values that come one by one and are not kept, rounded once all the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

from gymcli.metrics.weighted import terms

__all__ = ["RunningMean", "RunningSum"]

_MAX_PARTS = 1000


class RunningSum:
    """The sum that `math.fsum` gives of all values together."""

    def __init__(self) -> None:
        self._parts: list[float] = []
        """Numbers whose sum without any rounding is that of the values."""

    @property
    def total(self) -> float:
        """The sum; 0 of nothing."""
        return math.fsum(self._parts)

    @property
    def exact(self) -> Fraction:
        """The sum without any rounding."""
        return sum(map(Fraction, self._parts), Fraction())

    def add(self, value: float) -> None:
        """Add one value."""
        self._parts.append(value)
        if len(self._parts) > _MAX_PARTS:
            self._fold()

    def add_values(self, values: Iterable[float]) -> None:
        """Add several values, of which no more than `_MAX_PARTS` are held at a time."""
        rest = iter(values)
        while part := list(itertools.islice(rest, _MAX_PARTS)):
            self._parts += part
            self._fold()

    def add_all(self, other: RunningSum) -> None:
        """Add up two sums."""
        self.add_values(other._parts)

    def _fold(self) -> None:
        """Put the rounded sum, what rounding left out of it, and so on, in place of the parts."""
        folded = []
        while rest := math.fsum(self._parts):
            folded.append(rest)
            if not math.isfinite(rest):
                break
            self._parts.append(-rest)
        self._parts = folded


class RunningMean:
    """The mean that `estimators.mean` gives of all values together."""

    def __init__(self) -> None:
        self._newest: list[float] = []
        self._num_others = 0
        self._sum = RunningSum()
        self._low = math.inf
        self._high = -math.inf

    @property
    def num_values(self) -> int:
        """How many values there are."""
        return self._num_others + len(self._newest)

    @property
    def mean(self) -> float:
        """The mean of at least one value."""
        self._fold()
        # The mean of equal values is that value, also where the quotient is rounded beside it.
        return min(max(self._sum.total / self._num_others, self._low), self._high)

    def add(self, value: float, times: int = 1) -> None:
        """Add one value, as if it came so many times."""
        if times > 1:
            self._sum.add_values(terms([(value, times - 1)]))
            self._num_others += times - 1
        self._newest.append(value)
        if len(self._newest) > _MAX_PARTS:
            self._fold()

    def _fold(self) -> None:
        if not self._newest:
            return
        self._num_others += len(self._newest)
        self._low = min(self._low, min(self._newest))
        self._high = max(self._high, max(self._newest))
        self._sum.add_values(self._newest)
        self._newest.clear()
