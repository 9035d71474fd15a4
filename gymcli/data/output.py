"""Writes a file that is there whole or not at all, compressed where its name says so."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO, cast

from gymcli.errors import UsageError

__all__ = ["compressing", "replacing", "whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which takes its place when the block ends well; `.gz`, `.zst` compress.

    Raises:
        UsageError: It cannot be written, or there is something that is no regular file.

    """
    with replacing(path) as raw, compressing(raw, path.suffix) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """Give an empty file beside this one, which takes its place when the block ends well.

    Raises:
        UsageError: It cannot be written, or there is something that is no regular file.

    """
    temporary: Path | None = None
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is no regular file; give another -o")
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with temporary.open("w+b") as raw:
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
        temporary.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):  # it is gone where all went well
                temporary.unlink()


def compressing(raw: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    """Give what compresses into a file by a suffix; equal content gives equal bytes."""
    if suffix == ".gz":
        return cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
    if suffix != ".zst":
        return nullcontext(raw)
    if sys.version_info >= (3, 14):
        from compression import zstd

        return cast("BinaryIO", zstd.ZstdFile(raw, "wb"))
    import zstandard  # late: only a .zst file needs it

    return cast("BinaryIO", zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
