"""Values of JSON that others wrote, and what the Chat and Responses formats have in common.

Nothing here complains: a value of another kind than the one that is asked for counts as absent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from gymcli.types import JSON, JSONObject, Usage

__all__ = [
    "CallParts",
    "argument_text",
    "chosen",
    "count_in",
    "extra_in",
    "joined_text",
    "list_in",
    "object_in",
    "objects_in",
    "text_in",
    "usage_from_responses",
]


def object_in(value: JSON) -> JSONObject:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: JSON) -> list[JSON]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def objects_in(value: JSON) -> list[JSONObject]:
    """Return the objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_in(value: JSON) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def extra_in(fields: JSONObject, known: Collection[str]) -> JSONObject:
    """Return the members that are not known and say anything."""
    return {
        name: value
        for name, value in fields.items()
        if name not in known and value not in (None, "", [], {})
    }


def chosen(extra: JSON, names: Collection[str]) -> JSONObject:
    """Return those members of a message's or a call's `extra` that have one of the names."""
    return {name: value for name, value in object_in(extra).items() if name in names}


def joined_text(parts: list[JSONObject]) -> str | list[JSONObject]:
    """Join chat content parts to a string, if all of them are text; else give them back."""
    if all(part.get("type") == "text" for part in parts):
        return "".join(text_in(part.get("text")) for part in parts)
    return parts


class CallParts(NamedTuple):
    """A tool call as an endpoint wrote it, unchecked."""

    id: JSON
    name: JSON
    arguments: JSON
    extra: JSONObject = {}


def argument_text(arguments: JSON) -> str:
    """Return the argument text of a call; endpoints that send the object itself get it encoded."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def count_in(usage: JSONObject, *keys: str) -> int:
    """Return a token count of a usage object, following the keys; 0 where it does not say."""
    value: JSON = usage
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def usage_from_responses(usage: JSONObject) -> Usage:
    """Return the token counts of a response; what is null or missing counts as 0."""
    return Usage(
        prompt_tokens=count_in(usage, "input_tokens"),
        completion_tokens=count_in(usage, "output_tokens"),
        cached_tokens=count_in(usage, "input_tokens_details", "cached_tokens"),
        reasoning_tokens=count_in(usage, "output_tokens_details", "reasoning_tokens"),
    )
