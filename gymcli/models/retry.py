"""When a failed request is tried again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from gymcli.errors import ModelError
from gymcli.models.api_errors import is_overload, is_retried, is_unreachable
from gymcli.models.endpoint import Endpoint
from gymcli.models.limits import FIRST_CONTACT_DEADLINE, Clock, RequestState, Sleep
from gymcli.types import Answer

__all__ = ["RetryPolicy"]

_BACKOFF = wait_random_exponential(multiplier=1.0, min=0.5, max=30.0)
"""Seconds: any between 0.5 and a limit that doubles from 1 to 30."""

_OVERLOAD_BACKOFF = wait_random_exponential(multiplier=0.1, max=30.0)
"""Seconds before a request that was too much waits in line again, where the limiter lets it wait
as long as there is too much to do; so this is for one that is refused whatever the others are."""

_MAX_UNREACHABLE_WAIT = 5.0
"""Seconds, at most, before one tries again to reach an endpoint that answered before."""


class RetryPolicy:
    """Tries again what failed, within an endpoint's attempts and deadline.

    `was_reached` returns whether the endpoint ever answered anything.
    """

    def __init__(
        self, endpoint: Endpoint, was_reached: Callable[[], bool], *, clock: Clock, sleep: Sleep
    ) -> None:
        self._endpoint = endpoint
        self._was_reached = was_reached
        self._clock = clock
        self._sleep = sleep

    async def resume(
        self, call: Callable[[], Awaitable[Answer]], failed: ModelError, request: RequestState
    ) -> Answer:
        """Go on with `call` after a first try that failed; retries are counted in `request.tries`.

        The first try is the caller's, since almost all requests need no other one.

        Raises:
            ModelError: The last try's error.
        """
        num_counted = 0
        first: ModelError | None = failed

        async def attempt() -> Answer:
            nonlocal first
            if first is not None:
                error, first = first, None
                raise error
            return await call()

        def is_over(state: RetryCallState) -> bool:
            nonlocal num_counted
            error = _error_of(state)
            num_counted += not (is_overload(error) or self._is_gone(error, request))
            if num_counted >= self._endpoint.max_attempts or self._endpoint.max_attempts == 1:
                return True
            deadline = self._endpoint.retry_deadline
            if is_unreachable(error) and not self._was_reached():
                deadline = min(deadline, FIRST_CONTACT_DEADLINE)
            elapsed = self._clock() - request.since - request.waited
            # The limiter waits as long as an endpoint asked that has too much to do.
            return elapsed + max(state.upcoming_sleep, self._asked_wait(error)) > deadline

        retrying = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_exception(is_retried),
            wait=lambda state: self._wait(state, request),
            stop=is_over,
            before_sleep=lambda state: request.tries.count(_error_of(state)),
            reraise=True,
        )
        answer: Answer = await retrying(attempt)
        return answer

    def _is_gone(self, error: ModelError, request: RequestState) -> bool:
        """Return whether the endpoint was there and is gone, or a probe of it failed.

        That counts as no try, as little as an endpoint with too much to do: the deadlines bound
        both, and neither is the request's fault.
        """
        return request.met_outage or (is_unreachable(error) and self._was_reached())

    def _wait(self, state: RetryCallState, request: RequestState) -> float:
        """Return the seconds that the endpoint asked for, up to a cap, else those of a backoff.

        A tenth is added at random, so that requests refused together do not come back together.
        """
        error = _error_of(state)
        if is_overload(error):
            return _OVERLOAD_BACKOFF(state)
        if error.retry_after:
            return self._asked_wait(error) * random.uniform(1.0, 1.1)
        seconds = _BACKOFF(state)
        return min(seconds, _MAX_UNREACHABLE_WAIT) if self._is_gone(error, request) else seconds

    def _asked_wait(self, error: ModelError) -> float:
        return min(error.retry_after or 0.0, self._endpoint.max_retry_after)


def _error_of(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ModelError), "only a ModelError is tried again"
    return error
