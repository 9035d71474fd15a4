"""Writes the files of a run so that they survive crashes: by appending lines or by renaming.

Written data survives the death of the process; synced data survives the death of the machine.
Appended lines are synced about once a second, in a thread. On macOS a drive may hold synced data in
its own cache for a while. `mend_file` cuts off an unfinished last line before a run resumes.
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

from gymcli.errors import EpisodeError, RunDirectoryError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import MAX_LINE_BYTES, TOO_LONG
from gymcli.store.supervised import out_of_reach
from gymcli.types import JSON_ERRORS

_SYNC_SECONDS = 1.0
"""The time between syncs: the most that a crash of the machine can lose."""

_GO_ON = "run the same command again to resume"
_MAKE_ROOM = f"make room and {_GO_ON}"
_OPEN_ACCESS = f"make it writable and {_GO_ON}, or use another --out"
_MORE_FILES = f"raise the limit (ulimit -n) or lower --concurrency, and {_GO_ON}"
_COLLECT_AGAIN = "run the same command to collect it again"
_WAYS_OUT = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: f"raise the limit on file size (ulimit -f) and {_GO_ON}",
    errno.EACCES: _OPEN_ACCESS,
    errno.EPERM: _OPEN_ACCESS,
    errno.EROFS: _OPEN_ACCESS,
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
    errno.ENAMETOOLONG: "use a shorter --out",
    errno.ELOOP: "replace it with a regular file, or use another --out",
}

_CANNOT_SYNC_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF)
"""Errors of file systems where folders need no sync."""


def write_error(path: Path, error: OSError) -> RunDirectoryError:
    """Return the error for a file that cannot be written, with the reason and the remedy."""
    remedy = _WAYS_OUT.get(error.errno or 0, _GO_ON)
    return RunDirectoryError(
        f"{path}: cannot be written: {error.strerror or error}; earlier data is intact, {remedy}"
    )


def open_file(path: Path, flags: int) -> int:
    """Open a regular file of a run for writing; OSError if it is anything else.

    A run may come from someone else: a link could point anywhere, and a pipe would block forever.
    The descriptor is out of the reach of environment code that writes to whatever it inherits.
    """
    kind = OSError(errno.ELOOP, f"{path.name} is not a regular file (a link, a pipe or a device)")
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a pipe without a reader
            raise kind from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise kind
    return out_of_reach(descriptor)


def open_folder(path: Path) -> int:
    """Open a folder of a run, out of the reach of environment code like its files."""
    return out_of_reach(os.open(path, os.O_RDONLY | os.O_DIRECTORY))


def reserved_descriptor() -> int:
    """Return a descriptor that keeps a place for a file that is opened later."""
    return out_of_reach(os.open(os.devnull, os.O_RDONLY))


def _sync_data(descriptor: int) -> None:
    if sys.platform == "darwin":  # which has no fdatasync
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)  # the data and the size, but no times


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder after files were created, renamed or deleted."""
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


def replace_file(path: Path, data: bytes, *, display_path: Path | None = None) -> None:
    """Replace a file by rename, so that it is complete at any time; errors name `display_path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # "x": never through an existing link
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(display_path or path, error) from error
    finally:
        with suppress(OSError):  # it was renamed unless an error occurred
            temporary.unlink()


def displaced(descriptor: int, path: Path) -> str | None:
    """Return what happened to an open file or folder; None if it is still at its path."""
    opened = os.fstat(descriptor)
    fate = "was deleted while it was being written; its content is lost"
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(opened, path.stat()):
            return None
        fate = "was replaced while it was being written; the content of the old one is lost"
    if opened.st_nlink:
        return f"was moved or replaced while it was being written; move it back and {_GO_ON}"
    return f"{fate}, {_COLLECT_AGAIN}"


class Syncer:
    """Calls a function, which must not raise, about once a second in its own thread."""

    def __init__(self, sync: Callable[[], None], seconds: float = _SYNC_SECONDS) -> None:
        self._sync = sync
        self._seconds = seconds
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._is_over.clear()
            self._thread = threading.Thread(target=self._run, name="gymcli sync", daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._is_over.wait(self._seconds):
            self._sync()


class LineAppender:
    """Appends whole lines of JSON to a file, without the secrets that `scrubber` knows.

    One thread calls `append` and `close`; another may call `sync` at the same time.
    """

    def __init__(self, path: Path, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self.path = path
        self.failure: str | None = None
        """The error of a sync; the next `append`, `check` or `close` raises it."""
        self.is_told = False
        """Whether the failure was raised before."""
        self._scrubber = scrubber
        self._place = path.absolute()
        self._descriptor: int | None = None
        self._folder: int | None = None
        """Open until the entry of a new file is synced."""
        self._num_bytes = 0
        """The length that the file must have at least."""
        self._reserved: list[int] = []
        """Descriptors reserved for this file until it is opened."""
        self._is_dirty = False
        self._is_torn = False
        self._syncing = threading.Lock()
        """Held while the descriptor must stay open."""

    def reserve(self) -> None:
        """Reserve descriptors for the file and its folder before connections use them all."""
        try:
            while self._descriptor is None and len(self._reserved) < 2:
                self._reserved.append(reserved_descriptor())
        except OSError as error:
            raise write_error(self.path, error) from error

    def _free_reserved(self) -> None:
        while self._reserved:
            os.close(self._reserved.pop())

    def append(self, data: bytes) -> None:
        """Append one line.

        Raises:
            EpisodeError: It is longer than what readers accept, and was not written.
            RunDirectoryError: It or an earlier one cannot be written.
        """
        if self.failure is not None:
            self.check()
        if self._is_torn:
            raise RunDirectoryError(f"{self.path}: ends in an incomplete line; {_MAKE_ROOM}")
        line = self._scrubber.line(data) + b"\n"
        if len(line) > MAX_LINE_BYTES:  # it would make the whole file unreadable
            raise EpisodeError(f"the record {TOO_LONG}")
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
        folder = open_folder(self._place.parent)
        try:
            descriptor = open_file(self._place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError:
            os.close(folder)
            raise
        self._num_bytes = os.fstat(descriptor).st_size
        self._folder, self._descriptor = folder, descriptor
        return descriptor

    def _write_rest(self, descriptor: int, line: bytes, written: int) -> None:
        # An almost full disk, a limit or a signal can interrupt a write halfway.
        self._is_torn = True
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError as error:
            # The torn start is cut off, so that the next line does not continue it.
            with suppress(OSError):
                end = os.lseek(descriptor, 0, os.SEEK_END)
                os.ftruncate(descriptor, end - written)
                self._is_torn = False
            raise write_error(self.path, error) from error
        self._is_torn = False

    def sync(self) -> None:
        """Sync the lines so far; set `failure` on an error."""
        with self._syncing:
            descriptor = self._descriptor
            if descriptor is None or self.failure is not None:
                return
            try:
                num_bytes = self._num_bytes  # before `fstat`, since `append` may run meanwhile
                fate = displaced(descriptor, self._place)
                if fate is None and os.fstat(descriptor).st_size < num_bytes:
                    fate = (
                        "was truncated by another program while it was being written; its "
                        f"content is lost, {_COLLECT_AGAIN}"
                    )
                if fate is not None:
                    self.failure = f"{self.path}: {fate}"
                    return
                # Cleared first: a line that is appended meanwhile waits for the next sync.
                is_dirty, self._is_dirty = self._is_dirty, False
                if is_dirty:
                    _sync_data(descriptor)
                if self._folder is not None:
                    _sync_names(self._folder)
                    self._close_folder()
            except OSError as error:
                # Not retried: the kernel drops pages that it failed to write, and the next fsync
                # would report success (https://lwn.net/Articles/752063/).
                self.failure = str(write_error(self.path, error))

    def check(self) -> None:
        if self.failure is not None:
            self.is_told = True
            raise RunDirectoryError(self.failure)

    def close(self) -> None:
        """Sync the lines and close the file; raise the error of a sync unless already raised."""
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
    """Cut off the unfinished end of a file; return whether it had one.

    That is an incomplete last line without a newline, and trailing lines with NUL bytes: after a
    power failure a file can be longer than the data that reached the disk.
    """
    with os.fdopen(open_file(path, os.O_RDWR), "r+b") as file:
        descriptor = file.fileno()
        end = file.seek(0, os.SEEK_END)
        start = _line_start(descriptor, end)
        # Only the newline is missing: without it, the next record would continue this line.
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
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = _line_start(file.fileno(), end)
        if end - start <= MAX_LINE_BYTES and not _read(file.fileno(), start, end).strip():
            return False
        return not _is_whole(file.fileno(), start, end)


def _line_start(descriptor: int, end: int) -> int:
    position = end
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _is_whole(descriptor: int, start: int, end: int) -> bool:
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
