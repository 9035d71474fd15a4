"""Runs a mock server, in its own process or in a thread of another program."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from typing import TypeVar

from gymcli.errors import UsageError
from gymcli.listening import stop_signals
from gymcli.mock.server import MockServer


async def serve(
    server: MockServer, announce: Callable[[str], None], *, with_parent: bool = False
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; SIGUSR1 brings back a server that is down.

    `announce` is called with the base URL. `with_parent` also stops the server when stdin closes,
    so that it does not outlive its parent.
    """
    loop = asyncio.get_running_loop()
    rise_signal = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, rise_signal.set)

    async def rise_when_wanted() -> None:
        while True:
            await rise_signal.wait()
            rise_signal.clear()
            await server.site.rise()

    try:
        async with AsyncExitStack() as stack:
            stop_event = stack.enter_context(stop_signals())
            if with_parent:
                watch = threading.Thread(target=_watch_stdin, args=(loop, stop_event), daemon=True)
                watch.start()
            try:
                await stack.enter_async_context(server)
            except OSError as error:
                place = f"{server.site.host}:{server.site.port}"
                raise UsageError(f"cannot listen on {place}: {error.strerror}") from error
            announce(server.base_url)
            async with asyncio.TaskGroup() as tasks:
                rise_task = tasks.create_task(rise_when_wanted())
                await stop_event.wait()
                rise_task.cancel()
    except ExceptionGroup as group:  # a planned return failed
        raise group.exceptions[0] from None


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop_event: asyncio.Event) -> None:
    """Wait for the end of stdin in a thread, since stdin may be a file, which no loop can watch."""
    # os.read, not sys.stdin: a thread inside the buffered reader makes Python abort at exit.
    while os.read(0, 4096):
        pass
    with suppress(RuntimeError):  # the loop has been closed
        loop.call_soon_threadsafe(stop_event.set)


Server = TypeVar("Server", bound=AbstractAsyncContextManager[object])


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run a server in a thread during the block; exceptions of the server are raised here."""
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
            # Also if it failed to open: the other thread waits for this event.
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
