"""Lets requests through to one address: in order, as many as it can take, none while it is gone."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gymcli.errors import ModelError
from gymcli.models.breaker import Breaker
from gymcli.models.limits import Limits, Rates
from gymcli.models.signs import (
    is_absence,
    is_connect_timeout,
    is_overload,
    is_retried,
    is_silence,
)
from gymcli.models.ticket import Ticket
from gymcli.models.window import Window
from gymcli.types import Usage

__all__ = ["Clock", "Governor", "Sleep"]

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
