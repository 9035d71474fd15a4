"""Fixtures that more than one part of the tests needs."""

import asyncio
import threading
from collections.abc import Iterator

import hypothesis
import pytest

from gymcli.mock import MockServer

# A busy machine may take its time over one example; what is slow is measured in bench/.
hypothesis.settings.register_profile("gymcli", deadline=None)
hypothesis.settings.load_profile("gymcli")


@pytest.fixture
def mock_server() -> Iterator[MockServer]:
    """Give a mock server in a thread of its own; set its `behaviour` before asking it.

    It echoes at first. For tests that are not async themselves, such as those of commands.
    """
    server = MockServer()
    loop = asyncio.new_event_loop()
    is_open, is_over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with server:
            is_open.set()
            await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_open.wait(10), "the mock server did not start"
        yield server
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join(10)
        loop.close()
