"""What failed tries say of the endpoint, over real connections."""

import asyncio

import aiohttp
import pytest

from gymcli.errors import (
    AuthenticationError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointGoneError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.mock import MockAnswer, scripted
from gymcli.mock.behaviours import refusal_of
from gymcli.models.api_errors import (
    is_absence,
    is_connect_timeout,
    is_overload,
    is_retried,
    is_silence,
    is_unreachable,
)
from tests.models.asking import failure
from tests.models.test_connections import failure_at


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointConnectionError, True),
        (EndpointTimeoutError, True),
        (RateLimitError, True),
        (ServerError, True),
        (InvalidAnswerError, True),
        (EndpointGoneError, False),
        (RequestRefusedError, False),
        (AuthenticationError, False),
        (ContextOverflowError, False),
    ],
)
def test_is_retried(error, expected):
    assert is_retried(error("x")) is expected


def signs(error) -> list[str]:
    """Name what an error is a sign of."""
    told = {
        "absence": is_absence,
        "overload": is_overload,
        "silence": is_silence,
        "unreachable": is_unreachable,
    }
    return [name for name, is_sign in told.items() if is_sign(error)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, []),
        (401, []),
        (408, []),
        (429, ["overload"]),
        (500, []),
        (502, ["absence"]),
        (503, ["absence", "overload"]),
        (504, ["absence"]),
        (529, ["overload"]),
    ],
)
def test_signs_of_statuses(status, expected):
    assert signs(failure(lambda _: refusal_of(status, "no"), max_attempts=1)) == expected


def test_signs_of_a_body_that_is_no_answer():
    assert signs(failure(scripted([MockAnswer(body="{")]), max_attempts=1)) == []


def test_signs_of_a_stall():
    stall = scripted([MockAnswer(fault="stall")])
    assert signs(failure(stall, max_attempts=1, total_timeout=0.05)) == ["silence"]


def test_signs_of_a_stream_that_stands_still():
    stall = scripted([MockAnswer(text="x", fault="stall")])
    error = failure(stall, max_attempts=1, stream=True, idle_timeout=0.05)
    assert signs(error) == ["silence"]


def test_signs_of_a_reset_before_an_answer():
    assert signs(failure(scripted([MockAnswer(fault="reset")]), max_attempts=1)) == ["absence"]


def test_signs_of_nobody_there():
    error = failure_at("http://127.0.0.1:9")
    assert signs(error) == ["absence", "unreachable"]
    assert not is_connect_timeout(error)


def test_signs_of_no_connection_in_time():
    error = EndpointTimeoutError("x")
    error.__cause__ = aiohttp.ConnectionTimeoutError()
    assert signs(error) == ["absence", "unreachable"]
    assert is_connect_timeout(error)


def half_an_answer(*, leaves: bool) -> ModelError:
    """Ask who sends a head and half a body, and then nothing more, or leaves."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        if not leaves:
            await reader.read()  # until the client leaves
        writer.close()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            address = "http://{}:{}".format(*server.sockets[0].getsockname())
            return await asyncio.to_thread(failure_at, address, idle_timeout=0.2)

    return asyncio.run(run())


def test_signs_of_a_body_that_stands_still():
    error = half_an_answer(leaves=False)
    assert isinstance(error, EndpointTimeoutError)
    assert str(error).endswith("the answer stood still for 0.2 seconds")
    assert signs(error) == ["silence"]


def test_signs_of_a_body_that_breaks_off():
    """Who begins an answer is there."""
    error = half_an_answer(leaves=True)
    assert isinstance(error, EndpointConnectionError)
    assert is_retried(error)
    assert signs(error) == []
