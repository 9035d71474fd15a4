"""Runs a server in a thread of its own, for tests that are not async themselves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

Server = TypeVar("Server", bound=AbstractAsyncContextManager)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve while the block lasts."""
    loop = asyncio.new_event_loop()
    is_open, is_over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with server:
            is_open.set()
            await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_open.wait(10), "the server did not start"
        yield server
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join(10)
        loop.close()
