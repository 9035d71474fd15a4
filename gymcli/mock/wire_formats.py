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
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gymcli.mock.behaviours import MockAnswer, argument_text, last_user_text, num_turns
from gymcli.nemo_gym.payload import object_in, objects_in, text_in
from gymcli.nemo_gym.responses_items import messages_from_items
from gymcli.types import JSON, JSONObject, Message, Request, Tokens, Usage

ANY_MODEL = "mock"
"""The model's name if neither the server nor the request names one."""
_MAX_CHOICES = 128  # OpenAI's limit


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
    num_choices: int
    """How many answers it asks for."""
    tokens: Sequence[Tokens] = ()
    """The ids of its prompt and of each answer, if the server reports ids."""


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
        num_choices=_num_choices(body) if wire_format.dialect == "chat" else 1,
    )


def _num_choices(body: JSONObject) -> int:
    wanted = body.get("n")
    if wanted is None:
        return 1
    if not isinstance(wanted, int) or wanted is True or not 1 <= wanted <= _MAX_CHOICES:
        raise ValueError(f'"n" must be a whole number from 1 to {_MAX_CHOICES}')
    return wanted


class RenderedAnswer(NamedTuple):
    """An answer as it is sent."""

    status: int
    headers: Mapping[str, str]
    pieces: Sequence[bytes]
    """One body, or the events of a stream."""
    is_stream: bool = False


def rendered(answers: Sequence[MockAnswer], about: ParsedRequest) -> RenderedAnswer:
    """Return answers, one for each choice, in the format of their request.

    The first one decides status and headers.
    """
    first = answers[0]
    kind, is_stream = "application/json", False
    if first.body is not None:
        pieces = [first.body.encode()]
    elif about.is_streamed and about.format.events is not None:
        pieces = list(about.format.events(answers, about))
        kind, is_stream = "text/event-stream", True
    else:
        pieces = [msgspec.json.encode(about.format.body(answers, about))]
    headers = {"Content-Type": kind, **first.headers}
    return RenderedAnswer(first.status, headers, pieces, is_stream)


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


_NORMAL_ENDS = (
    *("stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed"),
    *("tool_calls", "tool_use", "function_call"),
)
"""Finish reasons of chat servers that make a response completed."""


def _chat_body(answers: Sequence[MockAnswer], about: ParsedRequest) -> JSONObject:
    return {
        **_chat_head(about, "chat.completion"),
        **_prompt_fields(about),
        "choices": [
            _chat_choice(index, answer, tokens, about)
            for index, answer, tokens in _choices(answers, about)
        ],
        **({"usage": _chat_usage(usage_of(answers, about))} if answers[0].has_usage else {}),
    }


def _choices(
    answers: Sequence[MockAnswer], about: ParsedRequest
) -> Iterator[tuple[int, MockAnswer, Tokens | None]]:
    for index, answer in enumerate(answers):
        if answer.has_choices:
            yield index, answer, about.tokens[index] if about.tokens else None


def _chat_choice(
    index: int, answer: MockAnswer, tokens: Tokens | None, about: ParsedRequest
) -> JSONObject:
    message: JSONObject = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _chat_calls(answer, about)
    choice: JSONObject = {
        "index": index,
        "message": {**message, **_nemo_gym_fields(tokens)} if answer.has_message else {},
        "logprobs": answer.logprobs,
        "finish_reason": _finish_reason(answer),
    }
    if tokens is not None and _reports_ids(about):
        choice["token_ids"] = tokens.sampled
    return choice


def _chat_events(answers: Sequence[MockAnswer], about: ParsedRequest) -> Iterator[bytes]:
    head = _chat_head(about, "chat.completion.chunk")
    has_usage = about.wants_usage and answers[0].has_usage
    if has_usage:
        head["usage"] = None
    by_choice = [
        _chunks(index, answer, tokens, about) for index, answer, tokens in _choices(answers, about)
    ]
    # The chunks of several choices alternate, since a server generates them concurrently.
    rounds = itertools.zip_longest(*by_choice)
    chunks = [chunk for parts in rounds for chunk in parts if chunk is not None]
    yield _event({**head, **_prompt_fields(about), "choices": chunks[:1]})
    for chunk in chunks[1:]:
        yield _event({**head, "choices": [chunk]})
    # In a last chunk without choices, as OpenAI sends it.
    if has_usage:
        usage = _chat_usage(usage_of(answers, about))
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chunks(
    index: int, answer: MockAnswer, tokens: Tokens | None, about: ParsedRequest
) -> list[JSONObject]:
    """Return the pieces of a streamed choice."""
    frame: JSONObject = {"index": index, "delta": {}, "logprobs": None, "finish_reason": None}
    chunks: list[JSONObject] = [{**frame, **piece} for piece in _chat_pieces(answer, about)]
    chunks.append(
        {
            **frame,
            "delta": _nemo_gym_fields(tokens),
            # Those of a text are in its pieces.
            "logprobs": None if answer.text else answer.logprobs,
            "finish_reason": _finish_reason(answer),
        }
    )
    if tokens is not None:
        _share_out(chunks[1:] or chunks, tokens, answer.logprobs, about)
    return chunks


def _chat_pieces(answer: MockAnswer, about: ParsedRequest) -> Iterator[JSONObject]:
    if answer.has_message:
        yield {"delta": {"role": "assistant", "content": None if answer.text is None else ""}}
    for piece in _pieces(answer.reasoning or ""):
        yield {"delta": {"reasoning_content": piece}}
    for piece, entries in _pieces_with_logprobs(answer.text or "", answer.logprobs):
        yield {"delta": {"content": piece}, "logprobs": {"content": entries} if entries else None}
    for piece in _pieces(answer.refusal or ""):
        yield {"delta": {"refusal": piece}}
    for index, call in enumerate(_chat_calls(answer, about)):
        function = call["function"]
        assert isinstance(function, dict)
        # The first delta of a call has its id and name, the others have pieces of the arguments.
        head = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"delta": {"tool_calls": [head]}}
        for piece in _pieces(function["arguments"]):
            yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}}


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


def _responses_events(answers: Sequence[MockAnswer], about: ParsedRequest) -> Iterator[bytes]:
    for number, event in enumerate(_response_stream(_responses_body(answers, about))):
        yield _event({**event, "sequence_number": number})


def _response_stream(response: JSONObject) -> Iterator[JSONObject]:
    started: JSONObject = {**response, "status": "in_progress", "output": []}
    started.update(dict.fromkeys(("incomplete_details", "error", "usage")))
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for index, item in enumerate(objects_in(response["output"])):
        place: JSONObject = {"output_index": index, "item_id": text_in(item.get("id"))}
        empty = {key: value for key, value in _EMPTY_ITEM.items() if key in item}
        yield {"type": "response.output_item.added", "output_index": index, "item": item | empty}
        for event in _item_events(item):
            yield {**event, **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


_EMPTY_ITEM = {"status": "in_progress", "content": [], "summary": [], "arguments": "", "input": ""}
"""What an output item has when it begins, of the keys that it has."""


def _item_events(item: JSONObject) -> Iterator[JSONObject]:
    """Yield the events between the beginning and the end of an output item."""
    for index, part in enumerate(objects_in(item.get("summary"))):
        for event in _part_events(part, "reasoning_summary_part"):
            yield {**event, "summary_index": index}
    for index, part in enumerate(objects_in(item.get("content"))):
        for event in _part_events(part, "content_part"):
            yield {**event, "content_index": index}
    for kind, key in (("function_call", "arguments"), ("custom_tool_call", "input")):
        if item.get("type") == kind:
            text = text_in(item.get(key))
            for piece in _pieces(text):
                yield {"type": f"response.{kind}_{key}.delta", "delta": piece}
            yield {"type": f"response.{kind}_{key}.done", key: text, "name": item.get("name")}


def _part_events(part: JSONObject, frame: str) -> Iterator[JSONObject]:
    kind = text_in(part.get("type"))
    key = "refusal" if kind == "refusal" else "text"
    text, logprobs = text_in(part.get(key)), part.get("logprobs")
    is_output = kind == "output_text"
    name = "reasoning_summary_text" if kind == "summary_text" else kind
    empty: JSONObject = {key: "", **({"annotations": [], "logprobs": []} if is_output else {})}
    yield {"type": f"response.{frame}.added", "part": part | empty}
    for piece, entries in _pieces_with_logprobs(text, {"content": logprobs}):
        delta: JSONObject = {"type": f"response.{name}.delta", "delta": piece}
        yield {**delta, "logprobs": entries} if is_output else delta
    done: JSONObject = {"type": f"response.{name}.done", key: text}
    yield {**done, "logprobs": objects_in(logprobs)} if is_output else done
    yield {"type": f"response.{frame}.done", "part": part}


_SETTINGS: JSONObject = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
"""The settings that a response repeats, with OpenAI's defaults."""


def _responses_body(answers: Sequence[MockAnswer], about: ParsedRequest) -> JSONObject:
    answer = answers[0]
    usage = usage_of(answers, about)
    word = _finish_reason(answer)
    # Responses have no finish reason: whatever is not an ordinary end makes them incomplete.
    status, reason, error = "completed", None, None
    if word == "failed":
        status, error = word, {"code": "server_error", "message": "The model failed."}
    elif word is not None and word not in _NORMAL_ENDS:
        status, reason = "incomplete", "max_output_tokens" if word == "length" else word
    version = about.tokens[0].weight_version if about.tokens else ""
    asked = {key: about.body[key] for key in _SETTINGS if about.body.get(key) is not None}
    return {
        "id": f"resp_mock_{about.turn}",
        "object": "response",
        "created_at": about.created,
        "model": about.model,
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "error": error,
        **_SETTINGS,
        **asked,
        "output": _items(answer, about, is_whole=status == "completed"),
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        if answer.has_usage
        else None,
        **({"weight_version": version} if version else {}),
    }


def _items(answer: MockAnswer, about: ParsedRequest, *, is_whole: bool) -> list[JSONObject]:
    items = list(answer.response_items)
    if not items and answer.has_choices and answer.has_message:
        items = _made_items(answer, about)
        # Only the last item can have been cut.
        if not is_whole and "status" in items[-1]:
            items[-1]["status"] = "incomplete"
    if items and about.tokens:
        items[-1] = {**items[-1], **_nemo_gym_fields(about.tokens[0])}
    return items


def _made_items(answer: MockAnswer, about: ParsedRequest) -> list[JSONObject]:
    items: list[JSONObject] = []
    if answer.reasoning is not None:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        reasoning: JSONObject = {"type": "reasoning", "summary": [], "content": content}
        items.append({**reasoning, "id": f"rs_{about.turn}"})
    parts: list[JSONObject] = []
    if answer.text is not None:
        logprobs = objects_in(object_in(answer.logprobs).get("content"))
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


def _score_body(answers: Sequence[MockAnswer], about: ParsedRequest) -> JSONObject:
    return _scalar_body(answers, about, {"object": "score", "score": _number(answers[0])})


def _pooling_body(answers: Sequence[MockAnswer], about: ParsedRequest) -> JSONObject:
    rows = [[0.0], [_number(answers[0])]]  # of two tokens; the last one counts
    return _scalar_body(answers, about, {"object": "pooling", "data": rows})


def _classify_body(answers: Sequence[MockAnswer], about: ParsedRequest) -> JSONObject:
    probs = [_number(answers[0])]
    return _scalar_body(answers, about, {"label": "LABEL_0", "probs": probs, "num_classes": 1})


def _scalar_body(
    answers: Sequence[MockAnswer], about: ParsedRequest, item: JSONObject
) -> JSONObject:
    num_tokens = usage_of(answers, about).prompt_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0}
    head = {"object": "list", "created": about.created, "model": about.model}
    data = [{"index": 0, **item}] if answers[0].has_choices else []
    return {**head, "data": data, "usage": usage}


def _number(answer: MockAnswer) -> float | None:
    with contextlib.suppress(ValueError):
        return float(answer.text or "")
    return None


def usage_of(answers: Sequence[MockAnswer], about: ParsedRequest) -> Usage:
    """Return the token counts of answers: their ids, their own, or one for four characters.

    The prompt counts once.
    """
    if about.tokens:
        num_sampled = sum(len(tokens.sampled) for tokens in about.tokens)
        return Usage(prompt_tokens=len(about.tokens[0].prompt), completion_tokens=num_sampled)
    usages = [answer.usage or _counted(answer, about) for answer in answers]
    return Usage(
        prompt_tokens=usages[0].prompt_tokens,
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=usages[0].cached_tokens,
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )


def _counted(answer: MockAnswer, about: ParsedRequest) -> Usage:
    length = len(answer.text or "") + len(answer.reasoning or "") + len(answer.refusal or "")
    length += sum(len(name) + len(argument_text(a)) for name, a in answer.tool_calls)
    return Usage(prompt_tokens=about.prompt_characters // 4 + 1, completion_tokens=length // 4 + 1)


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


def _pieces_with_logprobs(text: str, logprobs: JSON) -> list[tuple[str, list[JSONObject]]]:
    """Cut a text into deltas, each with the entries of its tokens."""
    entries = objects_in(object_in(logprobs).get("content"))
    tokens = [text_in(entry.get("token")) for entry in entries]
    if "".join(tokens) != text:  # then it cannot be cut between its tokens
        return [(piece, [] if index else entries) for index, piece in enumerate(_pieces(text))]
    size = max(4, -(-len(tokens) // 1024))
    parts = [slice(start, start + size) for start in range(0, len(tokens), size)]
    return [("".join(tokens[part]), entries[part]) for part in parts]


def _event(payload: JSONObject) -> bytes:
    kind = payload.get("type")
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return name + b"data: " + msgspec.json.encode(payload) + b"\n\n"


def _reports_ids(about: ParsedRequest) -> bool:
    """Whether the fields that `return_token_ids` asks for are sent."""
    is_vllm = any(tokens.source == "vllm" for tokens in about.tokens)
    return is_vllm and about.request.params.get("return_token_ids") is True


def _prompt_fields(about: ParsedRequest) -> JSONObject:
    """Return the fields at the top of a chat answer, or of the first chunk of its stream."""
    fields: JSONObject = {}
    if about.tokens and about.tokens[0].weight_version:
        fields["weight_version"] = about.tokens[0].weight_version
    if _reports_ids(about):
        fields["prompt_token_ids"] = about.tokens[0].prompt
    return fields


def _nemo_gym_fields(tokens: Tokens | None) -> JSONObject:
    """Return the fields of a message or of the last output item, which are never asked for."""
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
    body: Callable[[Sequence[MockAnswer], ParsedRequest], JSONObject]
    """One answer, or in chat one for each choice."""
    events: Callable[[Sequence[MockAnswer], ParsedRequest], Iterator[bytes]] | None = None
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
