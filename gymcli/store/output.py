"""Writes a file completely or not at all, compressed according to its suffix."""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO, cast

from gymcli.errors import UsageError
from gymcli.store.durability import sync_folder


@contextmanager
def whole_file(path: Path, *, inputs: Iterable[Path] = ()) -> Iterator[BinaryIO]:
    """Open a file as `replacing` does; the suffixes `.gz` and `.zst` compress it."""
    with replacing(path, inputs=inputs) as raw, compressing(raw, path.suffix) as file:
        yield file


@contextmanager
def replacing(path: Path, *, inputs: Iterable[Path] = ()) -> Iterator[BufferedRandom]:
    """Open an empty file next to `path` that replaces it when the block ends well.

    Raises:
        UsageError: `path` cannot be written, is one of `inputs`, or is not a regular file.
    """
    target = _resolved(path)
    if any(_is_same_file(target, input_path) for input_path in inputs):
        raise UsageError(f"{path}: is an input and would be overwritten; use another -o")
    temporary: Path | None = None
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is not a regular file; use another -o")
        _remove_abandoned(target)
        # Two machines or containers that share the folder may have the same process id.
        mark = f"{os.getpid()}-{secrets.token_hex(4)}"
        unfinished = target.with_name(f".{target.name}.{mark}.tmp")
        with unfinished.open("x+b") as raw:
            temporary = unfinished
            # Locked, so that no other process takes the file for abandoned.
            with suppress(OSError):  # a file system that cannot lock
                fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):  # it was renamed unless an error occurred
                temporary.unlink()


def _remove_abandoned(target: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d+)-[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):  # a folder that cannot be read; writing there raises the error
        for path in target.parent.iterdir():
            match = pattern.fullmatch(path.name)
            if match is None or _is_alive(int(match[1])):
                continue
            # The id may belong to a process of another machine or container, so the file must also
            # be unlocked.
            with suppress(OSError):  # it is locked, gone, or not ours
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _resolved(path: Path) -> Path:
    try:
        target = path.resolve()
        is_circle = target.is_symlink()  # Python 3.13 and later return a link of the loop
    except RuntimeError:
        is_circle = True  # Python before 3.13
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    if is_circle:
        raise UsageError(f"{path}: cannot be written: its links form a loop")
    return target


def _is_same_file(target: Path, other: Path) -> bool:
    try:
        return target == other.resolve() or target.samefile(other)
    except (OSError, RuntimeError):  # one does not exist; opening it raises the error
        return False


def compressing(raw: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    """Return a file that compresses into `raw` by the suffix; equal content yields equal bytes."""
    if suffix == ".gz":  # without a name and a time in the header
        return cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
    if suffix != ".zst":
        return nullcontext(raw)
    if sys.version_info >= (3, 14):
        from compression import zstd

        return cast("BinaryIO", zstd.ZstdFile(raw, "wb"))
    import zstandard  # late: only a .zst file needs it

    return cast("BinaryIO", zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
