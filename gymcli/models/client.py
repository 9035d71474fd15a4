"""The client of one endpoint: its replicas, its limits and what is tried again.

`Client.answer` is the way of a request: it is written once, waits for a place at a replica, is
sent, and is tried again where the error may pass. `Replicas.slot` is the place: what it meets is
recorded when it is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from gymcli.errors import ModelError, RequestRefusedError
from gymcli.models.api_errors import is_absence, is_overload, is_retried
from gymcli.models.dialects import DIALECTS
from gymcli.models.emulated_tools import emulate, may_call, restore
from gymcli.models.endpoint import SENT_BACK, Endpoint
from gymcli.models.http import Target, Transport
from gymcli.models.limits import (
    Clock,
    ConcurrencyLimiter,
    RequestState,
    SharedLimiters,
    Sleep,
    max_answer_tokens,
)
from gymcli.models.retry import RetryPolicy
from gymcli.types import Answer, Request

__all__ = ["Client", "Conversation"]


class Client:
    """Asks one endpoint; an async context manager that holds its connections.

    Not more than `concurrency` requests are under way at once at an address, however many callers
    there are; one that waits before its next try does not count.

    Args:
        endpoint: Who is asked.
        concurrency: Requests under way at once, at most.
        limiters: Those of the run, where other models of it may be behind the same address.
        clock: Returns the time in seconds.
        sleep: Waits so many seconds.

    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        concurrency: int,
        limiters: SharedLimiters | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._dialect = DIALECTS[endpoint.dialect]
        self._transport = Transport(endpoint)
        limiters = limiters or SharedLimiters(concurrency, clock=clock, sleep=sleep)
        self._replicas = Replicas(
            [
                Replica(self._transport.target(address), limiters.of(address, endpoint))
                for address in endpoint.addresses
            ]
        )
        self._retries = RetryPolicy(
            endpoint, lambda: self._replicas.was_reached, clock=clock, sleep=sleep
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    @property
    def num_outages(self) -> int:
        """How often an address of the endpoint was gone."""
        return sum(limiter.breaker.num_outages for limiter in self._replicas.limiters)

    @property
    def outage_seconds(self) -> float:
        """How long addresses of the endpoint were gone, all of them together."""
        return sum(limiter.breaker.outage_seconds for limiter in self._replicas.limiters)

    def conversation(self) -> Conversation:
        """Return a conversation, whose requests go to the same replica as long as it is up."""
        return Conversation(self, self._clock)

    async def answer(self, request: Request, conversation: Conversation | None = None) -> Answer:
        """Answer a request with one message.

        Args:
            request: What is asked; `request.tries` counts what was tried in vain.
            conversation: The one it belongs to. None: it stands alone, and nothing of it came from
                this endpoint, so that nothing of what endpoints alone understand is sent.

        Raises:
            ModelError: The endpoint gave no usable answer.
            EndpointGoneError: It was given up; every later request ends so, too.

        """
        payload = self.payload(request, sends_back=conversation is not None)
        place = conversation or self.conversation()
        state = RequestState(self._clock(), len(payload), request.params, request.tries)

        async def ask() -> Answer:
            async with self._replicas.slot(state, place) as replica:
                answer = await self._transport.ask(replica.target, payload, request.tries)
                state.usage = answer.usage
                return answer

        try:
            answer = await ask()
        except ModelError as error:
            if not is_retried(error):
                raise
            answer = await self._retries.resume(ask, error, state)
        if self.endpoint.dialect == "responses" and answer.finish_reason in ("stop", "tool_calls"):
            # llama.cpp calls an answer completed that took all the tokens it may take.
            longest = max_answer_tokens(request.params)
            if longest is not None and answer.usage.completion_tokens >= longest:
                answer.finish_reason = "length"
        if not (self.endpoint.emulate_tools and may_call(request)):
            return answer
        turn = sum(message.role == "assistant" for message in request.messages)
        return restore(answer, id_prefix=f"call_{turn}")

    def payload(self, request: Request, *, sends_back: bool = False) -> bytes:
        """Return the body that a request is sent with.

        Args:
            request: What is asked.
            sends_back: Send the fields of earlier messages that this endpoint wants back.

        Raises:
            RequestRefusedError: It cannot be written as JSON.

        """
        endpoint = self.endpoint
        try:
            body = self._dialect.body(
                emulate(request) if endpoint.emulate_tools else request,
                endpoint.model,
                stream=endpoint.stream,
                send_reasoning=endpoint.send_reasoning,
                send_fields=(*SENT_BACK, *endpoint.send_fields) if sends_back else (),
            )
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefusedError(f"the request cannot be written as JSON: {error}") from error


class Replica(NamedTuple):
    """One address of the endpoint."""

    target: Target
    limiter: ConcurrencyLimiter


@dataclass(eq=False)
class Conversation:
    """One conversation with an endpoint, at one replica, which may know its beginning."""

    client: Client
    clock: Clock
    replica: Replica | None = None
    """Where its next request goes, as long as that is up."""
    failed_at: Replica | None = None
    """Where it failed the last time."""
    past_waits: float = 0.0
    """Seconds of the waits that are over."""
    idle_since: float | None = None
    """When the wait began that is not over."""

    async def answer(self, request: Request) -> Answer:
        """Answer the conversation with one message, as `Client.answer` does."""
        return await self.client.answer(request, self)

    @property
    def waited(self) -> float:
        """Seconds, until now, in which it had a request and nobody worked on that.

        In line for others, for a pause or for an address that is gone, and between two tries.
        """
        current = 0.0 if self.idle_since is None else self.clock() - self.idle_since
        return self.past_waits + current


class Replicas:
    """The addresses of one endpoint, which share its requests by how busy each of them is."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._all = tuple(replicas)
        self._has_answered = False

    @property
    def limiters(self) -> list[ConcurrencyLimiter]:
        """Those of all addresses."""
        return [replica.limiter for replica in self._all]

    @property
    def was_reached(self) -> bool:
        """Whether one of them ever answered anything."""
        return any(limiter.breaker.was_reached for limiter in self.limiters)

    @asynccontextmanager
    async def slot(
        self, request: RequestState, conversation: Conversation
    ) -> AsyncIterator[Replica]:
        """Wait for a place for one try of a request, and record how the try ends.

        Raises:
            EndpointGoneError: All addresses were given up.

        """
        clock = conversation.clock
        replica = self._choose(conversation)
        if not replica.limiter.try_acquire(request):
            conversation.idle_since = conversation.idle_since or clock()
            while not await replica.limiter.acquire(request):
                replica = self._choose(conversation)
        if conversation.idle_since is not None:
            conversation.past_waits, conversation.idle_since = conversation.waited, None
        conversation.replica = replica
        began_at = clock()
        try:
            yield replica
        except ModelError as error:
            error.follows_answers = self._has_answered
            was_refused = request.was_refused
            replica.limiter.failed(request, error)
            if was_refused or not request.was_refused:  # the first refusal says little
                conversation.failed_at, conversation.replica = replica, None
            if is_retried(error):
                was_worked_on = not (is_overload(error) or is_absence(error))
                conversation.idle_since = clock() if was_worked_on else began_at
            raise
        except BaseException:
            replica.limiter.cancelled(request)
            raise
        self._has_answered = True
        replica.limiter.succeeded(request)

    def _choose(self, conversation: Conversation) -> Replica:
        """Return the replica for the next request of a conversation."""
        current, failed_at = conversation.replica, conversation.failed_at
        if current and not (current.limiter.breaker.is_open or current.limiter.is_paused):
            return current
        up: list[Replica] = []
        gone: list[Replica] = []
        for replica in self._all:
            (gone if replica.limiter.breaker.is_open else up).append(replica)
        if gone and not up and all(one.limiter.breaker.has_given_up for one in gone):
            last = min(gone, key=lambda replica: replica.limiter.breaker.outage_seconds)
            raise last.limiter.breaker.error()
        if gone and (current is None or not up):
            # A probe is due. A new conversation loses least by it, and an address that was given
            # up may be back when all are gone.
            for replica in gone:
                if not replica.limiter.breaker.delay and replica is not failed_at:
                    return replica
        if not up:
            waited_for = [one for one in gone if not one.limiter.breaker.has_given_up]
            return min(waited_for, key=lambda replica: replica.limiter.num_waiting)
        if len(up) == 1:
            return up[0]
        others = [replica for replica in up if replica is not failed_at]
        return min(others, key=lambda replica: replica.limiter.load)
