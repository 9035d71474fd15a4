"""Handle SIGINT, SIGTERM and SIGHUP: end a command immediately, or a run in three steps.

Each command runs its coroutine with `run_async`, which ends at these signals.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from gymcli.commands.console import message
from gymcli.errors import InterruptedRunError, TerminatedRunError

if TYPE_CHECKING:
    from gymcli.runner.stopping import Stopping

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPEAT_SECONDS = 0.2
"""Two signals of one kind within this time count once: a terminal sends Ctrl-C both to the run and
to its supervisor, which passes it on."""


class _TerminatedError(KeyboardInterrupt):
    """Raised in the main thread when SIGTERM or SIGHUP arrives, so that `finally` blocks run.

    It is a KeyboardInterrupt because event loops and other libraries let these pass.
    """


def interrupt_of(error: KeyboardInterrupt) -> tuple[str, int]:
    """Return the message and the exit code of an interrupted command."""
    return ("terminated", 143) if isinstance(error, _TerminatedError) else ("interrupted", 130)


def run_async(main: Coroutine[object, object, T]) -> T:
    """Run a command's coroutine, on uvloop if it is installed."""
    from gymcli.rollout.event_loop import run  # late: heavy

    return run(main, interrupted_code=lambda error: interrupt_of(error)[1])


class _Interrupter:
    """Raises in the main thread at a signal, once for signals repeated within a moment."""

    def __init__(self) -> None:
        self.handled_at: dict[int, float] = {}

    def is_repeated(self, number: int) -> bool:
        now = time.monotonic()
        before = self.handled_at.get(number, -_REPEAT_SECONDS)
        if now - before < _REPEAT_SECONDS:
            return True
        self.handled_at[number] = now
        return False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if not self.is_repeated(number):
            raise KeyboardInterrupt if number == signal.SIGINT else _TerminatedError


def raise_at_signals() -> None:
    """Make the signals raise immediately in the main thread, in an event loop too.

    asyncio's handler of Ctrl-C only asks a running loop to end, which has no effect while code
    computes in it. A signal that is ignored stays ignored.
    """
    interrupter = _Interrupter()
    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, interrupter.handle)


def _interrupter_of(handler: object) -> _Interrupter | None:
    interrupter = getattr(handler, "__self__", None)
    return interrupter if isinstance(interrupter, _Interrupter) else None


def exit_at_signals(code: int) -> None:
    """Make the signals end the process with an exit code, because its command is over.

    Threads and `atexit` functions that still run would only print an exception and continue.
    """
    for number in _SIGNALS:
        if _interrupter_of(signal.getsignal(number)) is not None:
            signal.signal(number, lambda _number, _frame: os._exit(code))


def exit_despite_threads(code: int) -> None:
    """End this process a few seconds after its main thread, even if other threads still run."""
    main = threading.main_thread()

    def exit_late() -> None:
        main.join()
        time.sleep(5.0)
        _exit_at_once(code)

    threading.Thread(target=exit_late, daemon=True).start()


def _exit_at_once(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the process must end, whatever fails
            stream.flush()
    os._exit(code)


@contextmanager
def stop_at_signals(runs: Sequence[Stopping]) -> Iterator[None]:
    """Stop runs after their grace at a first signal, now at a second; end the process at a third.

    Must be used within the runs' event loop. No exception is raised into code that computes. A
    signal that is ignored, as in a background job of a shell, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    import asyncio  # late: heavy

    loop = asyncio.get_running_loop()
    before = {
        number: handler
        for number in _SIGNALS
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    interrupter = next(filter(None, map(_interrupter_of, before.values())), _Interrupter())
    num_signals = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal num_signals
        if interrupter.is_repeated(number):
            return
        num_signals += 1
        if number == signal.SIGINT:
            cause, again = InterruptedRunError("interrupted"), "press Ctrl-C again"
        else:
            cause, again = TerminatedRunError("terminated"), "send the signal again"
        num_in_flight = sum(stopping.num_in_flight for stopping in runs)
        if num_signals > 2:
            causes = [stopping.cause for stopping in runs]
            interruptions = (error for error in causes if isinstance(error, InterruptedRunError))
            first = next(interruptions, cause)
            with suppress(RuntimeError):
                message(str(first))
            _exit_at_once(143 if isinstance(first, TerminatedRunError) else 130)
        if num_signals == 1:
            grace = runs[0].grace
            text = (
                f"no new attempts; {num_in_flight} in flight get {grace:g} s; {again} to stop now"
            )
        else:
            grace = 0.0
            text = f"cancelling {num_in_flight} attempts; {again} to quit now"
        is_hurried = num_signals > 1
        for stopping in runs:
            stopping.cause = stopping.cause or cause  # seen before the loop runs the next callback
            loop.call_soon_threadsafe(
                functools.partial(stopping.stop, cause, grace=grace, is_hurried=is_hurried)
            )
        with suppress(RuntimeError):  # the signal interrupted a write to stderr
            message(f"{cause}: {text}")

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
