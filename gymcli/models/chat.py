"""The Chat Completions wire format."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Literal

import msgspec

from gymcli.errors import InvalidAnswerError
from gymcli.models.dialect import Transcript
from gymcli.nemo_gym.payload import (
    MAX_WORD,
    CallParts,
    argument_text,
    assistant_message,
    chosen,
    decode,
    error_in,
    extra_in,
    finish_of,
    finished,
    has_thought,
    is_thought,
    joined_text,
    list_in,
    object_in,
    objects_in,
    text_in,
    usage_from_chat,
)
from gymcli.nemo_gym.responses_items import CONVERSATION, added_body, unsent_among
from gymcli.types import (
    JSON,
    Answer,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    Request,
    ToolCall,
    Usage,
)

__all__ = ["Chat", "answer_of", "assemble", "plain_answer"]


_Count = Annotated[int, msgspec.Meta(ge=0)]
_Empty = Annotated[list[None], msgspec.Meta(max_length=0)]


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: None = None
    annotations: _Empty | None = None
    audio: None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: FinishReason | Literal["function_call"] | None = None
    logprobs: None = None
    error: None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None
    model: str | None = None
    id: Annotated[str, msgspec.Meta(max_length=MAX_WORD)] | None = None


_DECODER = msgspec.json.Decoder(_Completion)


def plain_answer(payload: bytes) -> Answer | None:
    """Give the answer of a plain body; None where it is anything else."""
    try:
        body = _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    choice = body.choices[0]
    said = choice.message
    text = said.content or ""
    calls = [ToolCall(call.id, call.function) for call in said.tool_calls or ()]
    if has_thought(text) or (said.content is None and not calls):
        return None
    message = Message(
        role="assistant",
        content=text or (None if calls else ""),
        reasoning=said.reasoning_content or said.reasoning or None,
        refusal=said.refusal or None,
        tool_calls=calls,
    )
    reason = choice.finish_reason
    if reason is None or reason == "function_call":
        reason = "stop" if reason is None else "tool_calls"
    return Answer(
        message=message,
        finish_reason=finish_of(reason, message),
        usage=_usage(body.usage),
        model=body.model or None,
        response_id=body.id or "",
    )


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens or 0,
        completion_tokens=usage.completion_tokens or 0,
        cached_tokens=(prompt.cached_tokens or 0) if prompt is not None else 0,
        reasoning_tokens=(completion.reasoning_tokens or 0) if completion is not None else 0,
    )


_TEXTS = ("reasoning_content", "reasoning", "refusal")
_DELTA_MEMBERS = ("role", "content", "tool_calls", "function_call", *_TEXTS)
_PIECE_MEMBERS = ("index", "id", "type", "function", "custom")


def assemble(events: Iterable[bytes]) -> bytes:
    """Give the bytes of the `chat.completion` that the chunks make up.

    A chunk with an error ends the stream and is given as the body.

    Raises:
        InvalidAnswerError: A chunk is not JSON, or none of them gives a finish reason.

    """
    joined = _Joined()
    for event in events:
        data = event.strip()
        if data == b"[DONE]":
            break
        if not data:
            continue
        chunk = decode(data)
        if chunk.get("error"):
            return msgspec.json.encode({"error": chunk["error"]})
        joined.add(chunk)
    if joined.finish_reason is None:
        raise InvalidAnswerError("the stream ended early: no chunk has a finish reason")
    return msgspec.json.encode(joined.body())


class _StreamedCall:
    """One tool call in the making."""

    def __init__(self, index: JSON) -> None:
        self.position = index if isinstance(index, int) else 0
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: JSONObject = {}


class _Joined:
    """A completion in the making; only the first choice counts."""

    def __init__(self) -> None:
        self.head: JSONObject = {}
        self.usage: JSON = None
        self.finish_reason: JSON = None
        self.content: list[JSON] | None = None
        self.texts: dict[str, list[str]] = {}
        self.extra: JSONObject = {}
        self.logprobs: dict[str, list[JSON]] = {}
        self.calls: list[_StreamedCall] = []
        self.call_at: dict[JSON, _StreamedCall] = {}

    def add(self, chunk: JSONObject) -> None:
        """Add one chunk."""
        for key in ("id", "created", "model"):
            if chunk.get(key) is not None:
                self.head.setdefault(key, chunk[key])
        if chunk.get("usage") is not None:
            self.usage = chunk["usage"]
        for choice in objects_in(chunk.get("choices")):
            if choice.get("index") in (0, None):
                self._add_choice(choice)

    def body(self) -> JSONObject:
        """Give the completion as it stands."""
        content = self._joined_content()
        message: JSONObject = {**self.extra, "role": "assistant", "content": content}
        for key, pieces in self.texts.items():
            message[key] = "".join(pieces)
        if self.calls:
            message["tool_calls"] = [
                {
                    **call.extra,
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.arguments)},
                }
                for call in sorted(self.calls, key=lambda call: call.position)
            ]
        choice: JSONObject = {
            "index": 0,
            "message": message,
            "finish_reason": self.finish_reason,
            "logprobs": self.logprobs or None,
        }
        return {
            **self.head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self.usage,
        }

    def _add_choice(self, choice: JSONObject) -> None:
        if choice.get("finish_reason") is not None:
            self.finish_reason = choice["finish_reason"]
        for key, entries in object_in(choice.get("logprobs")).items():
            if isinstance(entries, list):
                self.logprobs.setdefault(key, []).extend(entries)
        delta = object_in(choice.get("delta"))
        content = delta.get("content")
        if content is not None:
            self.content = self.content or []
            self.content.extend(content if isinstance(content, list) else [content])
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                self.texts.setdefault(key, []).append(text_in(delta[key]))
        _join(self.extra, extra_in(delta, _DELTA_MEMBERS))
        for piece in objects_in(delta.get("tool_calls")):
            function = object_in(piece.get("function") or piece.get("custom"))
            call = self._call(piece.get("index"), text_in(piece.get("id")), function)
            _join(call.extra, extra_in(piece, _PIECE_MEMBERS))
        if delta.get("function_call"):
            self._call("function_call", "", object_in(delta["function_call"]))

    def _call(self, index: JSON, identifier: str, function: JSONObject) -> _StreamedCall:
        """Add a piece to the tool call that it belongs to, and return that.

        Some endpoints give every call the same index, or none: there a piece with a name and
        another id (or no index) begins the next call.
        """
        name = text_in(function.get("name"))
        call = self.call_at.get(index)
        is_another = index is None or (identifier and call and call.id not in ("", identifier))
        if call is None or (name and is_another):
            call = self.call_at[index] = _StreamedCall(index)
            self.calls.append(call)
        call.id = call.id or identifier
        call.name = call.name or name
        call.arguments.append(argument_text(function.get("arguments", function.get("input"))))
        return call

    def _joined_content(self) -> JSON:
        if self.content is None or not all(isinstance(piece, str) for piece in self.content):
            return self.content
        return "".join(text_in(piece) for piece in self.content)


def _join(whole: JSONObject, piece: JSONObject) -> None:
    """Add what a chunk says: texts and lists come in pieces, anything else at once."""
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(before, str) and isinstance(value, str):
            whole[name] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            before.extend(value)
        else:
            whole[name] = value


_UNSENT = (
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
_ELSEWHERE = {
    *_UNSENT,
    *CONVERSATION,
    "extra_body",
    "instructions",
    "metadata",
    "stream",
    "stream_options",
}
_NOTHING = Message(role="assistant", content="")
# Endpoints refuse these where there is nothing to choose from.
_WITH_TOOLS_ONLY = ("tool_choice", "parallel_tool_calls")

_MESSAGE_MEMBERS = (
    "role",
    "content",
    "reasoning_content",
    "reasoning",
    "refusal",
    "tool_calls",
    "function_call",
)
_CALL_MEMBERS = ("id", "type", "index", "function", "custom")


class Chat:
    """Chat Completions, as OpenAI documents it and others vary it."""

    path = "/chat/completions"

    def body(
        self,
        request: Request,
        model: str,
        *,
        stream: bool = False,
        send_reasoning: str | None = None,
        send_fields: Collection[str] = (),
        transcript: Transcript | None = None,
    ) -> JSONObject:
        """Give the body; messages that need no change are in it as they are.

        Of `max_tokens` and `max_completion_tokens` only the second is sent where both are given.
        """
        params = request.params
        body: JSONObject = {
            name: value
            for name, value in params.items()
            if value is not None and name not in _ELSEWHERE
        }
        if "max_completion_tokens" in body:
            # The newer name of the same limit; OpenAI refuses a body that has both.
            body.pop("max_tokens", None)
        body["model"] = model
        messages = request.messages
        if params.get("instructions"):
            messages = _with_instructions(messages, str(params["instructions"]))

        def items(messages: list[Message], start: int) -> list[Message | JSONObject]:
            return [
                _wire_message(message, send_reasoning, send_fields)
                for message in messages[start:]
                if not _is_unsayable(message, send_reasoning)
            ]

        body["messages"] = (transcript or Transcript()).written(messages, items)
        if request.tools:
            body["tools"] = request.tools
        else:
            for name in _WITH_TOOLS_ONLY:
                body.pop(name, None)
        if params.get("metadata") is not None:
            _add_metadata(body, params["metadata"])
        if params.get("extra_body") is not None:
            body.update(added_body(params["extra_body"]))
        if stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return body

    def unsent(self, params: JSONObject) -> list[str]:
        """Give the names that only the Responses format has."""
        return unsent_among(params, _UNSENT)

    def answer(self, payload: bytes) -> Answer:
        """Read a `chat.completion`; only its first choice counts."""
        return plain_answer(payload) or answer_of(decode(payload))

    def assemble(self, events: Iterable[bytes]) -> bytes:
        """Join `chat.completion.chunk` events into a `chat.completion`."""
        return assemble(events)


def answer_of(body: JSONObject) -> Answer:
    """Read a body that may be anything, as `Chat.answer` does.

    Raises:
        InvalidAnswerError, RateLimitError, ServerError, ContextOverflowError: As there.

    """
    choices = objects_in(body.get("choices"))
    if not choices:
        if body.get("error"):
            raise error_in(body["error"])
        raise InvalidAnswerError('the body has no "choices"')
    choice = choices[0]
    if choice.get("error"):
        raise error_in(choice["error"])
    fields, word = object_in(choice.get("message")), choice.get("finish_reason")
    answer = finished(
        _message(fields, choice.get("logprobs")),
        word,
        usage=usage_from_chat(object_in(body.get("usage"))),
        model=body.get("model"),
        response_id=body.get("id"),
    )
    if not fields:
        raise InvalidAnswerError('the first choice has no "message", or an empty one')
    is_nothing = fields.get("content") is None and answer.message == _NOTHING
    if is_nothing and not text_in(word) and not answer.usage.completion_tokens:
        raise InvalidAnswerError("the message has no content, no finish_reason and no tokens")
    return answer


def _with_instructions(messages: list[Message], instructions: str) -> list[Message]:
    """Put instructions in front of the conversation, as one message with its system message.

    Many chat templates refuse a second system message, or read only the first.
    """
    first = messages[0] if messages else None
    if first is not None and first.role in ("system", "developer"):
        content = joined_text(first.content) if isinstance(first.content, list) else first.content
        if isinstance(content, str):
            text = f"{instructions}\n\n{content}" if content else instructions
            return [msgspec.structs.replace(first, content=text), *messages[1:]]
    return [Message(role="system", content=instructions), *messages]


def _is_unsayable(message: Message, send_reasoning: str | None) -> bool:
    """Say whether a message is reasoning alone, or a Responses item such as a hosted tool's call.

    An empty answer of a model is none of these: it has the content "", and is sent.
    """
    says_reasoning = bool(send_reasoning and message.reasoning)
    if message.role != "assistant" or message.refusal or says_reasoning:
        return False
    is_item = message.response_items and message.content is None and not message.tool_calls
    return bool(is_item) or is_thought(message)


def _wire_message(
    message: Message, send_reasoning: str | None, send_fields: Collection[str]
) -> Message | JSONObject:
    """Give a message without what this format does not know, itself where nothing is to go."""
    is_blank = message.content is None and not message.tool_calls
    calls_more = any(call.extra for call in message.tool_calls)
    if not (
        is_blank
        or message.reasoning
        or message.response_items
        or message.logprobs is not None
        or message.extra
        or calls_more
    ):
        return message
    sent = msgspec.structs.replace(
        message,
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
        fields["tool_calls"] = [_wire_call(call, send_fields) for call in message.tool_calls]
    return {"content": sent.content, **fields, **added}


def _wire_call(call: ToolCall, send_fields: Collection[str]) -> JSONObject:
    added = chosen(call.extra, send_fields)
    return {"id": call.id, "function": call.function, "type": call.type, **added}


def _add_metadata(body: JSONObject, metadata: JSON) -> None:
    """Add metadata; NeMo Gym's rows carry parts of the body in it, as JSON text.

    These never override what the request says, and cannot ask for what gymcli decides.
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
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _message(fields: JSONObject, logprobs: JSON) -> Message:
    parts, reasoning, refusal = _content(fields.get("content"))
    said = text_in(fields.get("reasoning_content")) or text_in(fields.get("reasoning"))
    return assistant_message(
        parts=parts,
        reasoning=[said, *reasoning],
        refusal=text_in(fields.get("refusal")) or refusal,
        calls=_calls(fields),
        logprobs=_logprobs(logprobs),
        extra=extra_in(fields, _MESSAGE_MEMBERS),
    )


def _content(content: JSON) -> tuple[list[JSONObject], list[str], str]:
    """Sort content into chat parts, reasoning and refusal."""
    if content is None:
        return [], [], ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}], [], ""
    if not isinstance(content, list):
        raise InvalidAnswerError("the message's content is neither text nor a list of parts")
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
    return parts, ["".join(thinking)], "".join(refusals)


def _calls(fields: JSONObject) -> list[CallParts]:
    calls = []
    for call in list_in(fields.get("tool_calls")):
        if not isinstance(call, dict):
            raise InvalidAnswerError("the message has a tool call that is not an object")
        function = object_in(call.get("function") or call.get("custom"))
        arguments = function.get("arguments", function.get("input"))
        extra = extra_in(call, _CALL_MEMBERS)
        calls.append(CallParts(call.get("id"), function.get("name"), arguments, extra))
    legacy = object_in(fields.get("function_call"))
    if legacy and not calls:
        calls.append(CallParts(None, legacy.get("name"), legacy.get("arguments")))
    return calls


def _logprobs(logprobs: JSON) -> JSON:
    """Give log probabilities without the members that are null; None where nothing is left."""
    return {key: v for key, v in object_in(logprobs).items() if v is not None} or None
