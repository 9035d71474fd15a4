"""Turns Responses items into chat messages and back, without losing anything.

Chat shape cannot say everything that an item can: ids, encrypted reasoning, hosted tools. Where the
way back would not give exactly the items that a message came from, the message keeps them in
`response_items`, and the way back gives those.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Sequence

from gymcli.nemo_gym.answers import CallParts, argument_text, chosen, extra_in, joined_text
from gymcli.nemo_gym.parts import part_from_responses, part_to_responses, refusal_in
from gymcli.nemo_gym.payload import objects_in, text_in
from gymcli.types import JSON, FunctionCall, JSONObject, Message, Role, ToolCall

__all__ = ["ItemTurn", "items_from_messages", "messages_from_items", "read_turn"]

_ROLES = ("system", "developer", "user", "assistant")
_KNOWN_TYPES = ("message", "reasoning", "function_call", "function_call_output")
_MADE_BY_MODEL = ("mcp_list_tools", "mcp_approval_request", "compaction")
"""Item types of the model's side whose name does not end in `_call`."""
_ITEM_MEMBERS = ("type", "id", "status", "role", "content", "call_id", "name", "arguments")


class ItemTurn(typing.NamedTuple):
    """What the items of one assistant turn say, in chat terms."""

    parts: list[JSONObject] | None
    """Chat content parts; None where no item is a message."""
    reasoning: list[str]
    refusal: str
    calls: list[CallParts]
    others: list[JSONObject]
    """The items that chat shape has no words for."""
    extra: JSONObject
    """What the messages say beyond the format."""


def messages_from_items(items: str | list[JSONObject]) -> list[Message]:
    """Give the chat messages of a Responses `input` or `output`.

    Consecutive reasoning, assistant messages and function calls are one assistant message. An item
    of a type that chat does not know is a message of its own, without content.

    Raises:
        ValueError: An item is neither a message nor typed, or lacks what its type needs; the text
            names its position, counted from 0.

    """
    if isinstance(items, str):
        return [Message(role="user", content=items)]
    if not isinstance(items, list):
        raise ValueError("it is neither text nor a list of items")
    messages: list[Message] = []
    turn: list[JSONObject] = []
    for position, item in enumerate(items):
        complaint = _complaint(item)
        if complaint:
            raise ValueError(f"item {position} {complaint}")
        if _is_of_turn(item):
            turn.append(item)
            continue
        if turn:
            messages.append(_keeping(_assistant(turn), turn))
            turn = []
        messages.append(_keeping(_single(item), [item]))
    if turn:
        messages.append(_keeping(_assistant(turn), turn))
    return messages


def items_from_messages(
    messages: Sequence[Message],
    start: int = 0,
    *,
    with_reasoning: bool = True,
    send_fields: Collection[str] = (),
) -> list[JSONObject]:
    """Give the Responses items of chat messages: `response_items` where a message has them.

    Args:
        messages: The conversation.
        start: Where in it to begin.
        with_reasoning: Give reasoning text as reasoning items too, with ids `rs_<position>`.
        send_fields: What is given of the `extra` of messages and calls.

    """
    items: list[JSONObject] = []
    for position, message in enumerate(messages[start:], start):
        if message.response_items:
            items.extend(message.response_items)
        elif message.role == "tool":
            output = _content_to_responses(message)
            call_id = message.tool_call_id or ""
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        elif message.role == "assistant":
            if with_reasoning and message.reasoning:
                items.append(_reasoning_item(message.reasoning, position))
            items.extend(_assistant_items(message, send_fields))
        else:
            items.append({"role": message.role, "content": _content_to_responses(message)})
    return items


def read_turn(items: list[JSONObject]) -> ItemTurn:
    """Sort the items of one assistant turn."""
    turn = ItemTurn(None, [], "", [], [], {})
    for item in items:
        match item.get("type", "message"):
            case "message":
                raw = item.get("content")
                parts = [{"type": "output_text", "text": raw}] if isinstance(raw, str) else raw
                said = [part_from_responses(part) for part in objects_in(parts)]
                refusal = turn.refusal + refusal_in(said)
                said = [part for part in said if part.get("type") != "refusal"]
                turn = turn._replace(parts=[*(turn.parts or []), *said], refusal=refusal)
                turn.extra.update(extra_in(item, _ITEM_MEMBERS))
            case "reasoning":
                turn.reasoning.append(_reasoning_text(item))
            case "function_call":
                extra = extra_in(item, _ITEM_MEMBERS)
                called = item.get("call_id"), item.get("name"), item.get("arguments")
                turn.calls.append(CallParts(*called, extra))
            case _:
                turn.others.append(item)
    return turn


def _complaint(item: JSON) -> str:
    """Say what is wrong with an input item; nothing for a good one, or one of unknown type."""
    if not isinstance(item, dict):
        return "is not an object"
    kind, role = item.get("type"), item.get("role")
    if kind is None and role is None:
        return 'has neither "type" nor "role"'
    if kind is not None and not text_in(kind):
        return f"has the type {kind!r}, which is not text"
    if kind not in (None, *_KNOWN_TYPES):
        return ""
    if kind in (None, "message"):
        if role not in _ROLES:
            return f"has the role {role!r}; it can be {', '.join(_ROLES)}"
        if item.get("content") is None and role == "assistant":
            return ""
        return _content_complaint(item.get("content"), "content")
    if kind.startswith("function_call") and not isinstance(item.get("call_id"), str):
        return f'is a {kind} without "call_id"'
    if kind == "function_call" and not isinstance(item.get("name"), str):
        return 'is a function_call without "name"'
    if kind == "function_call_output":
        return _content_complaint(item.get("output"), "output")
    return ""


def _content_complaint(content: JSON, key: str) -> str:
    if isinstance(content, str):
        return ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return ""
    return f'needs "{key}", text or a list of parts'


def _is_of_turn(item: JSONObject) -> bool:
    kind = item.get("type")
    if kind in (None, "message"):
        return item["role"] == "assistant"
    return kind in ("reasoning", "function_call")


def _keeping(message: Message, items: list[JSONObject]) -> Message:
    """Keep the items in the message, unless it gives exactly them anyway."""
    # Reasoning counts as not given, since requests leave it out.
    if items_from_messages([message], with_reasoning=False) != items:
        message.response_items = list(items)
    return message


def _assistant(items: list[JSONObject]) -> Message:
    turn = read_turn(items)
    return Message(
        role="assistant",
        content=None if turn.parts is None else joined_text(turn.parts),
        reasoning="\n".join(piece for piece in turn.reasoning if piece) or None,
        refusal=turn.refusal or None,
        tool_calls=[
            ToolCall(text_in(call.id), FunctionCall(text_in(call.name), argument_text(call[2])))
            for call in turn.calls
        ],
    )


def _single(item: JSONObject) -> Message:
    """Give the message of an item that is not part of an assistant turn."""
    kind = text_in(item.get("type")) or "message"
    if kind == "message":
        role = typing.cast("Role", item["role"])
        return Message(role=role, content=_content_from_responses(item["content"]))
    if kind == "function_call_output":
        return Message(
            role="tool",
            tool_call_id=text_in(item["call_id"]),
            content=_content_from_responses(item["output"]),
        )
    if item.get("role") in _ROLES:
        return Message(role=typing.cast("Role", item["role"]))
    is_made = kind.endswith("_call") or kind in _MADE_BY_MODEL
    return Message(role="assistant" if is_made else "user")


def _reasoning_text(item: JSONObject) -> str:
    pieces = objects_in(item.get("summary")) or objects_in(item.get("content"))
    return "\n".join(text_in(piece.get("text")) for piece in pieces)


def _reasoning_item(text: str, position: int) -> JSONObject:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{position}", "summary": summary}


def _assistant_items(message: Message, send_fields: Collection[str]) -> list[JSONObject]:
    """Give an assistant message and its calls; one that says nothing is an empty message."""
    items: list[JSONObject] = []
    content = _content_to_responses(message)
    if message.refusal:
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        said = parts if content else []
        content = [*said, {"type": "refusal", "refusal": message.refusal}]
    if content or not message.tool_calls:
        items.append(
            {"role": "assistant", "content": content, **chosen(message.extra, send_fields)}
        )
    items.extend(
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            **chosen(call.extra, send_fields),
        }
        for call in message.tool_calls
    )
    return items


def _content_from_responses(content: JSON) -> str | list[JSONObject]:
    if isinstance(content, str):
        return content
    return [part_from_responses(part) for part in objects_in(content)]


def _content_to_responses(message: Message) -> str | list[JSONObject]:
    if isinstance(message.content, list):
        return [part_to_responses(part, message.role) for part in message.content]
    return message.content or ""
