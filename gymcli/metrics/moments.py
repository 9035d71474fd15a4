"""Mean and standard error of values that come one by one and are not kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gymcli.metrics.sums import RunningMean, RunningSum
from gymcli.metrics.weighted import terms

__all__ = ["Moments"]

_SPLITTER = 134_217_729.0
"""2^27 + 1: what a double is multiplied by to be cut into two halves of 26 bits."""
_TOO_LARGE = 1e150
"""Values whose squares no double holds; there is no standard error with one of them."""


class Moments(RunningMean):
    """The mean and the standard error of values, each of a task, whatever their order.

    Sums of values and of squares are kept without any rounding, so that their difference is exact
    and no second pass over the values is needed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_attempts = 0
        """The attempts that the values were made of."""
        self._squares = RunningSum()

    @property
    def lowest(self) -> float:
        """The smallest value."""
        self._fold()
        return self._low

    @property
    def highest(self) -> float:
        """The largest value."""
        self._fold()
        return self._high

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None for fewer than two values, or some that are too large to square."""
        self._fold()
        num, is_too_large = self._num_others, max(-self._low, self._high) > _TOO_LARGE
        if num < 2 or is_too_large:
            return None
        variance = (self._squares.exact - self._sum.exact**2 / num) / (num - 1)
        return math.sqrt(max(0.0, float(variance / num)))

    def add(self, value: float, times: int = 1, *, num_attempts: int = 1) -> None:
        """Add a value of `num_attempts` attempts, as if it came so many times."""
        self.num_attempts += times * num_attempts
        if times > 1:
            self._squares.add_values(terms((part, times - 1) for part in _squares([value])))
        super().add(value, times)

    def add_all(self, other: Moments) -> None:
        """Add the values of another one, as if they had come here."""
        other._fold()
        self.num_attempts += other.num_attempts
        self._num_others += other._num_others
        self._low = min(self._low, other._low)
        self._high = max(self._high, other._high)
        self._sum.add_all(other._sum)
        self._squares.add_all(other._squares)

    def _fold(self) -> None:
        self._squares.add_values(_squares(self._newest))
        super()._fold()


def _squares(values: Sequence[float]) -> Iterable[float]:
    """Give two numbers for each value, whose sum is its square without any rounding.

    Dekker 1971, "A floating-point technique for extending the available precision". Values whose
    squares no double holds are left out.
    """
    for value in values:
        if abs(value) > _TOO_LARGE:
            continue
        scaled = _SPLITTER * value
        high = scaled - (scaled - value)
        low = value - high
        square = value * value
        yield square
        if low:
            yield ((high * high - square) + 2.0 * high * low) + low * low
