"""Calls of other people's code within a time limit, one or many at once."""

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
    """Raised when a call ended with a CancelledError that nobody asked for."""


async def within(
    seconds: float,
    coroutine: Coroutine[object, object, T],
    *,
    close_timeout: float,
    now: Callable[[], float] = time.monotonic,
) -> T:
    """Await a coroutine in a task of its own and return its result.

    A coroutine that is late, or whose caller is cancelled, is cancelled and may take
    `close_timeout` seconds to tidy up. One that still goes on then is left behind, with a warning.
    A call that has returned is never late, however long it computed. The clock `now` counts the
    seconds; `Watchdog.now` stands still while the loop does.

    Raises:
        LateError: It did not end in time.
        UnaskedCancellationError: It was cancelled by its own doing.
        BaseException: Whatever the coroutine raised.
    """
    task = asyncio.create_task(_caught(coroutine))
    ends = now() + seconds
    try:
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
        raise UnaskedCancellationError("CancelledError, which nobody asked for") from error
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
    """Keep what would leave the event loop from a task: SystemExit."""
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

    None goes on when another has failed: what it asks or writes later would belong to nobody.
    """
    results: list[T] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
