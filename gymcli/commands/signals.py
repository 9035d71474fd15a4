"""What SIGINT and SIGTERM do: end a command at once, or a run in two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from gymcli.commands.console import message
from gymcli.errors import InterruptedRunError, TerminatedRunError

if TYPE_CHECKING:
    from gymcli.runner.stopping import Stopping

__all__ = ["TerminatedError", "heed_signals", "stopped_by_signals"]


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


@contextmanager
def stopped_by_signals(stopping: Stopping) -> Iterator[None]:
    """Let a first SIGINT or SIGTERM stop a run with its grace, and a second one at once.

    It is used within the run's event loop. What a signal did before it does again afterwards; a
    signal that is ignored, as in a background job of a shell, stays so.
    """
    num_signals = 0

    def stop(number: signal.Signals) -> None:
        nonlocal num_signals
        num_signals += 1
        if number is signal.SIGTERM:
            cause: InterruptedRunError = TerminatedRunError("terminated")
        else:
            cause = InterruptedRunError("interrupted")
        if num_signals == 1:
            stopping.stop(cause)
            message(
                f"{cause}: no new attempts; {stopping.num_in_flight} in flight get "
                f"{stopping.grace:g} s; once more to stop at once"
            )
        else:
            stopping.stop(cause, grace=0.0)

    with _handled(stop):
        yield


@contextmanager
def _handled(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    import asyncio  # late: heavy

    if threading.current_thread() is not threading.main_thread():
        yield  # the system gives signals to the main thread alone
        return
    loop = asyncio.get_running_loop()
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in before:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
