"""Asks a mock server through the client, for the tests of its parts."""

import asyncio

import pytest

from gymcli.errors import (
    ModelError,
)
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
    """Give a request that was not asked yet."""
    return Request(messages=[Message(role="user", content="hello")])


HELLO = hello()


class FakeTime:
    """A clock that moves only where somebody sleeps; nobody waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        """Give the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once, and everybody else do what there is to do."""
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class ShortTime(FakeTime):
    """A time in which a minute never ends, so that no deadline comes while a test looks."""

    async def sleep(self, seconds: float) -> None:
        """Let a short time pass at once, and a long one never."""
        if seconds > 60:
            await asyncio.Event().wait()
        await super().sleep(seconds)


def ask(behaviour: Behaviour = echo, request: Request = HELLO, **options) -> Answer:
    """Ask a mock server once."""
    return ask_and_see(behaviour, request, **options)[0]


def ask_and_see(
    behaviour: Behaviour = echo, request: Request = HELLO, **options
) -> tuple[Answer, MockServer]:
    """Ask a mock server once; give the server too, for what it received."""

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
    """Ask a mock server in vain; whatever the error says, it does not say the key."""
    with pytest.raises(ModelError) as raised:
        ask(behaviour, request, **options)
    assert KEY not in str(raised.value)
    return raised.value


def failure_at(base_url: str, **options) -> ModelError:
    """Ask an address in vain, once."""

    async def run() -> None:
        settings = {"base_url": base_url, "model": "m", "max_attempts": 1, **options}
        async with Client(Endpoint.model_validate(settings), concurrency=1) as client:
            await client.answer(HELLO)

    with pytest.raises(ModelError) as raised:
        asyncio.run(run())
    return raised.value
