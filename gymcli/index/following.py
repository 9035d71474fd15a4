"""Lines of a file that may still be written, each with its place, those that are new each time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from gymcli.errors import UsageError
from gymcli.store.lines import MAX_LINE_BYTES, TOO_LONG, open_bytes, read_errors
from gymcli.types import JSON_ERRORS

__all__ = ["Followed", "PlacedLine"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TAIL_BYTES = 1 << 12
"""Of the last line, to know it by: a file may be written over in place."""


class PlacedLine(NamedTuple):
    """One line of a file, without its newline."""

    number: int
    """Counted from 1."""
    offset: int
    data: bytes


class Followed:
    """A file of lines that grows; one that is not there yet has none.

    A last line is given once it is whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        """Device and inode, once the file is there."""
        self._end = 0
        """The byte after the last line that was given."""
        self._tail = b""
        """What stands before it."""
        self._num_lines = 0

    def is_replaced(self) -> bool:
        """Say whether what was read is no longer there, but another file or other lines."""
        if self._identity is None:
            return False
        try:
            with self.path.open("rb") as file:
                return not self._is_same(file)
        except OSError:
            return True

    def has_grown(self) -> bool:
        """Say whether there may be new lines."""
        try:
            return self.path.stat().st_size > self._end
        except OSError:
            return False

    def new_lines(self) -> Iterator[PlacedLine]:
        """Give the lines that are new and not blank.

        One that whoever asked for it could not take is given again the next time. There are none
        where the file was replaced.

        Raises:
            UsageError: The file cannot be read, or a line is too long.

        """
        if not self.path.is_file():
            return
        with open_bytes(self.path) as file, read_errors(self.path):
            if self._identity is None:
                self._identity = _identity(file)
            if not self._is_same(file):
                return
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{self.path}:{self._num_lines + 1}: {TOO_LONG}")
                start = len(_BYTE_ORDER_MARK) if self._is_marked(line) else 0
                data = line[start:].strip()
                if not line.endswith(b"\n") and data and not _is_json(data):
                    return  # its writer is not done with it, or never will be
                if data:
                    offset = self._end + line.find(data[:1], start)
                    yield PlacedLine(self._num_lines + 1, offset, data)
                self._end += len(line)
                self._num_lines += line.endswith(b"\n")
                self._tail = line[-_TAIL_BYTES:]

    def _is_same(self, file: BinaryIO) -> bool:
        """Say whether a file has the last line that was given, and go to its end."""
        file.seek(self._end - len(self._tail))
        return _identity(file) == self._identity and file.read(len(self._tail)) == self._tail

    def _is_marked(self, line: bytes) -> bool:
        return not self._end and line.startswith(_BYTE_ORDER_MARK)


def _identity(file: BinaryIO) -> tuple[int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except JSON_ERRORS:
        return False
    return True
