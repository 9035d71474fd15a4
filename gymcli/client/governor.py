"""Lets requests through to one address: in order, as many as it can take, none while it is gone."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gymcli.client.breaker import Breaker
from gymcli.client.limits import Bucket, Limits
from gymcli.client.signs import is_absence, is_connect_timeout, is_overload, is_silence
from gymcli.client.window import Window
from gymcli.errors import ModelError
from gymcli.types import JSONObject, Usage

__all__ = ["Clock", "Governor", "Sleep", "Ticket"]

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds in which nothing is sent to an address that refused everything and asked for no wait."""

_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What a request calls the tokens that its answer may take."""

_FIRST_GUESS = 256.0
"""Tokens of an answer, until there was one."""


class Ticket:
    """One request on its way, through all of its tries."""

    __slots__ = (
        "epoch",
        "is_probe",
        "num_bytes",
        "params",
        "since",
        "tokens",
        "waited",
        "was_sent",
    )

    def __init__(self, since: float, num_bytes: int, params: JSONObject) -> None:
        self.since = since
        """When it was first there; who came first goes first, also to try again."""
        self.num_bytes = num_bytes
        """Of the request's body."""
        self.params = params
        self.waited = 0.0
        """Seconds in line which were no fault of its own."""
        self.was_sent = False
        self.epoch = 0
        self.is_probe = False
        self.tokens = 0.0


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
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._answer_tokens = _FIRST_GUESS
        self._paused_until = 0.0
        self._num_pauses = 0
        self._epoch = 0
        self._line: list[tuple[float, int, asyncio.Future[bool], Ticket]] = []
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = math.inf

    def keep_to(self, limits: Limits) -> None:
        """Keep to these limits as well; of two that differ, the lower one holds."""
        self.window.lower(limits.max_concurrency or self.window.ceiling)
        self._requests = _lower(self._requests, limits.requests_per_minute, self._clock)
        self._tokens = _lower(self._tokens, limits.tokens_per_minute, self._clock)

    @property
    def load(self) -> float:
        """How much there is to do, by what can be done at once."""
        return (self.num_under_way + self.num_waiting) / self.window.limit

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
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.result():
                self._leave(ticket)
            else:
                self._serve()  # what it waited for may be the next one's now
            raise
        finally:
            self.num_waiting -= 1
            ticket.waited += max(0.0, self._clock() - started - pause)

    def succeeded(self, ticket: Ticket, usage: Usage) -> None:
        """Take a ticket back with an answer."""
        if self._paused_until:
            self._paused_until = 0.0
            self._num_pauses = 0
        self.window.answered(self.num_under_way)
        if self._tokens is not None:
            self._count(ticket, usage)
        is_back = self.breaker.answered()
        self._leave(ticket)
        if is_back:
            self._on_change()

    def failed(self, ticket: Ticket, error: ModelError) -> None:
        """Take a ticket back with an error."""
        is_change = False
        is_absent = is_absence(error)
        if is_absent:
            is_change = self.breaker.failed(
                error, num_pending=self.num_under_way - 1, was_probe=ticket.is_probe
            )
        if is_overload(error):
            self._slow_down(ticket, error)
            is_change = self.breaker.overloaded(error) or is_change
        elif is_connect_timeout(error) and self.num_under_way > 1:
            self.window.refused()
        elif not is_absent and not is_silence(error):
            is_change = self.breaker.answered()
        if self._tokens is not None:
            self._tokens.give_back(ticket.tokens)
        self._leave(ticket)
        if is_change:
            self._on_change()

    def cancelled(self, ticket: Ticket) -> None:
        """Take a ticket back without any answer."""
        self._leave(ticket)

    def send_away(self) -> None:
        """Let everybody in line choose an address anew."""
        line, self._line = self._line, []
        for _, _, future, _ in line:
            if not future.done():
                future.set_result(False)

    def _slow_down(self, ticket: Ticket, error: ModelError) -> None:
        """Send less at once; send nothing as long as asked, or until something is answered."""
        self.window.refused()
        now = self._clock()
        is_new = ticket.epoch == self._epoch
        if is_new:  # what was sent before the last pause tells nothing new
            self._epoch += 1
            self._num_pauses += 1
        if error.retry_after:
            seconds = min(error.retry_after, self._max_retry_after) * random.uniform(1.0, 1.1)
        elif is_new:
            longest = min(_FIRST_PAUSE * 2.0 ** min(self._num_pauses, 16), _LONGEST_PAUSE)
            seconds = random.uniform(_FIRST_PAUSE, longest)
        else:
            return
        self._paused_until = max(self._paused_until, now + seconds)

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
        if self._requests is not None:
            delay = max(delay, self._requests.delay(1))
        if self._tokens is not None:
            delay = max(delay, self._tokens.delay(self._estimate(ticket)))
        return delay

    def _let_through(self, ticket: Ticket) -> None:
        self.num_under_way += 1
        ticket.was_sent = True
        ticket.epoch = self._epoch
        if self.breaker.is_open:
            ticket.is_probe = self.breaker.is_probed = True
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            ticket.tokens = self._estimate(ticket)
            self._tokens.take(ticket.tokens)

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
                if self.breaker.is_open:
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
        if self.breaker.is_open and not self.breaker.seconds_left and self.breaker.give_up():
            self._on_change()
        self._serve()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf

    def _estimate(self, ticket: Ticket) -> float:
        """Guess the tokens of a request: four bytes are one, and the answer is like the others."""
        asked = (ticket.params.get(name) for name in _MAX_TOKENS)
        longest = next((value for value in asked if isinstance(value, int)), None)
        return ticket.num_bytes / 4 + (longest or self._answer_tokens)

    def _count(self, ticket: Ticket, usage: Usage) -> None:
        """Correct the guess by what was used, where the endpoint says it."""
        assert self._tokens is not None
        used = usage.prompt_tokens + usage.completion_tokens
        if used:
            self._tokens.give_back(ticket.tokens - used)
            self._answer_tokens += 0.1 * (usage.completion_tokens - self._answer_tokens)


def _lower(bucket: Bucket | None, per_minute: float | None, clock: Clock) -> Bucket | None:
    if per_minute is None or (bucket is not None and bucket.per_minute <= per_minute):
        return bucket
    return Bucket(per_minute, clock)
