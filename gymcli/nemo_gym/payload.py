"""Lenient access to foreign JSON, and the parts that the Chat and Responses formats share.

Nothing here raises: a value of the wrong type counts as absent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from gymcli.types import JSON, JSONObject, Usage


def object_in(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


def list_in(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def objects_in(value: JSON) -> list[JSONObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_in(value: JSON) -> str:
    return value if isinstance(value, str) else ""


def extra_in(fields: JSONObject, known_names: Collection[str]) -> JSONObject:
    """Return the members that are neither known nor empty."""
    return {
        name: value
        for name, value in fields.items()
        if name not in known_names and value not in (None, "", [], {})
    }


def select_members(extra: JSON, names: Collection[str]) -> JSONObject:
    return {name: value for name, value in object_in(extra).items() if name in names}


def join_text(parts: list[JSONObject]) -> str | list[JSONObject]:
    """Join chat content parts to a string if all of them are text; else return them unchanged."""
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
    """Return the argument text of a call; encode the object that some endpoints send instead."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def usage_in(usage: JSON, prompt: str = "prompt", completion: str = "completion") -> Usage:
    """Return the token counts of a body's `usage`; null, missing and non-numeric counts are 0.

    Responses names the counts after `input` and `output`.
    """
    if not isinstance(usage, dict):
        return Usage()
    counts = {}
    for name, place, key in (
        ("prompt_tokens", usage, f"{prompt}_tokens"),
        ("completion_tokens", usage, f"{completion}_tokens"),
        ("cached_tokens", usage.get(f"{prompt}_tokens_details"), "cached_tokens"),
        ("reasoning_tokens", usage.get(f"{completion}_tokens_details"), "reasoning_tokens"),
    ):
        count = place.get(key) if isinstance(place, dict) else None
        # A negative count is impossible, and would lower the totals.
        counts[name] = int(count) if isinstance(count, int | float) and count > 0 else 0
    return Usage(**counts)
