"""The mock server: every dialect, plain and streamed, on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from aiohttp import web

from gymcli.environment.addresses import is_loopback
from gymcli.mock.behaviours import Behaviour, MockAnswer, echo
from gymcli.mock.fault_effects import (
    deliver,
    error_answer,
    key_refused,
    model_not_found,
    refusal_for,
    too_many_requests,
    with_content_fault,
)
from gymcli.mock.faults import (
    BURST_LENGTH,
    DELIVERY_FAULTS,
    STATUS_FAULTS,
    Faults,
    Latency,
    Outage,
    body_hash,
)
from gymcli.mock.listener import Listener
from gymcli.mock.recording import Exchange, LineFile, Recorder, Stats
from gymcli.mock.tokenizer import (
    TokenSampler,
    answer_tokenizing,
    tokens_of,
    with_logprobs,
    with_token_logprobs,
)
from gymcli.mock.wire_formats import (
    ANY_MODEL,
    FORMATS,
    ParsedRequest,
    WireFormat,
    parse_request,
    render_answers,
    usage_of,
)
from gymcli.models.limits import Bucket
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import JSON_ERRORS, JSONObject, Tokens

_MAX_TEXT = 200
"""How many characters of the last user text are logged."""


class Received(NamedTuple):
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    """Names are case-insensitive."""
    raw: bytes

    @property
    def body(self) -> JSONObject:
        """The JSON object of the request."""
        return msgspec.json.decode(self.raw, type=JSONObject)


class MockServer:
    """An async context manager that serves while it is open.

    `behaviour`, `latency` and `faults` may be changed between requests.

    Args:
        port: 0 picks a free one.
        latency: Seconds before every answer, or their distribution.
        keeps_requests: Whether `requests` holds the requests; benchmarks turn it off.
        models: The names that are served; empty serves every name.
        seed: Faults and latency depend only on it and on the requests.
        max_in_flight: More concurrent requests are refused with 429.
        requests_per_minute: More requests are refused with 429.
        outage: When the endpoint dies.
        log: The file to which a line is appended for each request.
        recorder: Asks a real endpoint instead of the behaviour.
        sampler: Reports token ids with the answers.
        secrets: Removed from the log, as is the key; a recorder's own replace them.

    Raises:
        UsageError: The log or the recording cannot be written.
        OSError: On entering, if it cannot listen there.
    """

    def __init__(
        self,
        behaviour: Behaviour = echo,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        latency: float | Latency = 0.0,
        keeps_requests: bool = True,
        models: Sequence[str] = (),
        api_key: str | None = None,
        seed: int = 0,
        faults: Faults | None = None,
        max_in_flight: int | None = None,
        requests_per_minute: int | None = None,
        outage: Outage | None = None,
        log: Path | None = None,
        recorder: Recorder | None = None,
        sampler: TokenSampler | None = None,
        secrets: Scrubber = NOTHING_SECRET,
    ) -> None:
        self.behaviour = behaviour
        self.latency = latency
        self.faults = faults or Faults()
        self.requests: list[Received] = []
        self.tokens: list[Tokens] = []
        """The ids of every rendered answer, if there is a sampler and requests are kept."""
        self.stats = Stats()
        self.site = Listener(self._handle, host=host, port=port)
        """The port; it can `fall` and `rise`."""
        self._keeps_requests = keeps_requests
        self._models = tuple(models)
        self._api_key = api_key
        self._seed = seed
        self._max_in_flight = max_in_flight
        self._bucket = None
        if requests_per_minute is not None:
            self._bucket = Bucket(requests_per_minute, time.monotonic)
        self._outage = outage or Outage()
        self._log_path = log
        self._log: LineFile | None = None
        self._recorder = recorder
        self._sampler = sampler
        scrubber = secrets if recorder is None else recorder.secrets
        self._secrets = scrubber.also([api_key] if api_key else ())
        self._occurrences: Counter[str] = Counter()
        self._num_left_of_burst = 0
        self._started = time.monotonic()
        self._open = AsyncExitStack()

    @property
    def base_url(self) -> str:
        """The base URL for clients."""
        host = f"[{self.site.host}]" if ":" in self.site.host else self.site.host
        return f"http://{host}:{self.site.port}/v1"

    @property
    def num_requests(self) -> int:
        """Number of requests received."""
        return self.stats.num_requests

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self.stats.in_flight

    @property
    def max_in_flight(self) -> int:
        """Peak number of requests in flight."""
        return self.stats.max_in_flight

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._log_path is not None:
                self._log = LineFile(self._log_path, option="--log", secrets=self._secrets)
                stack.callback(self._log.close)
            if self._recorder is not None:
                await stack.enter_async_context(self._recorder)
            await stack.enter_async_context(self.site)
            self._started = time.monotonic()
            if self._outage.after_seconds is not None:
                self.site.fall_after(self._outage.after_seconds, self._outage.seconds)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        wire_format = FORMATS.get(request.path)
        if wire_format is None:
            return await self._handle_control(request)
        stats = self.stats
        started = time.monotonic() - self._started
        stats.num_requests += 1
        stats.last_at = started
        if stats.first_at is None:
            stats.first_at = started
        exchange = Exchange(started=started, path=request.path)
        is_admitted = self._admits_one_more()
        if is_admitted:
            stats.in_flight += 1
            stats.max_in_flight = max(stats.max_in_flight, stats.in_flight)
        try:
            if stats.num_requests - 1 == self._outage.after_requests:
                exchange.fault = "down"
                # Resets this connection too, so that the response below is never sent.
                await self.site.fall(self._outage.seconds)
                return web.Response()
            return await self._answer(request, wire_format, exchange, is_admitted=is_admitted)
        finally:
            if is_admitted:
                stats.in_flight -= 1
            stats.end(exchange)
            if self._log is not None:
                exchange.ended = time.monotonic() - self._started
                self._log.append(exchange)

    async def _handle_control(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/models" or request.path.startswith("/v1/models/"):
            if not self._is_authorized(request):
                return _response(key_refused())
            model_fields = {"object": "model", "created": 0, "owned_by": "gymcli"}
            models = {name: {"id": name, **model_fields} for name in self._models or (ANY_MODEL,)}
            if request.path == "/v1/models":
                return _json({"object": "list", "data": list(models.values())})
            name = request.path.removeprefix("/v1/models/")
            return _json(models[name]) if name in models else _response(model_not_found(name))
        if self._sampler is not None and request.path in ("/tokenize", "/apply-template"):
            return await self._handle_tokenizing(request, self._sampler)
        if request.path == "/stats" and request.method == "GET":
            return _json(self.stats)
        if request.path != "/down" or request.method != "POST":
            return _response(error_answer(404, f"no such address: {request.method} {request.path}"))
        # With another --host, clients of the endpoint must not be able to take it down.
        if not is_loopback(request.remote or ""):
            return _response(error_answer(403, "only available from this machine"))
        text = request.query.get("seconds")
        try:
            seconds = None if text is None else float(text)
        except ValueError:
            seconds = -1.0
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            return _response(error_answer(400, f"seconds={text}: expected a number of seconds"))
        await self.site.fall(seconds, answering=request.transport)
        response = _json({"seconds": seconds})
        # `fall` spared this connection for its answer only.
        response.force_close()
        return response

    async def _handle_tokenizing(
        self, request: web.BaseRequest, sampler: TokenSampler
    ) -> web.StreamResponse:
        if not self._is_authorized(request):
            return _response(key_refused())
        raw = await request.content.read()
        if self._keeps_requests:
            self.requests.append(Received(request.path, request.headers, raw))
        try:
            answer = answer_tokenizing(request.path, raw, sampler.source)
        except (ValueError, *JSON_ERRORS) as error:
            return _response(error_answer(400, f"not a request: {error}"))
        if answer is None:
            return _response(error_answer(404, f"no such address: {request.path}"))
        return _json(answer)

    def _admits_one_more(self) -> bool:
        if self._max_in_flight is not None and self.stats.in_flight >= self._max_in_flight:
            return False
        if self._bucket is None:
            return True
        if self._bucket.delay(1) > 0:
            return False
        self._bucket.take(1)
        return True

    def _is_authorized(self, request: web.BaseRequest) -> bool:
        if self._api_key is None:
            return True
        authorization = request.headers.get("Authorization", "")
        expected_authorization = f"Bearer {self._api_key}"
        return hmac.compare_digest(
            authorization.encode("utf-8", "replace"), expected_authorization.encode()
        )

    async def _answer(
        self,
        request: web.BaseRequest,
        wire_format: WireFormat,
        exchange: Exchange,
        *,
        is_admitted: bool,
    ) -> web.StreamResponse:
        raw = await request.content.read()  # request.read() stops at 1 MiB
        if self._keeps_requests:
            self.requests.append(Received(request.path, request.headers, raw))
        exchange.body = body_hash(raw)
        try:
            parsed_request = parse_request(raw, wire_format)
        except (ValueError, *JSON_ERRORS) as error:
            return _refuse(error_answer(400, f"not a request: {error}"), exchange)
        exchange.model, exchange.turn = parsed_request.model, parsed_request.turn
        # In this order, since half of a secret that was cut would not be found.
        exchange.text = self._secrets.text(parsed_request.text)[:_MAX_TEXT]

        # These three are refused immediately, whatever fault is drawn.
        if not self._is_authorized(request):
            return _refuse(key_refused(), exchange)
        if not is_admitted:
            return _refuse(too_many_requests(), exchange)
        if self._models and parsed_request.model not in self._models:
            return _refuse(model_not_found(parsed_request.model), exchange)

        fault, seconds = self._draw(exchange.body, parsed_request.text)
        if seconds:
            await asyncio.sleep(seconds)
        if fault is not None and fault in STATUS_FAULTS:
            exchange.fault = fault
            return _refuse(refusal_for(fault, parsed_request.model, parsed_request.text), exchange)
        try:
            answers: Sequence[MockAnswer] = await self._ask(parsed_request)
            answers, fault, parsed_request = self._complete_answers(answers, fault, parsed_request)
            wire_answer = render_answers(answers, parsed_request)
        except Exception as error:  # noqa: BLE001 (a behaviour may raise anything)
            text = f"the mock's behaviour failed: {type(error).__name__}: {error}"
            return _refuse(error_answer(500, text, "server_error"), exchange)
        if answers[0].delay:
            await asyncio.sleep(answers[0].delay)
        exchange.fault = fault
        if answers[0].body is None:
            usage = usage_of(answers, parsed_request)
            self.stats.num_prompt_tokens += usage.prompt_tokens
            self.stats.num_completion_tokens += usage.completion_tokens
        delivery_fault = fault if fault in DELIVERY_FAULTS else None
        return await deliver(request, wire_answer, delivery_fault, exchange)

    async def _ask(self, parsed_request: ParsedRequest) -> list[MockAnswer]:
        """Return an answer for each choice, or the first that is sent as it is."""
        answers = []
        for _ in range(parsed_request.num_choices):
            if self._recorder is not None:
                answer: MockAnswer | str = await self._recorder.answer(
                    parsed_request.format.dialect, parsed_request.body, parsed_request.model_request
                )
            else:
                answer = self.behaviour(parsed_request.model_request)
            if isinstance(answer, str):
                answer = MockAnswer(text=answer)
            if answer.body is not None:
                return [answer]
            answers.append(answer)
        return answers

    def _complete_answers(
        self, answers: Sequence[MockAnswer], fault: str | None, parsed_request: ParsedRequest
    ) -> tuple[Sequence[MockAnswer], str | None, ParsedRequest]:
        sampler, params = self._sampler, parsed_request.model_request.params
        if sampler is not None and parsed_request.format.dialect not in sampler.dialects:
            sampler = None
        is_raw = answers[0].body is not None
        if sampler is None and not is_raw:
            answers = [with_logprobs(answer, params) for answer in answers]
        faulty_answers = [with_content_fault(answer, fault, parsed_request) for answer in answers]
        answers, fault = [answer for answer, _ in faulty_answers], faulty_answers[0][1]
        if sampler is None or is_raw:
            return answers, fault, parsed_request
        tokens = [tokens_of(answer, parsed_request, sampler) for answer in answers]
        if self._keeps_requests:
            self.tokens.extend(tokens)
        answers = [
            with_token_logprobs(answer, ids, params)
            for answer, ids in zip(answers, tokens, strict=True)
        ]
        return answers, fault, parsed_request._replace(tokens=tokens)

    def _draw(self, body: str, text: str) -> tuple[str | None, float]:
        latency, faults = self.latency, self.faults
        if not isinstance(latency, Latency):
            latency = Latency((latency,))
        # Nothing is drawn, so that bodies need not be counted.
        if not (faults.rules or latency.shape):
            return None, latency.parameters[0]
        occurrence = self._occurrences[body]
        self._occurrences[body] += 1
        fault = faults.draw(seed=self._seed, body=body, occurrence=occurrence, text=text)
        # Unlike other faults, a burst depends on order: it hits the next requests, whatever they
        # are.
        if self._num_left_of_burst:
            self._num_left_of_burst -= 1
            fault = "429-burst"
        elif fault == "429-burst":
            self._num_left_of_burst = BURST_LENGTH - 1
        return fault, latency.seconds(seed=self._seed, body=body, occurrence=occurrence)


def _refuse(answer: MockAnswer, exchange: Exchange) -> web.Response:
    exchange.status = answer.status
    return _response(answer)


def _response(answer: MockAnswer) -> web.Response:
    headers = {"Content-Type": "application/json", **answer.headers}
    return web.Response(body=(answer.body or "").encode(), status=answer.status, headers=headers)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
