"""The named ways in which a map may change the value of a column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gymcli.data.json_values import is_same
from gymcli.types import JSON, JSON_ERRORS

__all__ = ["TRANSFORMS", "Transform"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
"""A comma anywhere else may be that of a decimal: 1,5 is not 15."""


class Transform(NamedTuple):
    """One way to change a value."""

    function: Callable[[JSON, JSON], JSON]
    """Takes the value and the argument; raises ValueError for a value that it cannot change."""
    argument: str | None = None
    """What the map says beside the name: a `text`, a `column`, or nothing."""


def _text(value: JSON, _: JSON) -> JSON:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _number(value: JSON, _: JSON) -> JSON:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = _known_text(value).strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{value!r:.80} is no number")
    try:
        number: JSON = msgspec.json.decode(text.replace(",", "").removeprefix("+"))
    except JSON_ERRORS as error:  # zeros before it, or too large
        raise ValueError(f"{value!r:.80} is no number") from error
    return number


def _strip(value: JSON, _: JSON) -> JSON:
    return _known_text(value).strip()


def _after(value: JSON, marker: JSON) -> JSON:
    _, found, rest = _known_text(value).rpartition(str(marker))
    if not found:
        raise ValueError(f"{value!r:.80} has no {marker!r}")
    return rest.strip()


def _json(value: JSON, _: JSON) -> JSON:
    try:
        decoded: JSON = msgspec.json.decode(_known_text(value))
    except JSON_ERRORS as error:
        raise ValueError(f"{value!r:.80} is not JSON: {error}") from error
    return decoded


def _letters(value: JSON, _: JSON) -> JSON:
    return [{_letter(place, None): item} for place, item in enumerate(_known_list(value))]


def _lettered(value: JSON, _: JSON) -> JSON:
    items = enumerate(_known_list(value))
    return "\n".join(f"{_letter(place, None)}: {_text(item, None)}" for place, item in items)


def _letter(value: JSON, _: JSON) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_LETTERS):
        return _LETTERS[value]
    raise ValueError(f"{value!r:.80} is no place from 0 to {len(_LETTERS) - 1}")


def _letter_in(value: JSON, options: JSON) -> JSON:
    places = [place for place, item in enumerate(_known_list(options)) if is_same(item, value)]
    if len(places) != 1:
        raise ValueError(f"{value!r:.80} is {len(places)} times among the options, not once")
    return _letter(places[0], None)


def _known_text(value: JSON) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is no text")
    return value


def _known_list(value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.80} is no list")
    return value


TRANSFORMS = {
    "text": Transform(_text),
    "number": Transform(_number),
    "strip": Transform(_strip),
    "after": Transform(_after, "text"),
    "json": Transform(_json),
    "letters": Transform(_letters),
    "lettered": Transform(_lettered),
    "letter": Transform(_letter),
    "letter_in": Transform(_letter_in, "column"),
}
"""The ways by their name in a map."""
