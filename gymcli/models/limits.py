"""Limits the load on an address: concurrent requests, and rates per minute.

`SharedLimiters` has one `ConcurrencyLimiter` for each address and key of a run. It combines the
user's limits (a token bucket for each rate), the concurrency that the address seems to bear
(`AdaptiveLimit`), the pauses that it asks for, and whether it is up (`CircuitBreaker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple, TypeAlias

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
from gymcli.models.endpoint import Endpoint, EndpointLimits, max_answer_tokens
from gymcli.models.http import Target
from gymcli.types import JSONObject, Tries, Usage

_LOGGER = logging.getLogger(__name__)

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]

Lend: TypeAlias = Callable[[bool], bool]
"""Lets another attempt run while a request waits that the endpoint refuses again and again; returns
whether one may. The argument is whether the endpoint refuses hardly any other request."""

_MAX_TOKENS = 10**7
"""The most tokens a request counts for, so that one absurd number does not stop all others."""

_FIRST_GUESS = 256.0
"""Tokens that an answer is assumed to take before the first one came."""

_MANY_REFUSALS = 0.4
"""Share of refusals in a round from which the capacity is halved. About half are refused if the
limit is far above the true capacity, and fewer if it is near."""

_QUIET_ROUNDS = 10
"""Rounds without a refusal after which the limit grows exponentially."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
"""Seconds without requests to an address that refused everything twice and named no wait."""

_MANY_IN_A_ROW = 3
"""Refusals of one request in a row that may be its own fault: then others go first, and its attempt
lends its slot. Two may be chance where the endpoint refuses many."""

_MANY_ANSWERS = 4
"""Answers to others for each refusal of one of them, between two refusals of a request, that show
that it is singled out: an endpoint that has too much to do refuses more."""

_MOST_FAILURES = 8
"""The most failures in a row that count as load, so that a failing address is still tried."""

MIN_FAILURES = 8
"""Failures in a row after which an address counts as down; more if more requests are in flight.
Failures arrive faster than answers: if one request in five fails for its own reasons, those are the
first to end."""

FIRST_CONTACT_DEADLINE = 10.0
"""Seconds after which an endpoint that never answered is given up, whatever its deadline: a wrong
address is reported soon, and a server that restarts still gets the full deadline."""

_FIRST_PROBE_PAUSE = 0.5
_LONGEST_PROBE_PAUSE = 5.0
"""Seconds between probes."""


class Bucket:
    """A token bucket with room for one second's amount, which spreads a rate evenly.

    A larger amount passes when the bucket is full, and later ones wait until it is paid back.
    """

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self.per_minute = per_minute
        self._per_second = per_minute / 60
        self._size = max(1.0, self._per_second)
        self._level = self._size
        self._clock = clock
        self._filled_at = clock()

    def delay(self, amount: float) -> float:
        missing = min(amount, self._size) - self._filled()
        # Float rounding can leave a tiny deficit, which is not worth a wait.
        return missing / self._per_second if missing > 1e-6 * self._size else 0.0

    def take(self, amount: float) -> None:
        """Let an amount pass; the level may become negative."""
        self._level = self._filled() - amount

    def give_back(self, amount: float) -> None:
        """Return an unused amount to the bucket; a negative one takes more out of it."""
        self._level = min(self._size, self._filled() + amount)

    def _filled(self) -> float:
        now = self._clock()
        grown = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._size, grown), now
        return self._level


class RateLimits:
    """The user's limits for an address: requests and tokens per minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._answer_tokens = _FIRST_GUESS

    def lower(self, limits: EndpointLimits) -> None:
        """Add limits; of two that differ, the lower one applies."""
        self._requests = self._lower(self._requests, limits.requests_per_minute)
        self._tokens = self._lower(self._tokens, limits.tokens_per_minute)

    def _lower(self, bucket: Bucket | None, per_minute: float | None) -> Bucket | None:
        if per_minute is None or (bucket is not None and bucket.per_minute <= per_minute):
            return bucket
        return Bucket(per_minute, self._clock)

    def estimate(self, num_bytes: int, params: JSONObject) -> float:
        """Estimate the tokens of a request: one for four bytes, plus those of its answer."""
        longest = max_answer_tokens(params)
        answer = self._answer_tokens if longest is None else min(longest, _MAX_TOKENS)
        return num_bytes / 4 + answer

    def delay(self, tokens: float) -> float:
        requests = self._requests.delay(1) if self._requests is not None else 0.0
        return max(requests, self._tokens.delay(tokens) if self._tokens is not None else 0.0)

    def take(self, tokens: float) -> None:
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def give_back(self, tokens: float) -> None:
        if self._tokens is not None:
            self._tokens.give_back(tokens)

    def correct(self, tokens: float, usage: Usage) -> None:
        """Replace an estimate by the tokens that the endpoint reports, if it reports them."""
        used = min(usage.prompt_tokens + usage.completion_tokens, _MAX_TOKENS)
        if used:
            self.give_back(tokens - used)
            answer_tokens = min(usage.completion_tokens, _MAX_TOKENS)
            # An exponential moving average: answers of one run have similar lengths.
            self._answer_tokens += 0.1 * (answer_tokens - self._answer_tokens)


class AdaptiveLimit:
    """The number of requests that may be in flight, from 1 to a ceiling.

    It rises with answers and falls with refusals, as TCP's congestion window does (AIMD: additive
    increase, multiplicative decrease; Chiu and Jain 1989). A round ends after `capacity` answers
    and refusals.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        # Unlike TCP it starts at the ceiling: a refusal is cheap, and most endpoints can do what
        # the user asked for.
        self.current = float(ceiling)
        self.capacity = float(ceiling)
        """The estimated capacity of the endpoint: the next answer restores the limit to it; above
        it, the limit grows by one for every `current` answers."""
        self._num_ended = 0
        self._num_refused = 0
        self._sum_under_way = 0
        """Requests in flight, summed over the round's answers."""
        self._num_quiet = 0
        """Answers since the last refusal."""

    def lower(self, ceiling: int) -> None:
        """Lower the ceiling; a higher one changes nothing."""
        self.ceiling = min(self.ceiling, ceiling)
        self.capacity = min(self.capacity, self.ceiling)
        self.current = min(self.current, self.ceiling)

    def record_answer(self, num_under_way: int) -> None:
        """Record an answer; `num_under_way` includes it.

        The limit grows only if it was reached: otherwise a higher one is untested.
        """
        self._num_ended += 1
        self._num_quiet += 1
        self._sum_under_way += num_under_way
        if self.current < self.capacity:
            self.current = self.capacity
            return
        if self.current == self.ceiling or num_under_way + 1 <= self.current:
            return
        # One more request for each round; after many quiet rounds, the step doubles each round.
        extra = int(self._num_quiet / self.current) - _QUIET_ROUNDS
        step = min(2.0 ** min(max(extra, 0), 32), self.current)
        self.current = self.capacity = min(self.current + step / self.current, self.ceiling)

    def record_refusal(self, num_others: int) -> None:
        self._num_ended += 1
        self._num_refused += 1
        self._num_quiet = 0
        # Not below the number in flight: the endpoint has not refused these.
        self.current = max(1.0, min(max(self.current - 1, num_others), self.capacity))
        if self._num_ended < self.capacity:
            return
        has_many = self._num_refused >= _MANY_REFUSALS * self._num_ended
        lowered = self.capacity / 2 if has_many else self.capacity - 1
        # The endpoint bears as many as were in flight when it answered (Little's law), so refusals
        # at random cannot lower the capacity further.
        mean_under_way = self._sum_under_way / max(1, self._num_ended - self._num_refused)
        self.capacity = max(1.0, min(self.capacity, max(lowered, mean_under_way)))
        self.current = min(self.current, self.capacity)
        self._num_ended = self._num_refused = self._sum_under_way = 0


class CircuitBreaker:
    """Decides from an address's answers and errors whether it is up; it never waits itself.

    The `record_` methods return whether the state of the address changed.

    An address that is down is given up after `deadline` seconds, one that only reports overload
    after `overload_deadline`.
    """

    def __init__(
        self, place: str, *, deadline: float, overload_deadline: float, clock: Clock
    ) -> None:
        self._place = place
        self._deadline = deadline
        self._overload_deadline = overload_deadline
        self._clock = clock
        self.is_open = False
        """Whether the address seems to be down: requests wait while one at a time probes it."""
        self.has_given_up = False
        self.was_reached = False
        """Whether it ever answered, or at least accepted a connection."""
        self.probe: object | None = None
        """The request that is probing the address."""
        self.num_outages = 0
        self._opened_at = 0.0
        self._given_up_at = 0.0
        self._past_outage_seconds = 0.0
        self._num_in_a_row = 0
        self._failed_requests: set[object] = set()
        """The requests that had the failures in a row."""
        self._overloaded_since: float | None = None
        self._last_error: ModelError | None = None
        self._next_probe_at = 0.0
        self._pause = _FIRST_PROBE_PAUSE

    @property
    def outage_seconds(self) -> float:
        current = self._clock() - self._opened_at if self.is_open else 0.0
        return self._past_outage_seconds + current

    @property
    def seconds_left(self) -> float:
        if self.has_given_up:
            return math.inf
        deadline = self._deadline
        if not self.was_reached:
            deadline = min(deadline, FIRST_CONTACT_DEADLINE)
        return max(0.0, self._opened_at + deadline - self._clock())

    @property
    def is_overdue(self) -> bool:
        return self.is_open and not self.seconds_left

    @property
    def delay(self) -> float:
        """Seconds until the next request may go; infinite while a probe is in flight."""
        if not self.is_open:
            return 0.0
        if self.probe is not None:
            return math.inf
        return max(0.0, self._next_probe_at - self._clock())

    def record_answer(self) -> bool:
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
        """Record an answer that reports overload.

        The address is up, but the period of overload goes on: once it exceeds its deadline and no
        other request is in flight, the address is given up.
        """
        self._last_error = error
        now = self._clock()
        since = now if self._overloaded_since is None else self._overloaded_since
        if num_others or now - since < self._overload_deadline:
            is_back = self.record_answer()
            self._overloaded_since = since  # which `record_answer` cleared
            return is_back
        if not self.is_open:
            self._open(since=since)
        return self.give_up()

    def record_failure(self, error: ModelError, *, request: object, num_others: int) -> bool:
        """Record an error that suggests that the address is down.

        If connections are accepted, failures of a single request are its own fault: `request` is
        the same object for all of its tries. The `num_others` in flight may still be answered.
        """
        is_nobody_there = is_unreachable(error)
        self.was_reached = self.was_reached or not is_nobody_there
        self._last_error = error
        self._num_in_a_row += 1
        if self.is_open:
            # A request that was sent before the outage reports nothing new.
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
        """Stop waiting for the address; return whether this is new."""
        if self.has_given_up:
            return False
        self.has_given_up = True
        self._given_up_at = self._clock()
        _LOGGER.info("%s: given up after %.0f seconds", self._place, self.outage_seconds)
        return True

    def rearm(self, since: float) -> bool:
        """Let a request probe the address if it was made after that was given up.

        Without this, an address that returns later would stay dead for whoever goes on asking: a
        training loop, a server. Requests that are older have waited long enough.
        """
        if self.has_given_up and since > self._given_up_at:
            self.has_given_up = False
            self._next_probe_at = self._clock()
        return not self.has_given_up

    def error(self) -> EndpointGoneError:
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
    """The state that all tries of one request share."""

    since: float
    """When it was made."""
    num_bytes: int = 0
    """Size of its body."""
    params: JSONObject = {}
    """Its parameters, which may limit the tokens of its answer."""
    tries: Tries = msgspec.field(default_factory=Tries)
    """Its failed tries."""
    lend: Lend | None = None
    """Called after each refusal that may be the request's own fault."""
    waited: float = 0.0
    """Seconds in the queue, without the pauses that the endpoint imposed on this request."""
    num_refused: int = 0
    """How many of its tries in a row, up to the last one, the endpoint refused as too much."""
    last_refusal: tuple[object, int, int] | None = None
    """The limiter that met its last refusal, and the answers and refusals that had met by then."""
    is_singled_out: bool = False
    """Whether the address refuses it again and again, but hardly any other request."""
    is_suspect: bool = False
    """Whether the address refuses it again and again, and meanwhile answers no other request and
    refuses few: it is hardly asked by others."""
    is_set_apart: bool = False
    """Whether its refusals say nothing about other requests."""
    yielded_at: float = -math.inf
    """When it let those go first that were waiting."""
    met_outage: bool = False
    """Whether its last try failed at an address that the circuit breaker holds to be down."""
    paused_until: float = 0.0
    """When the pause after its last refusal ends."""
    num_refusals: int = 0
    """The limiter's refusals when it was last sent; if there are more now, its own is no news."""
    tokens: float = 0.0
    """Tokens reserved for it if they are limited; estimated once for all of its tries."""
    usage: Usage = msgspec.field(default_factory=Usage)
    """The token counts of its answer."""

    @property
    def place(self) -> float:
        """Its place in the queue: the oldest request goes first, retries included.

        One that is refused while no other is lets others go first, or it would hold them all up.
        """
        return max(self.since, self.yielded_at)


class ConcurrencyLimiter:
    """Decides when requests may go to one address with one key; the oldest goes first.

    After `admit` or `acquire` let a request through, it ends with `record_answer`, `record_failure`
    or `release`; `slot` does both.

    `on_change` is called when the address goes down, comes back or is given up.
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
        self._num_answered = self._num_refused = 0
        self._num_refusals = 0
        """Excludes refusals of requests that were sent before the previous refusal arrived."""
        self._num_refusals_in_a_row = 0
        self._num_failures_in_a_row = 0
        self._line: list[tuple[float, int, asyncio.Future[bool], RequestState]] = []
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None

    def lower(self, limits: EndpointLimits) -> None:
        self.limit.lower(limits.max_concurrency or self.limit.ceiling)
        if limits.requests_per_minute or limits.tokens_per_minute:
            self._rates = self._rates or RateLimits(self._clock)
            self._rates.lower(limits)

    @property
    def is_paused(self) -> bool:
        return self._paused_until > self._clock()

    @property
    def load(self) -> tuple[bool, float]:
        """How busy the address would be with one more request, for choosing the least busy one.

        Failures count as load: otherwise an address that fails immediately would seem idle and
        attract every request. A paused address comes last.
        """
        num = self.num_under_way + self.num_waiting + 1
        return self.is_paused, num / self.limit.current * (1 + self._num_failures_in_a_row)

    def admit(self, request: RequestState) -> float:
        """Let a request through and return 0, or return the seconds until it may go.

        They are infinite if another request must end first. No request overtakes the queue.
        """
        if self._line and self._line[0][3] is not request:
            return math.inf
        breaker = self.breaker
        # While the address is down, only its probes pass, whatever the limit.
        delay = breaker.delay if breaker.is_open else 0.0
        if not breaker.is_open and self.num_under_way + 1 > self.limit.current:
            return math.inf
        if not breaker.is_overdue:  # it is probed once more, before a pause is over
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
        """Wait until a request may go and return True.

        Return False if an address changed its state: then another one may be a better choice.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        # The counter decides between requests of the same time, since futures have no order.
        heapq.heappush(self._line, (request.place, next(self._order), future, request))
        self.num_waiting += 1
        started = self._clock()
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            # `_serve` may have given it a slot just before this task was cancelled.
            if not future.cancelled() and future.result():
                self.release(request)
            else:
                self._serve()  # the next request may take its turn
            raise
        finally:
            self.num_waiting -= 1
            # A pause is the endpoint's answer to this request; all else is waiting for others, or
            # for an address that is down.
            request.waited += max(0.0, self._clock() - max(started, request.paused_until))

    def record_answer(self, request: RequestState) -> None:
        self._num_answered += 1
        self._paused_until = 0.0
        self._num_refusals_in_a_row = self._num_failures_in_a_row = 0
        self.limit.record_answer(self.num_under_way)
        if self._rates is not None:
            self._rates.correct(request.tokens, request.usage)
        is_back = self.breaker.record_answer()  # also ends a probe
        self.num_under_way -= 1
        if self._line:
            self._serve()
        if is_back:
            self._on_change()

    def record_failure(self, request: RequestState, error: ModelError) -> None:
        breaker, num_others = self.breaker, self.num_under_way - 1
        is_refused = is_overload(error)
        self._note_refusal(request, is_refused=is_refused)
        # A 503 means overload if the address works on other requests, else it may be down.
        is_at_work = is_refused and num_others > 0 and not breaker.is_open
        is_change = request.met_outage = False
        if (is_absence(error) and not is_at_work) or (breaker.is_open and is_silence(error)):
            is_change = breaker.record_failure(error, request=request, num_others=num_others)
            request.met_outage = breaker.is_open
        elif is_refused:
            is_change = breaker.record_overload(error, num_others=num_others)
        elif not is_silence(error):
            is_change = breaker.record_answer()
        if is_refused:
            self._slow_down(request, error)
        elif num_others and is_connect_timeout(error):  # too many connections are being opened
            self.limit.record_refusal(num_others)
        if is_retried(error):
            self._num_failures_in_a_row = min(self._num_failures_in_a_row + 1, _MOST_FAILURES)
        self.release(request)
        if is_change:
            self._on_change()

    def release(self, request: RequestState) -> None:
        if self._rates is not None:
            self._rates.give_back(request.tokens)
        self.num_under_way -= 1
        if self.breaker.probe is request:
            self.breaker.probe = None
        if self._line:
            self._serve()

    def send_away(self) -> None:
        line, self._line = self._line, []
        for _, _, future, _ in line:
            if not future.done():
                future.set_result(False)

    def _note_refusal(self, request: RequestState, *, is_refused: bool) -> None:
        """Note whether a request that failed was refused, and whether it alone is."""
        if not is_refused:
            request.num_refused, request.last_refusal = 0, None
            request.is_singled_out = request.is_suspect = False
            return
        limiter, num_answered, num_refused = request.last_refusal or (None, 0, 0)
        num_answers = self._num_answered - num_answered
        num_refusals = self._num_refused - num_refused
        self._num_refused += not request.is_set_apart
        request.num_refused += 1
        request.last_refusal = (self, self._num_answered, self._num_refused)
        is_refused_often = request.num_refused >= _MANY_IN_A_ROW and limiter is self
        request.is_suspect = is_refused_often and not num_answers and num_refusals < _MANY_IN_A_ROW
        request.is_singled_out = (
            is_refused_often and 0 < num_answers >= _MANY_ANSWERS * num_refusals
        )
        request.is_set_apart |= request.is_singled_out
        if request.is_singled_out or (is_refused_often and not num_refusals):
            request.yielded_at = self._clock()
        is_own_fault = request.is_singled_out or request.is_suspect
        if is_own_fault and request.lend is not None and request.lend(request.is_singled_out):
            request.is_set_apart = True

    def _slow_down(self, request: RequestState, error: ModelError) -> None:
        """Lower the limit, and pause for as long as the endpoint asks or until its next answer.

        The first refusals after an answer cause no pause: fewer requests in flight are enough.
        Neither does that of a request that is singled out, which waits by itself (see RetryPolicy).
        """
        self.limit.record_refusal(self.num_under_way - 1)
        if request.is_singled_out:
            return
        # A request that was sent before the last refusal arrived tells nothing new.
        is_new = request.num_refusals == self._num_refusals
        if is_new:
            self._num_refusals += 1
            self._num_refusals_in_a_row += 1
        seconds = 0.0
        # With jitter, so that several runs do not return at the same moment.
        if error.retry_after:
            seconds = min(error.retry_after, self._max_retry_after) * random.uniform(1.0, 1.1)
        elif is_new and self._num_refusals_in_a_row > 1:
            doublings = min(self._num_refusals_in_a_row - 2, 16)
            longest = min(_FIRST_PAUSE * 2.0**doublings, _LONGEST_PAUSE)
            seconds = longest * random.uniform(0.5, 1.0)
        if seconds:
            self._paused_until = max(self._paused_until, self._clock() + seconds)
            # Queued requests may go to another address; those that find none keep their place.
            self.send_away()
        request.paused_until = self._paused_until

    def _serve(self) -> None:
        """Let through the requests that may go now, and set a timer for the next one."""
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
                        # A sleep may end early; `_serve` then sleeps for the rest.
                        self._timer = asyncio.create_task(self._wake_after(max(delay, 0.001)))
                    return
                future.set_result(True)
            heapq.heappop(self._line)

    async def _wake_after(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._timer = None
        # The address may be working on requests in flight; their own timeouts bound those.
        if self.breaker.is_overdue and not self.num_under_way and self.breaker.give_up():
            self._on_change()
        self._serve()


class Replica(NamedTuple):
    """One address of an endpoint."""

    target: Target
    limiter: ConcurrencyLimiter


@contextlib.asynccontextmanager
async def slot(
    request: RequestState, choose: Callable[[RequestState], Replica]
) -> AsyncGenerator[Replica]:
    """Wait for a slot at the replica that `choose` returns, and yield that replica.

    When an address goes down or comes back, `choose` is asked again. How the block ends tells the
    limiter what became of the request: it was answered, it failed (ModelError), or it was cancelled
    (any other exception).

    Raises:
        EndpointGoneError: `choose` raised it, since every replica was given up.
    """
    replica = choose(request)
    if replica.limiter.admit(request) > 0:
        while not await replica.limiter.acquire(request):
            replica = choose(request)
    try:
        yield replica
    except ModelError as error:
        replica.limiter.record_failure(request, error)
        raise
    except BaseException:  # a cancelled task too must return its slot
        replica.limiter.release(request)
        raise
    replica.limiter.record_answer(request)


class SharedLimiters:
    """Limiters that models share if they have the same address and key."""

    def __init__(
        self, ceiling: int, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._ceiling = ceiling
        self._clock = clock
        self._sleep = sleep
        self._limiters: dict[tuple[str, object], ConcurrencyLimiter] = {}

    def of(self, base_url: str, endpoint: Endpoint) -> ConcurrencyLimiter:
        """Return the limiter of an address; the first endpoint there sets the deadlines."""
        # Some providers take the key in a special header; SecretStr compares by value.
        headers = sorted(endpoint.headers.items(), key=lambda item: item[0].lower())
        key = (base_url, (endpoint.api_key, *headers))
        limiter = self._limiters.get(key)
        if limiter is None:
            breaker = CircuitBreaker(
                base_url,
                deadline=endpoint.outage_deadline,
                # A request that is refused on its own account hits its retry deadline first.
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
        """Let requests leave the queue of an address that is down: another may be back."""
        for limiter in self._limiters.values():
            if limiter.breaker.is_open:
                limiter.send_away()
