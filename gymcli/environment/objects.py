"""JSON objects found in the words of a model, in one pass over the text.

The pass reads JSON's grammar with a stack of its own. Where an object breaks off, all objects open
at that place break off with it, so that no brace is read twice as the start of an object: texts of
any depth, and texts full of braces and quotes, take time in proportion to their length.
"""

from __future__ import annotations

import re

import msgspec

from gymcli.types import JSON_ERRORS, JSONObject

__all__ = ["find_objects"]

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
