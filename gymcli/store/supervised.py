"""What a supervised process of `gym collect` is handed by its supervisor, and tells it."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

__all__ = ["STACK_FILE", "Death", "Supervised", "Tag"]

STACK_FILE = "blocked.stack"
"""In the run directory: where `faulthandler` writes what the process did when it was ended."""

_SUPERVISOR_IS_GONE = 137


class Tag:
    """The words of the lines in which the run speaks to its supervisor."""

    DIRECTORY = "directory"
    """The run directory; a restart goes on with it."""
    PATIENCE = "patience"
    """Seconds from a signal until the run has ended by itself, at the latest."""
    COMMAND = "command"
    """The command with which the user goes on with this run."""
    RECORDED = "recorded"
    """A record of this life is on disk."""
    FINISHED = "finished"
    """The command is over, with this exit code."""


class Death(NamedTuple):
    """How the process of a run died."""

    how: str
    """The exit status, the signal, or that it was blocked."""
    stack: str = ""
    """The end of the stack file, where something was written into it."""


class Supervised(NamedTuple):
    """What the supervisor hands to the process that it forked."""

    report: int
    """The descriptor into which the run writes its lines."""
    guard: int
    """The descriptor that ends when the supervisor dies; nothing else is ever read from it."""
    process: int
    """The id of the run's process; forked copies of it report nothing."""
    signals: frozenset[signal.Signals]
    """Blocked until the run handles them."""
    death: Death | None = None
    """How the process before this one died, where its attempts are suspects."""
    directory: str | None = None
    """The run directory that the process before this one wrote."""

    def tell(self, tag: str, value: str = "") -> None:
        """Write a line to the supervisor; the value may hold any characters."""
        if os.getpid() != self.process:
            return
        line = f"{tag} {os.fsencode(value).hex()}\n".encode()
        try:
            os.write(self.report, line)
        except OSError:  # the supervisor is gone, and this process will be in a moment
            return

    def end_with_supervisor(self) -> None:
        """Start the thread that ends this process when its supervisor dies."""
        import threading  # late: only a supervised run needs it

        def wait() -> None:
            while os.read(self.guard, 1):
                pass
            os._exit(_SUPERVISOR_IS_GONE)

        threading.Thread(target=wait, name="gymcli guard", daemon=True).start()
