"""Ends a loop whose tasks may not end, and a process whose threads may not."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

__all__ = ["close", "leave_process", "leave_threads"]

_LOGGER = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds that tasks and generators which nobody awaits any more may take to end."""

_LEAVE_SECONDS = 5.0
"""From when a process should end until it does, whatever still runs in it."""


def close(runner: asyncio.Runner) -> None:
    """Close a runner as it would itself, but wait for nothing of others without an end.

    A task that goes on although it was cancelled is left as it stands, and never run again.
    """
    left = runner.run(_left())
    if not left:
        runner.close()
        return
    import ctypes  # late: hardly ever needed

    for task in left:  # collecting it would run it once more
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
    runner.get_loop().close()
    names = ", ".join(sorted({getattr(task.get_coro(), "__qualname__", "?") for task in left}))
    _LOGGER.warning("%d tasks were cancelled and go on; they are left: %s", len(left), names)


async def _left() -> set[asyncio.Task[object]]:
    """Cancel what runs, close the generators, and give what does not end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_PATIENCE)
    if not all(task.done() for task in tasks):  # asyncio would tell of generators they are in
        asyncio.get_running_loop().set_exception_handler(_say_nothing)
    closing = asyncio.create_task(asyncio.get_running_loop().shutdown_asyncgens())
    await asyncio.wait([closing], timeout=_PATIENCE)
    return {task for task in {*tasks, closing} if not task.done()}


def _say_nothing(loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    """Handle what goes wrong in a loop that is about to be closed."""


def leave_process(code: int) -> threading.Event:
    """End this process with an exit code in a few seconds, unless the event that it gives is set.

    A loop whose tasks compute would not let it end.
    """
    is_over = threading.Event()
    threading.Thread(target=_leave, args=(is_over, code), daemon=True).start()
    return is_over


def leave_threads(code: int) -> None:
    """End this process in a few seconds, with an exit code, also where threads of others run."""
    main = threading.main_thread()
    if all(thread.daemon or thread is main for thread in threading.enumerate()):
        return

    def leave() -> None:
        main.join()
        _leave(threading.Event(), code)

    threading.Thread(target=leave, daemon=True).start()


def _leave(is_over: threading.Event, code: int) -> None:
    if is_over.wait(_LEAVE_SECONDS):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # whatever is wrong with it, the end is near
            stream.flush()
    os._exit(code)
