"""The fields of task rows that a run is sliced by, and their values as names of slices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from gymcli.errors import UsageError
from gymcli.types import JSON, JSON_ERRORS, canonical_json

__all__ = [
    "MAX_SLICES",
    "NONE",
    "FieldValues",
    "check_num_slices",
    "field_of",
    "slice_name",
    "slice_order",
]

FieldValues: TypeAlias = Sequence[str | None]
"""What a task row says of each field, as `field_of` returns it."""

MAX_SLICES = 1000
"""Values of a field; one with more, such as an id, is no field to slice by."""
NONE = "(none)"
"""The slice of tasks that lack the field, or have null there."""

_PREFIX = "task."
_METADATA = "verifier_metadata"


def field_of(task: Mapping[str, object], field: str) -> str | None:
    """Return a field of a task row as JSON text, the same for equal values; None where it lacks it.

    The name may have `task.` before it, and dots lead into objects. Fields under
    `verifier_metadata` count as the row's own.
    """
    path = field.removeprefix(_PREFIX)
    found = _at(task, path)
    if found is None:
        found = _at(_decoded(task.get(_METADATA)), path)
    return None if found is None else canonical_json(found).decode()


def slice_name(value: str | None) -> str:
    """Return the name of a slice from the JSON text of its value: texts stand for themselves."""
    if value is None:
        return NONE
    return str(msgspec.json.decode(value)) if value.startswith('"') else value


def slice_order(name: str) -> tuple[bool, bool, float, str]:
    """Return the key to sort slices by: numbers by size, then texts, then `NONE`."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return (False, False, number, name)
    return (name == NONE, True, 0.0, name)


def check_num_slices(field: str, num_slices: int) -> None:
    """Raise UsageError if a field has too many values."""
    if num_slices > MAX_SLICES:
        raise UsageError(
            f"--by {field}: has more than {MAX_SLICES:,} values; give a field that tasks have in "
            "common, such as a category"
        )


def _at(value: object, path: str) -> JSON:
    # A name with dots in it comes before a path through objects.
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return _decoded(value[path])
    first, dot, rest = path.partition(".")
    return _at(_decoded(value.get(first)), rest) if dot else None


def _decoded(value: object) -> JSON:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        decoded: JSON = msgspec.json.decode(value)
    except JSON_ERRORS:  # as far as it was decoded it is sound, but it may be nested too deeply
        return None
    return decoded
