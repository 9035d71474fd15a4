"""Lines of JSONL files: read as a stream, plain or compressed, and appended in one write."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import jsonlines
import msgspec

from gymcli.errors import RunDirectoryError, UsageError
from gymcli.types import JSON, JSONObject

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = [
    "TOO_DEEP",
    "Line",
    "LineAppender",
    "decoded_lines",
    "file_sha256",
    "iterate_lines",
    "open_bytes",
    "read_errors",
]

TOO_DEEP = "it is nested too deeply"
"""What is said of JSON that the interpreter has no stack for."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMPRESSED_BYTES = 1 << 11
"""Bytes of a .zst file that are decompressed at a time; what they give is held in memory."""


class Line(NamedTuple):
    """One line of a file, without its newline."""

    number: int
    """Counted from 1."""
    data: bytes
    is_complete: bool
    """False for a last line that lacks its newline."""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; `.gz` and `.zst` are decompressed on the way.

    Raises:
        UsageError: The file is missing or cannot be read.

    """
    try:
        if path.suffix == ".gz":
            return cast("BinaryIO", gzip.open(path, "rb"))
        if path.suffix == ".zst":
            return _open_zstd(path)
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _open_zstd(path: Path) -> BinaryIO:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.open(path, "rb")
    return io.BufferedReader(_ZstdStream(path.open("rb")), 1 << 16)


class _ZstdStream(io.RawIOBase):
    """The decompressed bytes of a .zst file of one frame or several.

    The reader that zstandard has takes a file that was cut off for one that ends there.
    """

    def __init__(self, file: BinaryIO) -> None:
        import zstandard  # late: only a .zst file needs it

        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._has_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        while not self._ready:
            compressed = self._frame.unused_data or self._file.read(_COMPRESSED_BYTES)
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
                self._has_frame = False
            if not compressed:
                if self._has_frame:
                    raise EOFError("the file ends in the middle of its compressed data")
                return 0
            self._has_frame = True
            self._ready = memoryview(self._frame.decompress(compressed))
        size = min(len(view), len(self._ready))
        view[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def iterate_lines(path: Path) -> Iterator[Line]:
    """Give the lines of a file that are not blank; memory does not grow with the file.

    Raises:
        UsageError: The file is missing, cannot be read or is damaged where it is compressed.

    """
    with open_bytes(path) as file, read_errors(path):
        for number, data in enumerate(file, 1):
            stripped = (data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data).strip()
            if stripped:
                yield Line(number, stripped, data.endswith(b"\n"))


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


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Name the file in an error that comes while it is read (a folder, a damaged archive).

    Raises:
        UsageError: There was one.

    """
    damaged: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, *_zstd_errors(path))
    try:
        yield
    except damaged as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _zstd_errors(path: Path) -> tuple[type[Exception], ...]:
    """Give what a damaged .zst file raises, without importing the package for other files."""
    if path.suffix != ".zst":
        return ()
    if sys.version_info >= (3, 14):
        from compression import zstd

        return (zstd.ZstdError,)
    import zstandard

    return (zstandard.ZstdError,)


class LineAppender:
    """Appends whole lines to a file, each in a single write; after a part of one, no more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._is_torn = False

    def append(self, data: bytes) -> None:
        """Append one line; the file is made when the first line comes.

        Raises:
            RunDirectoryError: The line could not be written whole, or one before it was not.

        """
        if self._is_torn:
            raise RunDirectoryError(
                f"{self.path}: ends in a line that could not be written whole (disk full?); "
                "make room and run the same command to go on"
            )
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._descriptor = os.open(self.path, flags, 0o644)
            line = data + b"\n"
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path}: cannot be written: {error.strerror or error}; "
                "what was written before stays valid, run the same command to go on"
            ) from error
        if written != len(line):
            self._is_torn = True
            raise RunDirectoryError(
                f"{self.path}: only {written} of {len(line)} bytes could be written (disk full?); "
                "make room and run the same command to go on"
            )

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
