"""Waiting for what other processes do."""

import subprocess
import time
from collections.abc import Callable

TOO_LONG = 300.0
"""Seconds after which a process hangs: far more than any machine needs."""


def wait_until(is_reached: Callable[[], object]) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + TOO_LONG
    while not is_reached():
        assert time.monotonic() < ends, "it never came to that"
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """Return the state of a process as `ps` names it; empty: it is gone, or only to be reaped."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return "" if state.startswith("Z") else state
