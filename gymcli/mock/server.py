"""The mock server: every dialect, plain and streamed, on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
from aiohttp import web

from gymcli.dialects import messages_from_items
from gymcli.mock.behaviours import Behaviour, MockAnswer, echo, num_turns
from gymcli.mock.wire import (
    Circumstances,
    chat_body,
    chat_events,
    classify_body,
    pooling_body,
    responses_body,
    responses_events,
    score_body,
)
from gymcli.types import JSONObject, Message, Request

__all__ = ["MockServer", "Received"]


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


class _Renderer(NamedTuple):
    """How a dialect is read and written."""

    read: Callable[[JSONObject], Request]
    body: Callable[[MockAnswer, Circumstances], bytes]
    events: Callable[[MockAnswer, Circumstances], Iterator[bytes]] | None = None
    """None: the dialect does not stream."""


class MockServer:
    """An async context manager that serves while it is open.

    `behaviour` may be changed between requests. `requests` keeps what arrived, unless the server
    is told not to, as a benchmark does.
    """

    def __init__(
        self,
        behaviour: Behaviour = echo,
        *,
        port: int = 0,
        latency: float = 0.0,
        keeps_requests: bool = True,
    ) -> None:
        self.behaviour = behaviour
        self.latency = latency
        """Seconds before every answer."""
        self.requests: list[Received] = []
        self.num_requests = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self._keeps_requests = keeps_requests
        self._port = port
        self._open = AsyncExitStack()

    @property
    def base_url(self) -> str:
        """The address that an endpoint is given."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self._port, backlog=4096).start()
            self._port = runner.addresses[0][1]
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
        dialect = _DIALECTS.get(request.path)
        if dialect is None:
            return self._handle_other(request)
        self.num_requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            return await self._answer(request, dialect)
        finally:
            self.in_flight -= 1

    def _handle_other(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/v1/models":
            model = {"id": "mock", "object": "model", "created": 0, "owned_by": "gymcli"}
            return _json({"object": "list", "data": [model]})
        if request.path == "/stats":
            return _json(
                {
                    "num_requests": self.num_requests,
                    "in_flight": self.in_flight,
                    "max_in_flight": self.max_in_flight,
                }
            )
        return _json({"error": {"message": f"there is no {request.path} here"}}, status=404)

    async def _answer(self, request: web.BaseRequest, dialect: _Renderer) -> web.StreamResponse:
        raw = await request.content.read()  # request.read() stops at 1 MiB
        if self._keeps_requests:
            self.requests.append(Received(request.path, request.headers, raw))
        try:
            body = msgspec.json.decode(raw, type=JSONObject)
            asked = dialect.read(body)
        except msgspec.MsgspecError as error:
            return _json({"error": {"message": f"not a request: {error}"}}, status=400)
        answer = self.behaviour(asked)
        if isinstance(answer, str):
            answer = MockAnswer(text=answer)
        if delay := self.latency + answer.delay:
            await asyncio.sleep(delay)
        about = Circumstances.of(
            asked, model=str(body.get("model")), turn=num_turns(asked), created=int(time.time())
        )
        if body.get("stream") is True and answer.body is None and dialect.events is not None:
            return await _send_events(request, answer, dialect.events(answer, about))
        if answer.fault is not None:
            return await _fail(request, answer)
        payload = dialect.body(answer, about) if answer.body is None else answer.body.encode()
        return web.Response(
            body=payload,
            status=answer.status,
            headers={"Content-Type": "application/json", **answer.headers},
        )


async def _send_events(
    request: web.BaseRequest, answer: MockAnswer, events: Iterator[bytes]
) -> web.StreamResponse:
    response = web.StreamResponse(
        status=answer.status, headers={"Content-Type": "text/event-stream", **answer.headers}
    )
    await response.prepare(request)
    if answer.fault is not None:
        await response.write(next(events))
        return await _fail(request, answer)
    # One write: the pieces are what a client has to put together, not their timing.
    await response.write(b"".join(events))
    await response.write_eof()
    return response


async def _fail(request: web.BaseRequest, answer: MockAnswer) -> web.Response:
    if answer.fault == "stall":
        await asyncio.Event().wait()
    assert request.transport is not None, "a lost connection cancels its handler"
    request.transport.abort()
    return web.Response()


def _json(value: JSONObject, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def _read_chat(body: JSONObject) -> Request:
    messages = msgspec.convert(body.get("messages"), list[Message])
    return _request(body, messages, "messages")


def _read_responses(body: JSONObject) -> Request:
    messages = messages_from_items(msgspec.convert(body.get("input"), str | list[JSONObject]))
    if isinstance(body.get("instructions"), str):
        messages.insert(0, Message(role="system", content=str(body["instructions"])))
    return _request(body, messages, "input")


def _read_pair(body: JSONObject) -> Request:
    """Read a pair of texts as a question and its answer."""
    messages = [
        Message(role="user", content=msgspec.convert(body.get("text_1"), str)),
        Message(role="assistant", content=msgspec.convert(body.get("text_2"), str)),
    ]
    return _request(body, messages, "text_1", "text_2")


def _read_pooled(body: JSONObject) -> Request:
    """Read a conversation, or a text as what a user says."""
    if "input" not in body:
        return _read_chat(body)
    text = Message(role="user", content=msgspec.convert(body["input"], str))
    return _request(body, [text], "input")


def _request(body: JSONObject, messages: list[Message], *consumed: str) -> Request:
    tools = msgspec.convert(body.get("tools") or [], list[JSONObject])
    left_out = {"model", "tools", *consumed}
    params = {key: value for key, value in body.items() if key not in left_out}
    return Request(messages=messages, tools=tools, params=params)


_DIALECTS = {
    "/v1/chat/completions": _Renderer(_read_chat, chat_body, chat_events),
    "/v1/responses": _Renderer(_read_responses, responses_body, responses_events),
    # vLLM has some of these under /v1 and some not.
    **dict.fromkeys(("/score", "/v1/score"), _Renderer(_read_pair, score_body)),
    **dict.fromkeys(("/pooling", "/v1/pooling"), _Renderer(_read_pooled, pooling_body)),
    **dict.fromkeys(("/classify", "/v1/classify"), _Renderer(_read_pooled, classify_body)),
}
