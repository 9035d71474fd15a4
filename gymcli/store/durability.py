"""Writes the files of a run so that they survive: lines are appended, whole files replaced.

A write outlives the process that made it; a sync outlives the machine. Appended lines are synced
about once a second, in a thread. On macOS a drive may hold what was synced in its own cache for a
while. What a writer left unfinished when it died is cut off (`mend_file`) before a run goes on.
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

import msgspec

from gymcli.errors import RunDirectoryError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import MAX_LINE_BYTES
from gymcli.types import JSON_ERRORS

__all__ = [
    "LineAppender",
    "Syncer",
    "displaced",
    "mend_file",
    "open_file",
    "replace_file",
    "sync_folder",
    "unfinished_end",
    "write_error",
]


_SYNC_SECONDS = 1.0
"""How long a line may wait for the disk while the machine stays up."""

_GO_ON = "run the same command to go on"
_MAKE_ROOM = f"make room and {_GO_ON}"
_OPEN_ACCESS = f"make it writable and {_GO_ON}, or give --out"
_MORE_FILES = f"raise the limit (ulimit -n) or lower --concurrency, and {_GO_ON}"
_COLLECT_AGAIN = "run the same command to collect it again"
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
"""Errors of file systems that keep their folders safe by other means."""


def write_error(path: Path, error: OSError) -> RunDirectoryError:
    """Return the error of a file that cannot be written, with the reason and the way out."""
    way_out = _WAYS_OUT.get(error.errno or 0, _GO_ON)
    return RunDirectoryError(
        f"{path}: cannot be written: {error.strerror or error}; what was written before stays "
        f"valid, {way_out}"
    )


def open_file(path: Path, flags: int) -> int:
    """Open a regular file of a run for writing; OSError where it is anything else.

    A run may come from somebody else: a link could lead anywhere, and a pipe would block forever.
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


def _sync_data(descriptor: int) -> None:
    if sys.platform == "darwin":
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder: of files that were made, renamed or deleted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _sync_names(descriptor)
    finally:
        os.close(descriptor)


def _sync_names(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise


def replace_file(path: Path, data: bytes, *, shown: Path | None = None) -> None:
    """Replace a file by rename, so that it is whole at any time; `shown` is its name in errors."""
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
        raise write_error(shown or path, error) from error
    finally:
        with suppress(OSError):  # it is gone where all went well
            temporary.unlink()


def displaced(descriptor: int, path: Path) -> str | None:
    """Return what became of an open file or folder; None where it is still at its path."""
    opened = os.fstat(descriptor)
    fate = "was deleted while it was written; what it held is lost"
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(opened, path.stat()):
            return None
        fate = "was replaced by another while it was written; what the other does not hold is lost"
    if opened.st_nlink:
        return f"was moved away or replaced while it was written; move it back and {_GO_ON}"
    return f"{fate}, {_COLLECT_AGAIN}"


class Syncer:
    """Calls a function, which must not raise, about once a second in a thread of its own."""

    def __init__(self, sync: Callable[[], None], seconds: float = _SYNC_SECONDS) -> None:
        self._sync = sync
        self._seconds = seconds
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs already."""
        if self._thread is None:
            self._is_over.clear()
            self._thread = threading.Thread(target=self._run, name="gymcli sync", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread after its current call."""
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._is_over.wait(self._seconds):
            self._sync()


class LineAppender:
    """Appends whole lines of JSON to a file, without the secrets that `scrubber` knows.

    `append` and `close` belong to one thread; another may call `sync` meanwhile.
    """

    def __init__(self, path: Path, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self.path = path
        self.failure: str | None = None
        """What went wrong in a sync; the next `append`, `check` or `close` raises it."""
        self.is_told = False
        """Whether the failure was raised before."""
        self._scrubber = scrubber
        self._place = path.absolute()
        self._descriptor: int | None = None
        self._folder: int | None = None
        """Open until the name of a file that was made is on the disk."""
        self._num_bytes = 0
        """The least length of the file."""
        self._reserved: list[int] = []
        """Descriptors that are kept for this file until it is opened."""
        self._is_dirty = False
        self._is_torn = False
        self._syncing = threading.Lock()
        """Held while the descriptor must stay open."""

    def reserve(self) -> None:
        """Hold descriptors for the file and its folder, before connections take them all."""
        try:
            while self._descriptor is None and len(self._reserved) < 2:
                self._reserved.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            raise write_error(self.path, error) from error

    def _free_reserved(self) -> None:
        while self._reserved:
            os.close(self._reserved.pop())

    def append(self, data: bytes) -> None:
        """Append one line; RunDirectoryError where it or an earlier one could not be written."""
        if self.failure is not None:
            self.check()
        if self._is_torn:
            raise RunDirectoryError(
                f"{self.path}: ends in a line that could not be written whole; {_MAKE_ROOM}"
            )
        line = self._scrubber.line(data) + b"\n"
        try:
            descriptor = self._open() if self._descriptor is None else self._descriptor
            written = os.write(descriptor, line)
        except OSError as error:
            raise write_error(self.path, error) from error
        self._is_dirty = True
        if written != len(line):
            self._write_rest(descriptor, line, written)
        self._num_bytes += len(line)

    def _open(self) -> int:
        self._free_reserved()
        folder = os.open(self._place.parent, os.O_RDONLY)
        try:
            descriptor = open_file(self._place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError:
            os.close(folder)
            raise
        self._num_bytes = os.fstat(descriptor).st_size
        self._folder, self._descriptor = folder, descriptor
        return descriptor

    def _write_rest(self, descriptor: int, line: bytes, written: int) -> None:
        # A disk that is almost full, a limit or a signal makes a write stop half way.
        self._is_torn = True
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError as error:
            with suppress(OSError):
                end = os.lseek(descriptor, 0, os.SEEK_END)
                os.ftruncate(descriptor, end - written)
                self._is_torn = False
            raise write_error(self.path, error) from error
        self._is_torn = False

    def sync(self) -> None:
        """Sync the lines so far; set `failure` where that fails."""
        with self._syncing:
            descriptor = self._descriptor
            if descriptor is None or self.failure is not None:
                return
            try:
                num_bytes = self._num_bytes  # before it is asked how many are there
                fate = displaced(descriptor, self._place)
                if fate is None and os.fstat(descriptor).st_size < num_bytes:
                    fate = (
                        "was cut off by another program while it was written; what it held is "
                        f"lost, {_COLLECT_AGAIN}"
                    )
                if fate is not None:
                    self.failure = f"{self.path}: {fate}"
                    return
                # Cleared first: a line that comes meanwhile is for the next time.
                is_dirty, self._is_dirty = self._is_dirty, False
                if is_dirty:
                    _sync_data(descriptor)
                if self._folder is not None:
                    _sync_names(self._folder)
                    self._close_folder()
            except OSError as error:
                # Not tried again: the system forgets what it could not write, and would say that
                # all is well (https://lwn.net/Articles/752063/).
                self.failure = str(write_error(self.path, error))

    def check(self) -> None:
        """Raise what went wrong in a sync, as a RunDirectoryError."""
        if self.failure is not None:
            self.is_told = True
            raise RunDirectoryError(self.failure)

    def close(self) -> None:
        """Sync the lines and close the file; raise a failure of a sync that nobody saw yet."""
        self.sync()
        self._free_reserved()
        with self._syncing:
            self._close_folder()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
        if not self.is_told:
            self.check()

    def _close_folder(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


_BLOCK_BYTES = 1 << 16


def mend_file(path: Path) -> bool:
    """Cut off what a writer left unfinished at the end of a file; return whether there was any.

    That is a last line without its newline, unless it is whole, and last lines with NUL bytes: a
    machine that loses its power can leave a file longer than what of it reached the disk.
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
    """Return whether the last line of a file has no newline and is not whole."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = _line_start(file.fileno(), end)
        if end - start <= MAX_LINE_BYTES and not _read(file.fileno(), start, end).strip():
            return False
        return not _is_whole(file.fileno(), start, end)


def _line_start(descriptor: int, end: int) -> int:
    """Return the offset after the last newline before `end`."""
    position = end
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _is_whole(descriptor: int, start: int, end: int) -> bool:
    """Return whether bytes of a file are one JSON object."""
    if end - start > MAX_LINE_BYTES:
        return False
    try:
        return isinstance(msgspec.json.decode(_read(descriptor, start, end)), dict)
    except JSON_ERRORS:
        return False


def _read(descriptor: int, start: int, end: int) -> bytes:
    end = min(end, start + MAX_LINE_BYTES)
    parts = []
    while start < end and (part := os.pread(descriptor, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
