"""One worker process, seen from the parent: its start, the connection to it, and its end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import cast

from gymcli.errors import VerifierError, VerifierTimeoutError
from gymcli.scoring.worker import Call, Report
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["LEAVE_SECONDS", "START_SECONDS", "IdleWorkerDiedError", "WorkerProcess"]

START_SECONDS = 60.0
"""Seconds that a worker may take to start, and again to import what a call needs."""

LEAVE_SECONDS = 2.0
"""Seconds that an idle worker is given to leave by itself."""

_MAX_LINE_CHARACTERS = 1 << 16

_COMMAND = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from gymcli.scoring.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
"""Started by name and not with -m, which would find the module imported by its package."""


class IdleWorkerDiedError(VerifierError):
    """Raised when a worker turns out to have died since its last call; another one is asked."""


class WorkerProcess:
    """One worker process and the connection to it; used by one thread at a time.

    It does not get the environment variables that hold a secret: what it runs may be the work of
    a model. What it prints goes to this process's stderr, line by line.
    """

    def __init__(self, scrubber: Scrubber = NOTHING_SECRET) -> None:
        self._connection, theirs = Pipe()
        guarded, guard = os.pipe()
        self._guard: int | None = guard
        """The writing end of a pipe that breaks with this process, which the guard waits for."""
        handles = (theirs.fileno(), guarded)
        printed, prints = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, our own module
                # A search path with this process's own entries finds what it can import.
                [sys.executable, "-P", "-c", _COMMAND, *map(str, handles), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=prints,
                stderr=prints,
                env=scrubber.environment(os.environ),
                pass_fds=handles,
                start_new_session=True,  # Ctrl-C is the parent's to decide about
            )
        except BaseException:
            self._connection.close()
            os.close(guard)
            os.close(printed)
            raise
        finally:
            theirs.close()
            os.close(guarded)
            os.close(prints)
        self._relay = threading.Thread(target=_relay, args=(printed,), daemon=True)
        self._relay.start()
        self._has_served = False

    def ask(self, call: Call) -> Report:
        """Send a call and wait for how it ends.

        Raises:
            VerifierTimeoutError: The function took too long.
            IdleWorkerDiedError: The process had served before and died before it started this.
            VerifierError: The process died, or did not come to start the function.

        """
        has_served, has_started = self._has_served, False
        self._has_served = True
        name = call.name
        try:
            if not has_served:
                self._receive(START_SECONDS, VerifierError(f"{name}: no worker could be started"))
            self._connection.send_bytes(pickle.dumps(call))
            stuck = f"{name}: its module was not imported within {START_SECONDS:g} seconds"
            report = self._receive(START_SECONDS, VerifierError(stuck))
            if report.kind != "started":
                return report
            has_started = True
            late = f"{name} took longer than {call.timeout:g} seconds"
            return self._receive(call.timeout, VerifierTimeoutError(late))
        except (EOFError, OSError) as error:
            self.kill()
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            was_idle = has_served and not has_started
            kind = IdleWorkerDiedError if was_idle else VerifierError
            raise kind(f"{name}: its process died ({how})") from error

    def kill(self) -> None:
        """Kill the process and what it started."""
        if self._process.returncode is None:  # not waited for: the number is still its own
            # macOS refuses where all of a group have already ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the connection, which makes an idle process leave."""
        self._connection.close()

    def end(self, seconds: float = 0.0) -> None:
        """Wait for the process to leave, kill it if it does not, and release its handles."""
        self.hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()
        self._process.wait()
        self._release_guard()
        self._relay.join(LEAVE_SECONDS)  # what has left the group may hold the pipe for longer

    def _release_guard(self) -> None:
        """Let the guard see that the worker is no longer wanted, and end itself and the group."""
        guard, self._guard = self._guard, None
        if guard is not None:
            os.close(guard)

    def _receive(self, seconds: float, late: VerifierError) -> Report:
        if not self._connection.poll(seconds):
            raise late
        report = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # both ends are ours
        return cast("Report", report)


def _relay(printed: int) -> None:
    """Hand on what a worker prints, as progress: through this stderr, which hides secrets."""
    with open(printed, encoding="utf-8", errors="replace") as lines:  # of the pipe
        while line := lines.readline(_MAX_LINE_CHARACTERS):
            with suppress(OSError, ValueError):  # closed, or its reader has left
                sys.stderr.write(line)
                sys.stderr.flush()
