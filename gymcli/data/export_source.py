"""The attempts that are exported: selected rows of runs, each read from its file in its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.run_index import Row, RunIndex
from gymcli.types import Failure, Rollout

__all__ = ["ExportSource", "ExportedAttempt", "LeftOutError"]


class LeftOutError(Exception):
    """Raised when a format cannot hold a rollout; the text is the reason, without names."""


class ExportedAttempt(NamedTuple):
    """An attempt with its record."""

    run: RunIndex
    row: Row
    line: bytes
    """The line on disk, without secrets."""
    record: Rollout | Failure

    @property
    def rollout(self) -> Rollout:
        """The record of an attempt that is not a failure."""
        assert isinstance(self.record, Rollout)
        return self.record

    @property
    def reward(self) -> float:
        """The reward of a scored attempt."""
        assert self.row.reward is not None
        return self.row.reward


class ExportSource:
    """The attempts of several runs, read one by one.

    Args:
        runs: Each run with the numbers of its selected rows.
        scrubber: Takes secrets out of each line before anything is made of it.

    """

    def __init__(
        self,
        runs: Sequence[tuple[RunIndex, Sequence[int]]],
        scrubber: Scrubber = NOTHING_SECRET,
    ) -> None:
        self.runs = runs
        self.left_out: Counter[str] = Counter()
        """How many selected attempts, or tasks, were not written, by the reason."""
        self.warnings: list[str] = []
        """What else the user should know."""
        self.num_redacted = 0
        """Lines that held a secret."""
        self._scrubber = scrubber

    def attempts(self) -> Iterator[ExportedAttempt]:
        """Yield all attempts, run by run.

        Raises:
            UsageError: A line cannot be read, or is no longer there.

        """
        for run, numbers in self.runs:
            for number in numbers:
                yield self.read(run, run.rows[number])

    def scored(self) -> Iterator[ExportedAttempt]:
        """Yield the scored attempts, run by run, and count the others as left out.

        Raises:
            UsageError: A line cannot be read, or is no longer there.

        """
        for run, numbers in self.runs:
            for row in self.scored_rows(run, numbers):
                yield self.read(run, row)

    def scored_rows(self, run: RunIndex, numbers: Sequence[int]) -> Iterator[Row]:
        """Yield the scored ones of some rows, and count the others as left out."""
        for number in numbers:
            row = run.rows[number]
            if row.status == "scored":
                yield row
            else:
                self.left_out["not scored"] += 1

    def read(self, run: RunIndex, row: Row) -> ExportedAttempt:
        """Read one attempt.

        Raises:
            UsageError: Its line cannot be read, or is no longer there.

        """
        raw = run.line(row)
        line = self._scrubber.line(raw)
        self.num_redacted += line is not raw
        return ExportedAttempt(run, row, line, run.decoded(row, line))
