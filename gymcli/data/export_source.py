"""What is exported: the rows of runs that were selected, each read when its turn comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.run_index import Row, RunIndex
from gymcli.types import Failure, Rollout

__all__ = ["NOT_SCORED", "Attempt", "LeftOutError", "Scored", "Selected", "Source"]


NOT_SCORED = "not scored"


class LeftOutError(Exception):
    """Raised when a rollout cannot be said in a format; the text is the reason, without names."""


class Selected(NamedTuple):
    """The rows of a run that are exported."""

    run: RunIndex
    rows: Sequence[int]


class Attempt(NamedTuple):
    """An attempt that is exported."""

    run: RunIndex
    row: Row
    line: bytes
    """As it is on disk, without secrets."""
    record: Rollout | Failure


class Scored(NamedTuple):
    """An attempt with its score."""

    run: RunIndex
    row: Row
    line: bytes
    rollout: Rollout
    reward: float


class Source:
    """The attempts of several runs, read one by one.

    Args:
        runs: Their rows.
        scrubber: Takes secrets out of each line before anything is made of it.

    """

    def __init__(self, runs: Sequence[Selected], scrubber: Scrubber = NOTHING_SECRET) -> None:
        self.runs = runs
        self.left_out: Counter[str] = Counter()
        """What was selected and could not be written, by the reason."""
        self.warnings: list[str] = []
        """What else the user should know."""
        self.num_redacted = 0
        """Lines that held a secret."""
        self._scrubber = scrubber

    def attempts(self) -> Iterator[Attempt]:
        """Give all attempts, run by run.

        Raises:
            UsageError: A line cannot be read, or is no longer there.

        """
        for run, rows in self.runs:
            for number in rows:
                yield self.read(run, run.rows[number])

    def scored(self) -> Iterator[Scored]:
        """Give the attempts that have a score; the others are counted as left out.

        Raises:
            UsageError: A line cannot be read, or is no longer there.

        """
        for run, rows in self.runs:
            for number in rows:
                row = run.rows[number]
                if row.status == "scored":
                    yield self.read_scored(run, row)
                else:
                    self.left_out[NOT_SCORED] += 1

    def read(self, run: RunIndex, row: Row) -> Attempt:
        """Read one attempt."""
        raw = run.line(row)
        line = self._scrubber.line(raw)
        self.num_redacted += line is not raw
        return Attempt(run, row, line, run.decoded(row, line))

    def read_scored(self, run: RunIndex, row: Row) -> Scored:
        """Read one attempt that has a score."""
        attempt = self.read(run, row)
        assert isinstance(attempt.record, Rollout)
        assert row.reward is not None
        return Scored(run, row, attempt.line, attempt.record, row.reward)
