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
    model_request: Request
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
    messages, message_keys = wire_format.read(body)
    left_out = {"model", "tools", *message_keys}
    model_request = Request(
        messages=messages,
        tools=msgspec.convert(body.get("tools") or [], list[JSONObject]),
        params={key: value for key, value in body.items() if key not in left_out},
    )
    options = body.get("stream_options")
    return ParsedRequest(
        format=wire_format,
        body=body,
        model_request=model_request,
        model=str(body.get("model") or ANY_MODEL),
        text=last_user_text(model_request),
        turn=num_turns(model_request),
        prompt_characters=sum(len(message.text) for message in messages),
        created=int(time.time()),
        is_streamed=body.get("stream") is True and wire_format.events is not None,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        num_choices=_num_choices(body) if wire_format.dialect == "chat" else 1,
    )


def _num_choices(body: JSONObject) -> int:
    n = body.get("n")
    if n is None:
        return 1
    if not isinstance(n, int) or n is True or not 1 <= n <= _MAX_CHOICES:
        raise ValueError(f'"n" must be a whole number from 1 to {_MAX_CHOICES}')
    return n


class RenderedAnswer(NamedTuple):
    """An answer as it is sent."""

    status: int
    headers: Mapping[str, str]
    pieces: Sequence[bytes]
    """One body, or the events of a stream."""
    is_stream: bool = False


def render_answers(answers: Sequence[MockAnswer], request: ParsedRequest) -> RenderedAnswer:
    """Return answers, one for each choice, in the format of their request.

    The first one decides status and headers.
    """
    first = answers[0]
    kind, is_stream = "application/json", False
    if first.body is not None:
        pieces = [first.body.encode()]
    elif request.is_streamed and request.format.events is not None:
        pieces = list(request.format.events(answers, request))
        kind, is_stream = "text/event-stream", True
    else:
        pieces = [msgspec.json.encode(request.format.body(answers, request))]
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


def _chat_body(answers: Sequence[MockAnswer], request: ParsedRequest) -> JSONObject:
    return {
        **_chat_head(request, "chat.completion"),
        **_prompt_fields(request),
        "choices": [
            _chat_choice(index, answer, tokens, request)
            for index, answer, tokens in _choices(answers, request)
        ],
        **({"usage": _chat_usage(usage_of(answers, request))} if answers[0].has_usage else {}),
    }


def _choices(
    answers: Sequence[MockAnswer], request: ParsedRequest
) -> Iterator[tuple[int, MockAnswer, Tokens | None]]:
    for index, answer in enumerate(answers):
        if answer.has_choices:
            yield index, answer, request.tokens[index] if request.tokens else None


def _chat_choice(
    index: int, answer: MockAnswer, tokens: Tokens | None, request: ParsedRequest
) -> JSONObject:
    message: JSONObject = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _chat_calls(answer, request)
    choice: JSONObject = {
        "index": index,
        "message": {**message, **_nemo_gym_fields(tokens)} if answer.has_message else {},
        "logprobs": answer.logprobs,
        "finish_reason": _finish_reason(answer),
    }
    if tokens is not None and _reports_ids(request):
        choice["token_ids"] = tokens.sampled
    return choice


def _chat_events(answers: Sequence[MockAnswer], request: ParsedRequest) -> Iterator[bytes]:
    head = _chat_head(request, "chat.completion.chunk")
    has_usage = request.wants_usage and answers[0].has_usage
    if has_usage:
        head["usage"] = None
    by_choice = [
        _chunks(index, answer, tokens, request)
        for index, answer, tokens in _choices(answers, request)
    ]
    # The chunks of several choices alternate, since a server generates them concurrently.
    rounds = itertools.zip_longest(*by_choice)
    chunks = [chunk for parts in rounds for chunk in parts if chunk is not None]
    yield _event({**head, **_prompt_fields(request), "choices": chunks[:1]})
    for chunk in chunks[1:]:
        yield _event({**head, "choices": [chunk]})
    # In a last chunk without choices, as OpenAI sends it.
    if has_usage:
        usage = _chat_usage(usage_of(answers, request))
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chunks(
    index: int, answer: MockAnswer, tokens: Tokens | None, request: ParsedRequest
) -> list[JSONObject]:
    frame: JSONObject = {"index": index, "delta": {}, "logprobs": None, "finish_reason": None}
    chunks: list[JSONObject] = [{**frame, **piece} for piece in _chat_pieces(answer, request)]
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
        _share_out(chunks[1:] or chunks, tokens, answer.logprobs, request)
    return chunks


def _chat_pieces(answer: MockAnswer, request: ParsedRequest) -> Iterator[JSONObject]:
    if answer.has_message:
        yield {"delta": {"role": "assistant", "content": None if answer.text is None else ""}}
    for piece in _pieces(answer.reasoning or ""):
        yield {"delta": {"reasoning_content": piece}}
    for piece, entries in _pieces_with_logprobs(answer.text or "", answer.logprobs):
        yield {"delta": {"content": piece}, "logprobs": {"content": entries} if entries else None}
    for piece in _pieces(answer.refusal or ""):
        yield {"delta": {"refusal": piece}}
    for index, call in enumerate(_chat_calls(answer, request)):
        function = call["function"]
        assert isinstance(function, dict)
        # The first delta of a call has its id and name, the others have pieces of the arguments.
        head = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"delta": {"tool_calls": [head]}}
        for piece in _pieces(function["arguments"]):
            yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}}


def _share_out(
    choices: Sequence[JSONObject], tokens: Tokens, logprobs: JSON, request: ParsedRequest
) -> None:
    """Put the ids of each piece of a stream, and their log-probabilities, into its choice."""
    entries = objects_in(object_in(logprobs).get("content"))
    for index, choice in enumerate(choices):
        part = slice(
            index * len(tokens.sampled) // len(choices),
            (index + 1) * len(tokens.sampled) // len(choices),
        )
        if _reports_ids(request):
            choice["token_ids"] = tokens.sampled[part]
        if len(entries) == len(tokens.sampled):
            choice_entries = entries[part]
            if tokens.source == "llamacpp":  # whose streams leave out the end of the message
                choice_entries = [entry for entry in choice_entries if entry["token"]]
            choice["logprobs"] = {"content": choice_entries}


def _chat_head(request: ParsedRequest, kind: str) -> JSONObject:
    return {
        "id": f"chatcmpl-mock-{request.turn}",
        "object": kind,
        "created": request.created,
        "model": request.model,
    }


def _chat_calls(answer: MockAnswer, request: ParsedRequest) -> list[JSONObject]:
    return [
        {
            "id": _call_id(answer, request, index),
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


def _responses_events(answers: Sequence[MockAnswer], request: ParsedRequest) -> Iterator[bytes]:
    for number, event in enumerate(_response_stream(_responses_body(answers, request))):
        yield _event({**event, "sequence_number": number})


def _response_stream(response: JSONObject) -> Iterator[JSONObject]:
    opening: JSONObject = {**response, "status": "in_progress", "output": []}
    opening.update(dict.fromkeys(("incomplete_details", "error", "usage")))
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
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


def _responses_body(answers: Sequence[MockAnswer], request: ParsedRequest) -> JSONObject:
    answer = answers[0]
    usage = usage_of(answers, request)
    word = _finish_reason(answer)
    # Responses have no finish reason: whatever is not an ordinary end makes them incomplete.
    status, reason, error = "completed", None, None
    if word == "failed":
        status, error = word, {"code": "server_error", "message": "The model failed."}
    elif word is not None and word not in _NORMAL_ENDS:
        status, reason = "incomplete", "max_output_tokens" if word == "length" else word
    version = request.tokens[0].weight_version if request.tokens else ""
    settings = {key: request.body[key] for key in _SETTINGS if request.body.get(key) is not None}
    return {
        "id": f"resp_mock_{request.turn}",
        "object": "response",
        "created_at": request.created,
        "model": request.model,
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "error": error,
        **_SETTINGS,
        **settings,
        "output": _items(answer, request, is_whole=status == "completed"),
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


def _items(answer: MockAnswer, request: ParsedRequest, *, is_whole: bool) -> list[JSONObject]:
    items = list(answer.response_items)
    if not items and answer.has_choices and answer.has_message:
        items = _new_items(answer, request)
        # Only the last item can have been cut.
        if not is_whole and "status" in items[-1]:
            items[-1]["status"] = "incomplete"
    if items and request.tokens:
        items[-1] = {**items[-1], **_nemo_gym_fields(request.tokens[0])}
    return items


def _new_items(answer: MockAnswer, request: ParsedRequest) -> list[JSONObject]:
    items: list[JSONObject] = []
    if answer.reasoning is not None:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        reasoning: JSONObject = {"type": "reasoning", "summary": [], "content": content}
        items.append({**reasoning, "id": f"rs_{request.turn}"})
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
        items.append({**message, "id": f"msg_{request.turn}", "content": parts})
    for index, (name, arguments) in enumerate(answer.tool_calls):
        call: JSONObject = {"type": "function_call", "status": "completed", "name": name}
        call_id = _call_id(answer, request, index)
        identity = {"id": f"fc_{request.turn}_{index}", "call_id": call_id}
        items.append({**call, **identity, "arguments": argument_text(arguments)})
    return items


def _score_body(answers: Sequence[MockAnswer], request: ParsedRequest) -> JSONObject:
    return _scalar_body(answers, request, {"object": "score", "score": _number(answers[0])})


def _pooling_body(answers: Sequence[MockAnswer], request: ParsedRequest) -> JSONObject:
    rows = [[0.0], [_number(answers[0])]]  # of two tokens; the last one counts
    return _scalar_body(answers, request, {"object": "pooling", "data": rows})


def _classify_body(answers: Sequence[MockAnswer], request: ParsedRequest) -> JSONObject:
    probs = [_number(answers[0])]
    return _scalar_body(answers, request, {"label": "LABEL_0", "probs": probs, "num_classes": 1})


def _scalar_body(
    answers: Sequence[MockAnswer], request: ParsedRequest, item: JSONObject
) -> JSONObject:
    num_tokens = usage_of(answers, request).prompt_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0}
    head = {"object": "list", "created": request.created, "model": request.model}
    data = [{"index": 0, **item}] if answers[0].has_choices else []
    return {**head, "data": data, "usage": usage}


def _number(answer: MockAnswer) -> float | None:
    with contextlib.suppress(ValueError):
        return float(answer.text or "")
    return None


def usage_of(answers: Sequence[MockAnswer], request: ParsedRequest) -> Usage:
    """Return the token counts of answers: their ids, their own, or one for four characters.

    The prompt counts once.
    """
    if request.tokens:
        num_sampled = sum(len(tokens.sampled) for tokens in request.tokens)
        return Usage(prompt_tokens=len(request.tokens[0].prompt), completion_tokens=num_sampled)
    usages = [answer.usage or _counted(answer, request) for answer in answers]
    return Usage(
        prompt_tokens=usages[0].prompt_tokens,
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=usages[0].cached_tokens,
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )


def _counted(answer: MockAnswer, request: ParsedRequest) -> Usage:
    length = len(answer.text or "") + len(answer.reasoning or "") + len(answer.refusal or "")
    length += sum(len(name) + len(argument_text(a)) for name, a in answer.tool_calls)
    return Usage(
        prompt_tokens=request.prompt_characters // 4 + 1, completion_tokens=length // 4 + 1
    )


def _finish_reason(answer: MockAnswer) -> str | None:
    if answer.finish_reason is None:
        return "tool_calls" if answer.tool_calls else "stop"
    return answer.finish_reason or None


def _call_id(answer: MockAnswer, request: ParsedRequest, index: int) -> str:
    if index < len(answer.call_ids):
        return answer.call_ids[index]
    return f"call_{request.turn}_{index}"


def _pieces(text: str) -> list[str]:
    size = max(16, -(-len(text) // 1024))  # a long text has longer deltas, not more than 1024
    return [text[start : start + size] for start in range(0, len(text), size)]


def _pieces_with_logprobs(text: str, logprobs: JSON) -> list[tuple[str, list[JSONObject]]]:
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


def _reports_ids(request: ParsedRequest) -> bool:
    is_vllm = any(tokens.source == "vllm" for tokens in request.tokens)
    return is_vllm and request.model_request.params.get("return_token_ids") is True


def _prompt_fields(request: ParsedRequest) -> JSONObject:
    """Return the fields at the top of a chat answer, or of the first chunk of its stream."""
    fields: JSONObject = {}
    if request.tokens and request.tokens[0].weight_version:
        fields["weight_version"] = request.tokens[0].weight_version
    if _reports_ids(request):
        fields["prompt_token_ids"] = request.tokens[0].prompt
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
