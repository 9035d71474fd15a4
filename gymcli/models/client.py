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
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from gymcli.errors import ModelError, RequestRefusedError
from gymcli.models.api_errors import is_absence, is_overload, is_retried
from gymcli.models.dialects import DIALECTS
from gymcli.models.emulated_tools import emulate, may_call, restore
from gymcli.models.endpoint import SENT_BACK, Endpoint
from gymcli.models.http import Target, Transport
from gymcli.models.limits import Clock, ConcurrencyLimiter, RequestState, SharedLimiters, Sleep
from gymcli.models.retry import RetryPolicy
from gymcli.types import Answer, JSONObject, Request

__all__ = ["Client", "Conversation"]

_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What a request calls the tokens that its answer may take."""


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
        max_tokens = _max_tokens(request.params)
        state = RequestState(self._clock(), len(payload), max_tokens, request.tries)

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
        if self.endpoint.dialect == "responses" and max_tokens is not None:
            # llama.cpp calls an answer completed that took all the tokens it may take.
            is_complete = answer.finish_reason in ("stop", "tool_calls")
            if is_complete and answer.usage.completion_tokens >= max_tokens:
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


def _max_tokens(params: JSONObject) -> int | None:
    """Return the tokens that a request lets its answer take; None where it does not say."""
    asked = (params.get(name) for name in _MAX_TOKENS)
    return next((value for value in asked if isinstance(value, int) and value > 0), None)


class Replica(NamedTuple):
    """One address of the endpoint."""

    target: Target
    limiter: ConcurrencyLimiter


class Conversation:
    """One conversation with an endpoint, at one replica, which may know its beginning."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.replica: Replica | None = None
        """Where its next request goes, as long as that is up."""
        self.failed_at: Replica | None = None
        """Where it failed the last time."""
        self._client = client
        self._clock = clock
        self._past_waits = 0.0
        self._idle_since: float | None = None

    async def answer(self, request: Request) -> Answer:
        """Answer the conversation with one message, as `Client.answer` does."""
        return await self._client.answer(request, self)

    @property
    def waited(self) -> float:
        """Seconds, until now, in which it had a request and nobody worked on that.

        In line for others, for a pause or for an address that is gone, and between two tries.
        """
        current = 0.0 if self._idle_since is None else self._clock() - self._idle_since
        return self._past_waits + current

    def wait(self) -> None:
        """Begin to wait for a place, unless it waits already."""
        if self._idle_since is None:
            self._idle_since = self._clock()

    def begin_try(self, replica: Replica) -> float:
        """End the wait with a place at a replica; return the time."""
        self._past_waits, self._idle_since = self.waited, None
        self.replica = replica
        return self._clock()

    def end_try(self, error: ModelError, *, began_at: float, is_failed: bool) -> None:
        """Record an error; go elsewhere next time if the replica failed, and there is another."""
        if is_failed:
            self.failed_at, self.replica = self.replica, None
        if is_retried(error):
            was_worked_on = not (is_overload(error) or is_absence(error))
            self._idle_since = self._clock() if was_worked_on else began_at


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
        replica = self._choose(conversation)
        conversation.wait()
        while not await replica.limiter.acquire(request):
            replica = self._choose(conversation)
        began_at = conversation.begin_try(replica)
        try:
            yield replica
        except ModelError as error:
            error.follows_answers = self._has_answered
            was_refused = request.was_refused
            replica.limiter.failed(request, error)
            # The first refusal says little.
            is_failed = was_refused or not request.was_refused
            conversation.end_try(error, began_at=began_at, is_failed=is_failed)
            raise
        except BaseException:
            replica.limiter.cancelled(request)
            raise
        self._has_answered = True
        replica.limiter.succeeded(request)

    def _choose(self, conversation: Conversation) -> Replica:
        """Return the replica for the next request of a conversation."""
        current = conversation.replica
        if current and not (current.limiter.breaker.is_open or current.limiter.is_paused):
            return current
        up = [replica for replica in self._all if not replica.limiter.breaker.is_open]
        if not up:
            return self._choose_from_gone(conversation)
        if current is None and (to_probe := self._to_probe(conversation)):
            return to_probe  # a new conversation loses least by it
        others = [replica for replica in up if replica is not conversation.failed_at]
        return min(others or up, key=lambda replica: replica.limiter.load)

    def _choose_from_gone(self, conversation: Conversation) -> Replica:
        """Return the replica to wait for; one that was given up is probed, too."""
        waited_for = [one for one in self._all if not one.limiter.breaker.has_given_up]
        if not waited_for:
            last = min(self.limiters, key=lambda limiter: limiter.breaker.outage_seconds)
            raise last.breaker.error()
        to_probe = self._to_probe(conversation)
        return to_probe or min(waited_for, key=lambda replica: replica.limiter.num_waiting)

    def _to_probe(self, conversation: Conversation) -> Replica | None:
        """Return a replica that is gone and whose next probe is due."""
        for replica in self._all:
            breaker = replica.limiter.breaker
            if breaker.is_open and not breaker.delay and replica is not conversation.failed_at:
                return replica
        return None
