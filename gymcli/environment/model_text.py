r"""Reads what an answer gives in `\boxed{...}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from gymcli.types import JSON_ERRORS, JSONObject

__all__ = ["find_objects", "last_boxed", "without_text_commands"]


_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:"
    r"(?P<mark>[{}\[\]:,])"
    r'|(?P<string>"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+")'
    r"|(?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null))"
)
_VALUE = {"{": "first key", "[": "first item", "string": "after", "scalar": "after"}
_FOLLOWS = {
    "value": _VALUE,
    "first item": {**_VALUE, "]": "after"},
    "first key": {"string": "colon", "}": "after"},
    "key": {"string": "colon"},
    "colon": {":": "value"},
    "after in {": {",": "key", "}": "after"},
    "after in [": {",": "value", "]": "after"},
}
"""What may come, by what came: a token, and what may come then."""
_UNFINISHED = -1


def find_objects(text: str) -> list[JSONObject]:
    """Give the JSON objects of a text in order, but for those inside of others."""
    found = []
    ends: dict[int, int] = {}
    start = text.find("{")
    while start != -1:
        if start not in ends:
            _read_object(text, start, ends)
        end = ends[start]
        if end == _UNFINISHED:
            start = text.find("{", start + 1)
            continue
        value = _decoded(text[start:end])
        if value is not None:
            found.append(value)
        start = text.find("{", end)
    return found


def _read_object(text: str, start: int, ends: dict[int, int]) -> None:
    """Note where the object at a brace ends, and every object that is met on the way."""
    opened: list[tuple[str, int]] = []
    expected, position = "value", start
    while token := _TOKEN.match(text, position):
        symbol = token["mark"] or str(token.lastgroup)
        follows = _FOLLOWS[expected].get(symbol)
        if follows is None:
            return
        position = token.end()
        if symbol in ("{", "["):
            opened.append((symbol, position - 1))
            if symbol == "{":
                ends[position - 1] = _UNFINISHED
        elif symbol in ("}", "]"):
            _, place = opened.pop()
            if symbol == "}":
                ends[place] = position
            if not opened:
                return
        expected = f"after in {opened[-1][0]}" if follows == "after" else follows


def _decoded(text: str) -> JSONObject | None:
    try:
        return msgspec.json.decode(text, type=JSONObject)
    except JSON_ERRORS:
        return None  # as where it is nested too deeply


_BRACES = re.compile(r"(\\text\{|[{}])")


def last_boxed(text: str) -> str | None:
    r"""Give what stands in the last \boxed{...}, its braces counted; None if it is not closed."""
    _, opening, rest = text.rpartition("\\boxed{")
    depth = 1 if opening else 0
    for position, character in enumerate(rest if opening else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[:position]
    return None


def without_text_commands(text: str) -> str:
    r"""Replace every \text{...} by what stands in it, but where that has braces of its own."""
    pieces: list[str] = []
    open_braces: list[_Brace] = []
    for piece in _BRACES.split(text):
        closed = open_braces.pop() if piece == "}" and open_braces else None
        if closed is not None and closed.is_text and not closed.has_braces:
            pieces[closed.place] = ""
            continue
        if closed is not None and open_braces:
            open_braces[-1].has_braces = True
        if piece.endswith("{"):
            open_braces.append(_Brace(len(pieces), is_text=piece != "{"))
        pieces.append(piece)
    return "".join(pieces)


@dataclass(slots=True)
class _Brace:
    """A brace that is not closed yet."""

    place: int
    is_text: bool
    has_braces: bool = False
