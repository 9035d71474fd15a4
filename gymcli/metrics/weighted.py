"""Values of which each stands for many equal ones, added up as if each of those were there."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator

__all__ = ["Weighted", "terms"]


class Weighted:
    """Values, each with how many times it is there."""

    def __init__(self, values: Iterable[tuple[float, int]]) -> None:
        self._values = array("d")
        self._times = array("I")
        for value, times in values:
            self._values.append(value)
            self._times.append(times)

    def __len__(self) -> int:
        """Give how many values there are, each as many times as it is there."""
        return sum(self._times)

    @property
    def mean(self) -> float:
        """The arithmetic mean of at least one value."""
        rounded = math.fsum(terms(zip(self._values, self._times, strict=True))) / len(self)
        # The mean of equal values is that value, also where the quotient is rounded beside it.
        return min(max(rounded, min(self._values)), max(self._values))

    @property
    def variance(self) -> float:
        """The sample variance (n - 1 below the line) of at least two values."""
        centre = self.mean
        squares = ((value - centre) ** 2 for value in self._values)
        return math.fsum(terms(zip(squares, self._times, strict=True))) / (len(self) - 1)

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean; None for fewer than two values."""
        num_values = len(self)
        return math.sqrt(self.variance / num_values) if num_values > 1 else None


def terms(values: Iterable[tuple[float, int]]) -> Iterator[float]:
    """Give a few numbers whose sum is that of each value so many times, without any rounding.

    A value is doubled exactly, so that it takes one number for each 1 among the bits of its times.
    """
    for value, times in values:
        if times == 1:
            yield value
            continue
        while times:
            power = times & -times
            yield value * power
            times -= power
