"""The Chat Completions wire format, and parsing that the other formats share.

A stream is assembled into the body that the endpoint would have sent without streaming, so that one
function reads both. Endpoints vary widely; a body is refused only if it cannot be an answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from gymcli.errors import InvalidAnswerError, ServerError
from gymcli.nemo_gym.payload import (
    CallParts,
    argument_text,
    chosen,
    extra_in,
    joined_text,
    list_in,
    object_in,
    objects_in,
    text_in,
    usage_in,
)
from gymcli.nemo_gym.responses_items import CONVERSATION, added_body, unsent_among
from gymcli.types import (
    JSON,
    JSON_ERRORS,
    Answer,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    ToolCall,
    Usage,
)

__all__ = [
    "Chat",
    "decode",
    "decode_events",
    "error_in",
    "finished_answer",
    "is_thought",
    "split_thought",
    "tool_calls_of",
    "usage_of",
]

_RESPONSES_ONLY = (
    "background",
    "context_management",
    "conversation",
    "include",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning_summary",
    "text",
    "truncation",
)
_NOT_COPIED = {
    *_RESPONSES_ONLY,
    *CONVERSATION,
    "extra_body",
    "instructions",
    "metadata",
    "stream",
    "stream_options",
}
"""Parameters that the format does not have, and those that `Chat.body` writes in its own way."""

_WITH_TOOLS_ONLY = {"tool_choice", "parallel_tool_calls"}
"""Endpoints refuse these without tools."""

# DeepSeek and older vLLM send `reasoning_content`, OpenRouter and newer vLLM `reasoning`.
_TEXTS = ("reasoning_content", "reasoning", "refusal")
_MESSAGE_MEMBERS = ("role", "content", "tool_calls", "function_call", *_TEXTS)
_CALL_MEMBERS = ("id", "type", "index", "function", "custom")
"""The known fields of a message and a tool call; all others go into their `extra`."""

_HEAD = ("id", "created", "model", "prompt_token_ids", "weight_version", "metadata")
"""The fields of a whole completion, which a stream sends in its first chunk or in all."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NUM_SHOWN = 200

_OPENING = "<think>"
_CLOSING = "</think>"
_END_OF_THOUGHT = re.compile(r"(?<![ \t`'\"(\[])</think>")
"""A closing tag that is not preceded by a blank, quotation mark or bracket: after one of these the
model usually writes about the tag."""

_MAX_WORD = 200
"""The most characters of a finish reason or id that are recorded."""

_FINISH_REASONS: dict[str, FinishReason] = {
    "": "stop",
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",  # Mistral: the context window is full
    "content_filter": "content_filter",
}

_FAILURES = ("abort", "error", "cancelled", "insufficient_system_resource")
"""Finish reasons of answers that an endpoint could not finish: the last is DeepSeek's."""


class Chat:
    """Chat Completions, as OpenAI documents the format and other servers vary it."""

    path = "/chat/completions"

    def body(
        self,
        request: Request,
        model: str,
        *,
        stream: bool = False,
        send_reasoning: str | None = None,
        send_fields: Collection[str] = (),
    ) -> JSONObject:
        """Return the body, ready for `msgspec.json.encode`; it shares data with the request.

        Args:
            request: The request.
            model: The model's name as the endpoint knows it.
            stream: Ask for server-sent events instead of one body.
            send_reasoning: The key under which the reasoning of earlier assistant messages is
                sent back; None: it is not sent.
            send_fields: The fields of the `extra` of earlier messages and calls to send back.
        """
        params = request.params
        left_out = _NOT_COPIED if request.tools else _NOT_COPIED | _WITH_TOOLS_ONLY
        body: JSONObject = {}
        for name, value in params.items():
            if value is not None and name not in left_out:
                body[name] = value
        if "max_completion_tokens" in body:
            # The newer name of the same limit; OpenAI refuses a body that has both.
            body.pop("max_tokens", None)
        body["model"] = model
        messages = request.messages
        if params.get("instructions"):
            messages = _with_instructions(messages, str(params["instructions"]))
        sent: list[Message | JSONObject] = []
        for message in messages:
            # Most messages can be encoded as they are; only the others are looked at closely.
            has_more = message.reasoning or message.tool_calls or message.response_items
            if message.content is not None and not (
                has_more or message.extra or message.logprobs is not None
            ):
                sent.append(message)
            elif not _is_unsayable(message, send_reasoning):
                sent.append(_wire_message(message, send_reasoning, send_fields))
        body["messages"] = sent
        if request.tools:
            body["tools"] = request.tools
        if params.get("metadata") is not None:
            _add_metadata(body, params["metadata"])
        if params.get("extra_body") is not None:
            body.update(added_body(params["extra_body"]))
        if stream:
            body["stream"] = True
            # Otherwise a stream carries no token counts.
            body["stream_options"] = {"include_usage": True}
        return body

    def unsent(self, params: JSONObject) -> list[str]:
        """Return the names in `params` that only Responses has; `body` leaves them out."""
        return unsent_among(params, _RESPONSES_ONLY)

    def answer(self, payload: bytes) -> Answer:
        """Read a `chat.completion`; only its first choice counts.

        Raises:
            InvalidAnswerError: It is not JSON, not an answer, or carries an error object.
            ServerError: The endpoint reports that it could not finish the answer.
        """
        body = decode(payload)
        choice = next(iter(objects_in(body.get("choices"))), None)
        if choice is None:
            if body.get("error"):
                raise error_in(body["error"])
            raise InvalidAnswerError('the body has no "choices"')
        # OpenRouter puts the error of an answer that had begun into the choice.
        if choice.get("error"):
            raise error_in(choice["error"])
        fields = choice.get("message")
        if not isinstance(fields, dict):
            fields = {}
        content, thinking, refusal = fields.get("content"), "", ""
        if isinstance(content, list):
            content, thinking, refusal = _read_parts(content)
        elif not isinstance(content, str | None):
            raise InvalidAnswerError("the message's content is neither text nor a list of parts")
        texts = dict.fromkeys(_TEXTS, "")
        extra: JSONObject = {}
        for name, value in fields.items():
            if name in texts:
                texts[name] = value if isinstance(value, str) else ""
            elif name not in _MESSAGE_MEMBERS and value not in (None, "", [], {}):
                extra[name] = value
        has_calls = fields.get("tool_calls") or fields.get("function_call")
        logprobs = choice.get("logprobs")
        answer = finished_answer(
            body,
            choice.get("finish_reason"),
            content=content or "",
            # Some servers send the same reasoning under both names.
            reasoning=[texts["reasoning_content"] or texts["reasoning"], thinking],
            refusal=texts["refusal"] or refusal,
            calls=_read_calls(fields) if has_calls else [],
            logprobs=_said_logprobs(logprobs) if logprobs else None,
            extra=extra,
            usage=usage_in(body.get("usage")),
        )
        # Only now: a finish reason that reports a failure explains a missing message better.
        if not fields:
            raise InvalidAnswerError('the first choice has no "message", or an empty one')
        # An empty answer is valid if the model produced it: it ended, or it took tokens.
        is_nothing = fields.get("content") is None and answer.message == _NOTHING
        is_unfinished = is_nothing and not text_in(choice.get("finish_reason"))
        if is_unfinished and not answer.usage.completion_tokens:
            raise InvalidAnswerError("the message has no content, no finish_reason and no tokens")
        return answer

    def assemble(self, events: Iterable[bytes]) -> bytes:
        """Join the `chat.completion.chunk` events of a stream to a `chat.completion`.

        A chunk with an error ends the stream, and the error is returned as the body.
        """
        completion = _StreamedCompletion()
        for chunk in decode_events(events):
            if chunk.get("error"):
                return msgspec.json.encode({"error": chunk["error"]})
            completion.add(chunk)
        # The finish reason marks a complete answer, because not every server sends [DONE].
        if completion.finish_reason is None:
            raise InvalidAnswerError("the stream ended early: no chunk has a finish reason")
        return msgspec.json.encode(completion.body())


_NOTHING = Message(role="assistant", content="")


def _with_instructions(messages: list[Message], instructions: str) -> list[Message]:
    """Put instructions before the text of the system message, or into a new one."""
    first = messages[0] if messages else None
    # Many chat templates refuse a second system message, or read only the first.
    if first is not None and first.role in ("system", "developer"):
        content = joined_text(first.content) if isinstance(first.content, list) else first.content
        if isinstance(content, str):
            text = f"{instructions}\n\n{content}" if content else instructions
            return [msgspec.structs.replace(first, content=text), *messages[1:]]
    return [Message(role="system", content=instructions), *messages]


def _is_unsayable(message: Message, send_reasoning: str | None) -> bool:
    """Return whether a message is left out: it is only reasoning, or an item of Responses.

    An empty answer is neither, and is sent: its content is "" and not None.
    """
    says_reasoning = bool(send_reasoning and message.reasoning)
    if message.role != "assistant" or message.refusal or says_reasoning:
        return False
    is_item = message.response_items and message.content is None and not message.tool_calls
    return bool(is_item) or is_thought(message)


def _wire_message(
    message: Message, send_reasoning: str | None, send_fields: Collection[str]
) -> Message | JSONObject:
    """Return a message with only the fields of this format; the same object if nothing changes."""
    is_blank = message.content is None and not message.tool_calls
    calls_more = bool(message.tool_calls) and any(call.extra for call in message.tool_calls)
    has_more = message.reasoning or message.response_items or message.extra or calls_more
    if not (is_blank or has_more or message.logprobs is not None):
        return message
    sent = msgspec.structs.replace(
        message,
        # Many endpoints refuse null, except in a message with tool calls.
        content="" if is_blank else message.content,
        reasoning=None,
        response_items=[],
        logprobs=None,
        extra={},
    )
    added = chosen(message.extra, send_fields)
    if send_reasoning and message.reasoning and message.role == "assistant":
        added[send_reasoning] = message.reasoning
    if not (added or calls_more):
        return sent
    fields = {name: value for name, value in msgspec.structs.asdict(sent).items() if value}
    if calls_more:
        fields["tool_calls"] = [
            {"id": call.id, "function": call.function, "type": call.type}
            | chosen(call.extra, send_fields)
            for call in message.tool_calls
        ]
    # `fields` lacks an empty or null content, but the format wants the key.
    return {"content": sent.content, **fields, **added}


def _add_metadata(body: JSONObject, metadata: JSON) -> None:
    """Add metadata and the parts of the body that NeMo Gym's rows carry in it, as JSON text.

    These parts never override the request's own parameters or the fields that gymcli sets itself.
    """
    rest = dict(metadata) if isinstance(metadata, dict) else metadata
    if isinstance(rest, dict):
        for name in ("extra_body", "chat_template_kwargs"):
            value = _object_in_text(rest.get(name))
            if value is None:
                continue
            del rest[name]
            added = value if name == "extra_body" else {name: value}
            for key, item in added_body(added).items():
                body.setdefault(key, item)
    if rest:
        body["metadata"] = rest


def _object_in_text(text: JSON) -> JSONObject | None:
    try:
        value: JSON = msgspec.json.decode(text) if isinstance(text, str) else None
    except JSON_ERRORS:
        return None
    return value if isinstance(value, dict) else None


def _said_logprobs(logprobs: JSON) -> JSON:
    said = {name: value for name, value in object_in(logprobs).items() if value is not None}
    return said or None


def _read_parts(content: list[JSON]) -> tuple[str | list[JSONObject], str, str]:
    """Sort the parts of a message's content into content, reasoning and refusal."""
    parts: list[JSONObject] = []
    thinking, refusals = [], []
    for part in content:
        fields = part if isinstance(part, dict) else {"type": "text", "text": text_in(part)}
        match fields.get("type"):
            case "text" | "output_text":
                parts.append({"type": "text", "text": text_in(fields.get("text"))})
            case "refusal":
                refusals.append(text_in(fields.get("refusal")))
            case "thinking":  # Mistral's reasoning models: text, or text parts
                thought = fields.get("thinking")
                pieces = [text_in(piece.get("text")) for piece in objects_in(thought)]
                thinking.append(text_in(thought) or "".join(pieces))
            case _:
                parts.append(fields)
    return joined_text(parts), "".join(thinking), "".join(refusals)


def _read_calls(fields: JSONObject) -> list[CallParts]:
    calls = []
    for call in list_in(fields.get("tool_calls")):
        if not isinstance(call, dict):
            raise InvalidAnswerError("the message has a tool call that is not an object")
        # A call of one of OpenAI's custom tools has `custom` with a free-text `input`.
        function = object_in(call.get("function") or call.get("custom"))
        arguments = function.get("arguments", function.get("input"))
        extra = extra_in(call, _CALL_MEMBERS)
        calls.append(CallParts(call.get("id"), function.get("name"), arguments, extra))
    # OpenAI's deprecated predecessor of `tool_calls`.
    legacy = object_in(fields.get("function_call"))
    if legacy and not calls:
        calls.append(CallParts(None, legacy.get("name"), legacy.get("arguments")))
    return calls


@dataclass
class _StreamedCall:
    position: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: JSONObject = field(default_factory=dict)


class _StreamedCompletion:
    """Builds a completion from its chunks; only the first choice counts."""

    def __init__(self) -> None:
        self.finish_reason: JSON = None
        self._head: JSONObject = {}
        self._usage: JSON = None
        self._content: list[JSON] | None = None
        self._texts: dict[str, list[str]] = {}
        self._extra: JSONObject = {}
        self._logprobs: dict[str, list[JSON]] = {}
        self._token_ids: list[JSON] = []
        self._calls: list[_StreamedCall] = []
        self._call_at: dict[JSON, _StreamedCall] = {}

    def add(self, chunk: JSONObject) -> None:
        """Add one chunk."""
        for key in _HEAD:
            if chunk.get(key) is not None:
                self._head.setdefault(key, chunk[key])
        # Some servers send a running count with every chunk; the last one is the total.
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        for choice in objects_in(chunk.get("choices")):
            if choice.get("index") not in (0, None):
                continue
            if choice.get("finish_reason") is not None:
                self.finish_reason = choice["finish_reason"]
            for key, entries in object_in(choice.get("logprobs")).items():
                if isinstance(entries, list):
                    self._logprobs.setdefault(key, []).extend(entries)
            if choice.get("token_ids"):
                self._token_ids.extend(list_in(choice["token_ids"]))
            self._add_delta(object_in(choice.get("delta")))

    def _add_delta(self, delta: JSONObject) -> None:
        content = delta.get("content")
        if content is not None:
            self._content = self._content or []
            self._content.extend(content if isinstance(content, list) else [content])
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                self._texts.setdefault(key, []).append(text_in(delta[key]))
        _join(self._extra, extra_in(delta, _MESSAGE_MEMBERS))
        for piece in objects_in(delta.get("tool_calls")):
            function = object_in(piece.get("function") or piece.get("custom"))
            call = self._add_to_call(piece.get("index"), text_in(piece.get("id")), function)
            _join(call.extra, extra_in(piece, _CALL_MEMBERS))
        if delta.get("function_call"):
            self._add_to_call("function_call", "", object_in(delta["function_call"]))

    def _add_to_call(self, index: JSON, identifier: str, function: JSONObject) -> _StreamedCall:
        """Add a piece to its tool call, and return this call."""
        name = text_in(function.get("name"))
        call = self._call_at.get(index)
        # Some endpoints send every call with the same index, or without one. There a piece with a
        # name and another id (or without an index) begins the next call.
        is_another = index is None or (identifier and call and call.id not in ("", identifier))
        if call is None or (name and is_another):
            position = index if isinstance(index, int) else 0
            call = self._call_at[index] = _StreamedCall(position)
            self._calls.append(call)
        call.id = call.id or identifier
        call.name = call.name or name
        call.arguments.append(argument_text(function.get("arguments", function.get("input"))))
        return call

    def body(self) -> JSONObject:
        """Return the completion of the chunks so far."""
        content: JSON = self._content
        if self._content is not None and all(isinstance(piece, str) for piece in self._content):
            content = "".join(text_in(piece) for piece in self._content)
        message: JSONObject = {**self._extra, "role": "assistant", "content": content}
        for key, pieces in self._texts.items():
            message[key] = "".join(pieces)
        if self._calls:
            message["tool_calls"] = [
                {
                    **call.extra,
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.arguments)},
                }
                for call in sorted(self._calls, key=lambda call: call.position)
            ]
        choice: JSONObject = {
            "index": 0,
            "message": message,
            "finish_reason": self.finish_reason,
            "logprobs": self._logprobs or None,
            "token_ids": self._token_ids,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage,
        }


def _join(whole: JSONObject, piece: JSONObject) -> None:
    """Add the fields of a chunk: texts and lists arrive in pieces, everything else whole."""
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(before, str) and isinstance(value, str):
            whole[name] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            before.extend(value)
        else:
            whole[name] = value


def decode(payload: bytes) -> JSONObject:
    """Decode a JSON object; lone surrogates become U+FFFD, NaN and infinities null.

    Raises:
        InvalidAnswerError: The payload is not JSON, not an object, or nested too deeply.
    """
    try:
        try:
            value: JSON = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeError):
            value = _decode_unclean(payload)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise InvalidAnswerError(f"the body is {reason}: {_beginning(payload)}") from error
    if not isinstance(value, dict):
        raise InvalidAnswerError(f"the body is not a JSON object: {_beginning(payload)}")
    return value


def decode_events(events: Iterable[bytes]) -> Iterator[JSONObject]:
    """Decode the data of server-sent events up to `[DONE]`, without empty ones."""
    for event in events:
        data = event.strip()
        if data == b"[DONE]":
            return
        if data:
            yield decode(data)


def _decode_unclean(payload: bytes) -> JSON:
    # utf-8-sig drops a BOM. Unlike msgspec, the standard library takes NaN and lone surrogates.
    value = json.loads(
        payload.decode("utf-8-sig", errors="replace"),
        parse_constant=lambda _: None,
        parse_float=_finite,
    )
    # One substitution in the text reaches every string and every key.
    text = json.dumps(value, ensure_ascii=False)
    return msgspec.json.decode(_LONE_SURROGATE.sub("\ufffd", text))


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _beginning(payload: bytes) -> str:
    text = " ".join(payload[: 4 * _NUM_SHOWN].decode("utf-8", errors="replace").split())
    return text[:_NUM_SHOWN] if text else "it is empty"


def error_in(error: JSON) -> InvalidAnswerError:
    """Return the error in a body with status 200, with the provider's message.

    Its status is the one in the body. `api_errors.error_of_body` classifies it.
    """
    fields: JSONObject = error if isinstance(error, dict) else {"message": error}
    codes = [str(fields[key]) for key in ("code", "type", "status") if fields.get(key) is not None]
    # Only a code of three digits is an HTTP status; some providers number their errors themselves.
    numbers = [int(code) for code in codes if code.isdecimal() and len(code) == len("500")]
    words = text_in(fields.get("message")) or msgspec.json.encode(error).decode()
    # OpenRouter puts the message of the provider behind it here.
    raw = text_in(object_in(fields.get("metadata")).get("raw"))
    details = "".join(f" ({part})" for part in (raw[:_NUM_SHOWN], *codes[:1]) if part)
    message = f"the endpoint answered with an error: {words}{details}"
    return InvalidAnswerError(message, status=numbers[0] if numbers else None)


def split_thought(text: str, *, is_separate: bool = False) -> tuple[str, str]:
    """Return the leading `<think>…</think>` of a text without its tags, and the rest of the text.

    An opened thought without a closing tag takes the whole text: the model was cut off.
    `is_separate`: the endpoint sent reasoning separately from the text.
    """
    closing = _END_OF_THOUGHT.search(text)
    if text.lstrip().startswith(_OPENING):
        opened = text.lstrip().removeprefix(_OPENING)
        # If every closing tag looks like a mention, the first one closes the thought after all.
        parts = _END_OF_THOUGHT.split(opened, 1) if closing else opened.split(_CLOSING, 1)
        return parts[0].strip(), "".join(parts[1:]).lstrip()
    # A chat template may write the opening tag into the prompt, so that only the closing one is
    # in the text. After separate reasoning, such a tag is part of the answer.
    if closing is None or is_separate or _OPENING in (before := text[: closing.start()]):
        return "", text
    return before.strip(), text[closing.end() :].lstrip()


def tool_calls_of(calls: Sequence[CallParts]) -> list[ToolCall]:
    """Return tool calls; those without an id get a unique `call_<n>`."""
    taken = {call.id for call in calls if isinstance(call.id, str)}
    made = []
    for position, call in enumerate(calls):
        identifier = text_in(call.id)
        if not identifier:
            number = position
            while (identifier := f"call_{number}") in taken:
                number += 1
            taken.add(identifier)
        function = FunctionCall(text_in(call.name), argument_text(call.arguments))
        made.append(ToolCall(identifier, function, extra=call.extra or msgspec.UNSET))
    return made


def is_thought(message: Message) -> bool:
    """Return whether a message is only reasoning: many endpoints refuse one without content."""
    is_all = all(item.get("type") == "reasoning" for item in message.response_items)
    return message.is_reasoning_only and not message.refusal and is_all


def finished_answer(
    body: JSONObject,
    word: JSON,
    *,
    content: str | list[JSONObject],
    usage: Usage,
    reasoning: Sequence[str] = (),
    refusal: str = "",
    calls: Sequence[CallParts] = (),
    logprobs: JSON = None,
    extra: JSONObject | None = None,
    response_items: list[JSONObject] | None = None,
) -> Answer:
    """Build an answer; without text, its content is None if it has tool calls, else "".

    Args:
        body: The whole body, for the names of the model and the answer.
        word: The endpoint's finish reason.
        content: Text or chat content parts.
        usage: The token counts.
        reasoning: Pieces of reasoning that the endpoint sent separately from the text.
        refusal: The text of a refusal.
        calls: Tool calls.
        logprobs: Log probabilities in chat shape.
        extra: Other fields of the message.
        response_items: The items that Chat Completions cannot express.

    Raises:
        ServerError: The endpoint could not finish the answer.
    """
    said = word if isinstance(word, str) else ""
    if said in _FAILURES:
        raise ServerError(f'the endpoint ended the message with finish_reason "{said}"')
    if isinstance(content, str) and "think>" in content:
        thought, content = split_thought(content, is_separate=any(reasoning))
        reasoning = [*reasoning, thought]
    tool_calls = tool_calls_of(calls) if calls else []
    reason = _FINISH_REASONS.get(said, "stop")
    # OpenAI and vLLM report "stop" for a call whose tool the request had named.
    if tool_calls and reason == "stop":
        reason = "tool_calls"
    model, response_id = body.get("model"), body.get("id")
    return Answer(
        message=Message(
            role="assistant",
            content=None if tool_calls and not content else content,
            reasoning="\n".join(filter(None, reasoning)) or None,
            refusal=refusal or None,
            tool_calls=tool_calls,
            response_items=response_items or [],
            logprobs=logprobs,
            extra=extra or {},
        ),
        finish_reason=reason,
        unknown_finish=None if said in _FINISH_REASONS else said[:_MAX_WORD],
        usage=usage,
        model=model if isinstance(model, str) and model else None,
        response_id=response_id[:_MAX_WORD] if isinstance(response_id, str) else "",
    )


def usage_of(payload: bytes) -> Usage:
    """Return the token counts of a body in any wire format, even if it is not a valid answer."""
    try:
        usage = object_in(decode(payload).get("usage"))
    except InvalidAnswerError:
        return Usage()
    return usage_in(usage, *(("input", "output") if "input_tokens" in usage else ()))
