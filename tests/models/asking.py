"""Asks a mock server through the client."""

import asyncio

import pytest

from gymcli.errors import ModelError
from gymcli.mock import MockServer
from gymcli.mock.behaviours import Behaviour, echo
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.types import Answer, Message, Request

KEY = "sk-never-to-be-seen"
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def hello() -> Request:
    """Return a new request."""
    return Request(messages=[Message(role="user", content="hello")])


HELLO = hello()


class FakeTime:
    """A clock that advances only when somebody sleeps, so that no test waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the clock and let other tasks run."""
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class ShortTime(FakeTime):
    """A clock that never advances by more than a minute at a time, so that no deadline passes."""

    async def sleep(self, seconds: float) -> None:
        """Return immediately from a short sleep, and never from a long one."""
        if seconds > 60:
            await asyncio.Event().wait()
        await super().sleep(seconds)


def ask(behaviour: Behaviour = echo, request: Request = HELLO, **options) -> Answer:
    """Ask a mock server once."""
    return ask_and_see(behaviour, request, **options)[0]


def ask_and_see(
    behaviour: Behaviour = echo, request: Request = HELLO, **options
) -> tuple[Answer, MockServer]:
    """Ask a mock server once; return the answer and the server, which records its requests."""

    async def run() -> tuple[Answer, MockServer]:
        async with MockServer(behaviour) as server:
            settings = {"base_url": server.base_url, "model": "m", "api_key": KEY, **options}
            endpoint = Endpoint.model_validate(settings)
            time = FakeTime()
            async with Client(
                endpoint, concurrency=4, clock=time.clock, sleep=time.sleep
            ) as client:
                return await client.answer(request), server

    return asyncio.run(run())


def failure(behaviour: Behaviour, request: Request = HELLO, **options) -> ModelError:
    """Return the error of a request that fails, and check that it does not contain the key."""
    with pytest.raises(ModelError) as raised:
        ask(behaviour, request, **options)
    assert KEY not in str(raised.value)
    return raised.value


def failure_at(base_url: str, **options) -> ModelError:
    """Return the error of one request to an address."""

    async def run() -> None:
        settings = {"base_url": base_url, "model": "m", "max_attempts": 1, **options}
        async with Client(Endpoint.model_validate(settings), concurrency=1) as client:
            await client.answer(HELLO)

    with pytest.raises(ModelError) as raised:
        asyncio.run(run())
    return raised.value
