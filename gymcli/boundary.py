"""The border to somebody else's code: whatever it raises is attributed to one phase."""

from __future__ import annotations

import asyncio
import functools
import os
from types import TracebackType

from gymcli.errors import AttemptError, RunError, UsageError

__all__ = ["boundary", "described", "leave_copy"]


class _Boundary:
    """Attribute whatever somebody else's code raises in the block to one phase of an attempt.

    `sys.exit` counts, and so does a panic of a Rust extension or the outcome of a test framework,
    which are no `Exception`: each ends the attempt, never the run. What ends a run does so from in
    here as well: a disk that is full where a judge's answer is written down, a missing package.
    A cancellation passes where the task was asked to end; whoever awaits the task knows by whom.

    Raises:
        AttemptError: Ours as they are; all others as `error_class`, in one line.
        RunError, UsageError, KeyboardInterrupt: As they are.

    """

    __slots__ = ("_error_class",)

    def __init__(self, error_class: type[AttemptError]) -> None:
        self._error_class = error_class

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (AttemptError, RunError, UsageError)):
            return
        if isinstance(error, KeyboardInterrupt) or _was_asked_for(error) or _is_closed(error):
            return
        raise self._error_class(described(error)) from error


boundary = functools.cache(_Boundary)
"""Returns the boundary of a phase, `with boundary(SetupError):`. It holds no state of a block, so
one object serves all."""


def described(error: BaseException) -> str:
    """Name an exception of somebody else's code in one line: its class, and its text if any."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except BaseException as failed:  # noqa: BLE001  # its class says how it is put into words
        return f"{name} (its text cannot be read: {type(failed).__name__})"
    return f"{name}: {text}" if text else name


def leave_copy(process: int) -> None:
    """End this process at once if it is a forked copy that came back from somebody else's code.

    A copy that went on would be a second writer of the run.

    Args:
        process: The id of the process that made the call.

    """
    if os.getpid() != process:
        os._exit(0)


def _is_closed(error: BaseException) -> bool:
    """Return whether a coroutine that runs no more is being closed."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True


def _was_asked_for(error: BaseException) -> bool:
    """Return whether an error is a cancellation that this task was asked for by anybody."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
