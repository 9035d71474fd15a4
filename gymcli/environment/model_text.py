"""Fills prompts with untrusted text, and finds labels and JSON objects in answers.

A judge that thinks aloud quotes what it judges. A candidate that writes a label, or an object in
the form of the verdict, would then speak for the judge. So these are broken when the text enters
the prompt: a reader still recognises them, but the parser finds nothing. A candidate that writes
the prompt's own tags could close its element and open another: `render` breaks those.

`find_objects` parses JSON in one pass with an explicit stack. When an object breaks off, all open
objects break off with it, so no brace is tried twice as the start of an object: texts of any depth,
and texts full of braces and quotes, take time in proportion to their length.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from gymcli.types import JSON_ERRORS, JSONObject, Message

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Possessive quantifiers, here and below: hostile texts must not make the patterns backtrack.
_TAG = re.compile(r"</?+([A-Za-z_][\w.:-]*+)(?:\s[^<>]*+|/)?+>")


def render(template: str, fields: Mapping[str, str]) -> str:
    """Replace each `{name}` by its field, once: braces in a field's text are not replaced.

    All other braces of the template are literal, so that it can contain JSON. The template's tags
    are broken wherever they occur in a field.

    Raises:
        TypeError: A field of the template is missing.
    """
    pattern = own_tags(template)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in fields:
            names = ", ".join(fields) or "none"
            raise TypeError(f'the template needs the field "{name}"; given: {names}')
        return without_tags(fields[name], pattern)

    return _FIELD.sub(value, template)


def own_tags(template: str) -> re.Pattern[str]:
    return tag_pattern(_TAG.findall(template))


def tag_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return a case-insensitive pattern for tags of these names: `<name ...>` and `</name`."""
    written = "|".join(map(re.escape, sorted(set(names)))) or "(?!)"
    # A closing tag needs no `>`: a field may end in `</name`, and the prompt supplies the bracket.
    name = rf"(?:{written})(?![\w.:-])[^<>]*+"
    return re.compile(rf"<(\s*+/\s*+{name}|{name}(?=[<>]))(>?)", re.IGNORECASE)


def without_tags(text: str, pattern: re.Pattern[str]) -> str:
    """Break every tag in a text by replacing its brackets: `</answer>` becomes `(/answer)`."""
    return pattern.sub(lambda match: f"({match[1]}{')' if match[2] else ''}", text)


def label_pattern(labels: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds labels, preferring the longest.

    Raises:
        ValueError: A label is too short, or has spaces around it, so that it cannot be broken.
    """
    # An alternation takes the first branch that fits, so a label must come before its beginning.
    longest_first = sorted(labels, key=len, reverse=True)
    for label in longest_first:
        if len(label) < 2 or label != label.strip():
            raise ValueError(
                f"the label {label!r} cannot be told from other text of a prompt; write two "
                "characters or more without spaces around them, as in [[A]]"
            )
    return re.compile("|".join(map(re.escape, longest_first)))


def without_labels(text: str, pattern: re.Pattern[str]) -> str:
    """Break every label in a text by inserting spaces: `[[A=B]]` becomes `[ [A=B] ]`."""
    # Repeated, since labels may overlap: INCORRECT contains CORRECT.
    while pattern.search(text):
        text = pattern.sub(_broken, text)
    return text


def _broken(match: re.Match[str]) -> str:
    label = match[0]
    first, middle, last = label[0], label[1:-1], label[-1]
    return f"{first} {middle}{last}" if last.isalnum() else f"{first} {middle} {last}"


_OVERLOOKED = re.compile(
    r"[\s*_~`\\\x00-\x1f\x7f-\x9f\u00ad\u0300-\u036f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]++"
)


def comparable(text: str) -> str:
    """Return a text without what a reader overlooks, for a search for labels in any spelling.

    Case, blanks, Markdown, marks on letters, and control and invisible characters are gone; HTML
    entities and compatibility characters, such as full-width letters, are replaced by what they
    stand for.
    """
    plain = unicodedata.normalize("NFKD", html.unescape(html.unescape(text)))
    return _OVERLOOKED.sub("", plain).casefold()


def follow_up(messages: list[Message], answer: str, request: str) -> list[Message]:
    reply = Message(role="assistant", content=answer)
    return [*messages, reply, Message(role="user", content=request)]


def key_pattern(names: Iterable[str]) -> re.Pattern[str]:
    r"""Return a pattern that finds names as keys of a JSON object, escaped (`\u0041`) or not."""
    written = "|".join("".join(map(_in_json, name)) for name in names)
    return re.compile(rf'"({written})"(?=\s*:)')


def _in_json(character: str) -> str:
    # JSON may escape any character, those beyond U+FFFF as a surrogate pair.
    units = character.encode("utf-16-be").hex()
    escape = "".join(rf"\\u(?i:{units[i : i + 4]})" for i in range(0, len(units), 4))
    return rf"(?:\\?{re.escape(character)}|{escape})"


def without_keys(text: str, pattern: re.Pattern[str]) -> str:
    """Break the keys of JSON objects in a text by replacing quotes: `"a":` becomes `'a':`."""
    return pattern.sub(r"'\1'", text)


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
"""The parser's transitions: by state, the tokens it allows and the state after each."""
_UNFINISHED = -1


def find_objects(text: str) -> list[JSONObject]:
    objects = []
    ends: dict[int, int] = {}
    start = text.find("{")
    while start != -1:
        if start not in ends:
            _read_object(text, start, ends)
        end = ends[start]
        if end == _UNFINISHED:
            start = text.find("{", start + 1)
            continue
        with suppress(*JSON_ERRORS):  # for example, nested too deeply
            objects.append(msgspec.json.decode(text[start:end], type=JSONObject))
        start = text.find("{", end)
    return objects


def _read_object(text: str, start: int, ends: dict[int, int]) -> None:
    """Record where the object at `start` ends, and all objects inside it."""
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
