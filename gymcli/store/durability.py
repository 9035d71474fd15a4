"""What is written reaches the disk: while a run works in a thread of its own, else at once.

A write outlives the process that made it; a sync outlives the machine. On macOS that is what
`fsync` promises there: a drive may keep it in its own cache for a while.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gymcli.errors import RunDirectoryError

__all__ = [
    "Syncer",
    "displaced",
    "open_file",
    "replace_file",
    "sync_data",
    "sync_folder",
    "sync_names",
    "unwritable",
]

SYNC_SECONDS = 1.0
"""How long a line may wait for the disk while the machine stays up."""

_GO_ON = "run the same command to go on"
_MAKE_ROOM = f"make room and {_GO_ON}"
_OPEN_ACCESS = f"make it writable and {_GO_ON}, or give --out"
_MORE_FILES = f"raise the limit (ulimit -n) or lower --concurrency, and {_GO_ON}"
_WAYS_OUT = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: f"raise the limit of a file's size (ulimit -f) and {_GO_ON}",
    errno.EACCES: _OPEN_ACCESS,
    errno.EPERM: _OPEN_ACCESS,
    errno.EROFS: _OPEN_ACCESS,
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
    errno.ENAMETOOLONG: "give a shorter --out",
    errno.ELOOP: "put a file in its place, or give --out",
}

_CANNOT_SYNC_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF)
"""What file systems say that keep their folders safe by other means."""


def unwritable(path: Path, error: OSError) -> RunDirectoryError:
    """Give the error that says which file of a run cannot be written, why, and the way out."""
    way_out = _WAYS_OUT.get(error.errno or 0, _GO_ON)
    return RunDirectoryError(
        f"{path}: cannot be written: {error.strerror or error}; what was written before stays "
        f"valid, {way_out}"
    )


def open_file(path: Path, flags: int) -> int:
    """Open a file of a run for writing: itself, never what a link of its name leads to.

    A run may be somebody else's, and its names lead anywhere; a pipe would never let go.

    Raises:
        OSError: It cannot be opened, or is no regular file.

    """
    kind = OSError(errno.ELOOP, f"{path.name} is no file (a link, a pipe or a device)")
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a pipe that nobody reads
            raise kind from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise kind
    return descriptor


def sync_data(descriptor: int) -> None:
    """Bring the content of an open file to the disk, with as much about it as reading needs."""
    if sys.platform == "darwin":
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: of files that were made, renamed or deleted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_names(descriptor)
    finally:
        os.close(descriptor)


def sync_names(descriptor: int) -> None:
    """Do the same for a folder that is open."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise


def replace_file(path: Path, data: bytes, *, shown: Path | None = None) -> None:
    """Write a file that is there whole at any time: the old one, then the new one.

    Args:
        path: The file.
        data: What it is to hold.
        shown: Its name in an error; None: the path.

    Raises:
        RunDirectoryError: It cannot be written; what was there before is there still.

    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # never through a link that stands there
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(shown or path, error) from error
    finally:
        with suppress(OSError):  # it is gone where all went well
            temporary.unlink()


def displaced(descriptor: int, path: Path) -> str | None:
    """Say what became of an open file or folder that is no longer at its path.

    Raises:
        OSError: That cannot be found out.

    """
    opened = os.fstat(descriptor)
    is_there = False
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(opened, path.stat()):
            return None
        is_there = True
    if opened.st_nlink == 0 and is_there:
        return (
            "was replaced by another while it was written; what the other does not hold is lost, "
            "run the same command to collect it again"
        )
    if opened.st_nlink == 0:
        return (
            "was deleted while it was written; what it held is lost, run the same command to "
            "collect it again"
        )
    return f"was moved away or replaced while it was written; move it back and {_GO_ON}"


class Syncer:
    """Calls a function about once a second, in a thread of its own, until it is closed.

    The function must not raise: nobody would hear of it.
    """

    def __init__(self, sync: Callable[[], None], seconds: float = SYNC_SECONDS) -> None:
        self._sync = sync
        self._seconds = seconds
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, where it does not run already."""
        if self._thread is None:
            self._is_over.clear()
            self._thread = threading.Thread(target=self._run, name="gymcli sync", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, after the call that it is in."""
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._is_over.wait(self._seconds):
            self._sync()
