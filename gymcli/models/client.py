"""The client of one endpoint: its replicas, limits and retries.

`Conversation.answer` is the path of a request: it is encoded once, waits for a slot at a replica,
is sent, and is retried if the error may pass.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from gymcli.errors import (
    FatalEndpointError,
    InvalidAnswerError,
    MalformedCallError,
    ModelError,
    RequestRefusedError,
    UsageError,
)
from gymcli.models.api_errors import is_absence, is_overload, is_retried, is_unreachable
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.models.emulated_tools import emulate, may_call, restore
from gymcli.models.endpoint import SENT_BACK, Endpoint, max_answer_tokens, merged_params
from gymcli.models.http import Transport
from gymcli.models.limits import (
    FIRST_CONTACT_DEADLINE,
    Clock,
    Lend,
    Replica,
    RequestState,
    SharedLimiters,
    Sleep,
    slot,
)
from gymcli.models.token_ids import (
    PROBE,
    PROBED,
    TEMPLATE_FIELDS,
    TOKEN_FIELDS,
    WITHOUT_PROMPT,
    ask_for_tokens,
    set_prompt,
    with_ids,
)
from gymcli.nemo_gym.payload import select_members, text_in
from gymcli.store.tokens import problem_of
from gymcli.types import JSON, Answer, Message, Request, TokenSource

_BACKOFF = wait_random_exponential(multiplier=1.0, min=0.5, max=30.0)
"""Seconds: any between 0.5 and a limit that doubles from 1 to 30."""

_OVERLOAD_BACKOFF = wait_random_exponential(multiplier=0.1, max=30.0)
"""Seconds before a request that met an overload queues again. The limiter then holds it until the
load falls, so this matters only for a request that is refused on its own account."""

_MAX_UNREACHABLE_WAIT = 5.0
"""The most seconds before the next attempt to reach an endpoint that answered before."""

_MAX_EMPTY_ANSWERS = 3
"""How often a request is sent at most while its answers are empty and lack their token counts."""


class Client:
    """Asks one endpoint; an async context manager that holds its connections.

    At most `concurrency` requests are in flight at an address, however many callers there are; a
    request that waits for its next try does not count.

    `limiters` are those of the run, whose other models may share an address.
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
        self.token_source: TokenSource | None = None
        """What conversations ask for to get token ids; None: they do not ask."""
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

    async def answer(self, request: Request, lend: Lend | None = None) -> Answer:
        """Answer a single request, like `Conversation.answer`.

        Its messages did not come from this endpoint, so fields that only the endpoint understands
        are not sent back. Token ids are not asked for: only those of the policy are recorded.
        """
        return await Conversation(self, lend).answer(request, sends_back=False)

    async def probe_tokens(self) -> TokenSource:
        """Find out by short requests how the endpoint reports token ids, and ask for them from now.

        Raises:
            UsageError: It reports none, or none that can be used.
            FatalEndpointError: It does not answer, or refuses the key or the model.
        """
        place = self.replicas[0].target.place
        reasons: dict[str, None] = {}
        for source in PROBED.get(self.endpoint.dialect, ()):
            self.token_source = source
            request = Request(
                messages=[Message(role="user", content=PROBE)],
                params=merged_params(self.endpoint.params, {"max_tokens": 8}),
            )
            try:
                answer = await Conversation(self).answer(request)
            except RequestRefusedError as error:
                # Some servers refuse fields that they do not know.
                if error.status not in (400, 422):
                    raise FatalEndpointError(str(error)) from error
                reasons[str(error)] = None
                continue
            except ModelError as error:
                raise FatalEndpointError(str(error)) from error
            problem = problem_of(answer.tokens)
            if answer.tokens is not None and not problem:
                self.token_source = answer.tokens.source
                return answer.tokens.source
            reasons[problem] = None
        self.token_source = None
        raise UsageError(_no_tokens_text(place, self.endpoint.dialect, list(reasons)))

    def payload(self, request: Request, *, sends_back: bool = False) -> bytes:
        """Return the encoded body of a request.

        `sends_back`: the request continues a conversation with this endpoint, so send the fields of
        earlier messages that it wants back, and ask for token ids if these are recorded.

        Raises:
            RequestRefusedError: The request cannot be encoded as JSON.
        """
        endpoint = self.endpoint
        send_fields = (*SENT_BACK, *endpoint.send_fields) if sends_back else ()
        last_tokens = request.last_tokens
        try:
            if endpoint.emulate_tools:
                request = emulate(request)
            if sends_back and endpoint.send_token_ids and last_tokens is not None:
                in_items = endpoint.dialect == "responses"
                request = with_ids(request, last_tokens, in_items=in_items)
                send_fields = (*send_fields, *TOKEN_FIELDS)
            body = DIALECTS[endpoint.dialect].body(
                request,
                endpoint.model,
                stream=endpoint.stream,
                send_reasoning=endpoint.send_reasoning,
                send_fields=send_fields,
            )
            if sends_back and self.token_source is not None and endpoint.dialect == "chat":
                ask_for_tokens(body, self.token_source)
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefusedError(f"the request cannot be written as JSON: {error}") from error


def _no_tokens_text(place: str, dialect: str, reasons: list[str]) -> str:
    if dialect == "chat":
        sent = "logprobs, return_token_ids and return_tokens_as_token_ids"
        ways_out = (
            "vLLM reports them from 0.10.2 on (return_token_ids), SGLang from 0.5.18 on (not in "
            "streams: stream = false), and so do llama.cpp's server and NeMo Gym's model servers"
        )
    else:
        sent = "a plain request"
        ways_out = "in this dialect only NeMo Gym's model servers report them; use --dialect chat"
    return (
        f"{place}: this endpoint reports no usable token ids ({'; '.join(reasons)}; sent: {sent}); "
        f"{ways_out}; or do not record tokens"
    )


@dataclass(eq=False)
class Conversation:
    """One conversation with an endpoint, pinned to one replica while that is up."""

    client: Client
    lend: Lend | None = None
    """Called while a request is refused often."""
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
        if self.idle_since is None:
            return self.past_waits
        return self.past_waits + self.client.clock() - self.idle_since

    async def answer(self, request: Request, *, sends_back: bool = True) -> Answer:
        """Answer a request with one message.

        Its `tries` counts the failed ones; `sends_back` is as for `Client.payload`.

        Raises:
            ModelError: The endpoint sent no usable answer.
            EndpointGoneError: The endpoint was given up; every later request fails the same way.
        """
        client, endpoint = self.client, self.client.endpoint
        payload = client.payload(request, sends_back=sends_back)
        state = RequestState(client.clock(), len(payload), request.params, request.tries, self.lend)
        source = client.token_source if sends_back else None
        num_empty, max_empty = 0, min(_MAX_EMPTY_ANSWERS, endpoint.max_attempts)
        while True:
            try:
                answer = await self._try(payload, state, source)
            except ModelError as error:
                if not is_retried(error):
                    raise
                answer = await client.retries.resume(
                    lambda: self._try(payload, state, source), error, state
                )
            num_empty += 1
            if answer.finish_reason != "no_answer" or num_empty >= max_empty:
                break
            request.tries.usage.add(answer.usage)
            client.retries.count(InvalidAnswerError("the answer is empty"), state)
        calls_tools = bool(request.tools) and not endpoint.emulate_tools
        if answer.finish_reason == "malformed_call" and not calls_tools:
            answer.finish_reason = "stop"  # a text that is not the JSON that was asked for
        if endpoint.dialect == "responses" and answer.finish_reason in ("stop", "tool_calls"):
            # llama.cpp reports an answer that was cut at its token limit as completed.
            longest = max_answer_tokens(request.params)
            if longest is not None and answer.usage.completion_tokens >= longest:
                answer.finish_reason = "length"
        if source is not None:
            await self._complete_tokens(answer, payload)
            if not request.params.get("logprobs"):
                answer.message.logprobs = None
        if not (endpoint.emulate_tools and may_call(request)):
            return answer
        if answer.tokens is not None and answer.tokens.logprob_mode != "processed":
            # Ids that the schema forbids had a part of the probability.
            reason = "log-probabilities of an answer that emulate_tools constrains"
            answer.tokens.off_policy = f"{answer.tokens.logprob_mode} {reason}"
        # Ids of calls must differ between the turns of a conversation.
        turn = sum(message.role == "assistant" for message in request.messages)
        return restore(answer, id_prefix=f"call_{turn}")

    async def _complete_tokens(self, answer: Answer, payload: bytes) -> None:
        """Ask for the ids of the prompt, if the answer has only those of its own tokens."""
        tokens, replica, transport = answer.tokens, self.replica, self.client.transport
        if tokens is None or tokens.problem or tokens.source not in WITHOUT_PROMPT:
            return
        assert replica is not None, "a replica has answered"
        try:
            if tokens.source == "llamacpp":
                template = await transport.call(replica.target, "/apply-template", payload)
                # As its server tokenises the prompt of a chat: the template's own first token is
                # left out where the tokenizer adds one.
                text = {"content": text_in(template.get("prompt")), "add_special": True}
                body: JSON = {**text, "parse_special": True}
            else:
                body = select_members(decode(payload), TEMPLATE_FIELDS)
            reply = await transport.call(replica.target, "/tokenize", msgspec.json.encode(body))
        except ModelError as error:
            tokens.problem = f"the prompt's token ids cannot be had: {error}"
            return
        set_prompt(answer, reply.get("tokens"))

    async def _try(
        self, payload: bytes, request: RequestState, source: TokenSource | None
    ) -> Answer:
        client = self.client
        self.idle_since = idle_since = self.idle_since or client.clock()
        async with slot(request, self._choose) as replica:
            self.replica, began_at = replica, client.clock()
            self.past_waits, self.idle_since = self.past_waits + began_at - idle_since, None
            try:
                answer = await client.transport.ask(
                    replica.target, payload, request.tries, source=source
                )
            except MalformedCallError as error:  # the model has answered
                message = Message(role="assistant", content=error.text)
                answer = Answer(message=message, finish_reason="malformed_call")
            except ModelError as error:
                error.follows_answers = client.has_answered
                # A first refusal is no reason to leave a replica that has cached the conversation.
                if request.num_refused or not is_overload(error):
                    self.failed_at, self.replica = replica, None
                if is_retried(error):
                    # Time that the endpoint spent on the failed try is not waiting.
                    was_worked_on = not (is_overload(error) or is_absence(error))
                    self.idle_since = client.clock() if was_worked_on else began_at
                raise
            client.has_answered = True
            request.usage = answer.usage
        return answer

    def _choose(self, request: RequestState) -> Replica:
        last_replica, failed_at = self.replica, self.failed_at
        # The replica of the last turn has the conversation in its prefix cache.
        if last_replica and not (
            last_replica.limiter.breaker.is_open or last_replica.limiter.is_paused
        ):
            return last_replica
        up: list[Replica] = []
        down: list[Replica] = []
        for replica in self.client.replicas:
            (down if replica.limiter.breaker.is_open else up).append(replica)
        if not up:
            waited_for = [
                replica for replica in down if replica.limiter.breaker.rearm(request.since)
            ]
            if not waited_for:
                shortest = min(down, key=lambda replica: replica.limiter.breaker.outage_seconds)
                raise shortest.limiter.breaker.error()
        if down and (last_replica is None or not up):
            # A probe may be due. It costs a new conversation least, and when all addresses are
            # down, one that was given up may be back.
            for replica in down:
                if not replica.limiter.breaker.delay and replica is not failed_at:
                    return replica
        if not up:
            return min(waited_for, key=lambda replica: replica.limiter.num_waiting)
        if len(up) == 1:
            return up[0]
        candidates = [replica for replica in up if replica is not failed_at]
        return min(candidates, key=lambda replica: replica.limiter.load)


class RetryPolicy:
    """Retries failed requests within an endpoint's `max_attempts` and `retry_deadline`.

    `was_reached` returns whether the endpoint ever answered.
    """

    def __init__(
        self, endpoint: Endpoint, was_reached: Callable[[], bool], *, clock: Clock, sleep: Sleep
    ) -> None:
        self._endpoint = endpoint
        self._was_reached = was_reached
        self._clock = clock
        self._sleep = sleep
        self.counts: Counter[str] = Counter()
        """Failed tries except the last one of each request, by error class."""

    async def resume(
        self, call: Callable[[], Awaitable[Answer]], failed: ModelError, request: RequestState
    ) -> Answer:
        """Retry `call` after the first try failed; retries are counted in `request.tries`.

        The caller makes the first try, since almost all requests need no other.

        Raises:
            ModelError: The error of the last try.
        """
        num_counted = 0
        first: ModelError | None = failed

        async def attempt() -> Answer:
            nonlocal first
            # tenacity has no way to begin after a failure, so its first call repeats that one.
            if first is not None:
                error, first = first, None
                raise error
            return await call()

        def is_over(state: RetryCallState) -> bool:
            nonlocal num_counted
            error = _error_of(state)
            num_counted += not (is_overload(error) or self._is_gone(error, request))
            # With one attempt, not even an overload is retried.
            if num_counted >= self._endpoint.max_attempts or self._endpoint.max_attempts == 1:
                return True
            deadline = self._endpoint.retry_deadline
            if is_unreachable(error) and not self._was_reached():
                deadline = min(deadline, FIRST_CONTACT_DEADLINE)
            elapsed = self._clock() - request.since - request.waited
            # The wait that an overloaded endpoint asks for happens in the limiter.
            return elapsed + max(state.upcoming_sleep, self._asked_wait(error)) > deadline

        retrying = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_exception(is_retried),
            wait=lambda state: self._wait(state, request),
            stop=is_over,
            before_sleep=lambda state: self.count(_error_of(state), request),
            reraise=True,
        )
        answer: Answer = await retrying(attempt)
        return answer

    def count(self, error: ModelError, request: RequestState) -> None:
        """Count a failed try of a request that is not its last."""
        request.tries.count(error)
        self.counts[type(error).__name__] += 1

    def _is_gone(self, error: ModelError, request: RequestState) -> bool:
        """Return whether the endpoint was up and is down now, or a probe of it failed.

        Like an overload, this does not count as a try: it is not the request's fault, and the
        deadlines bound it.
        """
        return request.met_outage or (is_unreachable(error) and self._was_reached())

    def _wait(self, state: RetryCallState, request: RequestState) -> float:
        """Return the seconds that the endpoint asked for, up to a cap, or those of a backoff.

        Up to a tenth is added at random, so that requests refused together return at different
        times.
        """
        error = _error_of(state)
        # The limiter imposes the wait that the endpoint asks of all.
        waits_in_limiter = is_overload(error) and not request.is_singled_out
        if error.retry_after and not waits_in_limiter:
            return self._asked_wait(error) * random.uniform(1.0, 1.1)
        if is_overload(error):
            return _OVERLOAD_BACKOFF(state)
        seconds = _BACKOFF(state)
        return min(seconds, _MAX_UNREACHABLE_WAIT) if self._is_gone(error, request) else seconds

    def _asked_wait(self, error: ModelError) -> float:
        return min(error.retry_after or 0.0, self._endpoint.max_retry_after)


def _error_of(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ModelError), "only a ModelError is retried"
    return error
