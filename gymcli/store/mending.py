"""Ends of files that their writer did not finish: found, and cut off."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gymcli.store.compressed import MAX_LINE_BYTES
from gymcli.store.durability import open_file
from gymcli.types import JSON_ERRORS

__all__ = ["mend_file", "unfinished_end"]

_BLOCK_BYTES = 1 << 16


def mend_file(path: Path) -> bool:
    """Cut off what a writer left unfinished at the end of a file; True where something was.

    That is a last line without its newline, unless it is whole, and last lines with NUL bytes: a
    machine that loses its power can leave a file longer than what of it reached the disk.

    Raises:
        OSError: The file cannot be read or written, or is a link, a pipe or a device.

    """
    with os.fdopen(open_file(path, os.O_RDWR), "r+b") as file:
        descriptor = file.fileno()
        end = file.seek(0, os.SEEK_END)
        start = _line_start(descriptor, end)
        if start < end and _is_whole(descriptor, start, end):
            file.write(b"\n")
            file.flush()
            os.fsync(descriptor)
            return False
        while start:
            before = _line_start(descriptor, start - 1)
            if b"\0" not in _read(descriptor, before, start):
                break
            start = before
        if start == end:
            return False
        file.truncate(start)
        os.fsync(descriptor)
        return True


def unfinished_end(path: Path) -> bool:
    """Say whether the last line of a file has no newline and is not whole.

    Raises:
        OSError: The file cannot be read.

    """
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = _line_start(file.fileno(), end)
        if end - start <= MAX_LINE_BYTES and not _read(file.fileno(), start, end).strip():
            return False
        return not _is_whole(file.fileno(), start, end)


def _line_start(descriptor: int, end: int) -> int:
    """Give the offset after the last newline before `end`."""
    position = end
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _is_whole(descriptor: int, start: int, end: int) -> bool:
    """Say whether bytes of a file are one JSON object; no line of ours is longer than the limit."""
    if end - start > MAX_LINE_BYTES:
        return False
    try:
        return isinstance(msgspec.json.decode(_read(descriptor, start, end)), dict)
    except JSON_ERRORS:
        return False


def _read(descriptor: int, start: int, end: int) -> bytes:
    """Read a part of a file, as much of it as a line may hold."""
    end = min(end, start + MAX_LINE_BYTES)
    parts = []
    while start < end and (part := os.pread(descriptor, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
