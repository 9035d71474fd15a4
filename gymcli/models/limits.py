"""One request on its way through a governor: since when, how large, what it met."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from gymcli.errors import ModelError
from gymcli.models.api_errors import (
    is_absence,
    is_connect_timeout,
    is_overload,
    is_retried,
    is_silence,
)
from gymcli.models.breaker import Breaker
from gymcli.models.endpoint import Limits
from gymcli.types import JSONObject, Tries, Usage

__all__ = ["Bucket", "Clock", "Governor", "Rates", "Sleep", "Ticket", "Window", "max_answer_tokens"]


_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What a request calls the tokens that its answer may take."""

_MOST_TOKENS = 10**7
"""What is believed of that and of an answer; a slip of the pen must not stop everybody else."""

_FIRST_GUESS = 256.0
"""Tokens of an answer, until there was one."""


class Bucket:
    """Lets so much pass a minute, evenly: not more at once than comes within a second.

    What is larger than that passes when nothing is owed, and is paid back by waiting.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._per_second = per_minute / 60
        self._size = max(1.0, self._per_second)
        self._level = self._size
        self._clock = clock
        self._filled_at = clock()

    def delay(self, amount: float) -> float:
        """Give the seconds until so much may pass."""
        missing = min(amount, self._size) - self._filled()
        # Sums of floats: a trillionth that is missing must not be waited for.
        return missing / self._per_second if missing > 1e-6 * self._size else 0.0

    def take(self, amount: float) -> None:
        """Let so much pass; the bucket may owe it."""
        self._level = self._filled() - amount

    def give_back(self, amount: float) -> None:
        """Take back what was not needed; less than nothing was needed on top."""
        self._level = min(self._size, self._filled() + amount)

    def _filled(self) -> float:
        now = self._clock()
        grown = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._size, grown), now
        return self._level


class Rates:
    """The requests and tokens that an address allows a minute, as far as that is known."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._answer_tokens = _FIRST_GUESS

    def lower(self, limits: Limits) -> None:
        """Keep to these limits as well; of two that differ, the lower one holds."""
        self._requests = self._lower(self._requests, limits.requests_per_minute)
        self._tokens = self._lower(self._tokens, limits.tokens_per_minute)

    def estimate(self, num_bytes: int, params: JSONObject) -> float:
        """Guess the tokens of a request: four bytes are one, and the answer is like the others."""
        longest = max_answer_tokens(params)
        answer = self._answer_tokens if longest is None else min(longest, _MOST_TOKENS)
        return num_bytes / 4 + answer

    def delay(self, tokens: float) -> float:
        """Give the seconds until a request of so many tokens may pass."""
        requests = self._requests.delay(1) if self._requests is not None else 0.0
        return max(requests, self._tokens.delay(tokens) if self._tokens is not None else 0.0)

    def take(self, tokens: float) -> None:
        """Let a request of so many tokens pass."""
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
        used = min(usage.prompt_tokens + usage.completion_tokens, _MOST_TOKENS)
        if used:
            self.give_back(tokens - used)
            of_answer = min(usage.completion_tokens, _MOST_TOKENS)
            self._answer_tokens += 0.1 * (of_answer - self._answer_tokens)

    def _lower(self, bucket: Bucket | None, per_minute: float | None) -> Bucket | None:
        if per_minute is None or (bucket is not None and bucket.per_minute <= per_minute):
            return bucket
        return Bucket(per_minute, self._clock)


def max_answer_tokens(params: JSONObject) -> int | None:
    """Return the tokens that a request lets its answer take; None where it does not say."""
    asked = (params.get(name) for name in _MAX_TOKENS)
    return next((value for value in asked if isinstance(value, int) and value > 0), None)


_HEAVY = 0.4
"""Share of refusals in a window from which on half as many are taken for its capacity. One of two
is refused while the limit grows far above the capacity; fewer say that it is near."""

_PATIENCE = 10
"""Windows without a refusal after which the limit grows faster and faster."""


class Window:
    """The number of requests that may be under way at once, from 1 to a ceiling."""

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = float(ceiling)
        self.capacity = float(ceiling)
        """What the endpoint is thought to take: up to here the limit grows with an answer, beyond
        by one for as many answers as it allows at once."""
        self._num_answers = 0
        self._num_refused = 0
        self._num_quiet = 0
        self._sum_under_way = 0
        """Of the window's answers."""

    def lower(self, ceiling: int) -> None:
        """Keep to a lower ceiling from now on; a higher one changes nothing."""
        self.ceiling = min(self.ceiling, ceiling)
        self.capacity = min(self.capacity, self.ceiling)
        self.limit = min(self.limit, self.ceiling)

    def answered(self, num_under_way: int) -> None:
        """Take notice of an answer, which counts itself as under way.

        The limit grows only where it was used up: else nothing is known about more.
        """
        self._num_answers += 1
        self._num_quiet += 1
        self._sum_under_way += num_under_way
        if self.limit < self.capacity:
            self.limit = self.capacity
            return
        if self.limit == self.ceiling or num_under_way + 1 <= self.limit:
            return
        extra = int(self._num_quiet / self.limit) - _PATIENCE
        step = min(2.0 ** min(max(extra, 0), 32), self.limit)
        self.limit = self.capacity = min(self.limit + step / self.limit, self.ceiling)

    def refused(self, num_others: int) -> None:
        """Take notice of a request that was too much, while so many others are under way."""
        self._num_answers += 1
        self._num_refused += 1
        self._num_quiet = 0
        self.limit = max(1.0, min(max(self.limit - 1, num_others), self.capacity))
        if self._num_answers < self.capacity:
            return
        is_heavy = self._num_refused >= _HEAVY * self._num_answers
        less = self.capacity / 2 if is_heavy else self.capacity - 1
        seen = self._sum_under_way / max(1, self._num_answers - self._num_refused)
        self.capacity = max(1.0, min(self.capacity, max(less, seen)))
        self.limit = min(self.limit, self.capacity)
        self._num_answers = self._num_refused = self._sum_under_way = 0


class Ticket(msgspec.Struct, eq=False):
    """One request on its way, through all of its tries."""

    since: float
    """When it was first there; who came first goes first, also to try again."""
    num_bytes: int
    """Of the request's body."""
    params: JSONObject
    tries: Tries = msgspec.field(default_factory=Tries)
    """Those that gave no answer."""
    waited: float = 0.0
    """Seconds in line which were no fault of its own."""
    was_sent: bool = False
    """Since it last began to wait."""
    was_refused: bool = False
    """Its last try was too much."""
    met_outage: bool = False
    """Its last try met an address that is gone, as the breaker knows."""
    epoch: int = 0
    is_probe: bool = False
    tokens: float = 0.0
    """Reserved for it where tokens are counted; guessed once, for all of its tries."""


Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
"""Seconds in which nothing is sent to an address that refused everything, twice, and asked for no
wait."""

_MOST_FAILURES = 8
"""Failures in a row that make an address seem busier; an idle one is tried now and then."""


class Governor:
    """One address, for one key: whoever asks there asks through here.

    Every ticket that was let through is given back by `succeeded`, `failed` or `cancelled`.

    Args:
        breaker: Says whether the address is there.
        ceiling: Requests under way at once, at most.
        max_retry_after: Seconds of wait that the address may ask for, at most.
        on_change: Called when the address is gone, given up, or back.
        clock: Gives the time in seconds.
        sleep: Waits so many seconds.

    """

    def __init__(
        self,
        breaker: Breaker,
        *,
        ceiling: int,
        max_retry_after: float,
        on_change: Callable[[], None],
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self.breaker = breaker
        self.window = Window(ceiling)
        self.num_under_way = 0
        self.num_waiting = 0
        self._max_retry_after = max_retry_after
        self._on_change = on_change
        self._clock = clock
        self._sleep = sleep
        self._rates: Rates | None = None
        self._paused_until = 0.0
        self._num_pauses = 0
        self._num_failed = 0
        self._epoch = 0
        self._line: list[tuple[float, int, asyncio.Future[bool], Ticket]] = []
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = math.inf

    def keep_to(self, limits: Limits) -> None:
        """Keep to these limits as well; of two that differ, the lower one holds."""
        self.window.lower(limits.max_concurrency or self.window.ceiling)
        if limits.requests_per_minute or limits.tokens_per_minute:
            self._rates = self._rates or Rates(self._clock)
            self._rates.lower(limits)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is sent for a while."""
        return self._paused_until > 0 and self._paused_until > self._clock()

    @property
    def load(self) -> tuple[bool, float]:
        """How busy it is with one more request, by what it takes at once and what failed last.

        Who fails at once would else have the least to do, and get the most. A pause outweighs all.
        """
        num = self.num_under_way + self.num_waiting + 1
        return self.is_paused, num / self.window.limit * (1 + self._num_failed)

    def admit(self, ticket: Ticket) -> bool:
        """Let a request through, if it need not wait."""
        if self.num_waiting or self._delay(ticket) > 0:
            return False
        self._let_through(ticket)
        return True

    async def wait(self, ticket: Ticket) -> bool:
        """Wait in line; False where the address went or came meanwhile, and one may choose anew."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._line, (ticket.since, next(self._order), future, ticket))
        self.num_waiting += 1
        started = self._clock()
        # A pause is the endpoint's answer to this request; all else is waiting for others, or for
        # an address that is gone.
        pause = max(0.0, self._paused_until - started) if ticket.was_sent else 0.0
        ticket.was_sent = False
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.result():
                self.cancelled(ticket)
            else:
                self._serve()  # what it waited for may be the next one's now
            raise
        finally:
            self.num_waiting -= 1
            ticket.waited += max(0.0, self._clock() - started - pause)

    def succeeded(self, ticket: Ticket, usage: Usage) -> None:
        """Take a ticket back with an answer."""
        self._paused_until = 0.0
        self._num_pauses = self._num_failed = 0
        self.window.answered(self.num_under_way)
        if self._rates is not None:
            self._rates.correct(ticket.tokens, usage)
        is_back = self.breaker.answered()
        self._leave(ticket)
        if is_back:
            self._on_change()

    def failed(self, ticket: Ticket, error: ModelError) -> None:
        """Take a ticket back with an error."""
        breaker, num_others = self.breaker, self.num_under_way - 1
        ticket.was_refused = is_overload(error)
        # 503 is "too much" from one that is at work on others; from any other, it may be gone.
        is_at_work = ticket.was_refused and num_others > 0 and not breaker.is_open
        is_change = ticket.met_outage = False
        if (is_absence(error) and not is_at_work) or (breaker.is_open and is_silence(error)):
            is_change = breaker.failed(
                error, asker=ticket, num_pending=num_others, was_probe=ticket.is_probe
            )
            ticket.met_outage = breaker.is_open
        elif ticket.was_refused:
            is_change = breaker.overloaded(error, num_pending=num_others)
        elif not is_silence(error):
            is_change = breaker.answered()
        if ticket.was_refused:
            self._slow_down(ticket, error)
        elif num_others and is_connect_timeout(error):
            self.window.refused(num_others)
        if is_retried(error):
            self._num_failed = min(self._num_failed + 1, _MOST_FAILURES)
        self.cancelled(ticket)
        if is_change:
            self._on_change()

    def cancelled(self, ticket: Ticket) -> None:
        """Take a ticket back without any answer."""
        if self._rates is not None:
            self._rates.give_back(ticket.tokens)
        self._leave(ticket)

    def send_away(self) -> None:
        """Let everybody in line choose an address anew."""
        line, self._line = self._line, []
        for _, _, future, _ in line:
            if not future.done():
                future.set_result(False)

    def _slow_down(self, ticket: Ticket, error: ModelError) -> None:
        """Send less at once; send nothing as long as asked, or until something is answered.

        The first refusals after an answer pause nothing: fewer at once is all that they ask for.
        """
        self.window.refused(self.num_under_way - 1)
        is_new = ticket.epoch == self._epoch
        if is_new:  # what was sent before the last pause tells nothing new
            self._epoch += 1
            self._num_pauses += 1
        if error.retry_after:
            seconds = min(error.retry_after, self._max_retry_after) * random.uniform(1.0, 1.1)
        elif is_new and self._num_pauses > 1:
            longest = min(_FIRST_PAUSE * 2.0 ** min(self._num_pauses - 2, 16), _LONGEST_PAUSE)
            seconds = longest * random.uniform(0.5, 1.0)
        else:
            return
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self.send_away()  # another address may take them now; who finds none keeps the place

    def _delay(self, ticket: Ticket) -> float:
        """Give the seconds until a request may go; infinite where something must end first."""
        if self.breaker.is_open:
            delay = self.breaker.delay
        elif self.num_under_way + 1 > self.window.limit:
            return math.inf
        else:
            delay = 0.0
        if self._paused_until:
            delay = max(delay, self._paused_until - self._clock())
        if self._rates is not None:
            if not ticket.tokens:
                ticket.tokens = self._rates.estimate(ticket.num_bytes, ticket.params)
            delay = max(delay, self._rates.delay(ticket.tokens))
        return delay

    def _let_through(self, ticket: Ticket) -> None:
        self.num_under_way += 1
        ticket.was_sent = True
        ticket.epoch = self._epoch
        if self.breaker.is_open:
            ticket.is_probe = self.breaker.is_probed = True
        if self._rates is not None:
            self._rates.take(ticket.tokens)

    def _leave(self, ticket: Ticket) -> None:
        self.num_under_way -= 1
        if ticket.is_probe:
            ticket.is_probe = self.breaker.is_probed = False
        if self._line:
            self._serve()

    def _serve(self) -> None:
        """Let through whoever may go now, and wake up when the next one may."""
        line = self._line
        while line:
            _, _, future, ticket = line[0]
            if future.done():  # cancelled
                heapq.heappop(line)
                continue
            delay = self._delay(ticket)
            if delay > 0:
                if self.breaker.is_open and not self.num_under_way:
                    delay = min(delay, self.breaker.seconds_left)
                self._wake_in(delay)
                return
            heapq.heappop(line)
            self._let_through(ticket)
            future.set_result(True)
        self._stop_timer()

    def _wake_in(self, seconds: float) -> None:
        wake_at = self._clock() + seconds
        if wake_at >= self._timer_at or wake_at == math.inf:
            return
        self._stop_timer()
        self._timer_at = wake_at
        # A sleep may end a little early; then the rest is slept, and never in steps of nothing.
        self._timer = asyncio.create_task(self._wake_after(max(seconds, 0.001)))

    async def _wake_after(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._timer, self._timer_at = None, math.inf
        # What is under way was perhaps taken, and is worked on; its own timeouts bound that.
        if self.breaker.is_overdue and not self.num_under_way and self.breaker.give_up():
            self._on_change()
        self._serve()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf
