"""Calls somebody else's async code within a time limit, and lets go of what ignores that."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from types import CoroutineType
from typing import Generic, NamedTuple, TypeVar, cast

from gymcli.boundary import described
from gymcli.deadlines.alarm import Alarm, OverrunError

__all__ = ["Limit", "limit_of", "within"]

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds that code which was cancelled may wait while it tidies up; twice, then it is left."""


class Limit(NamedTuple):
    """How long a call may take."""

    name: str
    """What is called, for messages."""
    seconds: float
    """From its beginning to its end, waiting included."""
    computing_seconds: float
    """At a stretch, without waiting for anything."""
    error: Callable[[str], Exception]
    """Makes the exception of a call that takes longer."""
    way_out: str = ""
    """Where `seconds` is set, for messages."""
    computing_way_out: str = "blocking_timeout"
    """Where `computing_seconds` is set."""

    def too_long(self) -> Exception:
        """Give the exception of a call that waited too long."""
        return self._error("took", self.seconds, self.way_out)

    def too_much(self) -> Exception:
        """Give the exception of a call that computed too long."""
        return self._error("computed for", self.computing_seconds, self.computing_way_out)

    def _error(self, verb: str, seconds: float, way_out: str) -> Exception:
        hint = f" ({way_out})" if way_out else ""
        return self.error(f"{self.name} {verb} longer than {seconds:g} seconds{hint}")


limit_of = functools.lru_cache(Limit)
"""Gives a limit as `Limit` does, and the same one for the same arguments: most calls have these."""


async def within(
    alarm: Alarm, limit: Limit, function: Callable[..., Awaitable[T]], *arguments: object
) -> T:
    """Call somebody else's async function and give its result, within a time limit.

    What was cancelled and goes on waiting is cancelled once more, and then left where it stands:
    it is never run again, and what it holds is lost. What ends after its time has no result.

    Raises:
        Exception: The limit's `error`: it took too long.

    """
    coroutines: list[CoroutineType[object, object, T]] = []
    seconds = limit.computing_seconds
    try:
        waits_for = alarm.interrupt(seconds, _begun, coroutines, function, arguments)
    except StopIteration as end:
        return cast("T", end.value)
    except OverrunError as error:
        for coroutine in coroutines:
            _leave(coroutine, alarm)
        raise limit.too_much() from error
    try:
        return await _in_time(_Steps(alarm, seconds, coroutines[0], waits_for), limit)
    except OverrunError as error:
        raise limit.too_much() from error


def _begun(
    coroutines: list[CoroutineType[object, object, T]],
    function: Callable[..., Awaitable[T]],
    arguments: tuple[object, ...],
) -> object:
    """Call a function, note its coroutine, and go on to its first wait, which is given.

    Raises:
        StopIteration: It does not wait; its result is the value.

    """
    try:
        found = function(*arguments)
    except StopIteration as error:
        raise RuntimeError("a function that should be async raised StopIteration") from error
    is_coroutine = type(found) is CoroutineType
    coroutine = cast("CoroutineType[object, object, T]", found if is_coroutine else _awaited(found))
    coroutines.append(coroutine)
    return coroutine.send(None)


async def _in_time(steps: _Steps[T], limit: Limit) -> T:
    """Wait for steps that have begun."""
    scope = asyncio.timeout(limit.seconds)
    cause: Exception | None = None
    try:
        async with scope:
            await steps
    except Exception as error:
        if not scope.expired():
            raise
        cause = error
    if scope.expired():
        raise limit.too_long() from cause
    return steps.result


class _Steps(Generic[T]):
    """A coroutine of somebody else that waits, run on to its end, each step under the alarm."""

    result: T

    def __init__(
        self,
        alarm: Alarm,
        seconds: float,
        coroutine: CoroutineType[object, object, T],
        waits_for: object,
    ) -> None:
        self._alarm = alarm
        self._seconds = seconds
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._is_over = False
        task = asyncio.current_task()
        assert task is not None, "a coroutine is awaited in a task"
        self._task = task
        self._num_before = task.cancelling()

    def _step(self, function: Callable[..., object], *arguments: object) -> None:
        """Go on to the next wait, or to the end.

        Raises:
            OverrunError: It took too long; the coroutine is left.

        """
        try:
            self._waits_for = self._alarm.call(self._seconds, function, *arguments)
        except StopIteration as end:
            self._is_over = True
            self.result = end.value
        except OverrunError:
            _leave(self._coroutine, self._alarm)
            raise

    def __await__(self) -> Generator[object, None, None]:
        """Run it to its end, as `await` of the coroutine itself would."""
        while not self._is_over:
            try:
                yield self._waits_for
            except GeneratorExit:
                _leave(self._coroutine, self._alarm)
                raise
            except BaseException as error:  # noqa: BLE001  # all of it is the coroutine's
                self._step(self._coroutine.throw, error)
            else:
                self._step(self._coroutine.send, None)
            if self._goes_on_cancelled and not isinstance(self._waits_for, _Tidying):
                yield from self._end().__await__()

    @property
    def _is_cancelled(self) -> bool:
        """Whether a cancellation stands; a time limit of the code itself takes its own back."""
        return self._task.cancelling() > self._num_before

    @property
    def _goes_on_cancelled(self) -> bool:
        return not self._is_over and self._is_cancelled

    async def _end(self) -> None:
        """Let a coroutine tidy up that was cancelled; cancel it once more, and then leave it.

        It goes on as before where it was cancelled by a time limit of its own, and that is over.

        Raises:
            asyncio.CancelledError: It is over without having raised that itself, or was left.

        """
        await self._tidied_up()
        if self._goes_on_cancelled:
            self._step(self._coroutine.throw, asyncio.CancelledError())
            await self._tidied_up()
        must_leave = self._goes_on_cancelled
        if must_leave:
            _leave(self._coroutine, self._alarm)  # which may take a cancellation back
        if must_leave or self._is_cancelled:
            raise asyncio.CancelledError

    async def _tidied_up(self) -> None:
        """Go on until it has, or its time is over; a cancellation means that this is now."""
        ends = time.monotonic() + _PATIENCE
        while self._goes_on_cancelled and (left := ends - time.monotonic()) > 0.0:
            try:
                if not await _is_ready(self._waits_for, left):
                    return
            except asyncio.CancelledError:
                return
            self._step(self._coroutine.send, None)


def _leave(coroutine: CoroutineType[object, object, object], alarm: Alarm) -> None:
    """Close a coroutine, or see to it that nothing ever runs it again."""
    awaited = list(_awaited_by(coroutine))
    reason = ""
    try:
        alarm.call(_PATIENCE, coroutine.close)
    except Exception as error:  # noqa: BLE001  # it may raise anything, and is heard no more
        reason = described(error)
    left = [one for one in awaited if one.cr_frame is not None]
    if left:
        import ctypes  # late: hardly ever needed

        for one in left:  # collecting it would close it once more, and run it with no limit
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
        name = left[-1].__qualname__
        _LOGGER.warning("%s was ended and goes on; it is left as it stands (%s)", name, reason)


def _awaited_by(coroutine: object) -> Iterator[CoroutineType[object, object, object]]:
    """Give a coroutine, the one that it waits for, and so on."""
    while isinstance(coroutine, CoroutineType):
        yield coroutine
        coroutine = coroutine.cr_await


async def _awaited(found: Awaitable[T]) -> T:
    return await found


class _Tidying(asyncio.Future[None]):
    """What a cancelled call waits for while it is given time; calls around it see that by this."""


async def _is_ready(waits_for: object, seconds: float) -> bool:
    """Wait for what a coroutine waits for, a future or one turn of the loop."""
    loop = asyncio.get_running_loop()
    waiting = _Tidying(loop=loop)

    def wake(_: object = None) -> None:
        if not waiting.done():
            waiting.set_result(None)

    if waits_for is None:
        loop.call_soon(wake)
        await waiting
        return True
    future = cast("asyncio.Future[object]", waits_for)
    future.add_done_callback(wake)
    timer = loop.call_later(seconds, wake)
    try:
        await waiting
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    return future.done()
