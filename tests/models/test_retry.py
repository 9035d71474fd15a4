"""When a request is tried again, and after how long."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import (
    EndpointConnectionError,
    ModelError,
    RateLimitError,
    RequestRefusedError,
    ServerError,
)
from gymcli.models.api_errors import retry_after_seconds
from gymcli.models.client import RetryPolicy
from gymcli.models.endpoint import Endpoint
from gymcli.models.limits import RequestState
from gymcli.types import Answer, Message, Tries
from tests.models.asking import FakeTime

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ANSWER = Answer(message=Message(role="assistant", content="done"))


def resume(
    *errors: ModelError,
    was_reached: bool = False,
    tries: Tries | None = None,
    is_singled_out: bool = False,
    **options,
) -> tuple[Answer | ModelError, list[float]]:
    """Fail the tries with these errors, first one included; return the outcome and the waits."""
    time = FakeTime()
    rest = iter(errors[1:])

    async def call() -> Answer:
        for error in rest:
            raise error
        return Answer(message=ANSWER.message)

    endpoint = Endpoint(base_url="http://h", model="m", **options)
    policy = RetryPolicy(endpoint, lambda: was_reached, clock=time.clock, sleep=time.sleep)
    request = RequestState(time.now, tries=tries or Tries(), is_singled_out=is_singled_out)
    try:
        return asyncio.run(policy.resume(call, errors[0], request)), time.sleeps
    except ModelError as error:
        return error, time.sleeps


def unreachable(_: object = None) -> EndpointConnectionError:
    """Return the error of a connection that could not be made."""
    error = EndpointConnectionError("nobody there")
    error.__cause__ = aiohttp.ClientConnectorError(None, OSError())
    return error


def busy(_: object = None) -> RateLimitError:
    return RateLimitError("slow", status=429)


def test_resume_counts_retries_by_class():
    tries = Tries()
    end, waits = resume(ServerError("a"), busy(), ServerError("c"), tries=tries)
    assert isinstance(end, Answer)
    assert tries.retries == {"ServerError": 2, "RateLimitError": 1}
    assert len(waits) == 3


def test_resume_backs_off_exponentially_with_jitter():
    _, waits = resume(*[ServerError("x")] * 9, max_attempts=10)
    limits = [1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert all(0.5 <= wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert len(set(waits)) == len(waits)


def test_resume_gives_up_after_max_attempts():
    errors = [ServerError(str(number)) for number in range(5)]
    tries = Tries()
    end, waits = resume(*errors, max_attempts=3, tries=tries)
    assert end is errors[2]
    assert tries.retries == {"ServerError": 2}
    assert len(waits) == 2


def test_resume_gives_up_at_the_deadline():
    errors = [ServerError("slow", retry_after=40)] * 9
    end, waits = resume(*errors, retry_deadline=100)
    assert end is errors[0]
    assert len(waits) == 2
    assert sum(waits) < 100


@pytest.mark.parametrize("status", [429, 503, 529])
def test_resume_counts_no_attempts_where_there_is_too_much_to_do(status):
    kind = RateLimitError if status == 429 else ServerError
    end, waits = resume(*(kind("busy", status=status) for _ in range(20)), max_attempts=2)
    assert isinstance(end, Answer)
    assert len(waits) == 20
    assert all(wait <= 0.1 * 2**number for number, wait in enumerate(waits))
    assert max(waits) <= 30


def test_resume_waits_as_asked_for_a_request_that_alone_is_refused():
    """The limiter imposes no pause on its account."""
    slow = RateLimitError("slow", status=429, retry_after=20)
    end, waits = resume(slow, slow, is_singled_out=True)
    assert isinstance(end, Answer)
    assert all(20 <= wait <= 22 for wait in waits)
    _, waits = resume(slow, slow)
    assert all(wait <= 0.2 for wait in waits)


def test_resume_counts_other_errors_among_those_of_overload():
    broken = [ServerError("x", status=500) for _ in range(3)]
    tries = Tries()
    errors = (broken[0], *map(busy, range(5)), broken[1], busy(), broken[2])
    end, _ = resume(*errors, max_attempts=3, tries=tries)
    assert end is broken[2]
    assert tries.retries == {"ServerError": 2, "RateLimitError": 6}


def test_resume_ends_overload_at_the_deadline():
    end, waits = resume(*map(busy, range(999)), retry_deadline=300)
    assert isinstance(end, RateLimitError)
    assert 240 <= sum(waits) <= 300


def test_resume_tries_nothing_again_where_one_attempt_is_allowed():
    end, waits = resume(busy(), max_attempts=1)
    assert isinstance(end, RateLimitError)
    assert not waits


def test_resume_soon_gives_up_on_an_address_that_never_answered():
    for _ in range(20):
        end, waits = resume(*map(unreachable, range(99)), max_attempts=99)
        assert isinstance(end, EndpointConnectionError)
        assert sum(waits) <= 10


def test_resume_waits_for_a_server_that_answered_before():
    """Attempts do not matter: it is the breaker that gives up on such a server."""
    tries = Tries()
    errors = map(unreachable, range(30))
    _, waits = resume(*errors, was_reached=True, max_attempts=3, tries=tries)
    assert tries.retries == {"EndpointConnectionError": 30}
    assert max(waits) <= 5


def test_resume_counts_no_try_that_met_an_outage():
    tries = iter([ServerError("answered 502", status=502)] * 30)
    time = FakeTime()
    endpoint = Endpoint(base_url="http://h", model="m", max_attempts=2)
    policy = RetryPolicy(endpoint, lambda: True, clock=time.clock, sleep=time.sleep)
    request = RequestState(time.now)
    request.met_outage = True

    async def call() -> Answer:
        for error in tries:
            raise error
        return Answer(message=ANSWER.message)

    asyncio.run(policy.resume(call, next(tries), request))
    assert request.tries.retries == {"ServerError": 30}
    assert max(time.sleeps) <= 5


def test_resume_ends_at_an_error_that_is_not_retried():
    last = RequestRefusedError("no")
    tries = Tries()
    end, waits = resume(ServerError("x"), last, tries=tries)
    assert end is last
    assert tries.retries == {"ServerError": 1}
    assert len(waits) == 1


@pytest.mark.parametrize(("asked", "low", "high"), [(3.0, 3.0, 3.3), (500.0, 60.0, 66.0)])
def test_resume_waits_as_asked_up_to_a_cap(asked, low, high):
    _, (wait,) = resume(ServerError("slow", retry_after=asked))
    assert low <= wait <= high


def test_resume_backs_off_where_it_is_asked_for_no_wait():
    _, (wait,) = resume(ServerError("slow", retry_after=0.0))
    assert 0.5 <= wait <= 1


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
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 400}, 86_400.0),
        ({"retry-after": f"1{'0' * 20}"}, 86_400.0),
        ({"retry-after-ms": "1e300"}, 86_400.0),
        ({"retry-after-ms": "nan", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-5", "retry-after": "9"}, 9.0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 86_400.0),
        ({"retry-after": "Fri, 31 Dec 10000 23:59:59 GMT"}, 86_400.0),
        ({"retry-after": f"Fri, 31 Dec 1{'0' * 20} 23:59:59 GMT"}, 86_400.0),
        ({"retry-after": f"Fri, 31 Dec 1{'0' * 5000} 23:59:59 GMT"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 -9999"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 +99999999999999"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 99999999999999999999:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 0001 00:00:00 +2359"}, 0.0),
        ({"retry-after": "Fri, 31 Feb 2026 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_seconds(headers, seconds):
    assert retry_after_seconds(headers, NOW) == seconds


@given(st.text())
def test_retry_after_seconds_survives_any_header(text):
    seconds = retry_after_seconds({"retry-after": text})
    assert seconds is None or 0 <= seconds < float("inf")
