"""How fast an address is asked: requests at once, as it takes them, and rates per minute.

`SharedLimiters` has one `ConcurrencyLimiter` for each address and key of a run. It combines the
user's limits (a token bucket for each rate), what the address seems to take at once
(`AdaptiveLimit`), the pauses that it asks for, and whether it is there at all (`CircuitBreaker`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from gymcli.errors import EndpointGoneError, ModelError
from gymcli.models.api_errors import (
    is_absence,
    is_connect_timeout,
    is_overload,
    is_retried,
    is_silence,
    is_unreachable,
)
from gymcli.models.endpoint import Endpoint, EndpointLimits
from gymcli.types import JSONObject, Tries, Usage

__all__ = [
    "FIRST_CONTACT_DEADLINE",
    "MIN_FAILURES",
    "AdaptiveLimit",
    "Bucket",
    "CircuitBreaker",
    "Clock",
    "ConcurrencyLimiter",
    "RateLimits",
    "RequestState",
    "SharedLimiters",
    "Sleep",
    "max_answer_tokens",
]

_LOGGER = logging.getLogger(__name__)

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]

_MAX_TOKENS = 10**7
"""What is believed of the tokens that a request may take or took; a slip of the pen must not stop
all other requests."""

_FIRST_GUESS = 256.0
"""Tokens of an answer, until there was one."""

_MANY_REFUSALS = 0.4
"""Share of refusals in a round from which on the capacity is halved. One of two is refused while
the limit grows far above the capacity; fewer say that it is near."""

_QUIET_ROUNDS = 10
"""Rounds without a refusal after which the limit grows faster and faster."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
"""Seconds in which nothing is sent to an address that refused everything, twice, and asked for no
wait."""

_MOST_FAILURES = 8
"""Failures in a row that make an address seem busier; an idle one is tried now and then."""

MIN_FAILURES = 8
"""Failures in a row after which an address seems to be gone; or as many as are still under way, if
these are more. Failures come fast and answers slowly, so that where each fifth request fails by
itself, the first ones to end are failures."""

FIRST_CONTACT_DEADLINE = 10.0
"""Seconds, in place of a longer deadline, while the endpoint never answered: the user should soon
know of a wrong address, while a server that restarts has the endpoint's patience."""

_FIRST_PROBE_PAUSE = 0.5
_LONGEST_PROBE_PAUSE = 5.0
"""Seconds between probes."""


class Bucket:
    """A token bucket that holds what comes within a second, so that a rate is kept evenly.

    An amount that is larger than that passes when nothing is owed, and is paid back by waiting.
    """

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self.per_minute = per_minute
        self._per_second = per_minute / 60
        self._size = max(1.0, self._per_second)
        self._level = self._size
        self._clock = clock
        self._filled_at = clock()

    def delay(self, amount: float) -> float:
        """Return the seconds until an amount may pass."""
        missing = min(amount, self._size) - self._filled()
        # Sums of floats: a trillionth that is missing must not be waited for.
        return missing / self._per_second if missing > 1e-6 * self._size else 0.0

    def take(self, amount: float) -> None:
        """Let an amount pass; the bucket may owe it."""
        self._level = self._filled() - amount

    def give_back(self, amount: float) -> None:
        """Take back what was not needed; a negative amount was needed on top."""
        self._level = min(self._size, self._filled() + amount)

    def _filled(self) -> float:
        now = self._clock()
        grown = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._size, grown), now
        return self._level


class RateLimits:
    """The requests and tokens that an address allows per minute, as far as the user said."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._answer_tokens = _FIRST_GUESS

    def lower(self, limits: EndpointLimits) -> None:
        """Keep these limits as well; of two that differ, the lower one holds."""
        self._requests = self._lower(self._requests, limits.requests_per_minute)
        self._tokens = self._lower(self._tokens, limits.tokens_per_minute)

    def _lower(self, bucket: Bucket | None, per_minute: float | None) -> Bucket | None:
        if per_minute is None or (bucket is not None and bucket.per_minute <= per_minute):
            return bucket
        return Bucket(per_minute, self._clock)

    def estimate(self, num_bytes: int, params: JSONObject) -> float:
        """Guess the tokens of a request: four bytes are one, and the answer is like the others."""
        longest = max_answer_tokens(params)
        answer = self._answer_tokens if longest is None else min(longest, _MAX_TOKENS)
        return num_bytes / 4 + answer

    def delay(self, tokens: float) -> float:
        """Return the seconds until a request of this many tokens may pass."""
        requests = self._requests.delay(1) if self._requests is not None else 0.0
        return max(requests, self._tokens.delay(tokens) if self._tokens is not None else 0.0)

    def take(self, tokens: float) -> None:
        """Let a request of this many tokens pass."""
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def give_back(self, tokens: float) -> None:
        """Take back the tokens of a request that came to nothing."""
        if self._tokens is not None:
            self._tokens.give_back(tokens)

    def correct(self, tokens: float, usage: Usage) -> None:
        """Correct a guess by what was used, where the endpoint says it."""
        used = min(usage.prompt_tokens + usage.completion_tokens, _MAX_TOKENS)
        if used:
            self.give_back(tokens - used)
            of_answer = min(usage.completion_tokens, _MAX_TOKENS)
            self._answer_tokens += 0.1 * (of_answer - self._answer_tokens)


def max_answer_tokens(params: JSONObject) -> int | None:
    """Return the tokens that a request lets its answer take; None where it does not say."""
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    asked = (params.get(name) for name in names)
    return next((value for value in asked if isinstance(value, int) and value > 0), None)


class AdaptiveLimit:
    """The number of requests that may be under way at once, from 1 to a ceiling.

    It rises with answers and falls with refusals, as TCP's congestion window does (AIMD: additive
    increase, multiplicative decrease; Chiu and Jain 1989). A round is as many answers and refusals
    as the endpoint is thought to take at once.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.current = float(ceiling)
        self.capacity = float(ceiling)
        """What the endpoint is thought to take: up to here the limit grows with an answer, beyond
        by one for as many answers as it allows at once."""
        self._num_ended = 0
        self._num_refused = 0
        self._sum_under_way = 0
        """Of the round's answers."""
        self._num_quiet = 0
        """Answers since the last refusal."""

    def lower(self, ceiling: int) -> None:
        """Keep a lower ceiling from now on; a higher one changes nothing."""
        self.ceiling = min(self.ceiling, ceiling)
        self.capacity = min(self.capacity, self.ceiling)
        self.current = min(self.current, self.ceiling)

    def record_answer(self, num_under_way: int) -> None:
        """Record an answer, which counts itself as under way.

        The limit grows only where it was used up: else nothing is known about more.
        """
        self._num_ended += 1
        self._num_quiet += 1
        self._sum_under_way += num_under_way
        if self.current < self.capacity:
            self.current = self.capacity
            return
        if self.current == self.ceiling or num_under_way + 1 <= self.current:
            return
        extra = int(self._num_quiet / self.current) - _QUIET_ROUNDS
        step = min(2.0 ** min(max(extra, 0), 32), self.current)
        self.current = self.capacity = min(self.current + step / self.current, self.ceiling)

    def record_refusal(self, num_others: int) -> None:
        """Record a request that was too much in addition to the others under way."""
        self._num_ended += 1
        self._num_refused += 1
        self._num_quiet = 0
        self.current = max(1.0, min(max(self.current - 1, num_others), self.capacity))
        if self._num_ended < self.capacity:
            return
        has_many = self._num_refused >= _MANY_REFUSALS * self._num_ended
        less = self.capacity / 2 if has_many else self.capacity - 1
        seen = self._sum_under_way / max(1, self._num_ended - self._num_refused)
        self.capacity = max(1.0, min(self.capacity, max(less, seen)))
        self.current = min(self.current, self.capacity)
        self._num_ended = self._num_refused = self._sum_under_way = 0


class CircuitBreaker:
    """Follows what one address answers; nothing in here waits.

    The methods that record something return whether it changes what is thought of the address.

    Args:
        place: The address, for messages.
        deadline: Seconds after which an address that is gone is given up.
        overload_deadline: Seconds after which one is given up that only says "too much".
        clock: Returns the time in seconds.
    """

    def __init__(
        self, place: str, *, deadline: float, overload_deadline: float, clock: Clock
    ) -> None:
        self._place = place
        self._deadline = deadline
        self._overload_deadline = overload_deadline
        self._clock = clock
        self.is_open = False
        """The address seems to be gone: requests wait while one at a time probes it."""
        self.has_given_up = False
        self.was_reached = False
        """Whether it ever answered anything, or at least took a connection."""
        self.probe: object | None = None
        """The request that probes the address, while it is under way."""
        self.num_outages = 0
        self._opened_at = 0.0
        self._past_outage_seconds = 0.0
        self._num_in_a_row = 0
        self._failed_requests: set[object] = set()
        """Those that met the failures in a row."""
        self._overloaded_since: float | None = None
        self._last_error: ModelError | None = None
        self._next_probe_at = 0.0
        self._pause = _FIRST_PROBE_PAUSE

    @property
    def outage_seconds(self) -> float:
        """How long the address was gone, all outages together."""
        current = self._clock() - self._opened_at if self.is_open else 0.0
        return self._past_outage_seconds + current

    @property
    def seconds_left(self) -> float:
        """Seconds until the address is given up."""
        if self.has_given_up:
            return math.inf
        deadline = self._deadline
        if not self.was_reached:
            deadline = min(deadline, FIRST_CONTACT_DEADLINE)
        return max(0.0, self._opened_at + deadline - self._clock())

    @property
    def is_overdue(self) -> bool:
        """Whether the address is gone and should be given up."""
        return self.is_open and not self.seconds_left

    @property
    def delay(self) -> float:
        """Seconds until the next request may go; infinite while a probe is under way."""
        if not self.is_open:
            return 0.0
        if self.probe is not None:
            return math.inf
        return max(0.0, self._next_probe_at - self._clock())

    def record_answer(self) -> bool:
        """Record a sign of life, which ends an outage."""
        self.was_reached = True
        self._overloaded_since = None
        self._num_in_a_row = 0
        self._failed_requests.clear()
        if not self.is_open:
            return False
        seconds = self._clock() - self._opened_at
        self._past_outage_seconds += seconds
        self.is_open = self.has_given_up = False
        self.probe = None
        _LOGGER.info("%s: is back after %.1f seconds", self._place, seconds)
        return True

    def record_overload(self, error: ModelError, *, num_others: int) -> bool:
        """Record an answer that says "too much".

        It is a sign of life, but one that does not end a time of overload: past the deadline, and
        with no other request under way, it makes the address be given up.
        """
        self._last_error = error
        now = self._clock()
        since = now if self._overloaded_since is None else self._overloaded_since
        if num_others or now - since < self._overload_deadline:
            is_back = self.record_answer()
            self._overloaded_since = since
            return is_back
        if not self.is_open:
            self._open(since=since)
        return self.give_up()

    def record_failure(self, error: ModelError, *, request: object, num_others: int) -> bool:
        """Record an error of the kind that an address has which is gone.

        Where connections are taken, failures that only one request met are its own: `request` is
        the same object for all of its tries. The `num_others` under way may still be answered.
        """
        is_nobody_there = is_unreachable(error)
        self.was_reached = self.was_reached or not is_nobody_there
        self._last_error = error
        self._num_in_a_row += 1
        if self.is_open:
            if request is not self.probe:
                return False
            self._pause = min(2 * self._pause, _LONGEST_PROBE_PAUSE)
            self._next_probe_at = self._clock() + self._pause
            return self.is_overdue and not num_others and self.give_up()
        self._failed_requests.add(request)
        if self._num_in_a_row < max(MIN_FAILURES, num_others):
            return False
        if len(self._failed_requests) == 1 and not is_nobody_there:
            return False
        self._open(since=self._clock())
        _LOGGER.info(
            "%s: appears to be down (%d failures in a row); requests wait until it is back: %s",
            self._place,
            self._num_in_a_row,
            error,
        )
        return True

    def give_up(self) -> bool:
        """Wait for the address no longer."""
        if self.has_given_up:
            return False
        self.has_given_up = True
        _LOGGER.info("%s: given up after %.0f seconds", self._place, self.outage_seconds)
        return True

    def error(self) -> EndpointGoneError:
        """Return the error of an address that was given up, with the last one that it caused."""
        seconds = self._clock() - self._opened_at
        last = self._last_error
        words = f"{last} (no success for {seconds:.0f} seconds)"
        return EndpointGoneError(words, status=last.status if last is not None else None)

    def _open(self, *, since: float) -> None:
        self.is_open = True
        self.num_outages += 1
        self._opened_at = since
        self._pause = _FIRST_PROBE_PAUSE
        self._next_probe_at = self._clock() + self._pause


class RequestState(msgspec.Struct, eq=False):
    """What the tries of one request have in common."""

    since: float
    """When it was first there; the oldest request is served first, also when it tries again."""
    num_bytes: int = 0
    """Of its body."""
    params: JSONObject = {}
    """Its own, which may say how many tokens its answer may take."""
    tries: Tries = msgspec.field(default_factory=Tries)
    """Those that gave no answer."""
    waited: float = 0.0
    """Seconds in line, without the pauses with which the endpoint answered this very request."""
    was_refused: bool = False
    """Whether its last try was too much for the endpoint."""
    met_outage: bool = False
    """Whether its last try met an address that is gone, as the circuit breaker knows."""
    paused_until: float = 0.0
    """When the pause ends that came with its last refusal."""
    num_refusals: int = 0
    """Of the limiter, when it was last sent: its refusal says nothing new once there are more."""
    tokens: float = 0.0
    """Reserved for it where tokens are counted; guessed once, for all of its tries."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """What its answer took."""


class ConcurrencyLimiter:
    """Decides when requests may go to one address with one key; the oldest one goes first.

    Every request that `admit` or `acquire` let through is ended by `succeeded`, `failed` or
    `cancelled`.

    Args:
        breaker: Knows whether the address is there.
        ceiling: Requests under way at once, at most.
        max_retry_after: Seconds of wait that the address may ask for, at most.
        on_change: Called when the address is gone, given up, or back.
        clock: Returns the time in seconds.
        sleep: Waits this many seconds.
    """

    def __init__(
        self,
        breaker: CircuitBreaker,
        *,
        ceiling: int,
        max_retry_after: float,
        on_change: Callable[[], None],
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self.breaker = breaker
        self.limit = AdaptiveLimit(ceiling)
        self.num_under_way = 0
        self.num_waiting = 0
        self._max_retry_after = max_retry_after
        self._on_change = on_change
        self._clock = clock
        self._sleep = sleep
        self._rates: RateLimits | None = None
        self._paused_until = 0.0
        self._num_refusals = 0
        """Refusals of requests that were sent before the last refusal came are not counted."""
        self._num_refusals_in_a_row = 0
        self._num_failures_in_a_row = 0
        self._line: list[tuple[float, int, asyncio.Future[bool], RequestState]] = []
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None

    def lower(self, limits: EndpointLimits) -> None:
        """Keep these limits as well; of two that differ, the lower one holds."""
        self.limit.lower(limits.max_concurrency or self.limit.ceiling)
        if limits.requests_per_minute or limits.tokens_per_minute:
            self._rates = self._rates or RateLimits(self._clock)
            self._rates.lower(limits)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is sent for a while."""
        return self._paused_until > self._clock()

    @property
    def load(self) -> tuple[bool, float]:
        """How busy the address is with one more request, by what it takes and what failed last.

        Without the failures, an address that fails at once would have the least to do, and get the
        most. A pause outweighs all.
        """
        num = self.num_under_way + self.num_waiting + 1
        return self.is_paused, num / self.limit.current * (1 + self._num_failures_in_a_row)

    def admit(self, request: RequestState) -> float:
        """Let a request through if it may go now; else return the seconds until it may.

        They are infinite where something must end first. Nobody passes those who wait in line.
        """
        if self._line and self._line[0][3] is not request:
            return math.inf
        breaker = self.breaker
        delay = breaker.delay if breaker.is_open else 0.0
        if not breaker.is_open and self.num_under_way + 1 > self.limit.current:
            return math.inf
        delay = max(delay, self._paused_until - self._clock())
        if self._rates is not None:
            if not request.tokens:
                request.tokens = self._rates.estimate(request.num_bytes, request.params)
            delay = max(delay, self._rates.delay(request.tokens))
        if delay > 0:
            return delay
        self.num_under_way += 1
        request.num_refusals = self._num_refusals
        if breaker.is_open:
            breaker.probe = request
        if self._rates is not None:
            self._rates.take(request.tokens)
        return 0.0

    async def acquire(self, request: RequestState) -> bool:
        """Wait until a request may go.

        Return False where the address went or came meanwhile: another one may be a better choice.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._line, (request.since, next(self._order), future, request))
        self.num_waiting += 1
        started = self._clock()
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.result():
                self.cancelled(request)
            else:
                self._serve()  # what it waited for may be the next one's now
            raise
        finally:
            self.num_waiting -= 1
            request.waited += max(0.0, self._clock() - max(started, request.paused_until))

    def succeeded(self, request: RequestState) -> None:
        """End a request that was answered."""
        self._paused_until = 0.0
        self._num_refusals_in_a_row = self._num_failures_in_a_row = 0
        self.limit.record_answer(self.num_under_way)
        if self._rates is not None:
            self._rates.correct(request.tokens, request.usage)
        is_back = self.breaker.record_answer()  # which ends a probe, too
        self.num_under_way -= 1
        if self._line:
            self._serve()
        if is_back:
            self._on_change()

    def failed(self, request: RequestState, error: ModelError) -> None:
        """End a request that met an error."""
        breaker, num_others = self.breaker, self.num_under_way - 1
        request.was_refused = is_overload(error)
        # 503 is "too much" from one that is at work on others; from any other, it may be gone.
        is_at_work = request.was_refused and num_others > 0 and not breaker.is_open
        is_change = request.met_outage = False
        if (is_absence(error) and not is_at_work) or (breaker.is_open and is_silence(error)):
            is_change = breaker.record_failure(error, request=request, num_others=num_others)
            request.met_outage = breaker.is_open
        elif request.was_refused:
            is_change = breaker.record_overload(error, num_others=num_others)
        elif not is_silence(error):
            is_change = breaker.record_answer()
        if request.was_refused:
            self._slow_down(request, error)
        elif num_others and is_connect_timeout(error):
            self.limit.record_refusal(num_others)
        if is_retried(error):
            self._num_failures_in_a_row = min(self._num_failures_in_a_row + 1, _MOST_FAILURES)
        self.cancelled(request)
        if is_change:
            self._on_change()

    def cancelled(self, request: RequestState) -> None:
        """End a request without any answer."""
        if self._rates is not None:
            self._rates.give_back(request.tokens)
        self.num_under_way -= 1
        if self.breaker.probe is request:
            self.breaker.probe = None
        if self._line:
            self._serve()

    def send_away(self) -> None:
        """Let all requests in line choose an address again."""
        line, self._line = self._line, []
        for _, _, future, _ in line:
            if not future.done():
                future.set_result(False)

    def _slow_down(self, request: RequestState, error: ModelError) -> None:
        """Send less at once; send nothing as long as asked, or until something is answered.

        The first refusals after an answer pause nothing: fewer at once is all that they ask for.
        """
        self.limit.record_refusal(self.num_under_way - 1)
        is_new = request.num_refusals == self._num_refusals
        if is_new:
            self._num_refusals += 1
            self._num_refusals_in_a_row += 1
        seconds = 0.0
        if error.retry_after:
            seconds = min(error.retry_after, self._max_retry_after) * random.uniform(1.0, 1.1)
        elif is_new and self._num_refusals_in_a_row > 1:
            doublings = min(self._num_refusals_in_a_row - 2, 16)
            longest = min(_FIRST_PAUSE * 2.0**doublings, _LONGEST_PAUSE)
            seconds = longest * random.uniform(0.5, 1.0)
        if seconds:
            self._paused_until = max(self._paused_until, self._clock() + seconds)
            # Another address may take those in line now; a request that finds none keeps its place.
            self.send_away()
        request.paused_until = self._paused_until

    def _serve(self) -> None:
        """Let through the requests that may go now, and wake up when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line:
            _, _, future, request = self._line[0]
            if not future.done():  # else it was cancelled
                delay = self.admit(request)
                if delay > 0:
                    if self.breaker.is_open and not self.num_under_way:
                        delay = min(delay, self.breaker.seconds_left)
                    if delay < math.inf:
                        # A sleep may end a little early; then the rest is slept.
                        self._timer = asyncio.create_task(self._wake_after(max(delay, 0.001)))
                    return
                future.set_result(True)
            heapq.heappop(self._line)

    async def _wake_after(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._timer = None
        # What is under way was perhaps taken, and is worked on; its own timeouts bound that.
        if self.breaker.is_overdue and not self.num_under_way and self.breaker.give_up():
            self._on_change()
        self._serve()


class SharedLimiters:
    """One limiter for all models behind the same address that have the same key."""

    def __init__(
        self, ceiling: int, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._ceiling = ceiling
        self._clock = clock
        self._sleep = sleep
        self._limiters: dict[tuple[str, object], ConcurrencyLimiter] = {}

    @property
    def num_outages(self) -> int:
        """How often an address was gone."""
        return sum(limiter.breaker.num_outages for limiter in self._limiters.values())

    @property
    def outage_seconds(self) -> float:
        """How long addresses were gone, all of them together."""
        return sum(limiter.breaker.outage_seconds for limiter in self._limiters.values())

    def of(self, base_url: str, endpoint: Endpoint) -> ConcurrencyLimiter:
        """Return the limiter of an address; the first endpoint there sets the deadlines."""
        # Some providers take the key in a header of its own; a secret text compares by its value.
        headers = sorted(endpoint.headers.items(), key=lambda item: item[0].lower())
        key = (base_url, (endpoint.api_key, *headers))
        limiter = self._limiters.get(key)
        if limiter is None:
            breaker = CircuitBreaker(
                base_url,
                deadline=endpoint.outage_deadline,
                # A request that is refused whatever the others are fails by itself before.
                overload_deadline=endpoint.retry_deadline + endpoint.outage_deadline,
                clock=self._clock,
            )
            limiter = self._limiters[key] = ConcurrencyLimiter(
                breaker,
                ceiling=self._ceiling,
                max_retry_after=endpoint.max_retry_after,
                on_change=self._send_away,
                clock=self._clock,
                sleep=self._sleep,
            )
        limiter.lower(endpoint.limits)
        return limiter

    def _send_away(self) -> None:
        """Let requests leave the line of an address that is gone: another one may be back."""
        for limiter in self._limiters.values():
            if limiter.breaker.is_open:
                limiter.send_away()
