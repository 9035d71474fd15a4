"""The answers of very many attempts, of which few are different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gymcli.metrics.small_ints import SmallInts
from gymcli.numbering import Numbering

__all__ = ["Answers"]


class Answers:
    """The answers of lines, of which a run has few different ones; many runs have none at all."""

    def __init__(self) -> None:
        self._texts = Numbering()
        self._numbers = SmallInts()
        """Of each line the number of its answer, plus 1; 0, or no place: it has none."""

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def add_all(self, first: int, answers: Sequence[str | None]) -> None:
        """Add the answers of lines that follow one another, from the line `first` on."""
        new = dict.fromkeys(answers)
        if len(new) == 1 and None in new:
            return
        numbers = {
            answer: 0 if answer is None else self._texts.number_of(answer.encode()) + 1
            for answer in new
        }
        self._numbers.pad(first)
        self._numbers.extend([numbers[answer] for answer in answers])

    def numbers_at(self, lines: Iterable[int]) -> list[int]:
        """Give of each of these lines the number of its answer, 0 where it has none."""
        return self._numbers.at(lines)

    def text(self, number: int) -> str | None:
        """Give the answer that has a number."""
        return self._texts[number - 1].decode() if number else None

    def at(self, line: int) -> str | None:
        """Give the answer of a line, if it has one; to be asked once all are there."""
        return self.text(self._numbers[line]) if self._numbers else None

    def complete(self, num_lines: int) -> None:
        """Say how many lines there are, of which the last ones may have no answer."""
        if self._numbers:
            self._numbers.pad(num_lines)
