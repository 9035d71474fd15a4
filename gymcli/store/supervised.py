"""The pipes between a process of `gym collect` and the supervisor that forked it."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple, NoReturn

STACK_FILE = "blocked.stack"
"""The file in the run directory with the stack of a blocked or dying process."""

_HIGH_NUMBERS = (200, 100, 64, 3)
"""The lowest number that a descriptor gets, or the next one if the limit of open files is lower."""
_NUM_OF_LIBRARY = 32
"""More descriptors than a library opens; without room for these, libuv ends the process."""
_MAX_STACK_CHARACTERS = 2000
_SUPERVISOR_IS_GONE = 137


def out_of_reach(descriptor: int) -> int:
    """Move a descriptor to a high number, and return that.

    Environment code may write to the descriptors that it inherits, or close them: from 3 on, until
    it meets none. Stdin, stdout and stderr may be closed and their numbers free.
    """
    for lowest in _HIGH_NUMBERS:
        if descriptor >= lowest:
            break
        with suppress(OSError):  # the limit of open files is lower, or reached
            moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
            os.close(descriptor)
            return moved
    return descriptor


@contextmanager
def opened_out_of_reach() -> Iterator[None]:
    """Give high numbers to all descriptors that are opened within the block.

    For those that a library opens and keeps: libuv crashes if it reads garbage from its own pipes.
    """
    lowest = _HIGH_NUMBERS[0]
    placeholders: list[int] = []
    try:
        try:
            while not placeholders or placeholders[-1] < lowest + _NUM_OF_LIBRARY:
                placeholders.append(os.open(os.devnull, os.O_RDONLY))
            num_kept = sum(descriptor < lowest for descriptor in placeholders)
        except OSError:  # the limit of open files is lower
            num_kept = len(placeholders) // 2
        while len(placeholders) > num_kept:
            os.close(placeholders.pop())
        yield
    finally:
        for descriptor in placeholders:
            os.close(descriptor)


class Tag:
    """The first word of each line that the run writes to its supervisor."""

    DIRECTORY = "directory"
    """The run directory, where a restart resumes."""
    PATIENCE = "patience"
    """The most seconds that the run takes to end after a signal."""
    COMMAND = "command"
    """The command with which the user resumes this run."""
    RECORDED = "recorded"
    """This process has written its first record."""
    FINISHED = "finished"
    """The command has ended with this exit code."""


class Death(NamedTuple):
    """The death of a run's process."""

    how: str
    """The exit status or signal, or the report that the process was blocked."""
    stack: str = ""
    """The end of the stack file, if anything was written to it."""


class Supervised(NamedTuple):
    """The link of a forked process to its supervisor."""

    report: int
    """The descriptor for the lines to the supervisor."""
    guard: int
    """The descriptor that reaches its end of file when the supervisor dies; it has no content."""
    process: int
    """The id of the run's process; forked copies of it report nothing."""
    signals: frozenset[signal.Signals]
    """Blocked until the run handles them."""
    death: Death | None = None
    """How the previous process died, if its attempts are suspects."""
    directory: str | None = None
    """The run directory of the previous process."""

    def tell(self, tag: str, value: str = "") -> None:
        """Write a line to the supervisor; the value may hold any characters."""
        if os.getpid() != self.process:
            return
        # In hex, since a path may hold a line break; after a line break, since an environment may
        # have written garbage to this descriptor.
        line = f"\n{tag} {os.fsencode(value).hex()}\n".encode()
        try:
            os.write(self.report, line)
        except OSError:  # the supervisor is dead; the guard thread ends this process
            return

    def die(self, stack: str, stack_file: IO[str] | None) -> NoReturn:
        """End this process without a report, so that the supervisor restarts the run."""
        if stack_file is not None:
            with suppress(OSError, ValueError):  # closed by environment code or by the run's end
                stack_file.write(stack[-_MAX_STACK_CHARACTERS:])
                stack_file.flush()
        os._exit(1)

    def end_with_supervisor(self) -> None:
        import threading  # late: only a supervised run needs it

        if sys.platform == "linux":
            # SIGIO ends it even while a regular expression holds the GIL that the thread needs.
            fcntl.fcntl(self.guard, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(self.guard, fcntl.F_SETFL, os.O_ASYNC)

        def wait() -> None:
            while os.read(self.guard, 1):
                pass
            # sys.exit would end only this thread, and the main thread may be blocked.
            os._exit(_SUPERVISOR_IS_GONE)

        threading.Thread(target=wait, name="gymcli guard", daemon=True).start()
