"""Reads the paths that calls name, and runs coroutines for callers that do not await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Protocol, TypeVar

from gymcli.errors import UsageError
from gymcli.rollout.event_loop import LoopRunner, run

T = TypeVar("T")


def run_path(function: str, run: object) -> Path:
    """Return the path of a run that was passed to a function of this name.

    Raises:
        UsageError: It is not a path.
    """
    if isinstance(run, str | Path):
        return Path(run)
    raise UsageError(f"{function}: {run!r} is not the path of a run or of a folder")


class CoroutineRunner(Protocol):
    """A function that runs a coroutine to its end."""

    def __call__(self, main: Coroutine[object, object, T], /) -> T: ...


def run_blocking(main: Coroutine[object, object, T], /) -> T:
    """Run a coroutine in a new event loop, which is in a thread if this thread runs one already.

    Raises:
        KeyboardInterrupt: The call was interrupted; the coroutine was cancelled.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run(main)  # which leaves behind what does not end when it is cancelled
    with LoopRunner() as loop:
        return loop.run(main)


def call_blocking(function: Callable[[], T]) -> T:
    """Call a function that runs an event loop, in a thread if this thread runs one already.

    An interrupt does not wait for that thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function()
    return run_blocking(asyncio.to_thread(function))
