"""Standard output and standard error that are full, closed, or left by their reader.

Results that cannot be written are an error; messages that cannot be are lost, and the work goes on.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from gymcli.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["guard_outputs"]


def guard_outputs() -> None:
    """Stand beneath stdout and stderr for the rest of the process, also where they are closed.

    A descriptor that is closed would otherwise be given to the next file that is opened, which
    then gets what is meant for the terminal. Results go to a copy of descriptor 1, which no child
    inherits, and 1 leads to stderr from now on: libraries and children print there what a reader of
    results must not get. Streams that somebody has put in their place stay.
    """
    is_closed = [_fill(number) for number in range(3)]
    if sys.stdout is sys.__stdout__:
        kept = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        os.dup2(2, 1)
        sys.stdout = _text(_Descriptor(kept, _end, is_closed=is_closed[1]), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Descriptor(2, _go_on, is_closed=is_closed[2]), sys.stderr)


def _fill(number: int) -> bool:
    """Say whether a standard descriptor is closed; it leads nowhere then."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)
        return True
    return False


def _text(raw: _Descriptor, before: TextIO | None) -> TextIO:
    """Give a text stream like the one before, which is None where its descriptor was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=before.errors if before else "backslashreplace",
        line_buffering=bool(getattr(before, "line_buffering", False)),
        write_through=bool(getattr(before, "write_through", False)),
    )


class _Descriptor(io.FileIO):
    """A descriptor that takes everything once it has failed, so that it fails but once.

    Args:
        number: The descriptor's.
        lose: Takes the failure.
        is_closed: It was closed before it could be used.

    """

    def __init__(self, number: int, lose: Callable[[OSError], None], *, is_closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._lose = lose
        self._is_closed = is_closed
        self._is_lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as much as goes; where the other end is slow and does not block, wait for it."""
        if self._is_lost:
            return memoryview(data).nbytes
        try:
            if self._is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            while (written := self._written(data)) is None:
                select.select((), (self,), ())
        except OSError as error:
            self._is_lost = True
            self._lose(error)
            return memoryview(data).nbytes
        return written

    def _written(self, data: ReadableBuffer) -> int | None:
        return super().write(data)


def _end(error: OSError) -> None:
    """End the command: its results cannot be written."""
    if isinstance(error, BrokenPipeError):
        raise error
    raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _go_on(error: OSError) -> None:
    """Go on: nobody could be told that messages cannot be written."""
