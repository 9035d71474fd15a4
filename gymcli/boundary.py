"""Where somebody else's code is called: whatever it raises is attributed to one phase."""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType

from gymcli.errors import AttemptError, RunError, UsageError

__all__ = ["boundary", "described", "is_cancellation"]


class _Boundary:
    """Attribute whatever somebody else's code raises in the block to one phase of an attempt.

    `sys.exit` counts, and so does a cancellation that nobody asked of this task: each ends the
    attempt, never the run. What ends a run does so from in here as well: a disk that is full
    where a judge's answer is written down, a package that is missing.

    Raises:
        AttemptError: Ours as they are; all others as `error_class`, in one line.
        RunError, UsageError: As they are.

    """

    __slots__ = ("_error_class",)

    def __init__(self, error_class: type[AttemptError]) -> None:
        self._error_class = error_class

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Look at what the block raised."""
        if error is None or isinstance(error, (AttemptError, RunError, UsageError)):
            return
        if not isinstance(error, (Exception, SystemExit, asyncio.CancelledError)):
            return
        if not is_cancellation(error):
            raise self._error_class(described(error)) from error


boundary = functools.cache(_Boundary)
"""Gives the boundary of a phase, `with boundary(SetupError):`; always the same, which keeps nothing
of a block."""


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
