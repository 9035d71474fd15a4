"""The governors of a run: one for each address and key, whoever asks there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from gymcli.errors import ModelError, RequestRefusedError
from gymcli.models.api_errors import is_absence, is_overload, is_retried
from gymcli.models.breaker import Breaker
from gymcli.models.dialect import Transcript
from gymcli.models.dialects import DIALECTS
from gymcli.models.emulated_tools import emulate, may_call, restore
from gymcli.models.endpoint import SENT_BACK, Endpoint
from gymcli.models.http import Target, Transport
from gymcli.models.limits import Clock, Governor, Sleep, Ticket, max_answer_tokens
from gymcli.models.retry import RetryPolicy
from gymcli.types import Answer, Request

__all__ = ["Client", "Conversation", "Governors", "Home", "Replica", "Replicas"]


class Replica(NamedTuple):
    """One address."""

    target: Target
    governor: Governor


class Home(msgspec.Struct, eq=False):
    """Where a conversation is at home: its turns go there as long as it is up."""

    replica: Replica | None = None
    left: Replica | None = None
    """Where it failed the last time."""
    waited: float = 0.0
    """Seconds in which nobody worked on a request of it, though it had one."""
    idle_since: float | None = None
    """Since when that is so again."""

    def go_on(self, now: float) -> None:
        """Take notice that somebody may work on it now."""
        if self.idle_since is not None:
            self.waited += now - self.idle_since
        self.idle_since = None

    def leave(self) -> None:
        """Go elsewhere next time, if there is anywhere else."""
        self.left, self.replica = self.replica, None


class Replicas:
    """Shares requests among the addresses that are up, by how busy each of them is."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._all = tuple(replicas)
        self._only = self._all[0] if len(self._all) == 1 else None

    @property
    def was_reached(self) -> bool:
        """Whether one of them ever answered anything."""
        return any(replica.governor.breaker.was_reached for replica in self._all)

    @property
    def num_outages(self) -> int:
        """How often one of them was gone."""
        return sum(replica.governor.breaker.num_outages for replica in self._all)

    @property
    def outage_seconds(self) -> float:
        """How long they were gone, all of them together."""
        return sum(replica.governor.breaker.outage_seconds for replica in self._all)

    def choose(self, home: Home) -> Replica:
        """Give the address for the next request of a conversation.

        Raises:
            EndpointGoneError: All addresses were given up.

        """
        if (only := self._only) is not None:
            if only.governor.breaker.has_given_up:
                raise only.governor.breaker.error()
            return only
        at_home = home.replica
        if at_home is not None:
            governor = at_home.governor
            if not (governor.breaker.is_open or governor.is_paused):
                return at_home
        up = [replica for replica in self._all if not replica.governor.breaker.is_open]
        if not up:
            return self._to_wait_for(home)
        if at_home is None and (due := self._due(home)) is not None:
            return due
        others = [replica for replica in up if replica is not home.left]
        return min(others or up, key=lambda replica: replica.governor.load)

    def _due(self, home: Home) -> Replica | None:
        """Give an address that is gone and to be probed: a new conversation loses least by it."""
        for replica in self._all:
            breaker = replica.governor.breaker
            if breaker.is_open and not breaker.delay and replica is not home.left:
                return replica
        return None

    def _to_wait_for(self, home: Home) -> Replica:
        """Give one of those that are all gone; one that was given up may be back, too."""
        left = [replica for replica in self._all if not replica.governor.breaker.has_given_up]
        if not left:
            last = min(self._all, key=lambda replica: replica.governor.breaker.outage_seconds)
            raise last.governor.breaker.error()
        due = self._due(home)
        return due or min(left, key=lambda replica: replica.governor.num_waiting)


class Governors:
    """Gives models that are behind the same address, and have the same key, the same governor."""

    def __init__(
        self, ceiling: int, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self._ceiling = ceiling
        self._governors: dict[tuple[str, object], Governor] = {}

    @property
    def num_outages(self) -> int:
        """How often an address was gone."""
        return sum(governor.breaker.num_outages for governor in self._governors.values())

    @property
    def outage_seconds(self) -> float:
        """How long addresses were gone, all of them together."""
        return sum(governor.breaker.outage_seconds for governor in self._governors.values())

    def of(self, base_url: str, endpoint: Endpoint) -> Governor:
        """Give the governor of an address; deadlines are those of who asks first."""
        # Some providers take the key in a header of its own; a secret text compares by its value.
        key = (base_url, (endpoint.api_key, *sorted(endpoint.headers.items(), key=_name)))
        governor = self._governors.get(key)
        if governor is None:
            breaker = Breaker(
                base_url,
                deadline=endpoint.outage_deadline,
                # A request that is refused whatever the others are fails by itself before.
                storm_deadline=endpoint.retry_deadline + endpoint.outage_deadline,
                clock=self.clock,
            )
            governor = self._governors[key] = Governor(
                breaker,
                ceiling=self._ceiling,
                max_retry_after=endpoint.max_retry_after,
                on_change=self._send_away,
                clock=self.clock,
                sleep=self.sleep,
            )
        governor.keep_to(endpoint.limits)
        return governor

    def _send_away(self) -> None:
        """Let those who wait for an address that is gone choose anew: another may be back."""
        for governor in self._governors.values():
            if governor.breaker.is_open:
                governor.send_away()


def _name(item: tuple[str, object]) -> str:
    return item[0].lower()


class Client:
    """Asks one endpoint; an async context manager that holds its connections.

    Not more than `concurrency` requests are under way at once at an address, however many callers
    there are; one that waits before its next try does not count.

    Args:
        endpoint: Who is asked.
        concurrency: Requests under way at once, at most.
        governors: Those of the run, where other models of it may be behind the same address.
        clock: Gives the time in seconds.
        sleep: Waits so many seconds.

    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        concurrency: int,
        governors: Governors | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._has_answered = False
        self._dialect = DIALECTS[endpoint.dialect]
        self._transport = Transport(endpoint)
        governors = governors or Governors(concurrency, clock=clock, sleep=sleep)
        self._replicas = Replicas(
            [
                Replica(self._transport.target(address), governors.of(address, endpoint))
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
        return self._replicas.num_outages

    @property
    def outage_seconds(self) -> float:
        """How long addresses of the endpoint were gone, all of them together."""
        return self._replicas.outage_seconds

    def conversation(self) -> Conversation:
        """Give what asks for one conversation: at one address, which may know its beginning."""
        return Conversation(self._answer, self._clock)

    def answer(self, request: Request) -> Coroutine[object, object, Answer]:
        """Answer a conversation with one message.

        Raises:
            ModelError: The endpoint gave no usable answer; `request.tries` counts what was tried.
            EndpointGoneError: It was given up; every later request ends so, too.

        """
        # Not `async`: every coroutine in between costs at each of its resumptions.
        return self._answer(request, Home())

    def payload(self, request: Request, transcript: Transcript | None = None) -> bytes:
        """Give the body that a request is sent with.

        Args:
            request: What is asked.
            transcript: Has what earlier requests of the conversation said. None: nothing of it came
                from this endpoint, so that nothing of what endpoints alone understand is sent.

        Raises:
            RequestRefusedError: It cannot be written as JSON.

        """
        endpoint = self.endpoint
        send_fields = () if transcript is None else (*SENT_BACK, *endpoint.send_fields)
        transcript = transcript or Transcript()
        try:
            body = self._dialect.body(
                emulate(request) if endpoint.emulate_tools else request,
                endpoint.model,
                stream=endpoint.stream,
                send_reasoning=endpoint.send_reasoning,
                send_fields=send_fields,
                transcript=transcript,
            )
            return transcript.payload(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefusedError(f"the request cannot be written as JSON: {error}") from error

    async def _answer(
        self, request: Request, home: Home, transcript: Transcript | None = None
    ) -> Answer:
        payload = self.payload(request, transcript)
        ticket = Ticket(self._clock(), len(payload), request.params, request.tries)
        try:
            answer = await self._try(payload, ticket, home)
        except ModelError as error:
            if not is_retried(error):
                raise
            answer = await self._retries.resume(
                lambda: self._try(payload, ticket, home), error, ticket
            )
        if self.endpoint.dialect == "responses" and _is_cut(answer, request):
            answer.finish_reason = "length"
        if not (self.endpoint.emulate_tools and may_call(request)):
            return answer
        turn = sum(message.role == "assistant" for message in request.messages)
        return restore(answer, id_prefix=f"call_{turn}")

    async def _try(self, payload: bytes, ticket: Ticket, home: Home) -> Answer:
        """Make one try, as soon as an address takes it."""
        started = self._clock()
        replica = self._replicas.choose(home)
        if not replica.governor.admit(ticket):
            home.idle_since = home.idle_since or started
            while not await replica.governor.wait(ticket):
                replica = self._replicas.choose(home)
                if replica.governor.admit(ticket):
                    break
            started = self._clock()
        if home.idle_since is not None:
            home.go_on(started)
        home.replica = replica
        governor = replica.governor
        try:
            answer = await self._transport.ask(replica.target, payload, ticket.tries)
        except ModelError as error:
            error.follows_answers = self._has_answered
            was_refused = ticket.was_refused
            governor.failed(ticket, error)
            if was_refused or not ticket.was_refused:  # the first refusal says little
                home.leave()
            if is_retried(error):
                was_vain = is_overload(error) or is_absence(error)
                home.idle_since = started if was_vain else self._clock()
            raise
        except BaseException:
            governor.cancelled(ticket)
            raise
        self._has_answered = True
        governor.succeeded(ticket, answer.usage)
        return answer


def _is_cut(answer: Answer, request: Request) -> bool:
    """Return whether an answer took all the tokens it may take: llama.cpp calls it completed."""
    longest = max_answer_tokens(request.params)
    is_complete = answer.finish_reason in ("stop", "tool_calls")
    return is_complete and longest is not None and answer.usage.completion_tokens >= longest


class Conversation(msgspec.Struct, eq=False):
    """One conversation with an endpoint; what its requests have in common is written once."""

    _answer: Callable[[Request, Home, Transcript], Coroutine[object, object, Answer]]
    _clock: Clock
    _home: Home = msgspec.field(default_factory=Home)
    _transcript: Transcript = msgspec.field(default_factory=Transcript)

    @property
    def waited(self) -> float:
        """Seconds, until now, in which it had a request and nobody worked on that.

        In line for others, for a pause or for an address that is gone, and between two tries.
        """
        home = self._home
        current = 0.0 if home.idle_since is None else self._clock() - home.idle_since
        return home.waited + current

    def answer(self, request: Request) -> Coroutine[object, object, Answer]:
        """Answer the conversation with one message, as `Client.answer` does."""
        return self._answer(request, self._home, self._transcript)
