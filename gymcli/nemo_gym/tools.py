"""Turns tools and tool choices between chat shape and the flat shape of the Responses format."""

from __future__ import annotations

from gymcli.nemo_gym.payload import object_in, objects_in
from gymcli.types import JSON, JSONObject

__all__ = [
    "tool_choice_from_responses",
    "tool_choice_to_responses",
    "tools_from_responses",
    "tools_to_responses",
]

_NAMED = ("function", "custom")
"""Kinds of choices that name one tool."""


def tools_from_responses(tools: list[JSONObject]) -> list[JSONObject]:
    """Give tools in chat shape; hosted tools, and those already in chat shape, stay as they are.

    Raises:
        ValueError: A tool is not an object.

    """
    for position, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise ValueError(f"tools[{position}] is not an object")
    return [_wrapped(tool, "function") for tool in tools]


def tools_to_responses(tools: list[JSONObject]) -> list[JSONObject]:
    """Give tools in the flat shape; hosted tools stay as they are."""
    return [_flat(tool, "function") for tool in tools]


def tool_choice_from_responses(choice: JSON) -> JSON:
    """Give a tool choice in chat shape: a word, a named tool, or a set of allowed tools."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        wrapped = _wrapped(choice, "allowed_tools")
        allowed = object_in(wrapped["allowed_tools"])
        if not isinstance(allowed.get("tools"), list):
            return wrapped
        tools = [_wrapped(tool, "function") for tool in objects_in(allowed["tools"])]
        return {**wrapped, "allowed_tools": {**allowed, "tools": tools}}
    for kind in _NAMED:
        choice = _wrapped(choice, kind)
    return choice


def tool_choice_to_responses(choice: JSON) -> JSON:
    """Give a tool choice in the flat shape."""
    if not isinstance(choice, dict):
        return choice
    for kind in (*_NAMED, "allowed_tools"):
        choice = _flat(choice, kind)
    if choice.get("type") == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_flat(tool, "function") for tool in objects_in(choice["tools"])]
        return {**choice, "tools": tools}
    return choice


def _wrapped(value: JSONObject, kind: str) -> JSONObject:
    """Put everything but the type under a key named after the type, if that is `kind`."""
    if value.get("type") != kind or kind in value:
        return value
    return {"type": kind, kind: {key: item for key, item in value.items() if key != "type"}}


def _flat(value: JSONObject, kind: str) -> JSONObject:
    """Undo `_wrapped`."""
    inner = value.get(kind)
    if value.get("type") != kind or not isinstance(inner, dict):
        return value
    return {**{key: item for key, item in value.items() if key != kind}, **inner}
