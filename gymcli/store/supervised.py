"""The pipes between a process of `gym collect` and the supervisor that forked it."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

__all__ = ["STACK_FILE", "Death", "Supervised", "Tag"]

STACK_FILE = "blocked.stack"
"""The file in the run directory where `faulthandler` writes the stack of a blocked process."""

_SUPERVISOR_IS_GONE = 137


class Tag:
    """The first word of each line that the run writes to its supervisor."""

    DIRECTORY = "directory"
    """The run directory, in which a restart continues."""
    PATIENCE = "patience"
    """The most seconds that the run takes to end by itself after a signal."""
    COMMAND = "command"
    """The command with which the user resumes this run."""
    RECORDED = "recorded"
    """This process has written its first record."""
    FINISHED = "finished"
    """The command is over, with this exit code."""


class Death(NamedTuple):
    """How the process of a run died."""

    how: str
    """The exit status, the signal, or that it was blocked."""
    stack: str = ""
    """The end of the stack file, where something was written into it."""


class Supervised(NamedTuple):
    """The link of a forked process to its supervisor."""

    report: int
    """The descriptor to which the run writes its lines."""
    guard: int
    """The descriptor whose end of file says that the supervisor is dead; it has no content."""
    process: int
    """The id of the run's process; forked copies of it report nothing."""
    signals: frozenset[signal.Signals]
    """Blocked until the run handles them."""
    death: Death | None = None
    """How the previous process died, where its attempts are suspects."""
    directory: str | None = None
    """The run directory of the previous process."""

    def tell(self, tag: str, value: str = "") -> None:
        """Write a line to the supervisor; the value may hold any characters."""
        if os.getpid() != self.process:
            return
        line = f"{tag} {os.fsencode(value).hex()}\n".encode()
        try:
            os.write(self.report, line)
        except OSError:  # the supervisor is dead; the guard thread ends this process
            return

    def end_with_supervisor(self) -> None:
        """Start the thread that ends this process when its supervisor dies."""
        import threading  # late: only a supervised run needs it

        def wait() -> None:
            while os.read(self.guard, 1):
                pass
            os._exit(_SUPERVISOR_IS_GONE)

        threading.Thread(target=wait, name="gymcli guard", daemon=True).start()
