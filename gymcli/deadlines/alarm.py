"""Ends code that computes for too long, by a signal."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from signal import ITIMER_REAL, SIG_IGN, SIGALRM, getsignal, pthread_kill, setitimer, signal
from threading import get_ident
from time import monotonic
from types import FrameType, TracebackType
from typing import Final, Self, TypeVar, cast

from gymcli.deadlines.unwinding import catch_again, catch_nothing, is_watcher

__all__ = ["NO_ALARM", "Alarm", "OverrunError"]

T = TypeVar("T")

_LOOK_SECONDS = 0.05
"""How long a call may be over its time until that is seen, and until the next ring."""

_NUM_CALM_RINGS = 4
"""After so many, code that catches every exception no longer can, or is rung for all the time."""

_BUSY_SECONDS = {
    **dict.fromkeys(("gymcli", "asyncio", "logging", "threading", "traceback"), 1.0),
    **dict.fromkeys(("_weakrefset", "coverage", "importlib", "weakref"), 60.0),
}
"""How much longer an alarm waits, by package, where the code that is limited has called there: an
exception in the middle of such a call would leave something half done that others use as well.
Code that is measured calls coverage on any line, and that holds a lock. Weak references call what
waits for their end on any line, and an exception there is lost, and told of."""

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

    A context manager that takes SIGALRM for a block, and gives it back. It works in the main thread
    of the main interpreter and does nothing in any other: there, code that computes has no limit.
    One long operation in C (a power of huge integers) cannot be ended either.

    A thread looks at the time, so that a call costs no system call: it only notes its end. Code
    that takes the signal itself has no limit for as long, nor has a process that it forks. Of two
    that are open, only calls on the one that was opened last are ended.

    The stack says whose time is up: an alarm is meant for the innermost `call` on it. One that
    comes too late finds none, or its own lines, and does nothing.
    """

    def __init__(self) -> None:
        self._thread: int | None = None
        self._before: object = None
        self._ends_at = math.inf
        """When the time of the innermost call is over, by `time.monotonic`."""
        self._is_ringing = False
        """The signal that comes is that of the thread."""
        self._open = threading.Lock()
        """Held by the block; free, it ends the thread."""
        self._looking = threading.Lock()
        """Held by the thread from its look to its ring, and to give the signal back."""
        self._process = 0
        """Where the thread runs: one that was forked meanwhile has none, and may find the lock held
        for ever."""

    def __enter__(self) -> Self:
        """Take the signal, where that is possible."""
        if threading.current_thread() is threading.main_thread():
            try:
                self._before = signal(SIGALRM, self._ring)
            except ValueError:  # the main thread of another interpreter
                return self
            self._thread, self._process = get_ident(), os.getpid()
            self._is_ringing = False
            self._open = threading.Lock()
            self._open.acquire()
            watched = (self._thread, self._open)
            threading.Thread(target=self._watch, args=watched, daemon=True).start()
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
            self._open.release()
            with self._looking if self._process == os.getpid() else nullcontext():
                signal(SIGALRM, SIG_IGN)  # forgets one that is on its way
                signal(SIGALRM, cast("Callable[[int, FrameType | None], object]", self._before))

    @property
    def is_set(self) -> bool:
        """Whether it can end anything in this thread."""
        return self._thread == get_ident()

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
        if self._thread != get_ident():
            return function(*arguments)
        rings: list[float] = []  # for `_ring`, which finds this frame on the stack
        cause: BaseException | None = None
        outer_end, began = self._ends_at, monotonic()
        self._ends_at = began + seconds
        try:
            result = function(*arguments)
        except BaseException as error:
            # Nothing else that is written in Python may be called until the end is taken back.
            if len(rings) < 2:
                raise
            cause = error
        finally:
            self._ends_at = outer_end + (monotonic() - began)
            if len(rings) > _NUM_CALM_RINGS:
                setitimer(ITIMER_REAL, 0.0)
        if not rings:
            return result
        if len(rings) > _NUM_CALM_RINGS:
            catch_again()
        if len(rings) > 1:
            raise OverrunError(f"computed for longer than {seconds:g} seconds") from cause
        return result

    def _is_call(self, frame: FrameType) -> bool:
        """Say whether a frame is that of a call on this alarm, not on one that is not open."""
        return frame.f_code is Alarm.interrupt.__code__ and frame.f_locals["self"] is self

    def _watch(self, thread: int, is_open: threading.Lock) -> None:
        """Ring as long as the time of a call is over; runs in a thread of its own."""
        while not is_open.acquire(timeout=_LOOK_SECONDS):
            with self._looking:
                is_late = monotonic() >= self._ends_at and self._thread is not None
                if is_late and getsignal(SIGALRM) == self._ring:
                    self._is_ringing = True
                    pthread_kill(thread, SIGALRM)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the innermost `call`, unless it is over, or has called what is better left."""
        is_own, self._is_ringing = self._is_ringing, False
        patience = 0.0
        is_watching = False
        place = frame
        while place is not None and not self._is_call(place):
            patience = max(patience, _busy_seconds(place))
            is_watching = is_watching or is_watcher(place.f_code)
            place = place.f_back
        if place is None:
            if not is_own and callable(self._before):
                self._before(number, frame)
            return
        now = monotonic()
        if place is frame or now < self._ends_at:  # over, or it is the signal of somebody else
            return
        rings: list[float] = place.f_locals["rings"]
        if not rings:
            rings.append(now)
        # What is watching may be looking at our own lines, which must be spared.
        if is_watching or now - rings[0] < patience:
            return
        rings.append(now)
        is_calm = len(rings) <= _NUM_CALM_RINGS
        if not is_calm and not catch_nothing(_Ring, Alarm.interrupt.__code__):
            # Varied, so that one of the exceptions comes where no `try` is around it.
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
