"""The lines of several runs one after another, as they are; each attempt comes from one of them."""

from __future__ import annotations

import hashlib
import itertools
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from gymcli.errors import RunFileError, RunMismatchError
from gymcli.metrics import FailureLine, ScoredLine
from gymcli.numbering import Numbering
from gymcli.store.locking import kept_unwritten
from gymcli.store.mending import unfinished_end
from gymcli.store.records import FAILURES, GENERATIONS, ROLLOUTS, VERDICTS, lines_with_structs

__all__ = ["MergedLines", "NamedLine"]

_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Scored(ScoredLine, gc=False):
    """A scored line; what metrics will read of it must be right."""

    env: str
    attempt: _Number


class _Failed(FailureLine):
    """A failed line; what metrics will read of it must be right."""

    env: str
    attempt: _Number


class _Attempt(msgspec.Struct):
    """The part of a line that says whose it is."""

    env: str
    task_id: str
    attempt: _Number


_Key: TypeAlias = _Scored | _Failed | _Attempt


class _Verdict(msgspec.Struct):
    key: str


_DECODERS: dict[str, msgspec.json.Decoder[_Key]] = {
    ROLLOUTS: msgspec.json.Decoder(_Scored),
    GENERATIONS: msgspec.json.Decoder(_Attempt),
    FAILURES: msgspec.json.Decoder(_Failed),
}
_VERDICTS = msgspec.json.Decoder(_Verdict)


class NamedLine(NamedTuple):
    """A line and the file of a run that it belongs to."""

    name: str
    data: bytes


class MergedLines:
    """Reads runs one after another.

    Memory holds a digest of each attempt and each verdict, of 16 bytes, and as much again to find
    it by. Among 10^9 attempts two have the same one with a chance of 10^-21.

    Args:
        runs: The run directories.

    """

    def __init__(self, runs: Sequence[Path]) -> None:
        self.warnings: list[str] = []
        """What was left out of the runs that were read so far."""
        self._runs = runs
        self._attempts = Numbering()
        self._verdicts = Numbering()
        self._first_of_run: list[int] = []
        """The number of attempts that were known when each run was begun."""

    def read(self, names: Sequence[str] = (*_DECODERS, VERDICTS)) -> Iterator[NamedLine]:
        """Give the lines of these files; of answers of judges that two runs have, the first one.

        Raises:
            RunDirectoryError: A run is being written.
            RunFileError: A line is damaged, or an attempt has two scores in one run.
            RunMismatchError: Two runs have an attempt on record; the message names both places.

        """
        for run in self._runs:
            with kept_unwritten(run):
                self._first_of_run.append(len(self._attempts))
                num_verdicts = len(self._verdicts)
                for name in names:
                    path = run / name
                    if not _is_there(path):
                        continue
                    if name == VERDICTS:
                        lines = self._verdict_lines(path, num_verdicts)
                    else:
                        lines = self._attempt_lines(path)
                    yield from (NamedLine(name, data) for data in lines)
                    if unfinished_end(path):
                        self.warnings.append(
                            f"{path}: the last line was not finished when its writer stopped; "
                            "left out"
                        )

    def _attempt_lines(self, path: Path) -> Iterator[bytes]:
        first_of_run = self._first_of_run[-1]
        for line, key in lines_with_structs(path, _DECODERS[path.name]):
            num_known = len(self._attempts)
            number = self._attempts.number_of(_digest(key))
            is_score = path.name == ROLLOUTS
            if number < first_of_run or (is_score and number < num_known):
                raise self._twice(f"{path}:{line.number}", key, number)
            yield line.data

    def _verdict_lines(self, path: Path, num_before: int) -> Iterator[bytes]:
        for line, verdict in lines_with_structs(path, _VERDICTS):
            key = hashlib.blake2b(verdict.key.encode(), digest_size=16).digest()
            if self._verdicts.number_of(key) >= num_before:
                yield line.data

    def _twice(self, place: str, key: _Key, number: int) -> RunFileError | RunMismatchError:
        """Give the error that names an attempt that was there before, and both places."""
        index = bisect_right(self._first_of_run, number) - 1
        first = _first_place(self._runs[index], key)
        what = f"{place}: attempt {key.attempt} of task {key.task_id} ({key.env})"
        if index == len(self._first_of_run) - 1:
            return RunFileError(f"{what} is in {first} as well; delete one of the lines")
        return RunMismatchError(
            f"{what} is on record in {first} as well; merge runs of other attempts"
        )


def _is_there(path: Path) -> bool:
    """Say whether a run has this file.

    Raises:
        RunFileError: It is a pipe, a folder or a link to nothing.

    """
    if path.is_file():
        return True
    if os.path.lexists(path):
        raise RunFileError(f"{path}: is no regular file")
    return False


def _digest(key: _Key) -> bytes:
    text = f"{key.env}\0{key.task_id}\0{key.attempt}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _first_place(run: Path, key: _Key) -> str:
    """Find where an attempt first stands in a run that has it."""
    digest = _digest(key)
    files = (run / name for name in _DECODERS)
    places = (
        f"{path}:{line.number}"
        for path in files
        if path.is_file()
        for line, found in lines_with_structs(path, _DECODERS[path.name])
        if _digest(found) == digest
    )
    return next(itertools.chain(places, (str(run),)))
