"""The error answers of the mock server, in the words of the endpoints that it stands for."""

from __future__ import annotations

import contextlib
import email.utils
import math
import time
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import msgspec

from gymcli.mock.behaviours import MockAnswer, argument_text, last_user_text, num_turns
from gymcli.mock.faults import FaultKind, Refusal, Spoil, is_spoil
from gymcli.mock.listener import Reply
from gymcli.mock.request_log import Exchange
from gymcli.nemo_gym.responses_items import messages_from_items
from gymcli.secrets import Scrubber
from gymcli.types import JSON, JSONObject, Message, Request, Usage

__all__ = [
    "ANY_MODEL",
    "FORMATS",
    "HUGE",
    "UNKNOWN_FINISH",
    "UNKNOWN_TOOL",
    "Answered",
    "Asked",
    "Circumstances",
    "Format",
    "Reader",
    "answered",
    "behaviour_failed",
    "chat_body",
    "chat_events",
    "classify_body",
    "key_refused",
    "model_not_found",
    "pooling_body",
    "read_chat",
    "read_pair",
    "read_pooled",
    "read_responses",
    "refusal_for",
    "responses_body",
    "responses_events",
    "score_body",
    "spoiled",
    "too_many_requests",
    "unreadable",
    "usage_of",
    "with_logprobs",
]


PIECE = 16
"""Characters of one streamed delta."""

MAX_PIECES = 1024
"""Deltas of one text; a longer one comes in larger ones."""

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Chat's finish reasons in the words of `incomplete_details`."""

COMPLETE = ("stop", "tool_calls", "function_call")
"""Chat's finish reasons of a completed response; others are an unknown reason of its end."""


class Circumstances(NamedTuple):
    """What an answer repeats of its request."""

    model: str
    turn: int
    """Assistant messages so far; makes the ids of a conversation unique."""
    prompt_characters: int
    created: int
    """Seconds since 1970."""
    with_usage: bool = True
    """A chat stream gives usage only when it was asked to."""

    @classmethod
    def of(cls, request: Request, *, model: str, turn: int, created: int) -> Circumstances:
        """Measure a request."""
        characters = sum(len(message.text) for message in request.messages)
        options = request.params.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        return cls(model, turn, characters, created, with_usage)


def chat_body(answer: MockAnswer, about: Circumstances) -> bytes:
    """Render the body of `POST /chat/completions`."""
    message: JSONObject = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _chat_calls(answer, about)
    choice: JSONObject = {
        "index": 0,
        "message": message if answer.has_message else {},
        "logprobs": answer.logprobs,
        "finish_reason": _finish_reason(answer),
    }
    return msgspec.json.encode(
        {
            **_chat_head(about, "chat.completion"),
            "choices": [choice] if answer.has_choices else [],
            "usage": _chat_usage(usage_of(answer, about)),
        }
    )


def chat_events(answer: MockAnswer, about: Circumstances) -> Iterator[bytes]:
    """Render the events of a streamed chat completion, `[DONE]` included."""
    head = _chat_head(about, "chat.completion.chunk")
    if answer.has_choices:
        yield from _chat_deltas(answer, about)
    else:
        yield _event({**head, "choices": []})
    if about.with_usage:
        usage = _chat_usage(usage_of(answer, about))
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chat_deltas(answer: MockAnswer, about: Circumstances) -> Iterator[bytes]:
    """Render what a stream says of its one choice."""
    if answer.has_message:
        start = None if answer.text is None else ""
        yield _chat_chunk(about, {"role": "assistant", "content": start})
    for field, text in (
        ("reasoning_content", answer.reasoning),
        ("content", answer.text),
        ("refusal", answer.refusal),
    ):
        for piece in _pieces(text or ""):
            yield _chat_chunk(about, {field: piece})
    for index, call in enumerate(_chat_calls(answer, about)):
        function = call["function"]
        assert isinstance(function, dict)
        head = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield _chat_chunk(about, {"tool_calls": [head]})
        for piece in _pieces(function["arguments"]):
            delta: JSONObject = {"index": index, "function": {"arguments": piece}}
            yield _chat_chunk(about, {"tool_calls": [delta]})
    yield _chat_chunk(about, {}, finish_reason=_finish_reason(answer), logprobs=answer.logprobs)


def responses_body(answer: MockAnswer, about: Circumstances) -> bytes:
    """Render the body of `POST /responses`."""
    return msgspec.json.encode(_response(answer, about))


def responses_events(answer: MockAnswer, about: Circumstances) -> Iterator[bytes]:
    """Render the events of a streamed response; the last one carries the whole of it."""
    response = _response(answer, about)
    started: JSONObject = {**response, "status": "in_progress", "output": [], "usage": None}
    yield _event({"type": "response.created", "response": started})
    for index, item in enumerate(_items(answer, about)):
        place: JSONObject = {"output_index": index, "item_id": item.get("id")}
        yield _event({"type": "response.output_item.added", "output_index": index, "item": item})
        text, kind = _streamed_text(item)
        for piece in _pieces(text):
            yield _event({"type": f"response.{kind}.delta", **place, "delta": piece})
        yield _event({"type": "response.output_item.done", "output_index": index, "item": item})
    yield _event({"type": f"response.{response['status']}", "response": response})


def score_body(answer: MockAnswer, about: Circumstances) -> bytes:
    """Render the body of `POST /score`."""
    return _scalar_body(answer, about, {"object": "score", "score": _number(answer)})


def pooling_body(answer: MockAnswer, about: Circumstances) -> bytes:
    """Render the body of `POST /pooling`: a row for each of two tokens, the last one counts."""
    rows = [[0.0], [_number(answer)]]
    return _scalar_body(answer, about, {"object": "pooling", "data": rows})


def classify_body(answer: MockAnswer, about: Circumstances) -> bytes:
    """Render the body of `POST /classify`: one class."""
    probs = [_number(answer)]
    return _scalar_body(answer, about, {"label": "LABEL_0", "probs": probs, "num_classes": 1})


def _scalar_body(answer: MockAnswer, about: Circumstances, item: JSONObject) -> bytes:
    num_tokens = usage_of(answer, about).prompt_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0}
    head = {"object": "list", "created": about.created, "model": about.model}
    data = [{"index": 0, **item}] if answer.has_choices else []
    return msgspec.json.encode({**head, "data": data, "usage": usage})


def _number(answer: MockAnswer) -> float | None:
    with contextlib.suppress(ValueError):
        return float(answer.text or "")
    return None


def _chat_head(about: Circumstances, kind: str) -> JSONObject:
    return {
        "id": f"chatcmpl-mock-{about.turn}",
        "object": kind,
        "created": about.created,
        "model": about.model,
    }


def _chat_chunk(
    about: Circumstances,
    delta: JSONObject,
    *,
    finish_reason: str | None = None,
    logprobs: JSON = None,
) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return _event({**_chat_head(about, "chat.completion.chunk"), "choices": [choice]})


def _chat_calls(answer: MockAnswer, about: Circumstances) -> list[JSONObject]:
    return [
        {
            "id": _call_id(answer, about, index),
            "type": "function",
            "function": {"name": name, "arguments": argument_text(arguments)},
        }
        for index, (name, arguments) in enumerate(answer.tool_calls)
    ]


def _chat_usage(usage: Usage) -> JSONObject:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _response(answer: MockAnswer, about: Circumstances) -> JSONObject:
    usage = usage_of(answer, about)
    word = _finish_reason(answer)
    reason = None if word in COMPLETE or word is None else INCOMPLETE.get(word, word)
    return {
        "id": f"resp_mock_{about.turn}",
        "object": "response",
        "created_at": about.created,
        "model": about.model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": _items(answer, about),
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }


def _items(answer: MockAnswer, about: Circumstances) -> list[JSONObject]:
    if answer.response_items or not (answer.has_choices and answer.has_message):
        return list(answer.response_items)
    items: list[JSONObject] = []
    if answer.reasoning is not None:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        reasoning: JSONObject = {"type": "reasoning", "summary": [], "content": content}
        items.append({**reasoning, "id": f"rs_{about.turn}"})
    parts: list[JSONObject] = []
    if answer.text is not None:
        logprobs = answer.logprobs.get("content") if isinstance(answer.logprobs, dict) else []
        part: JSONObject = {"type": "output_text", "text": answer.text, "annotations": []}
        parts.append({**part, "logprobs": logprobs})
    if answer.refusal is not None:
        parts.append({"type": "refusal", "refusal": answer.refusal})
    if parts or not (items or answer.tool_calls):
        message: JSONObject = {"type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "id": f"msg_{about.turn}", "content": parts})
    for index, (name, arguments) in enumerate(answer.tool_calls):
        call: JSONObject = {"type": "function_call", "status": "completed", "name": name}
        call_id = _call_id(answer, about, index)
        identity = {"id": f"fc_{about.turn}_{index}", "call_id": call_id}
        items.append({**call, **identity, "arguments": argument_text(arguments)})
    return items


def _streamed_text(item: JSONObject) -> tuple[str, str]:
    """Give the text of an item that comes in deltas, and the name of its delta events."""
    if item.get("type") == "function_call":
        return str(item.get("arguments", "")), "function_call_arguments"
    parts = item.get("content")
    part = parts[0] if isinstance(parts, list) and parts else None
    if not isinstance(part, dict):
        return "", "output_text"
    kind = str(part.get("type"))
    return str(part.get("refusal" if kind == "refusal" else "text") or ""), kind


def usage_of(answer: MockAnswer, about: Circumstances) -> Usage:
    """Give the tokens of an answer: those that it names, else four characters are one."""
    if answer.usage is not None:
        return answer.usage
    written = len(answer.text or "") + len(answer.reasoning or "") + len(answer.refusal or "")
    written += sum(len(name) + len(argument_text(a)) for name, a in answer.tool_calls)
    return Usage(prompt_tokens=about.prompt_characters // 4 + 1, completion_tokens=written // 4 + 1)


def _finish_reason(answer: MockAnswer) -> str | None:
    if answer.finish_reason is None:
        return "tool_calls" if answer.tool_calls else "stop"
    return answer.finish_reason or None


def _call_id(answer: MockAnswer, about: Circumstances, index: int) -> str:
    if index < len(answer.call_ids):
        return answer.call_ids[index]
    return f"call_{about.turn}_{index}"


def _pieces(text: str) -> list[str]:
    size = max(PIECE, -(-len(text) // MAX_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _event(payload: JSONObject) -> bytes:
    kind = payload.get("type")
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return name + b"data: " + msgspec.json.encode(payload) + b"\n\n"


_TOKEN = 4
"""Characters of a token, as in the usage."""

_MAX_TOP = 20
"""Of the likeliest tokens, as OpenAI has it."""

_INCLUDE = "message.output_text.logprobs"
"""How the Responses format asks for them."""


def with_logprobs(answer: MockAnswer, params: JSONObject) -> MockAnswer:
    """Give the answer with log probabilities of its text, if they are asked for and not there.

    They are made up, and the same for the same text.
    """
    include = params.get("include")
    is_asked = params.get("logprobs") is True or (isinstance(include, list) and _INCLUDE in include)
    if not is_asked or answer.logprobs is not None or not answer.text:
        return answer
    wanted = params.get("top_logprobs")
    num_top = min(wanted, _MAX_TOP) if isinstance(wanted, int) else 0
    text = answer.text
    tokens = [text[start : start + _TOKEN] for start in range(0, len(text), _TOKEN)]
    content = [_token(token, num_top) for token in tokens]
    return msgspec.structs.replace(answer, logprobs={"content": content})


def _token(token: str, num_top: int) -> JSONObject:
    first = _entry(token, -(zlib.crc32(token.encode("utf-8", "replace")) % 1000 + 1) / 1000)
    others = [_entry(f"{token}{rank}", -1.0 - rank) for rank in range(1, num_top)]
    return {**first, "top_logprobs": [first, *others][:num_top]}


def _entry(token: str, logprob: float) -> JSONObject:
    return {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode("utf-8", "replace")),
    }


HUGE = 4 * 2**20
"""Characters of a huge text, at least."""

UNKNOWN_FINISH = "mock_unknown"
UNKNOWN_TOOL = "mock_unknown_tool"

_Call = tuple[str, str | JSONObject]


def spoiled(answer: MockAnswer, kind: Spoil, request: Request) -> MockAnswer | None:
    """Give the answer with a fault; None where the request leaves no room for it.

    Faults of tool calls are put into the calls of the answer. Where it has none, it becomes a call
    of the first tool of the request, with no arguments.
    """
    if kind in _ANSWERS:
        return _ANSWERS[kind](answer)
    calls = list(answer.tool_calls)
    if not calls:
        name = _first_tool(request)
        if name is None:
            return None
        calls = [(name, {})]
        answer = MockAnswer(tool_calls=calls, usage=answer.usage)
    # What was kept word for word of another endpoint would be sent in place of the calls.
    answer = msgspec.structs.replace(answer, response_items=[])
    if kind == "duplicate-ids":
        calls = calls if len(calls) > 1 else calls * 2
        same = [answer.call_ids[0] if answer.call_ids else "call_twice"] * len(calls)
        return msgspec.structs.replace(answer, tool_calls=calls, call_ids=same)
    made = [_CALLS[kind](name, argument_text(arguments)) for name, arguments in calls]
    return msgspec.structs.replace(answer, tool_calls=made)


def _huge(answer: MockAnswer) -> MockAnswer:
    text = answer.text or "huge"
    repeated = f"{text}\n" * (HUGE // (len(text) + 1) + 1)
    return msgspec.structs.replace(answer, text=repeated, logprobs=None, response_items=[])


def _unfinished(word: str) -> Callable[[MockAnswer], MockAnswer]:
    """Return what cuts a text in the middle, for a reason of the endpoint's own."""

    def cut(answer: MockAnswer) -> MockAnswer:
        text = answer.text or ""
        return MockAnswer(text=text[: len(text) // 2], finish_reason=word, usage=answer.usage)

    return cut


_NO_ANSWER = Usage(prompt_tokens=1)

_ANSWERS: dict[str, Callable[[MockAnswer], MockAnswer]] = {
    "empty-choices": lambda answer: MockAnswer(has_choices=False, usage=answer.usage),
    "null-content": lambda answer: MockAnswer(usage=answer.usage),
    "unknown-finish": lambda answer: msgspec.structs.replace(answer, finish_reason=UNKNOWN_FINISH),
    "finish-abort": _unfinished("abort"),
    "finish-error": _unfinished("error"),
    "finish-cancelled": _unfinished("cancelled"),
    "finish-insufficient": _unfinished("insufficient_system_resource"),
    "null-finish": lambda _: MockAnswer(finish_reason="", usage=_NO_ANSWER),
    "empty-message": lambda _: MockAnswer(has_message=False, usage=_NO_ANSWER),
    "huge": _huge,
}

_CALLS: dict[str, Callable[[str, str], _Call]] = {
    # Nothing that ends so is JSON, whatever the script said.
    "bad-arguments": lambda name, text: (name, f"{text[:-1]} and"),
    "double-arguments": lambda name, text: (name, msgspec.json.encode(text).decode()),
    "array-arguments": lambda name, text: (name, f"[{text}]"),
    "unknown-tool": lambda _name, text: (UNKNOWN_TOOL, text),
}


def _first_tool(request: Request) -> str | None:
    """Give the name of the first function among the tools of a request, in either dialect."""
    for tool in request.tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else tool.get("name")
        if isinstance(name, str):
            return name
    return None


Reader = Callable[[JSONObject], Request]


def read_chat(body: JSONObject) -> Request:
    """Read a request of Chat Completions.

    Raises:
        msgspec.ValidationError: Its messages are none.

    """
    messages = msgspec.convert(body.get("messages"), list[Message])
    return _request(body, messages, "messages")


def read_responses(body: JSONObject) -> Request:
    """Read a request of Responses; its instructions are a system message.

    Raises:
        ValueError: Its input is neither text nor items.

    """
    messages = messages_from_items(msgspec.convert(body.get("input"), str | list[JSONObject]))
    if isinstance(body.get("instructions"), str):
        messages.insert(0, Message(role="system", content=str(body["instructions"])))
    return _request(body, messages, "input")


def read_pair(body: JSONObject) -> Request:
    """Read a pair of texts as a question and its answer.

    Raises:
        msgspec.ValidationError: There are no two texts.

    """
    messages = [
        Message(role="user", content=msgspec.convert(body.get("text_1"), str)),
        Message(role="assistant", content=msgspec.convert(body.get("text_2"), str)),
    ]
    return _request(body, messages, "text_1", "text_2")


def read_pooled(body: JSONObject) -> Request:
    """Read a conversation, or a text as what a user says.

    Raises:
        msgspec.ValidationError: It is neither.

    """
    if "input" not in body:
        return read_chat(body)
    text = Message(role="user", content=msgspec.convert(body["input"], str))
    return _request(body, [text], "input")


def _request(body: JSONObject, messages: list[Message], *consumed: str) -> Request:
    tools = msgspec.convert(body.get("tools") or [], list[JSONObject])
    left_out = {"model", "tools", *consumed}
    params = {key: value for key, value in body.items() if key not in left_out}
    return Request(messages=messages, tools=tools, params=params)


class Format(NamedTuple):
    """One wire format."""

    dialect: str
    read: Reader
    body: Callable[[MockAnswer, Circumstances], bytes]
    events: Callable[[MockAnswer, Circumstances], Iterator[bytes]] | None = None
    """None: it does not stream, since an answer is one number."""


_SCORE = Format("score", read_pair, score_body)
_POOLING = Format("pooling", read_pooled, pooling_body)
_CLASSIFY = Format("classify", read_pooled, classify_body)

FORMATS = {
    "/v1/chat/completions": Format("chat", read_chat, chat_body, chat_events),
    "/v1/responses": Format("responses", read_responses, responses_body, responses_events),
    # vLLM has some of these under /v1 and some not.
    **dict.fromkeys(("/score", "/v1/score"), _SCORE),
    **dict.fromkeys(("/pooling", "/v1/pooling"), _POOLING),
    **dict.fromkeys(("/classify", "/v1/classify"), _CLASSIFY),
}
"""By the path of the request."""


ANY_MODEL = "mock"
"""The name of the model where nobody gave it one."""

_MAX_TEXT = 200
"""Characters of the last user text that are logged."""

_FOR_NUMBERS = ("empty-choices", "null-content")
"""What can be wrong about an answer that is one number."""


class Asked(NamedTuple):
    """A request that was read."""

    form: Format
    body: JSONObject
    request: Request
    text: str
    """The last user text."""
    turn: int
    """Assistant messages so far."""

    @classmethod
    def read(cls, raw: bytes, form: Format) -> Self:
        """Read a body.

        Raises:
            ValueError: It is no request of the format; or one of `JSON_ERRORS`.

        """
        body = msgspec.json.decode(raw, type=JSONObject)
        request = form.read(body)
        return cls(form, body, request, last_user_text(request), num_turns(request))

    @property
    def model(self) -> str:
        """The model that is asked for; a request need not name one."""
        return str(self.body.get("model") or ANY_MODEL)

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is wanted as events, and can be."""
        return self.body.get("stream") is True and self.form.events is not None

    def note(self, exchange: Exchange, secrets: Scrubber) -> None:
        """Write down what the log says of it."""
        exchange.model = self.model
        exchange.turn = self.turn
        # In this order: of a secret that is cut, a part would stay.
        exchange.text = secrets.text(self.text)[:_MAX_TEXT]


class Answered(NamedTuple):
    """What is to be sent, and how it fails."""

    reply: Reply
    answer: MockAnswer
    fault: FaultKind | None
    """What was drawn and can happen to this answer, else what the behaviour says."""
    usage: Usage | None
    """None: the answer is no rendered one."""


def answered(asked: Asked, answer: MockAnswer | str, fault: FaultKind | None) -> Answered:
    """Render an answer, with a fault in what it says if there is to be one."""
    if isinstance(answer, str):
        answer = MockAnswer(text=answer)
    if answer.body is not None:
        fault = answer.fault if fault is None or is_spoil(fault) else fault
        headers = {"Content-Type": "application/json", **answer.headers}
        return Answered(Reply(answer.status, headers, [answer.body.encode()]), answer, fault, None)
    answer = with_logprobs(answer, asked.request.params)
    if fault is not None and is_spoil(fault):
        changed = None
        if asked.form.events is not None or fault in _FOR_NUMBERS:
            changed = spoiled(answer, fault, asked.request)
        fault = None if changed is None else fault
        answer = changed or answer
    about = Circumstances.of(
        asked.request, model=asked.model, turn=asked.turn, created=int(time.time())
    )
    reply = _rendered(asked, answer, about)
    return Answered(reply, answer, fault or answer.fault, usage_of(answer, about))


def _rendered(asked: Asked, answer: MockAnswer, about: Circumstances) -> Reply:
    form = asked.form
    if asked.is_streamed and form.events is not None:
        headers = {"Content-Type": "text/event-stream", **answer.headers}
        return Reply(answer.status, headers, list(form.events(answer, about)), is_stream=True)
    headers = {"Content-Type": "application/json", **answer.headers}
    return Reply(answer.status, headers, [form.body(answer, about)])


_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"


class _Words(NamedTuple):
    """What an error object says."""

    status: int
    message: str
    type: str
    code: str | None = None


_LIMITED = _Words(429, "Rate limit reached. Please try again.", "requests", "rate_limit_exceeded")
_FAILED = _Words(500, "The server had an error while processing your request.", "server_error")
_FAULTS: dict[str, _Words] = {
    **dict.fromkeys(("429", "429-after", "429-date", "429-burst"), _LIMITED),
    **dict.fromkeys(("500", "500-once", "500-always"), _FAILED),
    "503": _Words(503, "The engine is currently overloaded, please try again.", "server_error"),
    "529": _Words(529, "Overloaded", "overloaded_error"),
    **dict.fromkeys(
        ("403", "403-always"),
        _Words(403, "You are not allowed to ask this.", "permission_error", "forbidden"),
    ),
}


def refusal_for(kind: Refusal, model: str, text: str) -> MockAnswer:
    """Return the answer of a fault that is an error status; some repeat the last user text."""
    if kind == "422-echo":  # as FastAPI says it
        wrong = {"type": "extra_forbidden", "loc": ["body"], "msg": "Not permitted", "input": text}
        return MockAnswer(status=422, body=msgspec.json.encode({"detail": [wrong]}).decode())
    if kind == "500-echo":
        return _refusal(_Words(500, f"The server failed while answering: {text}", "server_error"))
    if kind == "405":
        return MockAnswer(status=405, body='{"detail":"Method Not Allowed"}')
    if kind == "307":
        return MockAnswer(status=307, body="", headers={"Location": "/elsewhere"})
    if kind == "401":
        return key_refused()
    if kind == "404":
        return model_not_found(model)
    if kind == "502":  # comes from a proxy, which knows no JSON
        return MockAnswer(status=502, body=_GATEWAY, headers={"Content-Type": "text/html"})
    headers = {}
    if kind == "429-after":
        headers = {"Retry-After": "1"}
    elif kind == "429-date":
        # A date has whole seconds: the next one but for a wait of at least one.
        headers = {"Retry-After": email.utils.formatdate(math.ceil(time.time()) + 1, usegmt=True)}
    return _refusal(_FAULTS[kind], headers)


def too_many_requests() -> MockAnswer:
    """Give the answer beyond a limit; it does not say when to come again."""
    return _refusal(_LIMITED)


def key_refused() -> MockAnswer:
    """Give the answer to a key that is missing or wrong, which it does not repeat."""
    text = "Incorrect API key provided."
    return _refusal(_Words(401, text, "invalid_request_error", "invalid_api_key"))


def model_not_found(model: str) -> MockAnswer:
    """Give the answer to a request for a model that is not served."""
    text = f"The model `{model}` does not exist or you do not have access to it."
    return _refusal(_Words(404, text, "invalid_request_error", "model_not_found"))


def behaviour_failed(error: Exception) -> MockAnswer:
    """Give the answer in place of one that could not be made."""
    text = f"the mock's behaviour failed: {type(error).__name__}: {error}"
    return _refusal(_Words(500, text, "server_error"))


def unreadable(reason: str) -> MockAnswer:
    """Give the answer to a body that is no request."""
    return _refusal(_Words(400, f"not a request: {reason}", "invalid_request_error"))


def _refusal(words: _Words, headers: dict[str, str] | None = None) -> MockAnswer:
    error = {"message": words.message, "type": words.type, "param": None, "code": words.code}
    body = msgspec.json.encode({"error": error}).decode()
    return MockAnswer(status=words.status, body=body, headers=headers or {})
