"""The numbers of a run and of two, measured in a thread when somebody asks, and then kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["REST", "Kept", "Measured"]

REST = 10.0
"""What is of an older version is found out again when so many times what that took has passed."""

T = TypeVar("T")


class Measured(NamedTuple, Generic[T]):
    """What was measured, of which version of a run, and until when that is new enough."""

    value: T
    version: Hashable
    fresh_until: float


class Kept(Generic[T]):
    """A number that takes long: measured once for each version of what it is of, with rests.

    Several who ask at the same time wait for the same measurement, which goes on when they leave:
    who comes next has it then.

    Args:
        measure: Gives it; called in a thread.
        clock: Tells the time in seconds.

    """

    def __init__(
        self, measure: Callable[[], T], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure = measure
        self._clock = clock
        self._last: Measured[T] | None = None
        self._running: asyncio.Task[None] | None = None

    async def of(self, version: Hashable) -> Measured[T]:
        """Give what was measured of a version, or measure it; soon after a measurement the last.

        Raises:
            UsageError: What is measured cannot be read.

        """
        while self._last is None or self._is_old(self._last, version):
            if self._running is None:
                self._running = asyncio.create_task(self._run(version))
            await asyncio.shield(self._running)
        return self._last

    async def close(self) -> None:
        """Give up a measurement that is under way; its thread ends by itself."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def _is_old(self, last: Measured[T], version: Hashable) -> bool:
        return last.version != version and self._clock() >= last.fresh_until

    async def _run(self, version: Hashable) -> None:
        started = self._clock()
        try:
            value = await asyncio.to_thread(self._measure)
            ended = self._clock()
            self._last = Measured(value, version, ended + REST * (ended - started))
        finally:
            self._running = None
