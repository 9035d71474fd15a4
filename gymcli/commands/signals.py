"""What SIGINT, SIGTERM and SIGHUP do: end a command at once, or a run in three steps."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from gymcli.commands.console import message
from gymcli.errors import InterruptedRunError, TerminatedRunError

if TYPE_CHECKING:
    from gymcli.runner.stopping import Stopping

__all__ = [
    "TerminatedError",
    "heed_signals",
    "leave_at_signals",
    "leave_threads",
    "stopped_by_signals",
]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPEAT_SECONDS = 0.2
"""Two of one kind within this time are one: a terminal sends Ctrl-C to the run and its supervisor,
and the supervisor passes it on."""
_LEAVE_SECONDS = 5.0
"""From when a process should end until it does, whatever still runs in it."""


class TerminatedError(KeyboardInterrupt):
    """Raised in the main thread when SIGTERM or SIGHUP arrives, so that what is open is closed.

    It is a KeyboardInterrupt because event loops, and code of others, let these pass.
    """


class _Raising:
    """Raises in the main thread at a signal; knows which signals were handled a moment ago."""

    def __init__(self) -> None:
        self.handled_at: dict[int, float] = {}

    def is_repeated(self, number: int) -> bool:
        """Note a signal; return whether one of its kind came a moment ago."""
        now = time.monotonic()
        before = self.handled_at.get(number, -_REPEAT_SECONDS)
        if now - before < _REPEAT_SECONDS:
            return True
        self.handled_at[number] = now
        return False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if not self.is_repeated(number):
            raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError


def heed_signals() -> None:
    """Let the signals raise in the main thread at once, in an event loop too.

    Python's own handler of Ctrl-C only asks a running loop to end, which code that computes in it
    does not hear. A signal that is ignored stays so.
    """
    raising = _Raising()
    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, raising.handle)


def _raising_of(handler: object) -> _Raising | None:
    found = getattr(handler, "__self__", None)
    return found if isinstance(found, _Raising) else None


def leave_at_signals(code: int) -> None:
    """Let the signals end the process with an exit code: its command is over.

    What else waits for the end (threads, what others do at exit) would say where it was
    interrupted, and go on.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(code)

    for number in _SIGNALS:
        if _raising_of(signal.getsignal(number)) is not None:
            signal.signal(number, leave)


def leave_threads(code: int) -> None:
    """End this process in a few seconds, with an exit code, also where threads of others run."""
    main = threading.main_thread()

    def leave() -> None:
        main.join()
        time.sleep(_LEAVE_SECONDS)
        _exit_at_once(code)

    threading.Thread(target=leave, daemon=True).start()


def _exit_at_once(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # whatever is wrong with it, the end is near
            stream.flush()
    os._exit(code)


@contextmanager
def stopped_by_signals(stopping: Stopping) -> Iterator[None]:
    """Let a first signal stop a run with its grace, a second one at once, a third one as it stands.

    It is used within the run's event loop. No exception is raised into code that computes. A
    signal that is ignored, as in a background job of a shell, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # the system hands signals to the main thread alone
        return
    import asyncio  # late: heavy

    loop = asyncio.get_running_loop()
    before = {
        number: handler
        for number in _SIGNALS
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    known = next(filter(None, map(_raising_of, before.values())), _Raising())
    num_signals = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal num_signals
        if known.is_repeated(number):
            return
        num_signals += 1
        if number == signal.SIGINT:
            cause = InterruptedRunError("interrupted")
        else:
            cause = TerminatedRunError("terminated")
        if num_signals > 2:
            first = stopping.cause if isinstance(stopping.cause, InterruptedRunError) else cause
            with suppress(RuntimeError):
                message(str(first))
            _exit_at_once(143 if isinstance(first, TerminatedRunError) else 130)
        if num_signals == 1:
            grace = stopping.grace
            text = (
                f"no new attempts; {stopping.num_in_flight} in flight get {grace:g} s; once more "
                "to stop at once"
            )
        else:
            grace = 0.0
            text = f"{stopping.num_in_flight} in flight are cut off; once more to leave them so"
        stopping.cause = stopping.cause or cause  # seen even before the loop hears anything
        is_hurried = num_signals > 1
        loop.call_soon_threadsafe(
            functools.partial(stopping.stop, cause, grace=grace, is_hurried=is_hurried)
        )
        with suppress(RuntimeError):  # it came in the middle of writing to stderr
            message(f"{cause}: {text}")

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
