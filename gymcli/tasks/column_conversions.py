"""Converts the values of columns: texts to numbers and JSON, options and answers to letters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec

from gymcli.tasks.row_map import is_same
from gymcli.types import JSON, JSON_ERRORS

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
"""Commas may only separate thousands; another comma may be a decimal one: 1,5 is not 15."""
_WRITTEN_LETTER = re.compile(r"\s*\(?([A-Za-z])[.):]?\s*", re.ASCII)


def _text(value: JSON, _: JSON = None) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _number(value: JSON, _: JSON) -> JSON:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = _known_text(value).strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{value!r:.80} is not a number")
    try:
        # As JSON, an integer stays one: its digits are exact.
        number: JSON = msgspec.json.decode(text.replace(",", "").removeprefix("+"))
    except JSON_ERRORS as error:  # leading zeros, or too large
        raise ValueError(f"{value!r:.80} is not a number") from error
    return number


def _json(value: JSON, _: JSON) -> JSON:
    try:
        decoded: JSON = msgspec.json.decode(_known_text(value))
    except JSON_ERRORS as error:
        raise ValueError(f"{value!r:.80} is not JSON: {error}") from error
    return decoded


def _lettered(value: JSON, _: JSON) -> JSON:
    items = enumerate(listed_options(value))
    return "\n".join(f"{_letter(place)}: {_text(item)}" for place, item in items)


def _letters(value: JSON, _: JSON) -> JSON:
    texts = [item if item is None else _text(item) for item in listed_options(value)]
    return [{_letter(place): text} for place, text in enumerate(texts)]


def _letter(value: JSON) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_LETTERS):
        return _LETTERS[value]
    raise ValueError(f"{value!r:.80} is not an index from 0 to {len(_LETTERS) - 1}")


def _letter_in(value: JSON, options: JSON) -> JSON:
    items = enumerate(listed_options(options))
    # As texts: the option 4 of a JSON list is the answer "4" of a table of texts.
    text = _text(value).strip()
    places = [place for place, item in items if is_same(item, value) or _text(item).strip() == text]
    if len(places) != 1:
        raise ValueError(f"{value!r:.80} appears {len(places)} times among the options, not once")
    return _letter(places[0])


def _letter_of(value: JSON, options: JSON) -> JSON:
    match = _WRITTEN_LETTER.fullmatch(value) if isinstance(value, str) else None
    letters = _LETTERS[: len(listed_options(options))]
    if match is None or (letter := match[1].upper()) not in letters:
        raise ValueError(f"{value!r:.80} is not a letter from A to {letters[-1:]}")
    return letter


def _letter_from(first: int, value: JSON, options: JSON) -> JSON:
    number, num_options = _number(value, None), len(listed_options(options))
    if not isinstance(number, int) or not first <= number < first + num_options:
        last = first + num_options - 1
        raise ValueError(f"{value!r:.80} is not a position from {first} to {last}")
    return _letter(number - first)


def listed_options(value: JSON) -> list[JSON]:
    """Return options as a list, of which a table of texts has the JSON."""
    options = _json(value, None) if isinstance(value, str) else value
    if not isinstance(options, list):
        raise ValueError(f"{value!r:.80} is not a list")
    return options


def _known_text(value: JSON) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")
    return value


CONVERSIONS: dict[str, Callable[[JSON, JSON], JSON]] = {
    "text": _text,
    "number": _number,
    "strip": lambda value, _: _known_text(value).strip(),
    "json": _json,
    "letters": _letters,
    "lettered": _lettered,
    "letter_in": _letter_in,
    "letter_of": _letter_of,
    "letter_from_0": partial(_letter_from, 0),
    "letter_from_1": partial(_letter_from, 1),
}
"""By their names in messages; each takes a value and the options, or raises ValueError."""
