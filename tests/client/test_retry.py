"""When and after how long a request is tried again."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.client import Endpoint
from gymcli.client.retry import RetryPolicy, is_retried, retry_after_seconds
from gymcli.errors import (
    AuthenticationError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.types import Answer, Message

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ANSWER = Answer(message=Message(role="assistant", content="done"))


def resume(*errors: ModelError, **options) -> tuple[Answer | ModelError, list[float]]:
    """Let the tries fail one after another, the first one included; give the end and the waits."""
    waits: list[float] = []
    rest = iter(errors[1:])

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def call() -> Answer:
        for error in rest:
            raise error
        return Answer(message=ANSWER.message)

    endpoint = Endpoint(base_url="http://h", model="m", **options)
    policy = RetryPolicy(endpoint, sleep)
    try:
        return asyncio.run(policy.resume(call, errors[0], time.monotonic())), waits
    except ModelError as error:
        return error, waits


def test_resume_counts_retries_by_class():
    end, waits = resume(ServerError("a"), RateLimitError("b"), ServerError("c"))
    assert isinstance(end, Answer)
    assert end.retries == {"ServerError": 2, "RateLimitError": 1}
    assert len(waits) == 3


def test_resume_backs_off_exponentially_with_jitter():
    _, waits = resume(*[ServerError("x")] * 9, max_attempts=10)
    limits = [1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert all(0.5 <= wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert len(set(waits)) == len(waits)


def test_resume_gives_up_after_max_attempts():
    errors = [ServerError(str(number)) for number in range(5)]
    end, waits = resume(*errors, max_attempts=3)
    assert end is errors[2]
    assert end.retries == {"ServerError": 2}
    assert len(waits) == 2


def test_resume_gives_up_at_the_deadline():
    errors = [RateLimitError("slow", retry_after=40)] * 9
    end, waits = resume(*errors, retry_deadline=100)
    assert isinstance(end, RateLimitError)
    assert len(waits) == 2
    assert sum(waits) < 100


def unreachable(_: object = None) -> EndpointConnectionError:
    """Give the error of a connection that could not be made."""
    error = EndpointConnectionError("nobody there")
    error.__cause__ = aiohttp.ClientConnectorError(None, OSError())
    return error


def test_resume_soon_gives_up_on_an_address_that_never_answered():
    for _ in range(20):
        end, waits = resume(*map(unreachable, range(99)), max_attempts=99)
        assert isinstance(end, EndpointConnectionError)
        assert sum(waits) <= 10


def test_resume_waits_for_a_server_that_answered_before():
    async def no_sleep(seconds: float) -> None:
        pass

    async def call() -> Answer:
        if (error := next(errors, None)) is not None:
            raise error
        return ANSWER

    errors = map(unreachable, range(9))
    endpoint = Endpoint(base_url="http://h", model="m", max_attempts=11)
    policy = RetryPolicy(endpoint, no_sleep)
    policy.was_reached = True
    answer = asyncio.run(policy.resume(call, unreachable(), time.monotonic()))
    assert answer.retries == {"EndpointConnectionError": 10}


def test_resume_ends_at_an_error_that_is_not_retried():
    last = RequestRefusedError("no")
    end, waits = resume(ServerError("x"), last)
    assert end is last
    assert end.retries == {"ServerError": 1}
    assert len(waits) == 1


@pytest.mark.parametrize(("asked", "low", "high"), [(3.0, 3.0, 3.3), (500.0, 60.0, 66.0)])
def test_resume_waits_as_asked_up_to_a_cap(asked, low, high):
    _, (wait,) = resume(RateLimitError("slow", retry_after=asked))
    assert low <= wait <= high


def test_resume_backs_off_where_it_is_asked_for_no_wait():
    _, (wait,) = resume(RateLimitError("slow", retry_after=0.0))
    assert 0.5 <= wait <= 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointConnectionError, True),
        (EndpointTimeoutError, True),
        (RateLimitError, True),
        (ServerError, True),
        (InvalidAnswerError, True),
        (RequestRefusedError, False),
        (AuthenticationError, False),
        (ContextOverflowError, False),
    ],
)
def test_is_retried(error, expected):
    assert is_retried(error("x")) is expected


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": http_date(NOW + timedelta(seconds=90))}, 90.0),
        ({"retry-after": http_date(NOW - timedelta(seconds=90))}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:05 -0000"}, 5.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_seconds(headers, seconds):
    assert retry_after_seconds(headers, NOW) == seconds


@given(st.text())
def test_retry_after_seconds_survives_any_header(text):
    seconds = retry_after_seconds({"retry-after": text})
    assert seconds is None or 0 <= seconds < float("inf")
