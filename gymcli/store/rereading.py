"""Tasks read once more: what the first reading of their files found is not looked for again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import TasksError, UsageError
from gymcli.store.lines import TOO_DEEP
from gymcli.store.task_row import task_row
from gymcli.store.tasks import (
    IgnoredParameter,
    RowProblem,
    TaskReading,
    decoded_rows,
    readings_by_file,
)
from gymcli.types import JSON_ERRORS, JSONObject, TaskRow

__all__ = ["FirstReading"]

_MAX_KEPT_BYTES = 4 << 20
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(TaskRow)


class _Identity(NamedTuple):
    """What tells a file from another one, and from its changed self."""

    device: int
    inode: int
    num_bytes: int
    changed_at: int
    """Nanoseconds."""


class FirstReading:
    """What a reading of task files found: sparing those that follow to tell rows from copies.

    Memory holds some bytes of each copy; and every task as JSON, as long as they are few: that
    takes a fraction of the space of its objects, and a tenth of the time of reading its line again.

    Args:
        paths: The files, which are about to be read.
        reading: How their rows are read.
        max_kept: Bytes up to which the tasks are held in memory.

    """

    def __init__(
        self, paths: Sequence[Path], reading: TaskReading, *, max_kept: int = _MAX_KEPT_BYTES
    ) -> None:
        self._paths = paths
        self._reading = reading
        self._files = _identities(self._places())
        num_bytes = sum(file.num_bytes for file in self._files or ())
        self._kept: list[bytes] | None = [] if num_bytes <= max_kept else None
        """All tasks as JSON; None where they are too many."""
        self._room = max_kept
        """Bytes that more of them may take."""
        self._num_rows = 0
        self._copies = array("I")
        """Rows that are copies of an earlier one, counted over all files."""
        self._first_attempts = array("I")
        """Of each copy."""
        self._is_sound = True

    def _places(self) -> list[Path]:
        return [self._reading.place(path) for path in self._paths]

    def add(self, item: TaskRow | RowProblem | IgnoredParameter) -> None:
        """Take notice of what was read."""
        if isinstance(item, TaskRow):
            if item.first_attempt:
                self._copies.append(self._num_rows)
                self._first_attempts.append(item.first_attempt)
            self._num_rows += 1
            if self._kept is not None:
                self._keep(item, self._kept)
        elif isinstance(item, RowProblem):
            self._is_sound = False

    def _keep(self, task: TaskRow, kept: list[bytes]) -> None:
        try:
            kept.append(_ENCODER.encode(task))
        except JSON_ERRORS:  # it is nested as deeply as can be read, or its file is named oddly
            self._kept = None
            return
        self._room -= len(kept[-1])
        if self._room < 0:
            self._kept = None

    def holds(self) -> bool:
        """Say whether nothing was wrong, and the files are as they were before they were read."""
        return self._is_sound and _identities(self._places()) == self._files

    def rows(self) -> Iterator[TaskRow]:
        """Give the same tasks again, for half of what it cost at first or less.

        Raises:
            TasksError: A file was changed meanwhile, and a row is none any more.
            UsageError: A file cannot be read.

        """
        return self._rows_of_files() if self._kept is None else _decoded(self._kept)

    def _rows_of_files(self) -> Iterator[TaskRow]:
        copies = zip(self._copies, self._first_attempts, strict=True)
        next_copy, first_attempt = next(copies, (-1, 0))
        number = 0
        for path, reading, prefix in readings_by_file(self._paths, self._reading):
            source = str(path)
            for line, row in decoded_rows(self._reading.place(path)):
                task = _task(row, reading, place=f"{source}:{line}", prefix=prefix)
                if number == next_copy:
                    task.first_attempt = first_attempt
                    next_copy, first_attempt = next(copies, (-1, 0))
                number += 1
                yield task


def _decoded(kept: Sequence[bytes]) -> Iterator[TaskRow]:
    for number, data in enumerate(kept, 1):
        try:
            yield _DECODER.decode(data)
        except RecursionError as error:
            raise TasksError(f"row {number} of the tasks: {TOO_DEEP}; make it flatter") from error


def _task(row: JSONObject | str, reading: TaskReading, *, place: str, prefix: str) -> TaskRow:
    try:
        if isinstance(row, str):
            raise ValueError(row)
        return task_row(row, reading, place=place, prefix=prefix)[0]
    except (ValueError, RecursionError, UsageError) as error:
        raise TasksError(
            f"{place}: was changed after it was checked, and is no task now; mend it, and give "
            "the same command again"
        ) from error


def _identities(paths: Sequence[Path]) -> list[_Identity] | None:
    """Give what tells files from their changed selves; None where one cannot be looked at."""
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return None
    return [_Identity(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats]
