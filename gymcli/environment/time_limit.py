"""Calls third-party code within a time limit, one call or many in parallel."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

from gymcli.errors import leave_copy

__all__ = ["LateError", "UnaskedCancellationError", "gather_all", "within"]


T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)


class LateError(Exception):
    """Raised when a call did not end within its time limit."""


class UnaskedCancellationError(Exception):
    """Raised when a call ended with a CancelledError although nobody cancelled it."""


async def within(
    seconds: float,
    coroutine: Coroutine[object, object, T],
    *,
    close_timeout: float,
    now: Callable[[], float] = time.monotonic,
) -> T:
    """Await a coroutine in a new task and return its result.

    A coroutine that is late, or whose caller is cancelled, is cancelled and may take
    `close_timeout` seconds to clean up. If it still runs then, it is abandoned with a warning. A
    call that has returned is never late, however long it computed. `now` is the clock;
    `Watchdog.now` stops while the event loop blocks.

    Raises:
        LateError: It did not end in time.
        UnaskedCancellationError: It raised a CancelledError by itself.
        BaseException: Whatever the coroutine raised.
    """
    task = asyncio.create_task(_caught(coroutine))
    ends = now() + seconds
    try:
        # Repeated, since the clock may have stood still during the wait.
        while not task.done() and (left := ends - now()) > 0:
            await asyncio.wait((task,), timeout=left)
    except asyncio.CancelledError:
        await _end(task, close_timeout)
        raise
    if not task.done():
        await _end(task, close_timeout)
        raise LateError
    result, error = task.result()
    if isinstance(error, asyncio.CancelledError):
        raise UnaskedCancellationError("CancelledError, which gymcli did not request") from error
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # without an error there is a result


async def _end(task: asyncio.Task[object], seconds: float) -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=seconds)
    if not task.done():
        name = getattr(task.get_coro(), "__qualname__", "a task")
        _LOGGER.warning(
            "%s is still running %g seconds after it was cancelled; abandoning it", name, seconds
        )


async def _caught(coroutine: Coroutine[object, object, T]) -> tuple[T | None, BaseException | None]:
    """Return errors instead of raising them: a SystemExit in a task would end the event loop."""
    process = os.getpid()
    try:
        return await coroutine, None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # it is raised where the call is awaited
        return None, error
    finally:
        leave_copy(process)


async def gather_all(calls: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Await all calls, then return their results in order, or raise the first error.

    It waits for all calls even if one fails, so that none still asks or writes afterwards.
    """
    results: list[T] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
