"""Lines of JSONL files, plain or compressed, read as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import jsonlines
import msgspec

from gymcli.errors import UsageError
from gymcli.store.compressed import MAX_LINE_BYTES, TOO_LONG, open_bytes, read_errors
from gymcli.types import JSON, JSONObject

__all__ = [
    "MAX_BLANK_BYTES",
    "TOO_DEEP",
    "Line",
    "decoded_lines",
    "file_sha256",
    "iterate_lines",
    "lines_of",
    "too_blank",
]

TOO_DEEP = "it is nested too deeply"
"""What is said of JSON that the interpreter has no stack for."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_BLANK_BYTES = 1 << 20
"""As much as may be blank in a row: lines without end take no memory, but time."""


class Line(NamedTuple):
    """One line of a file, without its newline."""

    number: int
    """Counted from 1."""
    data: bytes
    is_complete: bool
    """False for a last line that lacks its newline."""


def iterate_lines(path: Path) -> Iterator[Line]:
    """Give the lines of a file that are not blank; memory does not grow with the file.

    Raises:
        UsageError: The file is missing, cannot be read or is damaged where it is compressed; or a
            line is longer than `MAX_LINE_BYTES`, or nothing but blank lines is there.

    """
    with open_bytes(path) as file, read_errors(path):
        yield from lines_of(file, path)


def lines_of(file: BinaryIO, path: Path, *, first: int = 1) -> Iterator[Line]:
    """Give the lines of an open file, or of a part of it, that are not blank.

    Args:
        file: The file.
        path: Its name, for messages.
        first: The number of the first line that is read.

    Raises:
        UsageError: A line is longer than `MAX_LINE_BYTES`, or nothing but blank lines is there.

    """
    num_blank = 0
    read_line = partial(file.readline, MAX_LINE_BYTES + 1)
    for number, data in enumerate(iter(read_line, b""), first):
        stripped = (data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data).strip()
        num_blank = 0 if stripped else num_blank + len(data)
        if len(data) > MAX_LINE_BYTES:
            raise UsageError(f"{path}:{number}: {TOO_LONG}")
        if num_blank > MAX_BLANK_BYTES:
            raise too_blank(path, number)
        if stripped:
            yield Line(number, stripped, data.endswith(b"\n"))


def too_blank(path: Path, number: int) -> UsageError:
    """Give the error of a file that is blank up to a line."""
    return UsageError(f"{path}:{number}: more than {MAX_BLANK_BYTES >> 20} MB are blank")


def decoded_lines(lines: Iterable[Line]) -> Iterator[tuple[int, JSONObject | str]]:
    """Give the object of each line with the line's number, or why it holds none."""
    number = 0

    def texts() -> Iterator[bytes]:
        nonlocal number
        for line in lines:
            number = line.number
            yield line.data

    with jsonlines.Reader(texts(), loads=_loads) as reader:
        while True:
            try:
                value = reader.read(allow_none=True)
            except EOFError:
                return
            except jsonlines.InvalidLineError as error:
                yield number, f"is not JSON: {error.__cause__ or error}"
                continue
            yield number, value if isinstance(value, dict) else "must be a JSON object"


def _loads(text: str | bytes) -> JSON:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error


def file_sha256(path: Path) -> str:
    """Give the SHA-256 of a file as it is on disk, in hex.

    Raises:
        UsageError: The file is missing or cannot be read.

    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
