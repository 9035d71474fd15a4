"""The words of an expression, each checked, and written so that Python's parser takes them.

A name may be dotted (`task.class`) or none of Python's (`pass@1`, `pass^4`). Its signs become
letters that no name has otherwise, one for one: places in the text stay what they are.
"""

from __future__ import annotations

import re

from gymcli.errors import FilterError

__all__ = ["MAX_CHARACTERS", "name_of", "python_text", "refused"]

MAX_CHARACTERS = 2000
"""The longest expression; what it can cost grows with its length."""

_SIGNS = {".": "\u01c0", "@": "\u01c1", "^": "\u01c2"}
"""Letters of the click consonants, which Python takes in names."""
_AS_LETTERS = str.maketrans(_SIGNS)
_AS_SIGNS = str.maketrans({letter: sign for sign, letter in _SIGNS.items()})

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<name>[^\W\d]\w*(?:\.\w+)*(?:[@^][0-9]+)?)
    | (?P<sign>==|!=|<=|>=|\*\*|//|[-+*/%<>()\[\],.])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"""\\(?:[\\'"nrt]|u[0-9a-fA-F]{4})""")
_HINTS = {
    "=": "write == to compare",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "'": "the quote is not closed",
    '"': "the quote is not closed",
}


def python_text(text: str) -> str:
    """Give the expression as Python's parser takes it, as long as it was.

    Raises:
        FilterError: It is too long, or something in it is no word of an expression.

    """
    if len(text) > MAX_CHARACTERS:
        raise FilterError(
            f"the expression has {len(text)} characters; the most that is read is {MAX_CHARACTERS}"
        )
    if not text.strip():
        raise FilterError('the expression is empty; write one such as "reward < 1"')
    written, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or any(letter in found[0] for letter in _SIGNS.values()):
            raise _no_word(text, place)
        written.append(_written(text, place, found))
        place = found.end()
    return "".join(written)


def _written(text: str, place: int, found: re.Match[str]) -> str:
    if found.lastgroup == "space":
        return " " * len(found[0])
    if found.lastgroup == "name":
        return found[0].translate(_AS_LETTERS)
    if found.lastgroup == "text":
        rest = _ESCAPE.sub("", found[0])
        if "\\" in rest:
            raise refused(text, place, r"a \ in quotes is written \\")
    return found[0]


def _no_word(text: str, place: int) -> FilterError:
    sign = text[place]
    if sign.isdigit():
        return refused(text, place, "is no number")
    return refused(text, place, _HINTS.get(sign, f"{sign!r} has no meaning here"))


def name_of(identifier: str) -> str:
    """Give a name as it was written, from what Python's parser made of it."""
    return identifier.translate(_AS_SIGNS)


def refused(text: str, place: int | None, reason: str) -> FilterError:
    """Give the error of an expression, with the place in it, counted from 0, where it has one."""
    shown = text if len(text) <= 80 else f"{text[:79]}…"
    where = "" if place is None else f", character {place + 1}"
    return FilterError(f"filter {shown!r}{where}: {reason}")
