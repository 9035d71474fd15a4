"""The client of one endpoint: its replicas, its limits and what is tried again.

`Conversation.answer` is the way of a request: it is written once, waits for a place at a replica,
is sent, and is tried again where the error may pass.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
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


class Replica(NamedTuple):
    """One address of the endpoint."""

    target: Target
    limiter: ConcurrencyLimiter


class Client:
    """Asks one endpoint; an async context manager that holds its connections.

    At most `concurrency` requests are under way at an address, however many callers there are; a
    request that waits before its next try does not count.

    Args:
        endpoint: Who is asked.
        concurrency: Requests under way at once, at most.
        limiters: The run's own; other models of the run may be behind the same address.
        clock: Returns the time in seconds.
        sleep: Waits this many seconds.
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
        self.clock = clock
        self.transport = Transport(endpoint)
        limiters = limiters or SharedLimiters(concurrency, clock=clock, sleep=sleep)
        self.replicas = [
            Replica(self.transport.target(address), limiters.of(address, endpoint))
            for address in endpoint.addresses
        ]
        self.has_answered = False
        self.retries = RetryPolicy(
            endpoint,
            lambda: any(replica.limiter.breaker.was_reached for replica in self.replicas),
            clock=clock,
            sleep=sleep,
        )

    async def __aenter__(self) -> Self:
        await self.transport.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.transport.__aexit__(*exception)

    async def answer(self, request: Request) -> Answer:
        """Answer a request that stands alone, as `Conversation.answer` does.

        None of its messages came from this endpoint, so no field is sent back that only the
        endpoint understands.
        """
        return await Conversation(self).answer(request, sends_back=False)

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
            body = DIALECTS[endpoint.dialect].body(
                emulate(request) if endpoint.emulate_tools else request,
                endpoint.model,
                stream=endpoint.stream,
                send_reasoning=endpoint.send_reasoning,
                send_fields=(*SENT_BACK, *endpoint.send_fields) if sends_back else (),
            )
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefusedError(f"the request cannot be written as JSON: {error}") from error


@dataclass(eq=False)
class Conversation:
    """One conversation with an endpoint: its requests go to one replica as long as that is up."""

    client: Client
    replica: Replica | None = None
    failed_at: Replica | None = None
    """Where it failed the last time."""
    past_waits: float = 0.0
    """Seconds of the waits that are over."""
    idle_since: float | None = None
    """When the wait began that is not over."""

    @property
    def waited(self) -> float:
        """Seconds, until now, in which it had a request and nobody worked on that.

        In line for others, for a pause or for an address that is gone, and between two tries.
        """
        current = 0.0 if self.idle_since is None else self.client.clock() - self.idle_since
        return self.past_waits + current

    async def answer(self, request: Request, *, sends_back: bool = True) -> Answer:
        """Answer a request with one message.

        Args:
            request: What is asked; `request.tries` counts what was tried in vain.
            sends_back: Send the fields of earlier messages that this endpoint wants back.

        Raises:
            ModelError: The endpoint gave no usable answer.
            EndpointGoneError: It was given up; every later request ends so, too.
        """
        client, endpoint = self.client, self.client.endpoint
        payload = client.payload(request, sends_back=sends_back)
        state = RequestState(client.clock(), len(payload), request.params, request.tries)
        try:
            answer = await self._try(payload, state)
        except ModelError as error:
            if not is_retried(error):
                raise
            answer = await client.retries.resume(lambda: self._try(payload, state), error, state)
        if endpoint.dialect == "responses" and answer.finish_reason in ("stop", "tool_calls"):
            # llama.cpp calls an answer completed that took all the tokens it may take.
            longest = max_answer_tokens(request.params)
            if longest is not None and answer.usage.completion_tokens >= longest:
                answer.finish_reason = "length"
        if not (endpoint.emulate_tools and may_call(request)):
            return answer
        turn = sum(message.role == "assistant" for message in request.messages)
        return restore(answer, id_prefix=f"call_{turn}")

    async def _try(self, payload: bytes, request: RequestState) -> Answer:
        """Wait for a place at a replica, ask it once, and record how that ends."""
        client = self.client
        replica = self._choose()
        if replica.limiter.admit(request) > 0:
            self.idle_since = self.idle_since or client.clock()
            while not await replica.limiter.acquire(request):
                replica = self._choose()
        if self.idle_since is not None:
            self.past_waits, self.idle_since = self.waited, None
        self.replica, limiter = replica, replica.limiter
        began_at = client.clock()
        try:
            answer = await client.transport.ask(replica.target, payload, request.tries)
        except ModelError as error:
            error.follows_answers = client.has_answered
            was_refused = request.was_refused
            limiter.failed(request, error)
            if was_refused or not request.was_refused:  # the first refusal says little
                self.failed_at, self.replica = replica, None
            if is_retried(error):
                was_worked_on = not (is_overload(error) or is_absence(error))
                self.idle_since = client.clock() if was_worked_on else began_at
            raise
        except BaseException:
            limiter.cancelled(request)
            raise
        client.has_answered = True
        request.usage = answer.usage
        limiter.succeeded(request)
        return answer

    def _choose(self) -> Replica:
        current, failed_at = self.replica, self.failed_at
        if current and not (current.limiter.breaker.is_open or current.limiter.is_paused):
            return current
        up: list[Replica] = []
        gone: list[Replica] = []
        for replica in self.client.replicas:
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
