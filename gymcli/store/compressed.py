"""Files that are read as a stream, plain or compressed, and how much of one is held at a time."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from gymcli.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["MAX_LINE_BYTES", "TOO_LONG", "is_plain", "open_bytes", "read_errors"]

MAX_LINE_BYTES = 1 << 27
"""The longest line that is read or written, decompressed: a small file may unpack to anything."""
TOO_LONG = f"is longer than {MAX_LINE_BYTES >> 20} MB, the most that is read"
"""What is said of a line or a row."""

_MAX_WINDOW_LOG = 27
"""Power of two of the bytes that a .zst file may ask to be held in memory."""
_BUFFER_BYTES = 1 << 16
"""Read at a time where lines are asked for: the default, 8 kB, takes a seventh more time."""
_COMPRESSED_BYTES = 1 << 11
"""Bytes of a .zst file that are decompressed at a time; what they give is held in memory."""


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
        return path.open("rb", _BUFFER_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_plain(path: Path) -> bool:
    """Say whether a file is read as it is, from any place of it."""
    return path.suffix not in (".gz", ".zst") and path.is_file()


def _open_zstd(path: Path) -> BinaryIO:
    if sys.version_info >= (3, 14):
        from compression import zstd

        window = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        return cast("BinaryIO", zstd.open(path, "rb", options=window))
    return io.BufferedReader(_ZstdStream(path.open("rb")), 1 << 16)


class _ZstdStream(io.RawIOBase):
    """The decompressed bytes of a .zst file of one frame or several.

    The reader that zstandard has takes a file that was cut off for one that ends there.
    """

    def __init__(self, file: BinaryIO) -> None:
        import zstandard  # late: only a .zst file needs it

        self._file = file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _MAX_WINDOW_LOG)
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
