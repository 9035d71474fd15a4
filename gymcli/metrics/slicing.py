"""Slices of a run: the values of a field of the task rows, and the slices' names and order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from gymcli.errors import UsageError
from gymcli.types import JSON, JSON_ERRORS, canonical_json

FieldValues: TypeAlias = Sequence[str | None]
"""A task row's value of each field, as `field_of` returns it."""

MAX_SLICES = 1000
"""The most values of a field: one with more, such as an id, does not make useful slices."""
NONE = "(none)"
"""The slice of tasks that lack the field or have null in it."""

_DIFFICULTIES = ("easy", "medium", "hard")
_DIGITS = re.compile(r"(\d{1,18})")
_PREFIX = "task."
_METADATA = "verifier_metadata"


def field_of(task: Mapping[str, object], field: str) -> str | None:
    """Return a field of a task row as canonical JSON, the same for equal values; None if missing.

    The name may begin with `task.`, and dots lead into objects. Fields of `verifier_metadata` are
    found without naming it.
    """
    path = field.removeprefix(_PREFIX)
    value = _at(task, path)
    if value is None:
        value = _at(_decoded(task.get(_METADATA)), path)
    return None if value is None else canonical_json(value).decode()


def slice_name(value: str | None) -> str:
    """Return the name of a slice from the JSON text of its value: strings lose their quotes."""
    if value is None:
        return NONE
    return str(msgspec.json.decode(value)) if value.startswith('"') else value


def slice_order(name: str) -> tuple[int, float, list[tuple[int, str]]]:
    """Return the sort key of a slice: numbers, easy to hard, other texts, then `NONE`.

    Texts are in natural order: `level 2` comes before `level 10`.
    """
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return (0, number, [(0, name)])
    if name.lower() in _DIFFICULTIES:
        return (1, _DIFFICULTIES.index(name.lower()), [(0, name)])
    parts = enumerate(_DIGITS.split(name))
    natural = [(int(part) if place % 2 else 0, part) for place, part in parts]
    return (3 if name == NONE else 2, 0.0, natural)


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
    first, dot, inner_path = path.partition(".")
    return _at(_decoded(value.get(first)), inner_path) if dot else None


def _decoded(value: object) -> JSON:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        decoded: JSON = msgspec.json.decode(value)
    except JSON_ERRORS:  # the row is valid JSON, but this value may be nested too deeply
        return None
    return decoded
