"""The lock of a run directory: one process writes to it, and its death releases the lock."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from gymcli.errors import RunDirectoryError
from gymcli.store.durability import displaced, open_file, open_folder, sync_folder, write_error

LOCK = ".lock"
"""Names the process that writes the run."""

_CANNOT_LOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class RunLock:
    """Holds a run directory for this process.

    Both the folder and a file in it are locked, because network file systems show other machines
    only the locks of files. The system owns both locks: a dead process's lock file locks nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = path.absolute()
        self._descriptors: list[int] = []
        """Of the folder and of the file in it, while they are locked."""

    def take(self) -> None:
        """Create the directory and lock it; RunDirectoryError if another process holds it."""
        try:
            new = [path for path in (self._place, *self._place.parents) if not path.exists()]
            self._place.mkdir(parents=True, exist_ok=True)
            # A crash would lose a new folder whose entry was not synced, with all files in it.
            for path in new:
                sync_folder(path.parent)
        except OSError as error:
            reason = error.strerror or str(error)
            if isinstance(error, FileExistsError | NotADirectoryError):
                paths = (self.path, *self.path.parents)
                file = next((path for path in paths if path.is_file()), self.path)
                reason = f"{file} is a file, not a folder"
            raise RunDirectoryError(
                f"{self.path}: cannot be created: {reason}; use another --out"
            ) from error
        try:
            self._take()
        except BlockingIOError as error:
            self._close()
            raise RunDirectoryError(
                f"{self.path}: another process is writing this run{self._holder()}; wait for it "
                "or use another --out"
            ) from error
        except OSError as error:
            self._close()
            if error.errno in _CANNOT_LOCK:
                raise RunDirectoryError(
                    f"{self.path}: its file system cannot lock ({error.strerror}), so another "
                    "process could write the same run; use --out on another file system"
                ) from error
            raise write_error(self.path, error) from error

    def free(self) -> None:
        # The file is deleted while it is locked: later it might be that of the next holder.
        with suppress(OSError):  # a leftover file locks nothing
            if self._descriptors and displaced(self._descriptors[0], self._place) is None:
                (self._place / LOCK).unlink()
        self._close()

    def is_held_here(self) -> bool:
        """Return whether this process holds the directory through any `RunLock`."""
        return any(lock._place == self._place and lock._descriptors for lock in _held())  # noqa: SLF001

    def displaced(self) -> str | None:
        """Return what happened to the directory; None if it is still at its path."""
        fate = displaced(self._descriptors[0], self._place) if self._descriptors else None
        return fate and f"{self.path}: {fate}"

    def _take(self) -> None:
        _held().add(self)  # before any descriptor is open, since another thread may fork
        self._lock(open_folder(self._place))
        descriptor = self._lock(open_file(self._place / LOCK, os.O_RDWR | os.O_CREAT))
        if displaced(descriptor, self._place / LOCK) is not None:
            raise BlockingIOError  # its holder, on another machine, is just releasing it
        with suppress(OSError):  # a full disk; then messages do not name the holder
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())

    def _lock(self, descriptor: int) -> int:
        self._descriptors.append(descriptor)
        # Not lockf: its locks end when the process closes any other descriptor of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def _holder(self) -> str:
        try:
            written, host = (self._place / LOCK).read_text()[:1_000].split()
            number = int(written)
            if host == socket.gethostname():
                os.kill(number, 0)
        except PermissionError:
            pass  # it is alive and belongs to another user
        except (OSError, ValueError, OverflowError):
            return ""
        return f" (process {number} on {host})"

    def _close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


@contextmanager
def shared_run_lock(path: Path) -> Iterator[None]:
    """Share the lock of a run while reading it; RunDirectoryError if a process is writing to it."""
    with ExitStack() as stack:
        for place, flags in ((path, os.O_DIRECTORY), (path / LOCK, os.O_NOFOLLOW | os.O_NONBLOCK)):
            try:
                descriptor = os.open(place, os.O_RDONLY | flags)
            except FileNotFoundError:
                continue  # nobody holds it
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunDirectoryError(
                    f"{path}: is being written by another process; wait until it ends"
                ) from error
            except OSError as error:
                if error.errno not in _CANNOT_LOCK:  # writers need locks
                    raise
        yield


@cache
def _held() -> weakref.WeakSet[RunLock]:
    """Return the locks of this process; forked processes close them.

    A process that an environment forks would otherwise hold the locks after this one dies. A fork
    hook cannot be removed, so it is registered once.
    """
    held: weakref.WeakSet[RunLock] = weakref.WeakSet()

    def let_go() -> None:
        for lock in held:
            lock._close()  # noqa: SLF001  # of this module

    os.register_at_fork(after_in_child=let_go)
    return held
