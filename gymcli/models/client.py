"""The client of one endpoint: its replicas, limits and retries.

`Conversation.answer` is the path of a request: it is encoded once, waits for a slot at a replica,
is sent, and is retried if the error may pass.
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

    At most `concurrency` requests are in flight at an address, however many callers there are; a
    request that waits for its next try does not count.

    Args:
        endpoint: The endpoint to ask.
        concurrency: The most requests in flight at an address.
        limiters: The run's limiters; other models of the run may share an address.
        clock: Returns the time in seconds.
        sleep: Waits for a number of seconds.
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
        """Answer a single request, like `Conversation.answer`.

        Its messages did not come from this endpoint, so fields that only the endpoint understands
        are not sent back.
        """
        return await Conversation(self).answer(request, sends_back=False)

    def payload(self, request: Request, *, sends_back: bool = False) -> bytes:
        """Return the encoded body of a request.

        Args:
            request: The request.
            sends_back: Send the fields of earlier messages that this endpoint wants back.

        Raises:
            RequestRefusedError: The request cannot be encoded as JSON.
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
    """One conversation with an endpoint, pinned to one replica while that is up."""

    client: Client
    replica: Replica | None = None
    failed_at: Replica | None = None
    """The replica of the last failure."""
    past_waits: float = 0.0
    """Seconds of finished waits."""
    idle_since: float | None = None
    """When the current wait began."""

    @property
    def waited(self) -> float:
        """Seconds so far in which its requests waited, and the endpoint did not work on them.

        They wait in the queue, during a pause, for an address that is down, and between two tries.
        """
        current = 0.0 if self.idle_since is None else self.client.clock() - self.idle_since
        return self.past_waits + current

    async def answer(self, request: Request, *, sends_back: bool = True) -> Answer:
        """Answer a request with one message.

        Args:
            request: The request; its `tries` counts the failed ones.
            sends_back: Send the fields of earlier messages that this endpoint wants back.

        Raises:
            ModelError: The endpoint sent no usable answer.
            EndpointGoneError: The endpoint was given up; every later request fails the same way.
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
            # llama.cpp reports an answer that was cut at its token limit as completed.
            longest = max_answer_tokens(request.params)
            if longest is not None and answer.usage.completion_tokens >= longest:
                answer.finish_reason = "length"
        if not (endpoint.emulate_tools and may_call(request)):
            return answer
        # Ids of calls must differ between the turns of a conversation.
        turn = sum(message.role == "assistant" for message in request.messages)
        return restore(answer, id_prefix=f"call_{turn}")

    async def _try(self, payload: bytes, request: RequestState) -> Answer:
        """Wait for a slot at a replica, ask it once and record the outcome."""
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
            # A first refusal is no reason to leave a replica that has cached the conversation.
            if was_refused or not request.was_refused:
                self.failed_at, self.replica = replica, None
            if is_retried(error):
                # Time that the endpoint spent on the failed try is not waiting.
                was_worked_on = not (is_overload(error) or is_absence(error))
                self.idle_since = client.clock() if was_worked_on else began_at
            raise
        except BaseException:  # a cancelled task too must return its slot
            limiter.cancelled(request)
            raise
        client.has_answered = True
        request.usage = answer.usage
        limiter.succeeded(request)
        return answer

    def _choose(self) -> Replica:
        current, failed_at = self.replica, self.failed_at
        # The replica of the last turn has the conversation in its prefix cache.
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
            # A probe may be due. It costs a new conversation least, and when all addresses are
            # down, one that was given up may be back.
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
