"""A file that grows by whole lines: each in a single write, and on the disk soon after."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from gymcli.errors import RunDirectoryError
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.durability import displaced, open_file, sync_data, sync_names, unwritable

__all__ = ["LineAppender"]

_NUM_DESCRIPTORS = 2
"""The file, and its folder until the name of the file is on the disk."""

CUT_OFF = (
    "was cut off by another program while it was written; what it held is lost, run the same "
    "command to collect it again"
)
"""What became of a file that is shorter than what was written into it."""


class LineAppender:
    """Appends whole lines to a file; after a part of one that cannot be cut off, no more.

    `append` and `close` belong to one thread; another may call `sync` meanwhile.

    Args:
        path: The file.
        scrubber: Takes the secrets out of each line, which is JSON.

    """

    def __init__(self, path: Path, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self.path = path
        self.failure: str | None = None
        """What went wrong while nobody listened; the next `append`, `check` or `close` says it."""
        self.is_told = False
        """The caller knows of the failure."""
        self._scrubber = scrubber
        self._place = path.absolute()
        self._descriptor: int | None = None
        self._folder: int | None = None
        """Open until the name of a file that was made is on the disk."""
        self._num_bytes = 0
        """As long as the file is at least, by what stood in it and what was appended."""
        self._reserved: list[int] = []
        """Descriptors that are kept free for this file, until it is opened."""
        self._is_dirty = False
        self._is_torn = False
        self._syncing = threading.Lock()
        """Held while the descriptor must stay open."""

    def reserve(self) -> None:
        """Hold as many descriptors as the file needs, before connections take what there is.

        Raises:
            RunDirectoryError: There are none.

        """
        try:
            while self._descriptor is None and len(self._reserved) < _NUM_DESCRIPTORS:
                self._reserved.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _free_reserved(self) -> None:
        while self._reserved:
            os.close(self._reserved.pop())

    def append(self, data: bytes) -> None:
        """Append one line; the file is made when the first line comes.

        Raises:
            RunDirectoryError: The line could not be written whole, or one before it was not, or
                could not be brought to the disk.

        """
        if self.failure is not None:
            self.check()
        if self._is_torn:
            raise RunDirectoryError(
                f"{self.path}: ends in a line that could not be written whole; make room and run "
                "the same command to go on"
            )
        line = self._scrubber.line(data) + b"\n"
        try:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._opened()
            written = os.write(descriptor, line)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._is_dirty = True
        if written != len(line):
            self._write_rest(descriptor, line, written)
        self._num_bytes += len(line)

    def _opened(self) -> int:
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
        """Write what a first write left; where that cannot be, cut off what is there of the line.

        A disk that is almost full, a limit or a signal makes a write stop half way.
        """
        self._is_torn = True
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError as error:
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                os.ftruncate(descriptor, end - written)
            except OSError as left:
                raise unwritable(self.path, error) from left
            self._is_torn = False
            raise unwritable(self.path, error) from error
        self._is_torn = False

    def sync(self) -> None:
        """Bring the lines so far to the disk; what goes wrong stands in `failure`."""
        with self._syncing:
            descriptor = self._descriptor
            if descriptor is None or self.failure is not None:
                return
            try:
                num_bytes = self._num_bytes  # before it is asked how many are there
                fate = displaced(descriptor, self._place)
                if fate is None and os.fstat(descriptor).st_size < num_bytes:
                    fate = CUT_OFF
                if fate is not None:
                    self.failure = f"{self.path}: {fate}"
                    return
                # Cleared first: a line that comes meanwhile is for the next time.
                is_dirty, self._is_dirty = self._is_dirty, False
                if is_dirty:
                    sync_data(descriptor)
                if self._folder is not None:
                    sync_names(self._folder)
                    self._close_folder()
            except OSError as error:
                # Not tried again: the system forgets what it could not write, and would say that
                # all is well (https://lwn.net/Articles/752063/).
                self.failure = str(unwritable(self.path, error))

    def check(self) -> None:
        """Say what went wrong while nobody listened.

        Raises:
            RunDirectoryError: Something did.

        """
        if self.failure is not None:
            self.is_told = True
            raise RunDirectoryError(self.failure)

    def close(self) -> None:
        """Bring the lines to the disk and close the file; a later append opens it again.

        Raises:
            RunDirectoryError: They are not on the disk, and no call before said so.

        """
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
