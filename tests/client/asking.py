"""Asks a mock server through the client, for the tests of its parts."""

import asyncio

import pytest

from gymcli.client import Client, Endpoint
from gymcli.errors import (
    ModelError,
)
from gymcli.mock import MockServer
from gymcli.mock.behaviours import Behaviour, echo
from gymcli.types import Answer, Message, Request

KEY = "sk-never-to-be-seen"
HELLO = Request(messages=[Message(role="user", content="hello")])
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


async def no_sleep(seconds: float) -> None:
    """Wait no time at all."""


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
            async with Client(endpoint, concurrency=4, sleep=no_sleep) as client:
                return await client.answer(request), server

    return asyncio.run(run())


def failure(behaviour: Behaviour, request: Request = HELLO, **options) -> ModelError:
    """Ask a mock server in vain; whatever the error says, it does not say the key."""
    with pytest.raises(ModelError) as raised:
        ask(behaviour, request, **options)
    assert KEY not in str(raised.value)
    return raised.value
