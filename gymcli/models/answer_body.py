"""Reads the body of an answer, whichever of the wire formats it is in.

A dialect finds the pieces of an answer in its own format; here they become one assistant message
and one `Answer`, or the error that the body carries.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator

import msgspec

from gymcli.errors import InvalidAnswerError, ServerError
from gymcli.nemo_gym.payload import (
    CallParts,
    argument_text,
    count_in,
    object_in,
    text_in,
    usage_from_responses,
)
from gymcli.types import (
    JSON,
    Answer,
    FinishReason,
    FunctionCall,
    JSONObject,
    Message,
    ToolCall,
    Usage,
)

__all__ = [
    "assistant_message",
    "decode",
    "decode_events",
    "error_in",
    "finished_answer",
    "is_thought",
    "split_thought",
    "tool_calls_of",
    "usage_from_chat",
    "usage_of",
]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NUM_SHOWN = 200

_OPENING = "<think>"
_CLOSING = "</think>"
_END_OF_THOUGHT = re.compile(r"(?<![ \t`'\"(\[])</think>")
"""A closing tag that is none of a sentence about it: no blank and no quotation mark before it."""

_MAX_WORD = 200
"""Characters that are kept of a finish reason or an id."""

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
    """Decode the data of server-sent events up to `[DONE]`, without empty ones.

    Raises:
        InvalidAnswerError: As `decode`.

    """
    for event in events:
        data = event.strip()
        if data == b"[DONE]":
            return
        if data:
            yield decode(data)


def _decode_unclean(payload: bytes) -> JSON:
    """Decode what the strict decoder refused, as far as the standard library takes it."""
    value = json.loads(
        payload.decode("utf-8-sig", errors="replace"),
        parse_constant=lambda _: None,
        parse_float=_finite,
    )
    text = json.dumps(value, ensure_ascii=False)
    return msgspec.json.decode(_LONE_SURROGATE.sub("\ufffd", text))


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _beginning(payload: bytes) -> str:
    text = " ".join(payload[: 4 * _NUM_SHOWN].decode("utf-8", errors="replace").split())
    return text[:_NUM_SHOWN] if text else "it is empty"


def error_in(error: JSON) -> InvalidAnswerError:
    """Return the error that a body with status 200 carries, in the provider's words.

    Its status is the one that the body names. What it means is told by `api_errors.error_of_body`.
    """
    fields: JSONObject = error if isinstance(error, dict) else {"message": error}
    codes = [str(fields[key]) for key in ("code", "type", "status") if fields.get(key) is not None]
    numbers = [int(code) for code in codes if code.isdecimal() and len(code) == len("500")]
    words = text_in(fields.get("message")) or msgspec.json.encode(error).decode()
    # OpenRouter puts the words of the provider behind it here.
    raw = text_in(object_in(fields.get("metadata")).get("raw"))
    details = "".join(f" ({part})" for part in (raw[:_NUM_SHOWN], *codes[:1]) if part)
    message = f"the endpoint answered with an error: {words}{details}"
    return InvalidAnswerError(message, status=numbers[0] if numbers else None)


def assistant_message(
    *,
    content: str | list[JSONObject],
    reasoning: list[str],
    refusal: str,
    calls: list[CallParts],
    logprobs: JSON = None,
    extra: JSONObject | None = None,
) -> Message:
    """Return the message of what was read: text or chat parts, pieces of reasoning, tool calls.

    An answer without text has the content "", or None where it calls tools.
    """
    if isinstance(content, str):
        thought, content = split_thought(content, is_separate=any(reasoning))
        reasoning = [*reasoning, thought]
    tool_calls = tool_calls_of(calls) if calls else []
    return Message(
        role="assistant",
        content=None if tool_calls and not content else content,
        reasoning="\n".join(filter(None, reasoning)) or None,
        refusal=refusal or None,
        tool_calls=tool_calls,
        logprobs=logprobs,
        extra=extra or {},
    )


def split_thought(text: str, *, is_separate: bool = False) -> tuple[str, str]:
    """Return the leading `<think>…</think>` of a text without its tags, and the rest of the text.

    Without the closing tag everything is thought, since the model was cut off. Chat templates
    that write the opening tag into the prompt leave only the closing one; that form is not looked
    for where the endpoint gave reasoning of its own (`is_separate`). A closing tag after a blank or
    a quotation mark is one that the model talks about, unless an opened thought has no other.
    """
    closing = _END_OF_THOUGHT.search(text)
    if text.lstrip().startswith(_OPENING):
        opened = text.lstrip().removeprefix(_OPENING)
        parts = _END_OF_THOUGHT.split(opened, 1) if closing else opened.split(_CLOSING, 1)
        return parts[0].strip(), "".join(parts[1:]).lstrip()
    if closing is None or is_separate or _OPENING in (before := text[: closing.start()]):
        return "", text
    return before.strip(), text[closing.end() :].lstrip()


def tool_calls_of(calls: list[CallParts]) -> list[ToolCall]:
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
    """Return whether a message is reasoning alone: many endpoints refuse one without content."""
    is_all = all(item.get("type") == "reasoning" for item in message.response_items)
    return message.is_reasoning_only and not message.refusal and is_all


def finished_answer(
    message: Message, word: JSON, *, usage: Usage, model: JSON, response_id: JSON
) -> Answer:
    """Return the answer that a message is, by the endpoint's own word for why it ended.

    Raises:
        ServerError: The endpoint could not finish it.

    """
    said = text_in(word)
    if said in _FAILURES:
        raise ServerError(f'the endpoint ended the message with finish_reason "{said}"')
    reason = _FINISH_REASONS.get(said, "stop")
    if message.tool_calls and reason == "stop":
        reason = "tool_calls"
    return Answer(
        message=message,
        finish_reason=reason,
        unknown_finish=None if said in _FINISH_REASONS else said[:_MAX_WORD],
        usage=usage,
        model=text_in(model) or None,
        response_id=text_in(response_id)[:_MAX_WORD],
    )


def usage_from_chat(usage: JSONObject) -> Usage:
    """Return the token counts of a chat completion; what is null or missing counts as 0."""
    return Usage(
        prompt_tokens=count_in(usage, "prompt_tokens"),
        completion_tokens=count_in(usage, "completion_tokens"),
        cached_tokens=count_in(usage, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=count_in(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def usage_of(payload: bytes) -> Usage:
    """Return the token counts of a body of any wire format, whatever else is wrong with it."""
    try:
        usage = object_in(decode(payload).get("usage"))
    except InvalidAnswerError:
        return Usage()
    return usage_from_responses(usage) if "input_tokens" in usage else usage_from_chat(usage)
