"""When a failed request is tried again, and after how long.

Retried: no connection, no answer in time, 408, 409, 429, 5xx, and a body that is no answer. Not
retried: every other 4xx, a 5xx whose words say that it will stay, a redirect, a certificate that
cannot be trusted, a conversation that is too long.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeAlias

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from gymcli.client.endpoint import Endpoint
from gymcli.errors import (
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RateLimitError,
    ServerError,
)
from gymcli.types import Answer

__all__ = ["RetryPolicy", "Sleep", "is_retried", "is_unreachable", "retry_after_seconds"]

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

RETRIED = (
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    RateLimitError,
    ServerError,
)

BACKOFF = wait_random_exponential(multiplier=1.0, min=0.5, max=30.0)
"""Seconds: any between 0.5 and a limit that doubles from 1 to 30."""

FIRST_CONTACT_DEADLINE = 10.0
"""Seconds, in place of a longer deadline, while no connection to the endpoint was ever made: an
address that is wrong should be told soon, a server that restarts has the endpoint's patience."""


class RetryPolicy:
    """Tries again what failed, within an endpoint's attempts and deadline."""

    def __init__(self, endpoint: Endpoint, sleep: Sleep) -> None:
        self._endpoint = endpoint
        self._sleep = sleep
        self.was_reached = False
        """Whether the endpoint ever answered anything."""

    async def resume(
        self, call: Callable[[], Awaitable[Answer]], failed: ModelError, started: float
    ) -> Answer:
        """Go on after a first try that failed; give the answer with its retries counted.

        Args:
            call: Makes one try.
            failed: How the first try ended.
            started: When the first try began, by `time.monotonic`.

        Raises:
            ModelError: The last try's error, with what was tried before in `retries`.

        """
        retries: Counter[str] = Counter()
        first: ModelError | None = failed

        async def attempt() -> Answer:
            nonlocal first
            if first is not None:
                error, first = first, None
                raise error
            return await call()

        retrying = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_exception(is_retried),
            wait=self._wait,
            stop=lambda state: self._is_over(state, started),
            before_sleep=lambda state: retries.update([type(_error_of(state)).__name__]),
            reraise=True,
        )
        try:
            answer: Answer = await retrying(attempt)
        except ModelError as error:
            error.retries = dict(retries)
            raise
        answer.retries = dict(retries)
        return answer

    def _wait(self, state: RetryCallState) -> float:
        """Wait as long as the endpoint asked, up to a cap, else by exponential backoff.

        A tenth is added at random, so that requests refused together do not come back together.
        """
        error = _error_of(state)
        if not isinstance(error, ModelError) or not error.retry_after:
            return BACKOFF(state)
        seconds = min(error.retry_after, self._endpoint.max_retry_after)
        return seconds * random.uniform(1.0, 1.1)

    def _is_over(self, state: RetryCallState, started: float) -> bool:
        if state.attempt_number >= self._endpoint.max_attempts:
            return True
        deadline = self._endpoint.retry_deadline
        if not self.was_reached and is_unreachable(_error_of(state)):
            deadline = min(deadline, FIRST_CONTACT_DEADLINE)
        # The waits are counted too, for a sleep that takes no time, as in tests.
        elapsed = max(time.monotonic() - started, state.idle_for)
        return elapsed + state.upcoming_sleep > deadline


def is_retried(error: BaseException) -> bool:
    """Say whether the same request may succeed a moment later."""
    if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
        return False
    return isinstance(error, RETRIED)


def is_unreachable(error: BaseException | None) -> bool:
    """Say whether no connection could be made: refused, no such host, or nobody there."""
    causes = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return isinstance(error, ModelError) and isinstance(error.__cause__, causes)


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Read `retry-after-ms`, or `Retry-After` in seconds or as a date; None where it is neither."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    return _seconds_until(headers.get("retry-after", ""), now or datetime.now(UTC))


def _seconds_until(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:  # "-0000", which RFC 5322 gives no zone; HTTP dates are in GMT
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None
