"""The run directory: its lock, its files, and what of the run is done already."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from gymcli.errors import RunDirectoryError, RunFileError, RunMismatchError, UsageError
from gymcli.store.lines import LineAppender, iterate_lines
from gymcli.store.manifest import MANIFEST, Manifest, differences, read_manifest
from gymcli.types import JSON_ERRORS, AttemptKey, Failure, JSONObject, Rollout

__all__ = [
    "FAILURES",
    "GENERATIONS",
    "METRICS",
    "ROLLOUTS",
    "VERDICTS",
    "Done",
    "RunDirectory",
    "read_structs",
]

ROLLOUTS = "rollouts.jsonl"
FAILURES = "failures.jsonl"
GENERATIONS = "generations.jsonl"
VERDICTS = "verdicts.jsonl"
METRICS = "metrics.json"
_APPENDED = (ROLLOUTS, FAILURES, GENERATIONS, VERDICTS)
_TEMPORARY = ".{}.tmp"

T = TypeVar("T")

_MAX_ATTEMPT = 1_000_000
"""A bit each: a number beyond this is damage, and would take the memory."""


class _Scored(msgspec.Struct):
    """The part of a rollout line that resuming needs."""

    env: str = ""
    task_id: str = ""
    attempt: Annotated[int, msgspec.Meta(ge=0, le=_MAX_ATTEMPT)] = 0
    task_hash: str = ""


class Done(NamedTuple):
    """The attempts of one task that are scored already."""

    task_hash: str
    attempts: int
    """A bit for every scored attempt."""

    def has(self, attempt: int) -> bool:
        """Say whether an attempt is scored."""
        return bool(self.attempts >> attempt & 1)


def read_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """Decode the lines of a run's file; a torn last line is left out.

    Raises:
        RunFileError: A line that is not the torn last one cannot be decoded.

    """
    for _, struct in _numbered_structs(path, decoder):
        yield struct


def _numbered_structs(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[int, T]]:
    for line in iterate_lines(path):
        try:
            yield line.number, decoder.decode(line.data)
        except JSON_ERRORS as error:
            if not line.is_complete:
                return
            raise RunFileError(f"{path}:{line.number}: is damaged: {error}") from error


class RunDirectory:
    """One run on disk, held by one process while it is open for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        """What was mended when the directory was opened."""
        self._lock: int | None = None
        self._rollouts = LineAppender(path / ROLLOUTS)
        self._failures = LineAppender(path / FAILURES)
        self._generations = LineAppender(path / GENERATIONS)

    def lock(self) -> None:
        """Make the directory and take it; the system frees it when this process ends.

        Raises:
            RunDirectoryError: It cannot be made, or another process writes it.

        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise RunDirectoryError(
                f"{self.path}: another process is writing this run; wait for it or give --out"
            ) from error
        except OSError as error:
            self.close()
            raise RunDirectoryError(
                f"{self.path}: cannot be made: {error.strerror or error}; give --out"
            ) from error

    def close(self) -> None:
        """Close the files and give the directory back."""
        for appender in (self._rollouts, self._failures, self._generations):
            appender.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def mend(self, names: Sequence[str] = _APPENDED) -> None:
        """Cut off a last line that its writer did not finish, in files that are appended.

        Raises:
            RunDirectoryError: A file cannot be written.

        """
        for name in names:
            path = self.path / name
            if not path.is_file():
                continue
            try:
                self._mend_file(path)
            except OSError as error:
                raise RunDirectoryError(
                    f"{path}: cannot be written: {error.strerror or error}"
                ) from error

    def _mend_file(self, path: Path) -> None:
        with path.open("r+b") as file:
            end = file.seek(0, os.SEEK_END)
            start = last_line_start(file.fileno(), end)
            if start == end:
                return
            file.seek(start)
            try:
                msgspec.json.decode(file.read())
            except JSON_ERRORS:
                file.truncate(start)
                self.warnings.append(
                    f"{path}: the last line was not finished when its writer stopped; cut off"
                )
                return
            file.write(b"\n")

    def check_identity(self, identity: JSONObject) -> None:
        """Compare with the run that is there already.

        Raises:
            RunMismatchError: It was made with other settings; the message names them.
            UsageError: The directory holds other files and no run.

        """
        manifest = read_manifest(self.path)
        if manifest is None:
            if any(entry.name != _TEMPORARY.format(MANIFEST) for entry in self.path.iterdir()):
                raise UsageError(f"{self.path}: is not empty and holds no run; give another --out")
            return
        # As it would be read back: a tuple here equals the list there.
        here = msgspec.json.decode(msgspec.json.encode(identity))
        found = differences(manifest.identity, here)
        if found:
            raise RunMismatchError(
                f"{self.path}: this run was made with other settings: {'; '.join(found)}. "
                "Give another --out, or --fresh for a new run"
            )

    def done(self) -> dict[tuple[str, str], Done]:
        """Read which attempts are scored, by environment and task id.

        Raises:
            RunFileError: A line is damaged, or an attempt is there twice.

        """
        path = self.path / ROLLOUTS
        found: dict[tuple[str, str], Done] = {}
        if not path.is_file():
            return found
        for number, line in _numbered_structs(path, msgspec.json.Decoder(_Scored)):
            key = (line.env, line.task_id)
            before = found.get(key, Done(line.task_hash, 0))
            if before.has(line.attempt):
                raise RunFileError(
                    f"{path}:{number}: attempt {line.attempt} of task {line.task_id} "
                    f"({line.env}) is there twice; delete one of the lines"
                )
            found[key] = Done(line.task_hash, before.attempts | 1 << line.attempt)
        return found

    def pending(self, done: dict[tuple[str, str], Done]) -> dict[AttemptKey, Rollout]:
        """Read the finished conversations that wait for their score."""
        path = self.path / GENERATIONS
        if not path.is_file():
            return {}
        waiting: dict[AttemptKey, Rollout] = {}
        for rollout in read_structs(path, msgspec.json.Decoder(Rollout)):
            scored = done.get((rollout.env, rollout.task_id))
            if scored is None or not scored.has(rollout.attempt):
                waiting[rollout.key] = rollout
        return waiting

    def mates(
        self, done: dict[tuple[str, str], Done], waiting: Iterable[Rollout]
    ) -> tuple[Rollout, ...]:
        """Read the conversations that are scored already, while others of their group wait.

        A process that dies while it writes the scores of a group leaves such.
        """
        tasks = {(rollout.env, rollout.task_id) for rollout in waiting if rollout.group_size}
        tasks = {task for task in tasks if task in done}
        if not tasks:
            return ()
        found: dict[AttemptKey, Rollout] = {}
        for rollout in read_structs(self.path / GENERATIONS, msgspec.json.Decoder(Rollout)):
            task = (rollout.env, rollout.task_id)
            if task in tasks and done[task].has(rollout.attempt):
                found[rollout.key] = rollout
        return tuple(found.values())

    def append_rollout(self, rollout: Rollout) -> None:
        """Append a scored rollout."""
        self.append_rollout_line(msgspec.json.encode(rollout))

    def append_rollout_line(self, line: bytes) -> None:
        """Append a scored rollout that is encoded already."""
        self._rollouts.append(line)

    def append_generation(self, rollout: Rollout) -> None:
        """Append a finished conversation before a verifier starts that may take long."""
        self.append_generation_line(msgspec.json.encode(rollout))

    def append_generation_line(self, line: bytes) -> None:
        """Append a finished conversation that is encoded already."""
        self._generations.append(line)

    def append_failure(self, failure: Failure) -> None:
        """Append an attempt that could not be scored."""
        self._failures.append(msgspec.json.encode(failure))

    def write_manifest(self, manifest: Manifest) -> None:
        """Write run.json by rename, so that it is whole at any time."""
        self._write(MANIFEST, msgspec.json.encode(manifest))

    def write_metrics(self, metrics: bytes) -> None:
        """Write metrics.json by rename."""
        self._write(METRICS, metrics)

    def _write(self, name: str, data: bytes) -> None:
        target, temporary = self.path / name, self.path / _TEMPORARY.format(name)
        try:
            temporary.write_bytes(msgspec.json.format(data, indent=2) + b"\n")
            temporary.replace(target)
        except OSError as error:
            raise RunDirectoryError(
                f"{target}: cannot be written: {error.strerror or error}"
            ) from error


def last_line_start(descriptor: int, end: int) -> int:
    """Give the offset after the last newline of an open file."""
    block, position = 1 << 16, end
    while position > 0:
        start = max(0, position - block)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0
