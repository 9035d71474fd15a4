"""The Chat Completions wire format, and parsing that the other formats share.

A stream is assembled into the body that the endpoint would have sent without streaming, so that one
function reads both. Endpoints vary widely; a body is refused only if it cannot be an answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby

import msgspec

from gymcli.errors import InvalidAnswerError
from gymcli.models.finish_reasons import MAX_CALLS, finished_answer
from gymcli.nemo_gym.payload import (
    CallParts,
    argument_text,
    extra_in,
    join_text,
    list_in,
    object_in,
    objects_in,
    select_members,
    text_in,
    usage_in,
)
from gymcli.nemo_gym.responses_items import CONVERSATION, extra_body_fields, unsent_among
from gymcli.types import (
    JSON,
    JSON_ERRORS,
    Answer,
    JSONObject,
    Message,
    Request,
    Usage,
    canonical_json,
)

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

_MAX_CHECKS = 100
"""How often it is checked whether the streamed arguments of a call are complete."""
_MAX_PARTS = 10_000
"""The most choices, and the most unknown members of a message or call, that a stream may have."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NUM_SHOWN = 200
_NUM_WORDS = 2000
"""Characters of an error's message that are kept; it is cut further where it is shown."""


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

        `send_reasoning` is the key under which earlier reasoning is sent back, if at all;
        `send_fields` names the fields of the `extra` of earlier messages and calls to send back.
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
            body.update(extra_body_fields(params["extra_body"]))
        if stream:
            body["stream"] = True
            # Otherwise a stream carries no token counts.
            body["stream_options"] = {"include_usage": True}
        return body

    def unsent(self, params: JSONObject) -> list[str]:
        """Return the names in `params` that only Responses has; `body` leaves them out."""
        return unsent_among(params, _RESPONSES_ONLY)

    def answer(self, body: JSONObject) -> Answer:
        """Read a `chat.completion`.

        Raises:
            InvalidAnswerError: It is not an answer, or carries an error object.
            ServerError: The endpoint reports that it could not finish the answer.
        """
        choices = objects_in(body.get("choices"))
        if not choices:
            if body.get("error"):
                raise error_in(body["error"])
            raise InvalidAnswerError('the body has no "choices"')
        choice = choices[0] if len(choices) == 1 else _joined_choice(choices)
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
            logprobs=_without_nulls(object_in(logprobs)) if logprobs else None,
            extra=extra,
            usage=usage_in(body.get("usage")),
        )
        # Only now: the finish reason of a cut or filtered answer explains a missing message.
        if not fields and answer.finish_reason in ("stop", "no_answer"):
            raise InvalidAnswerError('the first choice has no "message", or an empty one')
        return answer

    def assemble(self, events: Iterable[bytes], request: bytes = b"") -> JSONObject:
        """Join the `chat.completion.chunk` events of a stream to a `chat.completion`.

        A chunk with an error ends the stream, and the error is returned as the body.
        """
        completion = _StreamedCompletion()
        for chunk in decode_events(events):
            if chunk.get("error"):
                return {"error": chunk["error"]}
            completion.add(chunk)
        # The finish reason marks a complete answer, because not every server sends [DONE].
        if not completion.is_finished:
            raise InvalidAnswerError("the stream ended early: no chunk has a finish reason")
        return completion.body(request)


def _joined_choice(choices: list[JSONObject]) -> JSONObject:
    """Return several choices as one if at most one of them has text, else the first.

    GitHub Copilot sends the text and the calls of one message as two choices. No request asks for
    several answers (`n`).
    """
    with_error = [choice for choice in choices if choice.get("error")]
    if with_error:
        return with_error[0]
    messages = [object_in(choice.get("message")) for choice in choices]
    with_text = [
        position
        for position, message in enumerate(messages)
        if any(message.get(name) for name in ("content", *_TEXTS))
    ]
    if len(with_text) > 1:
        return choices[0]
    position = with_text[0] if with_text else 0
    calls = [call for message in messages for call in list_in(message.get("tool_calls"))]
    # A cut or a filter counts, whichever choice it ended.
    reasons = [choice.get("finish_reason") for choice in choices]
    early_ends = [word for word in reasons if word not in (None, "stop", "tool_calls")]
    return {
        **choices[position],
        "message": {**messages[position], "tool_calls": calls},
        "finish_reason": early_ends[0] if early_ends else reasons[position],
    }


def _with_instructions(messages: list[Message], instructions: str) -> list[Message]:
    first = messages[0] if messages else None
    # Many chat templates refuse a second system message, or read only the first.
    if first is not None and first.role in ("system", "developer"):
        content = join_text(first.content) if isinstance(first.content, list) else first.content
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
    added = select_members(message.extra, send_fields)
    if send_reasoning and message.reasoning and message.role == "assistant":
        added[send_reasoning] = message.reasoning
    if not (added or calls_more):
        return sent
    fields = {name: value for name, value in msgspec.structs.asdict(sent).items() if value}
    if calls_more:
        fields["tool_calls"] = [
            {"id": call.id, "function": call.function, "type": call.type}
            | select_members(call.extra, send_fields)
            for call in message.tool_calls
        ]
    # `fields` lacks an empty or null content, but the format wants the key.
    return {"content": sent.content, **fields, **added}


def _add_metadata(body: JSONObject, metadata: JSON) -> None:
    """Add metadata and the parts of the body that NeMo Gym's rows carry in it, as JSON text.

    These parts never override the request's own parameters or the fields that gymcli sets itself.
    """
    if isinstance(metadata, dict):
        metadata = dict(metadata)
        for name in ("extra_body", "chat_template_kwargs"):
            value = _object_in_text(metadata.get(name))
            if value is None:
                continue
            del metadata[name]
            added = value if name == "extra_body" else {name: value}
            for key, item in extra_body_fields(added).items():
                body.setdefault(key, item)
    if metadata:
        body["metadata"] = metadata


def _object_in_text(text: JSON) -> JSONObject | None:
    try:
        value: JSON = msgspec.json.decode(text) if isinstance(text, str) else None
    except JSON_ERRORS:
        return None
    return value if isinstance(value, dict) else None


def _without_nulls(fields: JSONObject) -> JSON:
    return {name: value for name, value in fields.items() if value is not None} or None


def _read_parts(content: list[JSON]) -> tuple[str | list[JSONObject], str, str]:
    parts: list[JSONObject] = []
    thinking, refusals = [], []
    for is_object, group in groupby(content, lambda part: isinstance(part, dict)):
        if not is_object:
            # One part for all texts in a row: a stream has one for each token.
            parts.append({"type": "text", "text": "".join(map(text_in, group))})
            continue
        for fields in map(object_in, group):
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
    return join_text(parts), "".join(thinking), "".join(refusals)


def _read_calls(fields: JSONObject) -> list[CallParts]:
    calls = []
    for call in list_in(fields.get("tool_calls"))[: MAX_CALLS + 1]:  # more are refused later
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
    names: list[str] = field(default_factory=list)
    """The pieces of its name."""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, list[JSON]] = field(default_factory=dict)
    last_character: str = ""
    """That of its arguments, blanks aside."""
    num_checks: int = 0
    """How often its arguments looked complete."""
    before: _StreamedCall | None = None
    """The call whose complete arguments another object followed under the same index."""

    @property
    def argument_text(self) -> str:
        return "".join(self.arguments)

    @property
    def is_repetition(self) -> bool:
        if self.before is None:
            return False
        first, second = (_object_in_text(call.argument_text) for call in (self.before, self))
        return canonical_json(first) == canonical_json(second)

    def is_followed_by(self, text: str) -> bool:
        """Return whether its arguments are complete, and a text begins another object."""
        if self.last_character != "}" or not text.lstrip().startswith("{"):
            return False
        # Each check reads all pieces so far, and a hostile stream may have a million of them.
        self.num_checks += 1
        return self.num_checks <= _MAX_CHECKS and _object_in_text(self.argument_text) is not None

    def name(self, tool_names: Collection[str]) -> str:
        """Return its name: the pieces joined, unless the first alone is a tool of the request.

        Some endpoints split a name, others send the whole name, or all of it so far, each time.
        """
        name = ""
        for piece in self.names:
            name = piece if piece.startswith(name) else name + piece
        if name not in tool_names and self.names and self.names[0] in tool_names:
            return self.names[0]
        return name


class _StreamedCompletion:
    """Builds a completion from its chunks."""

    def __init__(self) -> None:
        self._head: JSONObject = {}
        self._usage: JSON = None
        self._choices: dict[int, _StreamedChoice] = {}

    @property
    def is_finished(self) -> bool:
        choices = self._choices.values()
        is_cut = any(choice.calls and choice.finish_reason is None for choice in choices)
        return not is_cut and any(choice.finish_reason is not None for choice in choices)

    def add(self, chunk: JSONObject) -> None:
        for key in _HEAD:
            if chunk.get(key) is not None:
                self._head.setdefault(key, chunk[key])
        # Some servers send a running count with every chunk; the last one is the total.
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        for piece in objects_in(chunk.get("choices")):
            index = piece.get("index")
            index = index if isinstance(index, int) else 0
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _StreamedChoice()
                if len(self._choices) > _MAX_PARTS:
                    raise InvalidAnswerError(f"the stream has more than {_MAX_PARTS:,} choices")
            choice.add(piece)

    def body(self, request: bytes) -> JSONObject:
        tools = objects_in(decode(request).get("tools")) if request else []
        tool_names = {text_in(object_in(tool.get("function")).get("name")) for tool in tools}
        choices = [self._choices[index].body(index, tool_names) for index in sorted(self._choices)]
        return {
            **self._head,
            "object": "chat.completion",
            "choices": choices,
            "usage": self._usage,
        }


class _StreamedChoice:
    def __init__(self) -> None:
        self.finish_reason: JSON = None
        self._content: list[JSON] | None = None
        self._texts: dict[str, list[str]] = {}
        self._extra: dict[str, list[JSON]] = {}
        self._logprobs: dict[str, list[JSON]] = {}
        self._token_ids: list[JSON] = []
        self.calls: list[_StreamedCall] = []
        self._call_at: dict[JSON, _StreamedCall] = {}

    def add(self, piece: JSONObject) -> None:
        if piece.get("finish_reason") is not None:
            self.finish_reason = piece["finish_reason"]
        for key, entries in object_in(piece.get("logprobs")).items():
            if isinstance(entries, list):
                self._logprobs.setdefault(key, []).extend(entries)
        if piece.get("token_ids"):
            self._token_ids.extend(list_in(piece["token_ids"]))
        delta = object_in(piece.get("delta"))
        content = delta.get("content")
        if content is not None:
            self._content = self._content or []
            self._content.extend(content if isinstance(content, list) else [content])
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                self._texts.setdefault(key, []).append(text_in(delta[key]))
        _collect(self._extra, extra_in(delta, _MESSAGE_MEMBERS))
        for call_piece in objects_in(delta.get("tool_calls")):
            function = object_in(call_piece.get("function") or call_piece.get("custom"))
            identifier = text_in(call_piece.get("id"))
            index = call_piece.get("index")
            index = None if isinstance(index, list | dict) else index
            call = self._add_to_call(index, identifier, function)
            _collect(call.extra, extra_in(call_piece, _CALL_MEMBERS))
        if delta.get("function_call"):
            self._add_to_call("function_call", "", object_in(delta["function_call"]))

    def _add_to_call(self, index: JSON, identifier: str, function: JSONObject) -> _StreamedCall:
        name = text_in(function.get("name"))
        text = argument_text(function.get("arguments", function.get("input")))
        call = self._call_at.get(index)
        # Some endpoints send every call with the same index, or without one. There a piece with a
        # name and another id begins the next call; without ids, one with a name and no index.
        has_ids = call is not None and call.id and identifier
        if call is None or (name and (call.id != identifier if has_ids else index is None)):
            position = index if isinstance(index, int) else 0
            call = _StreamedCall(position)
        elif call.is_followed_by(text):
            if not name and call.argument_text.strip() == "{}":
                call.arguments = []  # some begin every call with an empty object
                call.last_character = ""
            else:
                call = _StreamedCall(call.position, names=[] if name else call.names, before=call)
                identifier = ""  # it belongs to the call before
        if call is not self._call_at.get(index):
            self._call_at[index] = call
            self.calls.append(call)
            if len(self.calls) > MAX_CALLS:
                raise InvalidAnswerError(f"the answer has more than {MAX_CALLS:,} tool calls")
        call.id = call.id or identifier
        if name:
            call.names.append(name)
        call.arguments.append(text)
        call.last_character = text.rstrip()[-1:] or call.last_character
        return call

    def body(self, index: int, tool_names: Collection[str]) -> JSONObject:
        content: JSON = self._content
        if self._content is not None and all(isinstance(piece, str) for piece in self._content):
            content = "".join(text_in(piece) for piece in self._content)
        message: JSONObject = {**_joined(self._extra), "role": "assistant", "content": content}
        for key, pieces in self._texts.items():
            message[key] = "".join(pieces)
        if self.calls:
            message["tool_calls"] = [
                {
                    **_joined(call.extra),
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name(tool_names), "arguments": call.argument_text},
                }
                for call in sorted(self.calls, key=lambda call: call.position)
                if not call.is_repetition
            ]
        return {
            "index": index,
            "message": message,
            "finish_reason": self.finish_reason,
            "logprobs": self._logprobs or None,
            "token_ids": self._token_ids,
        }


def _collect(values: dict[str, list[JSON]], piece: JSONObject) -> None:
    if len(values) + len(piece) > _MAX_PARTS:
        raise InvalidAnswerError(f"a message or call has more than {_MAX_PARTS:,} unknown members")
    for name, value in piece.items():
        values.setdefault(name, []).append(value)


def _joined(values: dict[str, list[JSON]]) -> JSONObject:
    """Join the fields of chunks: texts and lists arrive in pieces, everything else whole."""
    fields: JSONObject = {}
    for name, pieces in values.items():
        # A piece of another type replaces those before it.
        _, last_group = [(kind, list(group)) for kind, group in groupby(pieces, type)][-1]
        match last_group[-1]:
            case str():
                fields[name] = "".join(map(text_in, last_group))
            case list():
                fields[name] = list(chain.from_iterable(map(list_in, last_group)))
            case last:
                fields[name] = last
    return fields


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
    words = words[:_NUM_WORDS]
    # OpenRouter puts the message of the provider behind it here.
    raw = text_in(object_in(fields.get("metadata")).get("raw"))
    details = "".join(f" ({part})" for part in (raw[:_NUM_SHOWN], *codes[:1]) if part)
    message = f"the endpoint answered with an error: {words}{details}"
    return InvalidAnswerError(message, status=numbers[0] if numbers else None)


def is_thought(message: Message) -> bool:
    """Return whether a message is only reasoning: many endpoints refuse one without content."""
    is_all = all(item.get("type") == "reasoning" for item in message.response_items)
    return message.is_reasoning_only and not message.refusal and is_all


def usage_of(body: JSONObject) -> Usage:
    """Return the token counts of a body in any wire format, even if it is not a valid answer."""
    usage = object_in(body.get("usage"))
    return usage_in(usage, *(("input", "output") if "input_tokens" in usage else ()))
