"""The attempts of runs as `gym export` reads them: without secrets, with their token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from gymcli.errors import UsageError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.run_index import Row, RunIndex
from gymcli.store.tokens import TokenCall, TokenFile, tokens_file
from gymcli.types import Failure, JSONObject, Rollout


class LeftOutError(Exception):
    """Raised if a format cannot express a rollout; the message is the reason, without names."""


class ExportedAttempt(NamedTuple):
    """An attempt with its record."""

    run: RunIndex
    row: Row
    line: bytes
    """The line on disk without secrets."""
    record: Rollout | Failure
    is_redacted: bool
    """Whether secrets were removed from the line."""

    @property
    def rollout(self) -> Rollout:
        """The record of a scored attempt."""
        assert isinstance(self.record, Rollout)
        return self.record

    @property
    def reward(self) -> float:
        """The reward of a scored attempt."""
        assert self.row.reward is not None
        return self.row.reward


class ExportSource:
    """The attempts of several runs, read one by one; a context manager.

    `runs` are runs with the numbers of their selected rows; `scrubber` removes secrets from each
    line before it is decoded.
    """

    def __init__(
        self, runs: Sequence[tuple[RunIndex, Sequence[int]]], scrubber: Scrubber = NOTHING_SECRET
    ) -> None:
        self.runs = runs
        self.left_out: Counter[str] = Counter()
        """The number of selected attempts or tasks that were not written, by reason."""
        self.warnings: list[str] = []
        self.num_redacted = 0
        """Lines that held a secret."""
        self.num_skipped_calls = 0
        """Calls that cannot be trained on, of attempts with others that can."""
        self._scrubber = scrubber
        self._token_files: dict[Path, TokenFile] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attempts(self) -> Iterator[ExportedAttempt]:
        """Yield all attempts, run by run."""
        for run, numbers in self.runs:
            for number in numbers:
                yield self.read(run, run.rows[number])

    def scored_attempts(self) -> Iterator[ExportedAttempt]:
        """Yield the scored attempts, run by run, and count the others as left out."""
        for run, numbers in self.runs:
            for row in self.scored_rows(run, numbers):
                yield self.read(run, row)

    def scored_rows(self, run: RunIndex, numbers: Sequence[int]) -> Iterator[Row]:
        """Yield the scored rows among `numbers`, and count the others as left out."""
        for number in numbers:
            row = run.rows[number]
            if row.status == "scored":
                yield row
            else:
                self.left_out["not scored"] += 1

    def task_fields(self) -> Iterator[JSONObject]:
        """Yield the task of every attempt that has one, run by run."""
        for run, numbers in self.runs:
            for row in (run.rows[number] for number in numbers):
                record = run.decoded(row, self._scrubber.line(run.line(row)))
                if isinstance(record, Rollout):
                    yield record.task

    def read(self, run: RunIndex, row: Row) -> ExportedAttempt:
        """Read one attempt; raise UsageError if its line is gone or cannot be read."""
        raw = run.line(row)
        # The run may be older than a key, or come from another program.
        line = self._scrubber.line(raw)
        self.num_redacted += line is not raw
        return ExportedAttempt(run, row, line, run.decoded(row, line), line is not raw)

    def token_lines(self, attempt: ExportedAttempt) -> list[bytes]:
        """Return the lines of token ids of a scored attempt; none if it has no ids."""
        # The ids of a redacted conversation decode to the secret.
        if attempt.is_redacted or not has_tokens(attempt.run):
            return []
        lines = self._token_file(attempt.run).lines(attempt.rollout).splitlines()
        return [self._scrubber.line(line) + b"\n" for line in lines if line.strip()]

    def token_calls(self, attempt: ExportedAttempt) -> list[TokenCall]:
        """Return the calls of a scored attempt, which `sequences` skips if they have a problem.

        Raises:
            LeftOutError: The attempt has no token ids, or every call has a problem.
        """
        if attempt.is_redacted:
            raise LeftOutError("a key in the conversation")
        calls = self._token_file(attempt.run).calls(attempt.rollout)
        if not calls:
            raise LeftOutError("no token ids")
        problems = [call.kind_of_problem for call in calls if call.problem]
        if len(problems) == len(calls):
            raise LeftOutError(f"no call that can be trained on: {problems[0]}")
        self.num_skipped_calls += len(problems)
        return calls

    def require_tokens(self) -> None:
        """Raise UsageError if a run was collected without token ids."""
        for run, _ in self.runs:
            if not has_tokens(run):
                raise UsageError(
                    f"{run.path}: has no token ids; collect a run with --record-tokens"
                )

    def _token_file(self, run: RunIndex) -> TokenFile:
        if run.path not in self._token_files:
            self._token_files[run.path] = self._stack.enter_context(TokenFile(run.path))
        return self._token_files[run.path]


def has_tokens(run: RunIndex) -> bool:
    """Return whether a run was collected with token ids."""
    return tokens_file(run.path).is_file()
