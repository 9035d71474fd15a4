"""Runs a server in a thread of its own, for tests that are not async themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from gymcli.errors import UsageError
from gymcli.mock.server import MockServer

__all__ = ["serve", "serving"]


async def serve(
    server: MockServer, announce: Callable[[str], None], *, with_parent: bool = False
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; SIGUSR1 brings a server back that is down.

    Args:
        server: What is served.
        announce: Called with the base URL once it listens.
        with_parent: Stop when stdin closes, too, so as not to outlive whoever started it.

    Raises:
        UsageError: It cannot listen there, at first or again, or a file of it cannot be written.

    """
    loop = asyncio.get_running_loop()
    stopped, risen = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGUSR1, risen.set)
    if with_parent:
        threading.Thread(target=_watch_stdin, args=(loop, stopped), daemon=True).start()
    try:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(server)
            except OSError as error:
                place = f"{server.site.host}:{server.site.port}"
                raise UsageError(f"cannot listen on {place}: {error.strerror}") from error
            announce(server.base_url)
            async with asyncio.TaskGroup() as tasks:
                rising = tasks.create_task(_rise(server, risen))
                await stopped.wait()
                rising.cancel()
    except ExceptionGroup as group:  # of what went on meanwhile: a return that failed
        raise group.exceptions[0] from None


async def _rise(server: MockServer, risen: asyncio.Event) -> None:
    while True:
        await risen.wait()
        risen.clear()
        await server.site.rise()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Wait for the end of stdin; a thread, since stdin may be a file that no loop can watch."""
    # os.read and not sys.stdin: a thread inside the buffered reader makes Python abort at its end.
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(stopped.set)


Server = TypeVar("Server", bound=AbstractAsyncContextManager[object])


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve while the block lasts; what the server raises on entering is raised here."""
    loop = asyncio.new_event_loop()
    is_open, is_over = threading.Event(), asyncio.Event()
    failures: list[BaseException] = []

    async def serve() -> None:
        async with server:
            is_open.set()
            await is_over.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001 (raised again in the other thread)
            failures.append(error)
        finally:
            is_open.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        is_open.wait()
        if not failures:
            yield server
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()
    if failures:
        raise failures[0]
