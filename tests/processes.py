"""Wait for other processes."""

import signal
import subprocess
import time
from collections.abc import Callable

TOO_LONG = 300.0
"""Seconds after which a process counts as hanging: far more than any machine needs."""


def heed_signals(hangup: signal.Handlers = signal.SIG_DFL) -> str:
    """Return the first line of the code of a process that a test sends signals to.

    A background job of a shell inherits an ignored SIGINT, and a command under nohup an ignored
    SIGHUP.
    """
    return (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"signal.signal(signal.SIGHUP, signal.{hangup.name})"
    )


def wait_until(is_reached: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + TOO_LONG
    while not is_reached():
        assert time.monotonic() < ends, "the condition never held"
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """Return the state of a process as `ps` names it; empty if it ended, even if not yet reaped."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return "" if state.startswith("Z") else state
