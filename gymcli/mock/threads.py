"""Runs a server in a thread of its own, for tests that are not async themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

__all__ = ["serving"]

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
