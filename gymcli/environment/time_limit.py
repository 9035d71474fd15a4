"""Time limits: of calls of third-party code, of blocks, and the clock that they are counted by.

The clock stands still while the event loop does. Otherwise code that computes, or a stop of the
process (Ctrl-Z, a paused container), would count against everything that waits meanwhile. For the
same reason the time that a thread waits for a CPU can be told apart from the time it runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

MAX_STRETCH = 4.0
"""How many times a limit may pass if time without a CPU does not count against it."""
_BEAT_SECONDS = 0.2
_PAUSE_SECONDS = 0.45
"""So long after the last beat, the event loop has stood still."""


class LateError(Exception):
    """Raised when a call did not end within its time limit."""


class UnaskedCancellationError(Exception):
    """Raised when a call ended with a CancelledError although nobody cancelled it."""


class LoopClock:
    """A clock that pauses while the running event loop is blocked or the process is stopped.

    An async context manager; outside its block it is `time.monotonic`.
    """

    def __init__(self) -> None:
        self.beat_at = 0.0
        """When it last beat, by `time.monotonic`; it does so several times a second."""
        self._lost = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        moment = time.monotonic()
        # The loop may call a timer after a pause before it calls `_beat`.
        if self._timer is not None and moment - self.beat_at > _PAUSE_SECONDS:
            moment = self.beat_at + _BEAT_SECONDS
        return moment - self._lost

    async def __aenter__(self) -> Self:
        self.beat_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(_BEAT_SECONDS, self._beat)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check_deadlines(self, moment: float) -> None:
        """Act on deadlines before this moment of the clock; called at each beat."""

    def _beat(self) -> None:
        before = self.beat_at - self._lost
        moment = time.monotonic()
        seconds, self.beat_at = moment - self.beat_at, moment
        self._timer = asyncio.get_running_loop().call_later(_BEAT_SECONDS, self._beat)
        if seconds > _PAUSE_SECONDS:
            self._lost += seconds - _BEAT_SECONDS
            self.check_deadlines(before)  # what is ready gets its turn first
        else:
            self.check_deadlines(moment - self._lost)


def cpu_wait(process: int, thread: int) -> float:
    """Return for how many seconds in all a thread has waited for a CPU; 0 except on Linux."""
    try:
        schedule = Path(f"/proc/{process}/task/{thread}/schedstat").read_text()
    except OSError:
        return 0.0
    return int(schedule.split()[1]) / 1e9


def cpu_waits(process: int) -> dict[int, float]:
    """Return `cpu_wait` of every thread of a process and of its descendants, by thread id."""
    waits: dict[int, float] = {}
    with suppress(OSError):  # the process has ended, or this is not Linux
        for task in Path(f"/proc/{process}/task").iterdir():
            waits[int(task.name)] = cpu_wait(process, int(task.name))
            with suppress(OSError):  # the thread has ended, or the kernel lists no children
                for child in (task / "children").read_text().split():
                    waits |= cpu_waits(int(child))
    return waits


@asynccontextmanager
async def time_limit(
    seconds: float | None, now: Callable[[], float] = time.monotonic
) -> AsyncGenerator[asyncio.Timeout]:
    """Limit a block as `asyncio.timeout` does, by a clock that may pause, such as `LoopClock.now`.

    Raises:
        TimeoutError: The block took longer; `expired()` of the yielded scope is then true.
    """
    async with asyncio.timeout(None) as scope:
        if seconds is None:
            yield scope
            return
        loop = asyncio.get_running_loop()
        ends = now() + seconds
        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer
            seconds_left = ends - now()
            if seconds_left > 0:
                timer = loop.call_later(seconds_left, check)
            else:
                scope.reschedule(loop.time())

        timer = loop.call_later(seconds, check)
        try:
            yield scope
        finally:
            timer.cancel()


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
    call that has returned is never late, however long it computed. `now` is the clock, such as
    `LoopClock.now`.

    Raises:
        LateError: It did not end in time.
        UnaskedCancellationError: It raised a CancelledError by itself.
        BaseException: Whatever the coroutine raised.
    """
    task = asyncio.create_task(_caught(coroutine))
    ends = now() + seconds
    try:
        # Repeated, since the clock may have stood still during the wait.
        while not task.done() and (seconds_left := ends - now()) > 0:
            await asyncio.wait((task,), timeout=seconds_left)
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


def leave_copy(process: int) -> None:
    """End this process if it is a fork that returned from third-party code.

    A fork that continued would be a second writer of the run. `process` is the id of the process
    that made the call.
    """
    if os.getpid() != process:
        os._exit(0)
