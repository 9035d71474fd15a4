"""Slices of a run: the values of a field of the task rows, and the slices' names and order."""

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
"""A task row's value of each field, as `field_of` returns it."""

MAX_SLICES = 1000
"""The most values of a field: one with more, such as an id, does not make useful slices."""
NONE = "(none)"
"""The slice of tasks that lack the field or have null in it."""

_PREFIX = "task."
_METADATA = "verifier_metadata"


def field_of(task: Mapping[str, object], field: str) -> str | None:
    """Return a field of a task row as canonical JSON, the same for equal values; None if missing.

    The name may begin with `task.`, and dots lead into objects. Fields of `verifier_metadata` are
    found without naming it.
    """
    path = field.removeprefix(_PREFIX)
    found = _at(task, path)
    if found is None:
        found = _at(_decoded(task.get(_METADATA)), path)
    return None if found is None else canonical_json(found).decode()


def slice_name(value: str | None) -> str:
    """Return the name of a slice from the JSON text of its value: strings lose their quotes."""
    if value is None:
        return NONE
    return str(msgspec.json.decode(value)) if value.startswith('"') else value


def slice_order(name: str) -> tuple[bool, bool, float, str]:
    """Return the sort key of a slice: numbers by size, then texts, then `NONE`."""
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
            f"--by {field}: has more than {MAX_SLICES:,} values; use a field whose values tasks "
            "share, such as a category"
        )


def _at(value: object, path: str) -> JSON:
    # A key that contains dots takes precedence over a path through objects.
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
    except JSON_ERRORS:  # the row is valid JSON, but this value may be nested too deeply
        return None
    return decoded
