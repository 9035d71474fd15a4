"""Which tasks were read before: what they held, where each stood first, how many copies came."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

from gymcli.numbering import Numbering
from gymcli.types import TaskRow

__all__ = ["SeenTasks"]


class _Stretch(NamedTuple):
    """Tasks that came one after another from one source."""

    first: int
    source: str


class SeenTasks:
    """Tells copies of a task from other rows with its id.

    Memory holds two digests of a task and the number of its line, some 40 bytes in all.
    """

    def __init__(self) -> None:
        self._tasks = Numbering()
        self._hashes = array("Q")
        self._lines = array("I")
        self._stretches: list[_Stretch] = []
        self._num_copies: Counter[int] = Counter()
        """Of tasks that came again, how often."""

    def add(self, row: TaskRow, source: str, line: int) -> str | None:
        """Take notice of a row, and count it where it is a copy.

        Returns:
            Where another row stood that has the same id and other content; None if there is none,
            and `first_attempt` of the row is set.

        """
        key = hashlib.blake2b(f"{row.env}\0{row.id}".encode(), digest_size=16).digest()
        number, content = self._tasks.number_of(key), int(row.hash, 16)
        if number == len(self._hashes):
            self._hashes.append(content)
            self._lines.append(line)
            if not self._stretches or self._stretches[-1].source != source:
                self._stretches.append(_Stretch(number, source))
        elif self._hashes[number] != content:
            return self._place_of(number)
        else:
            self._num_copies[number] += 1
            row.first_attempt = self._num_copies[number]
        return None

    def _place_of(self, number: int) -> str:
        after = bisect_right(self._stretches, number, key=lambda stretch: stretch.first)
        return f"{self._stretches[after - 1].source}:{self._lines[number]}"
