"""Watches an event loop: ends what waits beyond its limit, tells of what blocks, and ends that.

The loop beats several times a second. Code that computes holds everything up, and no exception is
thrown into it: after a second a warning names the function. Where a supervisor starts the run
again, `faulthandler` writes the stack and ends the process after `blocking_timeout`. It is a thread
in C: a thread in Python never gets the interpreter from a pattern that explodes.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import IO, Protocol, Self

from gymcli.errors import leave_copy

__all__ = ["Watchdog", "Watched"]

_LOGGER = logging.getLogger(__name__)

_BEAT_SECONDS = 0.2
_BLOCKED_SECONDS = 1.0
"""Without a turn of the loop for so long, a warning names what computes."""
_LOOPS = frozenset(
    {"gymcli.rollout.event_loop", "asyncio.base_events", "asyncio.events", "selectors"}
)
"""Where a loop is between two calls: then nobody's code computes, and the machine is slow."""


class Watched(Protocol):
    """Something in the loop that has a deadline."""

    deadline: float
    """When it is late, by `Watchdog.now`."""

    def expire(self, now: float) -> None:
        """Be told that the deadline is over; sets another one, or ends."""
        ...


class Watchdog:
    """The beat of the running event loop; an async context manager.

    Args:
        blocking_timeout: Seconds without a turn of the loop after which the process ends.
        stack_file: Where the stack is written then. None: the process is never ended.

    """

    def __init__(
        self, *, blocking_timeout: float = 60.0, stack_file: IO[str] | None = None
    ) -> None:
        self.blocking_timeout = blocking_timeout
        self._stack_file = stack_file
        self._watched: set[Watched] = set()
        self._process = os.getpid()
        self._lost = 0.0
        """Seconds in which the loop did not turn; they count against nobody's limit."""
        self._turned_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = threading.Event()

    def now(self) -> float:
        """Return the seconds by a clock that stands still while the loop is blocked or stopped."""
        return time.monotonic() - self._lost

    def arm(self) -> None:
        """Begin to count anew until the process is ended."""
        if self._stack_file is not None:
            faulthandler.dump_traceback_later(
                self.blocking_timeout, exit=True, file=self._stack_file
            )

    def disarm(self) -> None:
        """Do not end the process, up to the next beat."""
        if self._stack_file is not None:
            faulthandler.cancel_dump_traceback_later()

    def watch(self, one: Watched) -> None:
        """Look at the deadline of something at every beat."""
        self._watched.add(one)

    def forget(self, one: Watched) -> None:
        """Look at it no more."""
        self._watched.discard(one)

    async def __aenter__(self) -> Self:
        if self._stack_file is not None:
            _disarm_before_forks()
        self._turned_at = time.monotonic()
        self._beat(asyncio.get_running_loop())
        thread = threading.get_ident()
        threading.Thread(target=self._warn, args=(thread,), daemon=True).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        if self._timer is not None:
            self._timer.cancel()
        self.disarm()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        leave_copy(self._process)
        before, self._turned_at = self._turned_at, time.monotonic()
        self.arm()
        self._timer = loop.call_later(_BEAT_SECONDS, self._beat, loop)
        gap = self._turned_at - before - _BEAT_SECONDS
        if gap > _BLOCKED_SECONDS:
            # What is ready runs first: nobody is late because somebody else computed.
            self._lost += gap
            return
        now = self.now()
        for one in [one for one in self._watched if one.deadline < now]:
            one.expire(now)

    def _warn(self, thread: int) -> None:
        """Name what blocks the loop, once for each time; runs in a thread of its own."""
        warned_at = 0.0
        looked_at = time.monotonic()
        while not self._is_over.wait(_BLOCKED_SECONDS / 2):
            before, looked_at = looked_at, time.monotonic()
            turned_at = self._turned_at
            if looked_at - before > 2 * _BLOCKED_SECONDS:  # the process itself was stopped
                continue
            if looked_at - turned_at > _BLOCKED_SECONDS and turned_at != warned_at:
                frame = sys._current_frames().get(thread)  # noqa: SLF001  # no other way
                if frame is None or _module(frame) in _LOOPS:  # it is the machine that is slow
                    continue
                warned_at = turned_at
                _LOGGER.warning(
                    "%s has computed for a second without awaiting anything, and holds up every "
                    "other attempt; a tool that blocks can be @tool(in_thread=True)",
                    _blamed(frame),
                )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _blamed(frame: FrameType) -> str:
    """Name the function of somebody else that ours called, else the innermost one."""
    found = frame
    for place in _outwards(frame):
        name = _module(place)
        is_ours = name.partition(".")[0] == "gymcli" and not name.startswith("gymcli.envs.")
        if is_ours or name.partition(".")[0] == "asyncio":
            break
        found = place
    return f"{found.f_code.co_qualname} ({found.f_code.co_filename}:{found.f_lineno})"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@functools.cache
def _disarm_before_forks() -> None:
    """Let no forked copy inherit the timer, with which it would hang at its end."""
    os.register_at_fork(before=faulthandler.cancel_dump_traceback_later)
