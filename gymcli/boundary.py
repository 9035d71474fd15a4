"""Where somebody else's code is called: whatever it raises is attributed to one phase."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from gymcli.errors import AttemptError, RunError, UsageError

__all__ = ["boundary", "described", "is_cancellation"]


@contextmanager
def boundary(error_class: type[AttemptError]) -> Iterator[None]:
    """Attribute whatever somebody else's code raises in the block to one phase of an attempt.

    `sys.exit` counts, and so does a cancellation that nobody asked of this task: each ends the
    attempt, never the run. What ends a run does so from in here as well: a disk that is full
    where a judge's answer is written down, a package that is missing.

    Raises:
        AttemptError: Ours as they are; all others as `error_class`, in one line.
        RunError, UsageError: As they are.

    """
    try:
        yield
    except (AttemptError, RunError, UsageError):
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if is_cancellation(error):
            raise
        raise error_class(described(error)) from error


def described(error: BaseException) -> str:
    """Name an exception of somebody else's code in one line: its class, and its text if any."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def is_cancellation(error: BaseException) -> bool:
    """Say whether an error is the cancellation of this task, not one that leaked from another."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
