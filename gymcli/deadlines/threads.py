"""Threads for code that waits in one: what is stuck there keeps neither a loop nor a process."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["leaving_threads"]

P = ParamSpec("P")
T = TypeVar("T")


def leaving_threads(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Give the loop, whose end will not wait for what still runs in `asyncio.to_thread`."""
    loop.set_default_executor(_DaemonThreads())
    return loop


class _DaemonThreads(ThreadPoolExecutor):
    """Runs as many calls at once as asyncio's own; it is one because asyncio asks for that.

    The standard one joins its threads when it is shut down, and again when the process ends.
    """

    def __init__(self) -> None:
        num_threads = min(32, (os.cpu_count() or 1) + 4)
        super().__init__(num_threads)
        self._room = threading.Semaphore(num_threads)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        call = functools.partial(function, *args, **kwargs)
        threading.Thread(target=self._work, args=(future, call), daemon=True).start()
        return future

    def _work(self, future: Future[T], call: Callable[[], T]) -> None:
        with self._room:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  # it belongs to whoever awaits it
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing: what nobody awaits any more ends with the process."""
