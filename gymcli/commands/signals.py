"""What SIGINT and SIGTERM do: end a command at once, or a run in two steps."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from gymcli.commands.console import message
from gymcli.errors import InterruptedRunError, TerminatedRunError

if TYPE_CHECKING:
    from gymcli.runner.stopping import Stopping

__all__ = ["TerminatedError", "heed_signals", "leave_at_signals", "stopped_by_signals"]


class TerminatedError(KeyboardInterrupt):
    """Raised in the main thread when SIGTERM arrives, so that whatever was opened is closed.

    It is a KeyboardInterrupt because event loops, and code of others, let these pass.
    """


def heed_signals() -> None:
    """Let Ctrl-C and SIGTERM raise in the main thread at once, in an event loop too.

    Python's own handler of Ctrl-C only asks a running loop to end, which code that computes in it
    does not hear. A signal that is ignored stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise TerminatedError


def leave_at_signals(code: int) -> None:
    """Let Ctrl-C and SIGTERM end the process with an exit code: its command is over.

    What else waits for the end (threads, what others do at exit) would say where it was
    interrupted, and go on.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(code)

    for number, handler in ((signal.SIGINT, _interrupt), (signal.SIGTERM, _terminate)):
        if signal.getsignal(number) is handler:
            signal.signal(number, leave)


@contextmanager
def stopped_by_signals(stopping: Stopping) -> Iterator[None]:
    """Let a first SIGINT or SIGTERM stop a run with its grace, and a second one at once.

    It is used within the run's event loop. A third one, where code computes in the loop and lets
    it hear nothing, cancels everything and does what it did before. A signal that is ignored, as
    in a background job of a shell, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # the system gives signals to the main thread alone
        return
    import asyncio  # late: heavy

    loop = asyncio.get_running_loop()
    num_signals = 0
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal num_signals
        num_signals += 1
        if num_signals > 2:
            restore()
            for task in asyncio.all_tasks(loop):  # else uvloop first goes on with what is ready
                task.cancel()
            signal.raise_signal(number)
            return
        if number == signal.SIGTERM:
            cause: InterruptedRunError = TerminatedRunError("terminated")
        else:
            cause = InterruptedRunError("interrupted")
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
        loop.call_soon_threadsafe(functools.partial(stopping.stop, cause, grace=grace))
        with suppress(RuntimeError):  # it came in the middle of writing to stderr
            message(f"{cause}: {text}")

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
