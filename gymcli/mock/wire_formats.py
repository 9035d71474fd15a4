"""Wire formats of the mock server: reads requests, and renders answers as a body or as events.

Shapes: https://platform.openai.com/docs/api-reference/chat and .../responses; reasoning text is
where vLLM and SGLang put it (`reasoning_content`, a `reasoning` item). For reward models the text
of the answer is read as a number and sent in vLLM's shapes; any other text becomes null.

Token ids are where these servers put them: vLLM 0.11 (`protocol.py` of its chat completions),
llama.cpp (the README of its server), NeMo Gym 0.7 (`TokenIDLogProbMixin`); the version of the
weights is where rLLM's gateway reads it.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gymcli.mock.behaviours import MockAnswer, argument_text, last_user_text, num_turns
from gymcli.mock.tokenizer import END, END_TEXT, TokenSampler, decode, encode, render, written
from gymcli.nemo_gym.payload import list_in, object_in, objects_in
from gymcli.nemo_gym.responses_items import messages_from_items
from gymcli.types import (
    JSON,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    Tokens,
    TokenSource,
    ToolCall,
    Usage,
)

__all__ = [
    "ANY_MODEL",
    "FORMATS",
    "ParsedRequest",
    "RenderedAnswer",
    "WireFormat",
    "parse_request",
    "rendered",
    "tokenized",
    "tokens_of",
    "usage_of",
    "with_logprobs",
    "with_token_logprobs",
]

ANY_MODEL = "mock"
"""The model's name if neither the server nor the request names one."""


class ParsedRequest(NamedTuple):
    """The parts of a request that a behaviour sees or that its answer repeats."""

    format: WireFormat
    body: JSONObject
    request: Request
    model: str
    text: str
    """The last user text."""
    turn: int
    """Number of assistant messages so far; makes ids unique in a conversation."""
    prompt_characters: int
    created: int
    """Seconds since 1970."""
    is_streamed: bool
    """Whether the client wants events, in a format that has them."""
    wants_usage: bool
    """A chat stream has usage only if the request asks for it."""
    tokens: Tokens | None = None
    """The ids of its prompt and of its answer, if the server reports ids."""


def parse_request(raw: bytes, wire_format: WireFormat) -> ParsedRequest:
    """Read a body; raises ValueError or one of `JSON_ERRORS` if it is not a request."""
    body = msgspec.json.decode(raw, type=JSONObject)
    messages, consumed = wire_format.read(body)
    left_out = {"model", "tools", *consumed}
    request = Request(
        messages=messages,
        tools=msgspec.convert(body.get("tools") or [], list[JSONObject]),
        params={key: value for key, value in body.items() if key not in left_out},
    )
    options = body.get("stream_options")
    return ParsedRequest(
        format=wire_format,
        body=body,
        request=request,
        model=str(body.get("model") or ANY_MODEL),
        text=last_user_text(request),
        turn=num_turns(request),
        prompt_characters=sum(len(message.text) for message in messages),
        created=int(time.time()),
        is_streamed=body.get("stream") is True and wire_format.events is not None,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


class RenderedAnswer(NamedTuple):
    """An answer as it is sent."""

    status: int
    headers: Mapping[str, str]
    pieces: Sequence[bytes]
    """One body, or the events of a stream."""
    is_stream: bool = False


def rendered(answer: MockAnswer, about: ParsedRequest) -> RenderedAnswer:
    """Return an answer in the format of its request."""
    kind, is_stream = "application/json", False
    if answer.body is not None:
        pieces = [answer.body.encode()]
    elif about.is_streamed and about.format.events is not None:
        pieces = list(about.format.events(answer, about))
        kind, is_stream = "text/event-stream", True
    else:
        pieces = [msgspec.json.encode(about.format.body(answer, about))]
    headers = {"Content-Type": kind, **answer.headers}
    return RenderedAnswer(answer.status, headers, pieces, is_stream)


# Each reader returns the messages of a body and the keys that hold them.


def _read_chat(body: JSONObject) -> tuple[list[Message], tuple[str, ...]]:
    return msgspec.convert(body.get("messages"), list[Message]), ("messages",)


def _read_responses(body: JSONObject) -> tuple[list[Message], tuple[str, ...]]:
    messages = messages_from_items(msgspec.convert(body.get("input"), str | list[JSONObject]))
    if isinstance(body.get("instructions"), str):
        messages.insert(0, Message(role="system", content=str(body["instructions"])))
    return messages, ("input",)


def _read_pair(body: JSONObject) -> tuple[list[Message], tuple[str, ...]]:
    messages = [
        Message(role="user", content=msgspec.convert(body.get("text_1"), str)),
        Message(role="assistant", content=msgspec.convert(body.get("text_2"), str)),
    ]
    return messages, ("text_1", "text_2")


def _read_pooled(body: JSONObject) -> tuple[list[Message], tuple[str, ...]]:
    if "input" not in body:
        return _read_chat(body)
    return [Message(role="user", content=msgspec.convert(body["input"], str))], ("input",)


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons in `incomplete_details`, by finish reason in chat."""


def _chat_body(answer: MockAnswer, about: ParsedRequest) -> JSONObject:
    message: JSONObject = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _chat_calls(answer, about)
    choice: JSONObject = {
        "index": 0,
        "message": {**message, **_nemo_gym_fields(about)} if answer.has_message else {},
        "logprobs": answer.logprobs,
        "finish_reason": _finish_reason(answer),
    }
    tokens = about.tokens
    if tokens is not None and _reports_ids(about):
        choice["token_ids"] = tokens.sampled
    return {
        **_chat_head(about, "chat.completion"),
        **_prompt_fields(about),
        "choices": [choice] if answer.has_choices else [],
        "usage": _chat_usage(usage_of(answer, about)),
    }


def _chat_events(answer: MockAnswer, about: ParsedRequest) -> Iterator[bytes]:
    head = _chat_head(about, "chat.completion.chunk")
    choices: list[JSONObject] = []
    if answer.has_choices:
        finish: JSONObject = {"logprobs": answer.logprobs, "finish_reason": _finish_reason(answer)}
        deltas = [*_chat_deltas(answer, about)]
        choices = [{**_CHOICE, "delta": delta} for delta in deltas]
        choices.append({**_CHOICE, "delta": _nemo_gym_fields(about), **finish})
        if about.tokens is not None:
            _share_out(choices[1:] or choices, about.tokens, answer.logprobs, about)
    first = {**head, **_prompt_fields(about)}
    yield _event({**first, "choices": choices[:1]})
    for choice in choices[1:]:
        yield _event({**head, "choices": [choice]})
    # In a last chunk without choices, as OpenAI sends it.
    if about.wants_usage:
        usage = _chat_usage(usage_of(answer, about))
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


_CHOICE: JSONObject = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}


def _chat_deltas(answer: MockAnswer, about: ParsedRequest) -> Iterator[JSONObject]:
    if answer.has_message:
        yield {"role": "assistant", "content": None if answer.text is None else ""}
    for field, text in (
        ("reasoning_content", answer.reasoning),
        ("content", answer.text),
        ("refusal", answer.refusal),
    ):
        for piece in _pieces(text or ""):
            yield {field: piece}
    for index, call in enumerate(_chat_calls(answer, about)):
        function = call["function"]
        assert isinstance(function, dict)
        # The first delta of a call has its id and name, the others have pieces of the arguments.
        head = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [head]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _share_out(
    choices: Sequence[JSONObject], tokens: Tokens, logprobs: JSON, about: ParsedRequest
) -> None:
    """Put the ids of each piece of a stream, and their log-probabilities, into its choice."""
    entries = objects_in(object_in(logprobs).get("content"))
    for index, choice in enumerate(choices):
        part = slice(
            index * len(tokens.sampled) // len(choices),
            (index + 1) * len(tokens.sampled) // len(choices),
        )
        if _reports_ids(about):
            choice["token_ids"] = tokens.sampled[part]
        if len(entries) == len(tokens.sampled):
            shown = entries[part]
            if tokens.source == "llamacpp":  # whose streams leave out the end of the message
                shown = [entry for entry in shown if entry["token"]]
            choice["logprobs"] = {"content": shown}


def _chat_head(about: ParsedRequest, kind: str) -> JSONObject:
    return {
        "id": f"chatcmpl-mock-{about.turn}",
        "object": kind,
        "created": about.created,
        "model": about.model,
    }


def _chat_calls(answer: MockAnswer, about: ParsedRequest) -> list[JSONObject]:
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


def _responses_events(answer: MockAnswer, about: ParsedRequest) -> Iterator[bytes]:
    response = _responses_body(answer, about)
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


def _streamed_text(item: JSONObject) -> tuple[str, str]:
    if item.get("type") == "function_call":
        return str(item.get("arguments", "")), "function_call_arguments"
    parts = item.get("content")
    part = parts[0] if isinstance(parts, list) and parts else None
    if not isinstance(part, dict):
        return "", "output_text"
    kind = str(part.get("type"))
    return str(part.get("refusal" if kind == "refusal" else "text") or ""), kind


def _responses_body(answer: MockAnswer, about: ParsedRequest) -> JSONObject:
    usage = usage_of(answer, about)
    word = _finish_reason(answer)
    # Responses have no finish reason: whatever is not an ordinary end makes them incomplete.
    is_complete = word is None or word in ("stop", "tool_calls", "function_call")
    reason = None if is_complete else _INCOMPLETE.get(word or "", word)
    tokens = about.tokens
    version = tokens.weight_version if tokens is not None else ""
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
        **({"weight_version": version} if version else {}),
    }


def _items(answer: MockAnswer, about: ParsedRequest) -> list[JSONObject]:
    items = _plain_items(answer, about)
    return [*items[:-1], {**items[-1], **_nemo_gym_fields(about)}] if items else []


def _plain_items(answer: MockAnswer, about: ParsedRequest) -> list[JSONObject]:
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
    # An answer without any content is an empty message, not an empty output.
    if parts or not (items or answer.tool_calls):
        message: JSONObject = {"type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "id": f"msg_{about.turn}", "content": parts})
    for index, (name, arguments) in enumerate(answer.tool_calls):
        call: JSONObject = {"type": "function_call", "status": "completed", "name": name}
        call_id = _call_id(answer, about, index)
        identity = {"id": f"fc_{about.turn}_{index}", "call_id": call_id}
        items.append({**call, **identity, "arguments": argument_text(arguments)})
    return items


def _score_body(answer: MockAnswer, about: ParsedRequest) -> JSONObject:
    return _scalar_body(answer, about, {"object": "score", "score": _number(answer)})


def _pooling_body(answer: MockAnswer, about: ParsedRequest) -> JSONObject:
    rows = [[0.0], [_number(answer)]]  # of two tokens; the last one counts
    return _scalar_body(answer, about, {"object": "pooling", "data": rows})


def _classify_body(answer: MockAnswer, about: ParsedRequest) -> JSONObject:
    probs = [_number(answer)]
    return _scalar_body(answer, about, {"label": "LABEL_0", "probs": probs, "num_classes": 1})


def _scalar_body(answer: MockAnswer, about: ParsedRequest, item: JSONObject) -> JSONObject:
    num_tokens = usage_of(answer, about).prompt_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0}
    head = {"object": "list", "created": about.created, "model": about.model}
    data = [{"index": 0, **item}] if answer.has_choices else []
    return {**head, "data": data, "usage": usage}


def _number(answer: MockAnswer) -> float | None:
    with contextlib.suppress(ValueError):
        return float(answer.text or "")
    return None


def usage_of(answer: MockAnswer, about: ParsedRequest) -> Usage:
    """Return the token count of an answer: its ids, its own, or one for four characters."""
    if about.tokens is not None:
        prompt, sampled = about.tokens.prompt, about.tokens.sampled
        return Usage(prompt_tokens=len(prompt), completion_tokens=len(sampled))
    if answer.usage is not None:
        return answer.usage
    written = len(answer.text or "") + len(answer.reasoning or "") + len(answer.refusal or "")
    written += sum(len(name) + len(argument_text(a)) for name, a in answer.tool_calls)
    return Usage(prompt_tokens=about.prompt_characters // 4 + 1, completion_tokens=written // 4 + 1)


def _finish_reason(answer: MockAnswer) -> str | None:
    if answer.finish_reason is None:
        return "tool_calls" if answer.tool_calls else "stop"
    return answer.finish_reason or None


def _call_id(answer: MockAnswer, about: ParsedRequest, index: int) -> str:
    if index < len(answer.call_ids):
        return answer.call_ids[index]
    return f"call_{about.turn}_{index}"


def _pieces(text: str) -> list[str]:
    size = max(16, -(-len(text) // 1024))  # a long text has longer deltas, not more than 1024
    return [text[start : start + size] for start in range(0, len(text), size)]


def _event(payload: JSONObject) -> bytes:
    kind = payload.get("type")
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return name + b"data: " + msgspec.json.encode(payload) + b"\n\n"


def with_logprobs(answer: MockAnswer, params: JSONObject) -> MockAnswer:
    """Return the answer with log probabilities of its text, if the request asks for them.

    They are invented, and always the same for the same text. The answer's own are not replaced.
    """
    include = params.get("include")
    is_asked = params.get("logprobs") is True or (
        isinstance(include, list) and "message.output_text.logprobs" in include
    )
    if not is_asked or answer.logprobs is not None or not answer.text:
        return answer
    wanted = params.get("top_logprobs")
    num_top = min(wanted, 20) if isinstance(wanted, int) else 0  # OpenAI's limit
    content: list[JSONObject] = []
    for start in range(0, len(answer.text), 4):  # characters of a token, as in the usage
        token = answer.text[start : start + 4]
        encoded = token.encode("utf-8", "replace")
        first = _logprob(token, -(zlib.crc32(encoded) % 1000 + 1) / 1000)
        others = [_logprob(f"{token}{rank}", -1.0 - rank) for rank in range(1, num_top)]
        content.append({**first, "top_logprobs": [first, *others][:num_top]})
    return msgspec.structs.replace(answer, logprobs={"content": content})


def _logprob(token: str, logprob: float) -> JSONObject:
    encoded = token.encode("utf-8", "replace")
    return {"token": token, "logprob": logprob, "bytes": list(encoded)}


def tokens_of(answer: MockAnswer, about: ParsedRequest, sampler: TokenSampler) -> Tokens:
    """Sample the ids of an answer."""
    message = Message(
        role="assistant",
        content=answer.text,
        reasoning=answer.reasoning,
        refusal=answer.refusal,
        tool_calls=[
            ToolCall(id="", function=FunctionCall(name, argument_text(arguments)))
            for name, arguments in answer.tool_calls
        ],
    )
    items = [*answer.response_items]
    text = "".join(map(written, messages_from_items(items) if items else [message]))
    return sampler.sample(_prompt_ids(about), text, is_cut=answer.finish_reason == "length")


def with_token_logprobs(answer: MockAnswer, tokens: Tokens, params: JSONObject) -> MockAnswer:
    """Return the answer with the log-probability of each id, if the request asks for them.

    The answer's own are not replaced.
    """
    is_llama = tokens.source == "llamacpp"
    num_top = params.get("top_logprobs", 20 if is_llama else 0)
    # In llama.cpp 0 turns all log-probabilities off, and in vLLM null does.
    is_off = num_top == 0 if is_llama else num_top is None
    is_asked = params.get("logprobs") is True and not is_off
    # NeMo Gym's server takes them out, since its own fields have them.
    if not is_asked or answer.logprobs is not None or tokens.source == "nemo_gym":
        return answer
    shows_ids = params.get("return_tokens_as_token_ids") is True and not is_llama
    content = []
    for number, logprob in zip(tokens.sampled, tokens.logprobs, strict=True):
        entry = _logprob(f"token_id:{number}" if shows_ids else decode([number]), logprob)
        if is_llama:
            entry["id"] = number
        content.append({**entry, "top_logprobs": [entry] if num_top else []})
    return msgspec.structs.replace(answer, logprobs={"content": content})


def _prompt_ids(about: ParsedRequest) -> list[int]:
    """Return the ids of a prompt: those that the last assistant message has, then what follows."""
    key = "messages" if "messages" in about.body else "input"
    entries = list_in(about.body.get(key))
    for index in reversed(range(len(entries))):
        entry = object_in(entries[index])
        if "generation_token_ids" in entry:
            held = msgspec.convert(entry.get("prompt_token_ids"), list[int])
            held += msgspec.convert(entry["generation_token_ids"], list[int])
            rest, _ = about.format.read({key: entries[index + 1 :]})
            # The template ends a message that was cut.
            return held + encode(f"{'' if held[-1:] == [END] else END_TEXT}\n{render(rest)}")
    return encode(render(about.request.messages, about.request.tools))


def tokenized(path: str, raw: bytes, source: TokenSource) -> JSONObject | None:
    """Return the answer to `/tokenize` or `/apply-template`; None: the server has no such address.

    Raises ValueError or one of `JSON_ERRORS` if it is not a request.
    """
    if source == "nemo_gym" or (path == "/apply-template" and source != "llamacpp"):
        return None
    body = msgspec.json.decode(raw, type=JSONObject)
    tools = msgspec.convert(body.get("tools") or [], list[JSONObject])
    if path == "/apply-template":
        return {"prompt": render(_read_chat(body)[0], tools)}
    if source == "llamacpp":
        text = msgspec.convert(body.get("content"), str)
        return {"tokens": encode(text, parse_special=body.get("parse_special", True) is True)}
    text = render(_read_chat(body)[0], tools) if "messages" in body else str(body.get("prompt"))
    ids = encode(text)
    return {"count": len(ids), "max_model_len": 2**20, "tokens": ids, "token_strs": None}


def _reports_ids(about: ParsedRequest) -> bool:
    """Whether the fields that `return_token_ids` asks for are sent."""
    is_vllm = about.tokens is not None and about.tokens.source == "vllm"
    return is_vllm and about.request.params.get("return_token_ids") is True


def _prompt_fields(about: ParsedRequest) -> JSONObject:
    """Return the fields at the top of a chat answer, or of the first chunk of its stream."""
    fields: JSONObject = {}
    if about.tokens is not None and about.tokens.weight_version:
        fields["weight_version"] = about.tokens.weight_version
    if about.tokens is not None and _reports_ids(about):
        fields["prompt_token_ids"] = about.tokens.prompt
    return fields


def _nemo_gym_fields(about: ParsedRequest) -> JSONObject:
    """Return the fields of a message or of the last output item, which are never asked for."""
    tokens = about.tokens
    if tokens is None or tokens.source != "nemo_gym":
        return {}
    return {
        "prompt_token_ids": tokens.prompt,
        "generation_token_ids": tokens.sampled,
        "generation_log_probs": tokens.logprobs,
    }


class WireFormat(NamedTuple):
    """How one dialect reads requests and renders answers."""

    dialect: str
    read: Callable[[JSONObject], tuple[list[Message], tuple[str, ...]]]
    """Returns the messages of a body and the keys that hold them; raises ValueError."""
    body: Callable[[MockAnswer, ParsedRequest], JSONObject]
    events: Callable[[MockAnswer, ParsedRequest], Iterator[bytes]] | None = None
    """None if it does not stream, since an answer is one number."""


FORMATS = {
    "/v1/chat/completions": WireFormat("chat", _read_chat, _chat_body, _chat_events),
    "/v1/responses": WireFormat("responses", _read_responses, _responses_body, _responses_events),
    # vLLM has some of these under /v1 and some not.
    **dict.fromkeys(("/score", "/v1/score"), WireFormat("score", _read_pair, _score_body)),
    **dict.fromkeys(
        ("/pooling", "/v1/pooling"), WireFormat("pooling", _read_pooled, _pooling_body)
    ),
    **dict.fromkeys(
        ("/classify", "/v1/classify"), WireFormat("classify", _read_pooled, _classify_body)
    ),
}
"""Dialects by the path of the request."""
