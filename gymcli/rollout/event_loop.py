"""An event loop that background tasks cannot end, and that waits for no thread of others."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ["close", "drive", "new_event_loop", "run"]

P = ParamSpec("P")
T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds that tasks and generators which nobody awaits any more may take to end."""
_LEAVE_SECONDS = 5.0
"""From an interrupt until the process is ended, whatever still computes in its loop."""
_MAX_THREADS = 32


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop, of uvloop where it is installed, with threads that delay no end."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop  # late: heavy, and not everywhere

        new_loop = uvloop.new_event_loop
    loop = new_loop()
    loop.set_default_executor(_DaemonThreads())
    return loop


def run(
    main: Coroutine[object, object, T],
    *,
    interrupted_code: Callable[[KeyboardInterrupt], int] | None = None,
) -> T:
    """Run a coroutine in a new loop to its end, as `asyncio.run` does.

    A background task that raises SystemExit is logged and ends nothing. At the end what still runs
    is cancelled, and has two seconds; a task that goes on then is left as it stands, and a thread
    is never waited for.

    Args:
        main: The coroutine.
        interrupted_code: Returns the exit code with which the process is ended, where an interrupt
            cancels the coroutine and the loop is not closed some seconds later. None: never.

    Raises:
        KeyboardInterrupt: It was raised in the loop; the coroutine was cancelled.

    """
    loop = new_event_loop()
    task = loop.create_task(main)
    is_over = threading.Event()
    try:
        return drive(loop, task)
    except KeyboardInterrupt as error:
        if interrupted_code is not None:
            arguments = (is_over, interrupted_code(error))
            threading.Thread(target=_leave, args=arguments, daemon=True).start()
        raise
    finally:
        close(loop)
        is_over.set()


def drive(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """Run the loop until this task is done, whatever leaves it from another one."""
    while True:
        try:
            return loop.run_until_complete(task)
        except SystemExit as error:
            if task.done():
                raise
            # `asyncio.run` and `asyncio.Runner` end here, with the exit code of a stranger.
            _LOGGER.warning("SystemExit(%s) in a background task is ignored", error.code)


def close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what runs in a loop, give it two seconds, and close the loop."""
    left = drive(loop, loop.create_task(_left()))
    loop.close()
    if left:
        # Collecting such a task would run it once more: a thread that never ends keeps it.
        forever = threading.Event()
        threading.Thread(target=lambda _: forever.wait(), args=(left,), daemon=True).start()
        names = ", ".join(sorted({getattr(task.get_coro(), "__qualname__", "?") for task in left}))
        _LOGGER.warning("%d tasks were cancelled and go on; they are left: %s", len(left), names)


async def _left() -> set[asyncio.Task[object]]:
    """Cancel what runs, close the async generators, and return the tasks that do not end."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_PATIENCE)
    if not all(task.done() for task in tasks):  # asyncio would tell of generators they are in
        loop.set_exception_handler(_say_nothing)
    closing = asyncio.create_task(loop.shutdown_asyncgens())
    await asyncio.wait([closing], timeout=_PATIENCE)
    return {task for task in {*tasks, closing} if not task.done()}


def _say_nothing(loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    """Handle what goes wrong in a loop that is about to be closed."""


def _leave(is_over: threading.Event, code: int) -> None:
    """End this process, unless what it waits for is over in time."""
    if is_over.wait(_LEAVE_SECONDS):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # whatever is wrong with it, the end is near
            stream.flush()
    os._exit(code)


class _DaemonThreads(ThreadPoolExecutor):
    """Runs calls in daemon threads, which it uses again; it is one because asyncio asks for that.

    The standard one joins its threads when it is shut down, and again when the process ends.
    """

    def __init__(self) -> None:
        super().__init__(_MAX_THREADS)
        self._calls: queue.SimpleQueue[tuple[Future[object], Callable[[], object]] | None]
        self._calls = queue.SimpleQueue()
        self._num_idle = threading.Semaphore(0)
        self._num_started = 0

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        call = functools.partial(function, *args, **kwargs)
        self._calls.put((future, call))  # type: ignore[arg-type]  # a future takes what its call returns
        if not self._num_idle.acquire(blocking=False) and self._num_started < _MAX_THREADS:
            self._num_started += 1
            threading.Thread(target=self._work, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                item = self._calls.get_nowait()
            except queue.Empty:
                self._num_idle.release()
                item = self._calls.get()
            if item is None:
                return
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001  # it belongs to whoever awaits it
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del item, future, call  # else an idle thread keeps what it ran last

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let idle threads end; wait for none."""
        for _ in range(self._num_started):
            self._calls.put(None)
