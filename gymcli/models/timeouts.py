"""One time limit for each of many waits at once, with a single timer for all of them."""

from __future__ import annotations

import asyncio
from types import TracebackType

__all__ = ["TimeLimit", "Timeouts"]


class Timeouts:
    """Gives time limits of the same length; they end in the order in which they began.

    A timer of its own for each request, as aiohttp and asyncio make it, costs a tenth of what the
    request costs, and almost none of them is ever needed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.loop = asyncio.get_running_loop()
        self._ends: dict[TimeLimit, float] = {}
        """When the limits that are under way end, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def limit(self) -> TimeLimit:
        """Give the limit of one wait, for `with`.

        The block is left with a TimeoutError when its time is over.
        """
        return TimeLimit(self)

    def close(self) -> None:
        """Let go of the timer; no limit is under way any more."""
        if self._timer is not None:
            self._timer.cancel()

    def begin(self, limit: TimeLimit) -> None:
        """See to it that a limit ends in time."""
        ends = self._ends[limit] = self.loop.time() + self._seconds
        if self._timer is None:
            self._timer = self.loop.call_at(ends, self._look)

    def end(self, limit: TimeLimit) -> None:
        """Forget a limit, whether its time is over or not."""
        self._ends.pop(limit, None)

    def _look(self) -> None:
        """End the limits whose time is over, and look again when it is for the next one."""
        self._timer = None
        now = self.loop.time()
        while self._ends:
            limit, ends = next(iter(self._ends.items()))
            if ends > now:
                self._timer = self.loop.call_at(ends, self._look)
                return
            del self._ends[limit]
            limit.expire()


class TimeLimit:
    """The limit of one wait: cancels its task, and makes a TimeoutError of that."""

    __slots__ = ("_has_expired", "_num_cancelling", "_task", "_timeouts")

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts

    def expire(self) -> None:
        """End the wait."""
        self._has_expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task(self._timeouts.loop)
        assert task is not None, "only a task can wait"
        self._task = task
        self._num_cancelling = task.cancelling()
        self._has_expired = False
        self._timeouts.begin(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timeouts.end(self)
        if not self._has_expired:
            return
        # As `asyncio.timeout`: somebody else may have cancelled the task as well.
        is_ours_alone = self._task.uncancel() <= self._num_cancelling
        if is_ours_alone and kind is asyncio.CancelledError:
            raise TimeoutError from error
