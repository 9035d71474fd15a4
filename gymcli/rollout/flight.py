"""Code of an environment under way in a task of its own, awaited and limited from outside."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import TypeVar

from gymcli.environment.time_limit import UnaskedCancellationError
from gymcli.errors import AttemptError
from gymcli.rollout.event_loop import Watchdog

__all__ = ["Flight"]

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

_UNWIND_SECONDS = 1.0
"""How long the record of a task that was cancelled waits for what the task still notes in it."""


class Flight:
    """One task that plays an episode; the watchdog ends it where it waits beyond a limit.

    Nothing is thrown into the task but a cancellation. It has `close_timeout` seconds to end then;
    one that goes on is left behind, with a warning.
    """

    def __init__(self, watchdog: Watchdog, close_timeout: float) -> None:
        self.deadline = math.inf
        self.task: asyncio.Task[object] | None = None
        self.is_closing = False
        """The environment closes: a caller that is cancelled does not cut that short."""
        self._watchdog = watchdog
        self._close_timeout = close_timeout
        self._on_late: Callable[[], None] | None = None
        self._error: AttemptError | None = None
        """Of the limit that the task was ended at."""
        self._is_cancelled = False
        self._over: asyncio.Future[None] | None = None
        self._unwound: asyncio.Future[None] | None = None

    def limit(self, seconds: float, error: Callable[[], AttemptError]) -> None:
        """Limit what the task waits for from now on; it ends with this error where it is late."""
        self.call_late(seconds, lambda: self._end(error()))

    def call_late(self, seconds: float, on_late: Callable[[], None]) -> None:
        """Call a function in some seconds, unless another limit is set before."""
        if not self._is_cancelled:
            self.deadline = self._watchdog.now() + seconds
            self._on_late = on_late

    def unlimit(self) -> None:
        """Forget the limit.

        Raises:
            CancelledError: The task was told to end, and somebody else's code caught that.

        """
        if self._is_cancelled:
            raise asyncio.CancelledError
        self.deadline = math.inf

    async def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the task and return its result.

        Where the caller is cancelled, the task is cancelled too, unless it closes already. It is
        waited for until it closes, so that the record is written before; `gone` waits for its end.

        Raises:
            AttemptError: A limit was passed.
            UnaskedCancellationError: The coroutine was cancelled by its own doing.
            BaseException: Whatever the coroutine raised.

        """
        task = asyncio.create_task(coroutine)
        self.task = task
        self._over = asyncio.get_running_loop().create_future()
        task.add_done_callback(self._is_done)
        self._watchdog.watch(self)
        try:
            await self._over
        except asyncio.CancelledError:
            self._over = asyncio.get_running_loop().create_future()
            if task.done():
                self._is_done(task)
            elif not (self._is_cancelled or self.is_closing):
                self._unwound = asyncio.get_running_loop().create_future()
                self._cancel(self._close_timeout)
                await asyncio.wait((self._unwound,), timeout=_UNWIND_SECONDS)
            raise
        if self._error is not None:
            raise self._error
        if task.cancelled():
            raise UnaskedCancellationError("CancelledError, which nobody asked for")
        return task.result()

    def begin_to_close(self) -> None:
        """Let whoever cancelled the task go on: nothing comes to its record any more."""
        self.is_closing = True
        if self._unwound is not None and not self._unwound.done():
            self._unwound.set_result(None)

    @property
    def is_over(self) -> bool:
        """Whether the task has ended or was left behind."""
        return self._over is not None and self._over.done()

    async def gone(self) -> None:
        """Wait until the task has ended or is left behind."""
        if self._over is not None:
            await asyncio.wait((self._over,))

    def hurry(self, seconds: float) -> None:
        """Leave a task that tidies up behind after some seconds, rather than `close_timeout`."""
        if self.task is not None and not self.task.done():
            self._is_cancelled = True
            self._close_timeout = seconds
            self.deadline = min(self.deadline, self._watchdog.now() + seconds)

    def expire(self, now: float) -> None:
        """End the task at a limit; where it was told to end before, leave it behind."""
        self.deadline = math.inf
        if not self._is_cancelled:
            if self._on_late is not None:
                self._on_late()
            return
        self._finish()
        assert self.task is not None, "what is watched has begun"
        name = getattr(self.task.get_coro(), "__qualname__", "a task")
        _LOGGER.warning(
            "%s was told to end and goes on after %g seconds; it is left behind",
            name,
            self._close_timeout,
        )

    def _end(self, error: AttemptError) -> None:
        self._error = error
        self._cancel(self._close_timeout)

    def _cancel(self, seconds: float) -> None:
        self._is_cancelled = True
        self.deadline = self._watchdog.now() + seconds
        assert self.task is not None, "what is limited has begun"
        self.task.cancel()

    def _is_done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # it is raised by `run`, or comes after a failure on record
        self._finish()

    def _finish(self) -> None:
        self._watchdog.forget(self)
        self.begin_to_close()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
