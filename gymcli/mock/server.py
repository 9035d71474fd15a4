"""How much the mock server takes on before it answers 429."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
from aiohttp import web

from gymcli.environment.addresses import is_loopback
from gymcli.mock.behaviours import Behaviour, MockAnswer, echo
from gymcli.mock.bodies import (
    ANY_MODEL,
    FORMATS,
    Asked,
    Format,
    answered,
    behaviour_failed,
    key_refused,
    model_not_found,
    refusal_for,
    too_many_requests,
    unreadable,
)
from gymcli.mock.faults import (
    Bursts,
    FaultKind,
    Faults,
    Latency,
    Outage,
    body_hash,
    is_cut,
    is_refusal,
)
from gymcli.mock.listener import Reply, Site, deliver
from gymcli.mock.recording import Recorder
from gymcli.mock.request_log import Exchange, LineFile, Stats
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import JSON_ERRORS, JSONObject

__all__ = ["MockServer", "Received", "TokenBucket", "control", "models"]


def models(names: Sequence[str] | None) -> web.Response:
    """List the models, or refuse to where there is no list."""
    if names is None:
        refusal = key_refused()
        body = (refusal.body or "").encode()
        return web.Response(body=body, status=refusal.status, content_type="application/json")
    data = [
        {"id": name, "object": "model", "created": 0, "owned_by": "gymcli"}
        for name in names or (ANY_MODEL,)
    ]
    return _json({"object": "list", "data": data})


async def control(request: web.BaseRequest, stats: Stats, site: Site) -> web.Response:
    """Answer `GET /stats` and `POST /down?seconds=N`; other paths are not there."""
    if request.path == "/stats" and request.method == "GET":
        return _json(stats)
    if request.path != "/down" or request.method != "POST":
        return _json(_error(f"there is no {request.method} {request.path} here"), status=404)
    if not is_loopback(request.remote or ""):
        return _json(_error("only this machine may ask for that"), status=403)
    text = request.query.get("seconds")
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        return _json(_error(f"seconds={text}: expected a number of seconds"), status=400)
    await site.fall(seconds, spared=request.transport)
    response = _json({"seconds": seconds})
    response.force_close()
    return response


def _error(message: str) -> object:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


class TokenBucket:
    """Lets so many requests a minute through, evenly: it holds those of one second, at least one.

    https://platform.openai.com/docs/guides/rate-limits: a limit a minute may be enforced over
    shorter times.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second)
        self._tokens = self._most
        self._clock = clock
        self._filled = clock()

    def take(self) -> bool:
        """Say whether one more request may pass, and count it if so."""
        now = self._clock()
        gained = (now - self._filled) * self._per_second
        self._tokens = min(self._most, self._tokens + gained)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


_FALLING = "down"
"""What the request met that found the endpoint dying."""


class Received(NamedTuple):
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    """Found whatever their case."""
    raw: bytes

    @property
    def body(self) -> JSONObject:
        """The JSON object of the request."""
        return msgspec.json.decode(self.raw, type=JSONObject)


class MockServer:
    """An async context manager that serves while it is open.

    `behaviour`, `latency` and `faults` may be changed between requests. `requests` keeps what
    arrived, unless the server is told not to, as a benchmark does.

    Args:
        behaviour: What it answers.
        host: Where it listens.
        port: 0 picks a free one.
        latency: Seconds before every answer, or how they are drawn.
        keeps_requests: Whether `requests` is filled.
        models: The names that are served; where there are none, every name is.
        api_key: What requests must come with; None: anything.
        seed: Of faults and latency, which depend on it and on the requests alone.
        faults: Which requests meet which fault.
        max_in_flight: Requests beyond so many at once are refused with 429.
        requests_per_minute: Requests beyond so many are, too.
        outage: When the endpoint dies.
        log: The file to which a line is appended for each request.
        recorder: Asks a real endpoint in place of the behaviour.
        secrets: What must not be logged, beside the key; with a recorder, its own count.

    Raises:
        UsageError: On entering, the log or the recording cannot be written; on leaving, a line of
            them could not.
        OSError: On entering, it cannot listen there.

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
        secrets: Scrubber = NOTHING_SECRET,
    ) -> None:
        self.behaviour = behaviour
        self.latency = latency
        self.faults = faults or Faults()
        self.requests: list[Received] = []
        self.stats = Stats()
        self.site = Site(self._handle, host=host, port=port)
        """Where it listens; it can `fall` and `rise`."""
        self._keeps_requests = keeps_requests
        self._models = tuple(models)
        self._api_key = api_key
        self._seed = seed
        self._limit = max_in_flight
        self._bucket = None if requests_per_minute is None else TokenBucket(requests_per_minute)
        self._outage = outage or Outage()
        self._log_path = log
        self._log: LineFile | None = None
        self._recorder = recorder
        known = secrets if recorder is None else recorder.secrets
        self._secrets = known.also([api_key] if api_key else ())
        self._occurrences: Counter[str] = Counter()
        self._bursts = Bursts()
        self._started = time.monotonic()
        self._open = AsyncExitStack()

    @property
    def base_url(self) -> str:
        """The address that an endpoint is given."""
        host = f"[{self.site.host}]" if ":" in self.site.host else self.site.host
        return f"http://{host}:{self.site.port}/v1"

    @property
    def num_requests(self) -> int:
        """How many requests arrived."""
        return self.stats.num_requests

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return self.stats.in_flight

    @property
    def max_in_flight(self) -> int:
        """How many requests were under way at most."""
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        form = FORMATS.get(request.path)
        if form is None:
            return await self._handle_other(request)
        stats = self.stats
        started = time.monotonic() - self._started
        stats.arrive(started)
        exchange = Exchange(started=started, path=request.path)
        is_taken = self._takes_on()
        if is_taken:
            stats.begin()
        try:
            if stats.num_requests - 1 == self._outage.after_requests:
                exchange.fault = _FALLING
                await self.site.fall(self._outage.seconds)
                return web.Response()
            return await self._serve(request, form, exchange, is_taken=is_taken)
        finally:
            if is_taken:
                stats.in_flight -= 1
            stats.end(exchange)
            if self._log is not None:
                exchange.ended = time.monotonic() - self._started
                self._log.append(exchange)

    async def _handle_other(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/models":
            return models(self._models) if self._is_allowed(request) else models(None)
        return await control(request, self.stats, self.site)

    def _takes_on(self) -> bool:
        """Say whether the limits let one more request in."""
        if self._limit is not None and self.stats.in_flight >= self._limit:
            return False
        return self._bucket is None or self._bucket.take()

    def _is_allowed(self, request: web.BaseRequest) -> bool:
        if self._api_key is None:
            return True
        given = request.headers.get("Authorization", "")
        wanted = f"Bearer {self._api_key}"
        return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())

    async def _serve(
        self, request: web.BaseRequest, form: Format, exchange: Exchange, *, is_taken: bool
    ) -> web.StreamResponse:
        """Read a request and answer it."""
        raw = await request.content.read()  # request.read() stops at 1 MiB
        if self._keeps_requests:
            self.requests.append(Received(request.path, request.headers, raw))
        exchange.body = body_hash(raw)
        try:
            asked = Asked.read(raw, form)
        except (ValueError, *JSON_ERRORS) as error:
            return await _refuse(request, unreadable(str(error)), exchange)
        asked.note(exchange, self._secrets)
        refusal = self._refusal(request, asked, is_taken=is_taken)
        if refusal is not None:
            return await _refuse(request, refusal, exchange)
        return await self._answer(request, asked, exchange)

    def _refusal(
        self, request: web.BaseRequest, asked: Asked, *, is_taken: bool
    ) -> MockAnswer | None:
        """Refuse what is not let in: at once, and whatever is drawn."""
        if not self._is_allowed(request):
            return key_refused()
        if not is_taken:
            return too_many_requests()
        if self._models and asked.model not in self._models:
            return model_not_found(asked.model)
        return None

    async def _answer(
        self, request: web.BaseRequest, asked: Asked, exchange: Exchange
    ) -> web.StreamResponse:
        """Draw what happens, wait, and answer."""
        fault, seconds = self._drawn(exchange.body, asked.text)
        if seconds:
            await asyncio.sleep(seconds)
        if fault is not None and is_refusal(fault):
            exchange.fault = fault
            return await _refuse(request, refusal_for(fault, asked.model, asked.text), exchange)
        try:
            found = answered(asked, await self._said(asked), fault)
        except Exception as error:  # noqa: BLE001 (whatever a behaviour raises is its author's)
            return await _refuse(request, behaviour_failed(error), exchange)
        if found.answer.delay:
            await asyncio.sleep(found.answer.delay)
        exchange.fault = found.fault
        if found.usage is not None:
            self.stats.spend(found.usage)
        cut = found.fault if found.fault is not None and is_cut(found.fault) else None
        return await deliver(request, found.reply, cut, exchange)

    async def _said(self, asked: Asked) -> MockAnswer | str:
        if self._recorder is None:
            return self.behaviour(asked.request)
        return await self._recorder.answer(asked.form.dialect, asked.body, asked.request)

    def _drawn(self, body: str, text: str) -> tuple[FaultKind | None, float]:
        """Give the fault of a request and the wait before its answer."""
        latency, faults = self.latency, self.faults
        if not isinstance(latency, Latency):
            latency = Latency((latency,))
        if not faults.rules and not latency.shape:
            return None, latency.parameters[0]
        occurrence = self._occurrences[body]
        self._occurrences[body] += 1
        fault = faults.draw(seed=self._seed, body=body, occurrence=occurrence, text=text)
        seconds = latency.seconds(seed=self._seed, body=body, occurrence=occurrence)
        return self._bursts.over(fault), seconds


async def _refuse(
    request: web.BaseRequest, answer: MockAnswer, exchange: Exchange
) -> web.StreamResponse:
    body = (answer.body or "").encode()
    headers = {"Content-Type": "application/json", **answer.headers}
    return await deliver(request, Reply(answer.status, headers, [body]), None, exchange)
