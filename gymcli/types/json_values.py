"""JSON that is passed on as it is: its types, its canonical bytes, and a digest of those."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

__all__ = ["JSON", "JSON_ERRORS", "JSONObject", "canonical_json", "digest"]

if TYPE_CHECKING:
    # A recursive alias would say more, but msgspec decodes none; `object` makes every reader look.
    JSON: TypeAlias = object
    JSONObject: TypeAlias = dict[str, object]
else:
    # What msgspec takes as it comes; for `object` it would check every value.
    JSON = Any
    JSONObject = dict[str, Any]

JSON_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding foreign text raises: no JSON or of another shape, no UTF-8, nested too deeply."""


def canonical_json(value: object) -> bytes:
    """Encode with sorted keys and no spaces: equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest(value: object) -> str:
    """Give 16 hex digits of SHA-256 over the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:16]
