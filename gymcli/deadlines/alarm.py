"""Ends code that computes for too long, by a signal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from signal import ITIMER_REAL, SIGALRM, getitimer, setitimer, signal
from types import FrameType, TracebackType
from typing import Final, Self, TypeVar, cast

from gymcli.deadlines.unwinding import catch_again, catch_nothing, is_watcher

__all__ = ["NO_ALARM", "Alarm", "OverrunError"]

T = TypeVar("T")

_RING_AGAIN = 0.05
_NUM_CALM_RINGS = 4
"""After so many, code that catches every exception no longer can, or is rung for all the time."""

_BUSY_SECONDS = {
    **dict.fromkeys(("gymcli", "asyncio", "logging", "threading", "traceback"), 1.0),
    "importlib": 60.0,
}
"""How much longer an alarm waits, by package, where the code that is limited has called there: an
exception in the middle of such a call would leave something half done that others use as well."""

_INTERRUPTIBLE = (
    "gymcli.deadlines.",
    "gymcli.environment.",
    "gymcli.envs.",
    "gymcli.roles.",
    "gymcli.scoring.context",
)
"""Modules of ours that an exception may come to: they hold what belongs to one episode."""


class OverrunError(Exception):
    """Raised when code computed longer than its limit."""


class _Ring(BaseException):
    """What an alarm raises; no `Exception`, since much code catches those and goes on."""


class Alarm:
    """Ends code that computes for too long, by an exception in the middle of it.

    A context manager that takes SIGALRM and its timer for a block, and gives both back. It works in
    the main thread of the main interpreter and does nothing in any other: there, code that computes
    has no limit. One long operation in C (a power of huge integers) cannot be ended either.

    Code that uses the signal or the timer itself has no limit from then to its next call.

    The stack says whose time is up: an alarm is meant for the innermost `call` on it. One that
    comes too late finds none, or its own lines, and does nothing.
    """

    def __init__(self) -> None:
        self._thread: int | None = None
        self._before: object = None
        self._depth = 0

    def __enter__(self) -> Self:
        """Take the signal, where that is possible."""
        if threading.current_thread() is threading.main_thread():
            try:
                self._before = signal(SIGALRM, self._ring)
            except ValueError:  # the main thread of another interpreter
                return self
            self._thread = threading.get_ident()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the signal back."""
        if self._thread is not None:
            self._thread = None
            signal(SIGALRM, cast("Callable[[int, FrameType | None], object]", self._before))

    @property
    def is_set(self) -> bool:
        """Whether it can end anything in this thread."""
        return self._thread == threading.get_ident()

    def call(self, seconds: float, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that may compute for so many seconds.

        The time of a `call` within it does not count.

        Raises:
            OverrunError: It took longer, whatever it made of the exception in the middle of it.

        """
        return cast("T", self.interrupt(seconds, _called, function, arguments))

    def interrupt(self, seconds: float, function: Callable[..., T], *arguments: object) -> T:
        """Do as `call` for a function that is written in Python.

        What is not would run in the frame of this one, which no alarm interrupts.
        """
        if self._thread != threading.get_ident():
            return function(*arguments)
        rings: list[float] = []  # for `_ring`, which finds this frame on the stack
        cause: BaseException | None = None
        self._depth += 1
        left, interval = setitimer(ITIMER_REAL, seconds)
        try:
            result = function(*arguments)
        except BaseException as error:
            # Nothing else that is written in Python may be called while the alarm is set.
            if len(rings) < 2:
                raise
            cause = error
        finally:
            self._depth -= 1
            if self._depth and not left:
                left = _RING_AGAIN  # the outer time was up just when this call began
            setitimer(ITIMER_REAL, left, interval)
        if len(rings) > _NUM_CALM_RINGS:
            catch_again()
        if len(rings) > 1:
            raise OverrunError(f"computed for longer than {seconds:g} seconds") from cause
        return result

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the innermost `call`, unless it is over, or has called what is better left."""
        patience = 0.0
        is_watching = False
        place = frame
        while place is not None and place.f_code is not Alarm.interrupt.__code__:
            patience = max(patience, _busy_seconds(place))
            is_watching = is_watching or is_watcher(place.f_code)
            place = place.f_back
        if place is None:
            if callable(self._before):
                self._before(number, frame)
            return
        if place is frame:
            return
        rings: list[float] = place.f_locals["rings"]
        now = time.monotonic()
        if not rings:
            rings.append(now)
        if getitimer(ITIMER_REAL)[0]:  # of somebody else: the time is not up
            return
        if is_watching:  # it may be looking at our own lines, which must be spared
            setitimer(ITIMER_REAL, _RING_AGAIN)
            return
        if now - rings[0] < patience:
            setitimer(ITIMER_REAL, min(place.f_locals["seconds"], patience))
            return
        rings.append(now)
        if len(rings) <= _NUM_CALM_RINGS or catch_nothing(_Ring, Alarm.interrupt.__code__):
            setitimer(ITIMER_REAL, _RING_AGAIN)
        else:  # varied, so that one of the exceptions comes where no `try` is around it
            setitimer(ITIMER_REAL, 2e-6 * 1.4 ** (len(rings) % 20))
        raise _Ring


NO_ALARM: Final = Alarm()
"""One that is never opened, and ends nothing."""


def _called(function: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Call a function of any kind from a frame that an alarm may interrupt."""
    return function(*arguments)


def _busy_seconds(frame: FrameType) -> float:
    """Give how long the function of a frame is left in peace."""
    module = str(frame.f_globals.get("__name__", ""))
    if module.startswith(_INTERRUPTIBLE):
        return 0.0
    return _BUSY_SECONDS.get(module.partition(".")[0], 0.0)
