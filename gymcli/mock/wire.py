"""Renders one answer as a body or as the server-sent events of a dialect.

Shapes: https://platform.openai.com/docs/api-reference/chat and .../responses; reasoning text goes
where vLLM and SGLang put it (`reasoning_content`, a `reasoning` item). Reward models answer with
the number that the answer's text is, in vLLM's shapes; a text that is none becomes null.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gymcli.mock.behaviours import MockAnswer, argument_text
from gymcli.types import JSON, JSONObject, Request, Usage

__all__ = [
    "Circumstances",
    "chat_body",
    "chat_events",
    "classify_body",
    "pooling_body",
    "responses_body",
    "responses_events",
    "score_body",
    "usage_of",
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
