"""Effects of faults: an error status instead of an answer, wrong content, or a broken delivery."""

from __future__ import annotations

import asyncio
import email.utils
import math
import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from gymcli.mock.behaviours import MockAnswer, argument_text
from gymcli.mock.faults import CONTENT_FAULTS
from gymcli.mock.listener import reset
from gymcli.mock.recording import Exchange
from gymcli.mock.wire_formats import ParsedRequest, RenderedAnswer
from gymcli.types import JSONObject, Request, Usage


def error_answer(
    status: int,
    message: str,
    kind: str = "invalid_request_error",
    *,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> MockAnswer:
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = msgspec.json.encode({"error": error}).decode()
    return MockAnswer(status=status, body=body, headers=headers or {})


def key_refused() -> MockAnswer:
    """Return the answer to a missing or wrong key; it does not repeat the key."""
    return error_answer(401, "Incorrect API key provided.", code="invalid_api_key")


def model_not_found(model: str) -> MockAnswer:
    text = f"The model `{model}` does not exist or you do not have access to it."
    return error_answer(404, text, code="model_not_found")


def too_many_requests(headers: dict[str, str] | None = None) -> MockAnswer:
    text = "Rate limit reached. Please try again."
    return error_answer(429, text, "requests", code="rate_limit_exceeded", headers=headers)


_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"
_FAILED = "The server had an error while processing your request."
_OVERLOADED = "The engine is currently overloaded, please try again."
_FORBIDDEN = "You are not allowed to ask this."

_SAME_REFUSALS: dict[str, MockAnswer] = {
    **dict.fromkeys(("429", "429-burst"), too_many_requests()),
    "429-after": too_many_requests({"Retry-After": "1"}),
    **dict.fromkeys(("500", "500-once", "500-always"), error_answer(500, _FAILED, "server_error")),
    # As a proxy sends it, which does not speak JSON.
    "502": MockAnswer(status=502, body=_GATEWAY, headers={"Content-Type": "text/html"}),
    "503": error_answer(503, _OVERLOADED, "server_error"),
    "529": error_answer(529, "Overloaded", "overloaded_error"),
    "401": key_refused(),
    **dict.fromkeys(
        ("403", "403-always"), error_answer(403, _FORBIDDEN, "permission_error", code="forbidden")
    ),
    # As GitHub and Google refuse too many requests.
    "403-rate": error_answer(403, "API rate limit exceeded.", "requests"),
    "405": MockAnswer(status=405, body='{"detail":"Method Not Allowed"}'),
    "307": MockAnswer(status=307, body="", headers={"Location": "/elsewhere"}),
}
"""Errors that are the same for every request."""


def refusal_for(kind: str, model: str, text: str) -> MockAnswer:
    """Return the answer for a fault with an error status; some repeat the last user text."""
    if kind in _SAME_REFUSALS:
        return _SAME_REFUSALS[kind]
    if kind == "404":
        return model_not_found(model)
    if kind == "429-date":
        # Dates have whole seconds, so two seconds ahead is a wait of at least one.
        date = email.utils.formatdate(math.ceil(time.time()) + 1, usegmt=True)
        return too_many_requests({"Retry-After": date})
    if kind == "500-page":
        return MockAnswer(status=500, body=text, headers={"Content-Type": "text/plain"})
    if kind == "500-echo":
        return error_answer(500, f"The server failed while answering: {text}", "server_error")
    assert kind == "422-echo", f"no answer for the fault {kind}"
    problem = {"type": "extra_forbidden", "loc": ["body"], "msg": "Not permitted", "input": text}
    body = msgspec.json.encode({"detail": [problem]}).decode()  # in FastAPI's shape
    return MockAnswer(status=422, body=body)


HUGE = 4 * 2**20
"""The least number of characters of a huge text."""
UNKNOWN_FINISH = "mock_unknown"
UNKNOWN_TOOL = "mock_unknown_tool"


def with_content_fault(
    answer: MockAnswer, fault: str | None, parsed_request: ParsedRequest
) -> tuple[MockAnswer, str | None]:
    """Return the answer with the wrong content of a fault, and the fault that happens.

    That is the drawn fault or, if it cannot happen to this answer, the answer's own. Faults of tool
    calls change the calls of the answer. An answer without calls becomes a call of the first tool
    of the request, without arguments.
    """
    if fault is None or fault not in CONTENT_FAULTS:
        return answer, fault or answer.fault
    # An answer that is one number can have no other wrong content.
    has_room = parsed_request.format.events is not None or fault in (
        "empty-choices",
        "null-content",
    )
    faulty_answer = (
        _wrong(answer, fault, parsed_request.model_request)
        if has_room and answer.body is None
        else None
    )
    return (answer, answer.fault) if faulty_answer is None else (faulty_answer, fault)


def _wrong(answer: MockAnswer, fault: str, request: Request) -> MockAnswer | None:
    if fault in _WRONG_ANSWERS:
        return _WRONG_ANSWERS[fault](answer)
    calls = list(answer.tool_calls)
    if not calls:
        functions = (tool.get("function", tool) for tool in request.tools)  # of chat, of responses
        names = (function.get("name") for function in functions if isinstance(function, dict))
        name = next((name for name in names if isinstance(name, str)), None)
        if name is None:
            return None
        calls = [(name, {})]
        answer = MockAnswer(tool_calls=calls, usage=answer.usage)
    # Recorded response items would be sent instead of the calls.
    answer = msgspec.structs.replace(answer, response_items=[])
    if fault == "duplicate-ids":
        # Two calls at least, else no id is there twice.
        calls = calls if len(calls) > 1 else calls * 2
        call_ids = [answer.call_ids[0] if answer.call_ids else "call_twice"] * len(calls)
        return msgspec.structs.replace(answer, tool_calls=calls, call_ids=call_ids)
    faulty_calls = [_WRONG_CALLS[fault](name, argument_text(value)) for name, value in calls]
    return msgspec.structs.replace(answer, tool_calls=faulty_calls)


def _huge(answer: MockAnswer) -> MockAnswer:
    text = answer.text or "huge"
    long_text = f"{text}\n" * (HUGE // (len(text) + 1) + 1)
    return msgspec.structs.replace(answer, text=long_text, logprobs=None, response_items=[])


def _cut_with_reason(word: str) -> Callable[[MockAnswer], MockAnswer]:
    def cut(answer: MockAnswer) -> MockAnswer:
        text = answer.text or ""
        return MockAnswer(text=text[: len(text) // 2], finish_reason=word, usage=answer.usage)

    return cut


_NO_COMPLETION = Usage(prompt_tokens=1)

_WRONG_ANSWERS: dict[str, Callable[[MockAnswer], MockAnswer]] = {
    "empty-choices": lambda answer: MockAnswer(has_choices=False, usage=answer.usage),
    "null-content": lambda answer: MockAnswer(usage=answer.usage),
    "unknown-finish": lambda answer: msgspec.structs.replace(answer, finish_reason=UNKNOWN_FINISH),
    "finish-abort": _cut_with_reason("abort"),
    "finish-error": _cut_with_reason("error"),
    "finish-cancelled": _cut_with_reason("cancelled"),
    "finish-insufficient": _cut_with_reason("insufficient_system_resource"),
    "null-finish": lambda _: MockAnswer(finish_reason="", usage=_NO_COMPLETION),
    "empty-message": lambda _: MockAnswer(has_message=False, usage=_NO_COMPLETION),
    "huge": _huge,
}

_WRONG_CALLS: dict[str, Callable[[str, str], tuple[str, str | JSONObject]]] = {
    # No text with this end is JSON, whatever the script contains.
    "bad-arguments": lambda name, text: (name, f"{text[:-1]} and"),
    "double-arguments": lambda name, text: (name, msgspec.json.encode(text).decode()),
    "array-arguments": lambda name, text: (name, f"[{text}]"),
    "unknown-tool": lambda _name, text: (UNKNOWN_TOOL, text),
}


_INTERIM = {
    "interim-100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "interim-103": b"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\n",
}


async def deliver(
    request: web.BaseRequest, answer: RenderedAnswer, fault: str | None, exchange: Exchange
) -> web.StreamResponse:
    """Send an answer, broken if there is a fault; record its status before it is sent."""
    if fault == "stall":
        await asyncio.Event().wait()
    if fault == "reset":
        # The connection is gone, so that this response is never sent; aiohttp wants one.
        reset(request.transport)
        return web.Response()
    exchange.status = answer.status
    # Written to the transport, since aiohttp has no class for interim responses.
    if interim := _INTERIM.get(fault or ""):
        assert request.transport is not None, "a lost connection cancels its handler"
        request.transport.write(interim)
    if interim or (fault == "open-stream" and not answer.is_stream):
        fault = None
    if fault is None and not answer.is_stream:
        return web.Response(body=answer.pieces[0], status=answer.status, headers=answer.headers)
    # One write, also for streams: clients must join the pieces, whatever their timing.
    data = _half_json(answer) if fault == "half-json" else b"".join(answer.pieces)
    length = None if answer.is_stream else len(data)
    if fault == "wrong-length":
        length = len(data) + 64  # bytes that are never sent
    elif fault in ("reset-body", "stall-body"):
        data = data[: len(data) // 2]
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = length  # None makes the body chunked
    await response.prepare(request)
    await response.write(data)
    if fault in ("open-stream", "stall-body"):
        await asyncio.Event().wait()
    if fault == "wrong-length":
        if request.transport is not None:
            request.transport.close()
    elif fault == "reset-body":
        await _reset_when_written(request)
    else:
        await response.write_eof()
    return response


async def _reset_when_written(request: web.BaseRequest) -> None:
    assert request.transport is not None, "a lost connection cancels its handler"
    # `drain` then waits until the system has every byte: a reset drops what is still buffered here.
    request.transport.set_write_buffer_limits(high=0)
    for _ in range(2):  # uvloop writes at the end of a loop iteration
        await asyncio.sleep(0)
    await request.writer.drain()
    reset(request.transport)


def _half_json(answer: RenderedAnswer) -> bytes:
    """Return half of a body, or half of a stream's events and half of the next event's JSON."""
    if not answer.is_stream:
        body = answer.pieces[0]
        return body[: len(body) // 2]
    middle = len(answer.pieces) // 2
    event = answer.pieces[middle]
    data = event.index(b"data: ") + len(b"data: ")
    cut = event[: (data + len(event)) // 2]
    return b"".join(answer.pieces[:middle]) + cut + b"\n\n"
