"""Decides whether and when a failed request is retried."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from gymcli.errors import ModelError
from gymcli.models.api_errors import is_overload, is_retried, is_unreachable
from gymcli.models.endpoint import Endpoint
from gymcli.models.limits import FIRST_CONTACT_DEADLINE, Clock, RequestState, Sleep
from gymcli.types import Answer

_BACKOFF = wait_random_exponential(multiplier=1.0, min=0.5, max=30.0)
"""Seconds: any between 0.5 and a limit that doubles from 1 to 30."""

_OVERLOAD_BACKOFF = wait_random_exponential(multiplier=0.1, max=30.0)
"""Seconds before a request that met an overload queues again. The limiter then holds it until the
load falls, so this matters only for a request that is refused on its own account."""

_MAX_UNREACHABLE_WAIT = 5.0
"""The most seconds before the next attempt to reach an endpoint that answered before."""


class RetryPolicy:
    """Retries failed requests within an endpoint's `max_attempts` and `retry_deadline`.

    `was_reached` returns whether the endpoint ever answered.
    """

    def __init__(
        self, endpoint: Endpoint, was_reached: Callable[[], bool], *, clock: Clock, sleep: Sleep
    ) -> None:
        self._endpoint = endpoint
        self._was_reached = was_reached
        self._clock = clock
        self._sleep = sleep
        self.counts: Counter[str] = Counter()
        """Failed tries except the last one of each request, by error class."""

    async def resume(
        self, call: Callable[[], Awaitable[Answer]], failed: ModelError, request: RequestState
    ) -> Answer:
        """Retry `call` after the first try failed; retries are counted in `request.tries`.

        The caller makes the first try, since almost all requests need no other.

        Raises:
            ModelError: The error of the last try.
        """
        num_counted = 0
        first: ModelError | None = failed

        async def attempt() -> Answer:
            nonlocal first
            # tenacity has no way to begin after a failure, so its first call repeats that one.
            if first is not None:
                error, first = first, None
                raise error
            return await call()

        def is_over(state: RetryCallState) -> bool:
            nonlocal num_counted
            error = _error_of(state)
            num_counted += not (is_overload(error) or self._is_gone(error, request))
            # With one attempt, not even an overload is retried.
            if num_counted >= self._endpoint.max_attempts or self._endpoint.max_attempts == 1:
                return True
            deadline = self._endpoint.retry_deadline
            if is_unreachable(error) and not self._was_reached():
                deadline = min(deadline, FIRST_CONTACT_DEADLINE)
            elapsed = self._clock() - request.since - request.waited
            # The wait that an overloaded endpoint asks for happens in the limiter.
            return elapsed + max(state.upcoming_sleep, self._asked_wait(error)) > deadline

        retrying = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_exception(is_retried),
            wait=lambda state: self._wait(state, request),
            stop=is_over,
            before_sleep=lambda state: self.count(_error_of(state), request),
            reraise=True,
        )
        answer: Answer = await retrying(attempt)
        return answer

    def count(self, error: ModelError, request: RequestState) -> None:
        """Count a failed try of a request that is not its last."""
        request.tries.count(error)
        self.counts[type(error).__name__] += 1

    def _is_gone(self, error: ModelError, request: RequestState) -> bool:
        """Return whether the endpoint was up and is down now, or a probe of it failed.

        Like an overload, this does not count as a try: it is not the request's fault, and the
        deadlines bound it.
        """
        return request.met_outage or (is_unreachable(error) and self._was_reached())

    def _wait(self, state: RetryCallState, request: RequestState) -> float:
        """Return the seconds that the endpoint asked for, up to a cap, or those of a backoff.

        Up to a tenth is added at random, so that requests refused together return at different
        times.
        """
        error = _error_of(state)
        # The limiter imposes the wait that the endpoint asks of all.
        waits_in_limiter = is_overload(error) and not request.is_singled_out
        if error.retry_after and not waits_in_limiter:
            return self._asked_wait(error) * random.uniform(1.0, 1.1)
        if is_overload(error):
            return _OVERLOAD_BACKOFF(state)
        seconds = _BACKOFF(state)
        return min(seconds, _MAX_UNREACHABLE_WAIT) if self._is_gone(error, request) else seconds

    def _asked_wait(self, error: ModelError) -> float:
        return min(error.retry_after or 0.0, self._endpoint.max_retry_after)


def _error_of(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ModelError), "only a ModelError is retried"
    return error
