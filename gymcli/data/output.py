"""Writes a file that is there whole or not at all, compressed where its name says so."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, cast

from gymcli.errors import UsageError

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which takes its place when the block ends well; `.gz`, `.zst` compress.

    Raises:
        UsageError: It cannot be written, or there is something that is no regular file.

    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is no regular file; leave -o out to print the rows")
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as raw:
            with _compressing(raw, path.suffix) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        temporary.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it is gone where all went well
            temporary.unlink()


def _compressing(raw: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    """Give what compresses into a file by its suffix; equal content gives equal bytes."""
    if suffix == ".gz":
        return cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
    if suffix != ".zst":
        return nullcontext(raw)
    if sys.version_info >= (3, 14):
        from compression import zstd

        return cast("BinaryIO", zstd.ZstdFile(raw, "wb"))
    import zstandard  # late: only a .zst file needs it

    return cast("BinaryIO", zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
