"""Builds the one assistant message of an answer, the same for every wire format."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gymcli.dialects.payload import text_in
from gymcli.types import JSON, FinishReason, FunctionCall, JSONObject, Message, ToolCall

__all__ = [
    "CallParts",
    "Thought",
    "argument_text",
    "assistant_message",
    "count_in",
    "finish_of",
    "has_thought",
    "joined_text",
    "split_thought",
    "tool_calls_of",
]

_OPENING = "<think>"
_CLOSING = "</think>"


class CallParts(NamedTuple):
    """A tool call as an endpoint wrote it, unchecked."""

    id: JSON
    name: JSON
    arguments: JSON


class Thought(NamedTuple):
    """A text, parted into what the model thought and what it said."""

    reasoning: str
    text: str


def assistant_message(
    *,
    parts: list[JSONObject],
    reasoning: list[str],
    refusal: str,
    calls: list[CallParts],
    logprobs: JSON = None,
) -> Message:
    """Build a message from what was read: chat content parts, reasoning pieces, tool calls.

    An answer without text has the content "", or None where it calls tools.
    """
    content: str | list[JSONObject] | None = joined_text(parts)
    if isinstance(content, str):
        thought = split_thought(content, is_separate=any(reasoning))
        reasoning = [*reasoning, thought.reasoning]
        content = thought.text
    tool_calls = tool_calls_of(calls)
    return Message(
        role="assistant",
        content=None if tool_calls and not content else content,
        reasoning="\n".join(piece for piece in reasoning if piece) or None,
        refusal=refusal or None,
        tool_calls=tool_calls,
        logprobs=logprobs,
    )


def joined_text(parts: list[JSONObject]) -> str | list[JSONObject]:
    """Join chat content parts to a string, if all of them are text; else give them back."""
    if all(part.get("type") == "text" for part in parts):
        return "".join(text_in(part.get("text")) for part in parts)
    return parts


def has_thought(text: str) -> bool:
    """Say whether `split_thought` may find anything in a text."""
    return _OPENING in text or _CLOSING in text


def split_thought(text: str, *, is_separate: bool = False) -> Thought:
    """Split a leading `<think>…</think>` off a text.

    Without the closing tag everything is thought, since the model was cut off. Chat templates
    that write the opening tag into the prompt leave only the closing one; that form is not looked
    for where the endpoint gave reasoning of its own (`is_separate`).
    """
    before, closing, after = text.partition(_CLOSING)
    start = before.lstrip()
    if start.startswith(_OPENING):
        return Thought(start.removeprefix(_OPENING).strip(), after.lstrip())
    if closing and _OPENING not in before and not is_separate:
        return Thought(before.strip(), after.lstrip())
    return Thought("", text)


def tool_calls_of(calls: list[CallParts]) -> list[ToolCall]:
    """Make tool calls; those without an id get `call_<n>`, which no other call of them has."""
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
        made.append(ToolCall(identifier, function))
    return made


def argument_text(arguments: JSON) -> str:
    """Give the argument text of a call; endpoints that send the object itself get it encoded."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def finish_of(reason: FinishReason, message: Message) -> FinishReason:
    """Say `tool_calls` for a message with calls, unless it was cut off."""
    if message.tool_calls and reason in ("stop", "tool_calls"):
        return "tool_calls"
    return reason


def count_in(usage: JSONObject, *keys: str) -> int:
    """Give a token count of a usage object, following the keys; 0 where it does not say."""
    value: JSON = usage
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return int(value) if isinstance(value, int | float) and value > 0 else 0
