"""Whole numbers of which there are very many and most are small."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

__all__ = ["SmallInts"]

_WIDTHS = "BHIq"
"""Type codes of `array`, from one byte to eight; only the last takes numbers below 0."""


class SmallInts:
    """A row of whole numbers, each of as many bytes as the largest of them needs."""

    def __init__(self) -> None:
        self._numbers = array(_WIDTHS[0])

    def __len__(self) -> int:
        """Give how many numbers there are."""
        return len(self._numbers)

    def __getitem__(self, place: int) -> int:
        """Give the number at a place."""
        return self._numbers[place]

    def at(self, places: Iterable[int]) -> list[int]:
        """Give the numbers at several places."""
        numbers = self._numbers
        return [numbers[place] for place in places]

    def extend(self, numbers: Iterable[int]) -> None:
        """Add numbers at the end."""
        numbers = list(numbers)
        while True:
            try:
                return self._numbers.extend(array(self._numbers.typecode, numbers))
            except OverflowError:
                if self._numbers.typecode == _WIDTHS[-1]:
                    raise
                wider = _WIDTHS[_WIDTHS.index(self._numbers.typecode) + 1]
                self._numbers = array(wider, self._numbers)

    def pad(self, length: int) -> None:
        """Add zeros up to a length."""
        self._numbers.frombytes(bytes((length - len(self._numbers)) * self._numbers.itemsize))
