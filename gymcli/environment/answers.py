r"""Finds where a text states its answer, and takes the decoration off it.

Models write the same answer in many spellings: `**18**`, `\boxed{\textbf{A}}`, `ANSWER: \$18`.
Environments choose the places that count; these functions read a place and leave the rest of the
text alone. All take time in proportion to the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

# Soft hyphen, zero-width space, word joiner, BOM, and what sets the direction of a text. The
# zero-width joiner and non-joiner stay: words of Persian and Sinhala, and emoji, have them.
_INVISIBLE = str.maketrans(
    "",
    "",
    "\xad\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff",
)
_BOX = "\\boxed{"
_BOX_BRACES = re.compile(r"\\boxed\{|\\[{}\\]|[{}]")
_FONT_BRACES = re.compile(
    r"(\\(?:text(?:bf|it|rm|sf|sl|tt|up|normal|md|sc)?|math(?:bf|it|rm|sf|tt|normal)|boldsymbol"
    r"|emph|mbox|underline)\s*\{|[{}])"
)


class Box(NamedTuple):
    r"""A complete `\boxed{...}` of a text."""

    start: int
    """The index of its backslash."""
    end: int
    """The index behind its closing brace."""
    content: str


def closed_boxes(text: str) -> list[Box]:
    r"""Return every complete `\boxed{...}` in order; of nested boxes, only the outermost.

    An escaped brace (`\{`, `\}`) does not count. A box that is never closed ends no other box.
    """
    boxes: list[Box] = []
    # The opening braces that are not closed yet, as (index of the command or -1, index of content).
    open_braces: list[tuple[int, int]] = []
    for brace in _BOX_BRACES.finditer(text):
        if brace[0] == _BOX:
            open_braces.append((brace.start(), brace.end()))
        elif brace[0] == "{":
            open_braces.append((-1, brace.end()))
        elif brace[0] == "}" and open_braces:
            start, content = open_braces.pop()
            if start >= 0:
                while boxes and boxes[-1].start > start:
                    boxes.pop()
                boxes.append(Box(start, brace.end(), text[content : brace.start()]))
    return boxes


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}`, braces balanced; None if it is not closed."""
    _, opening, content = text.rpartition(_BOX)
    depth = 1 if opening else 0
    for position, character in enumerate(content if opening else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return content[:position]
    return None


_MARKS = r"[*_`~]*+"
_LABEL = (
    rf"{_MARKS}(?:the\s++)?(?:(?:final|correct)\s++)?answer{_MARKS}(?:\s++is)?{_MARKS}\s*+[:\uff1a]"
    # Emphasis of the label that ends behind its colon, as in `**ANSWER:** 18`.
    r"(?:[*_`~]++(?=\s|\Z))?+[^\S\n]*+(.*)"
)
_ANSWER_LINE = re.compile(
    rf"^[^\S\n]*+(?:[>#*+-]++[^\S\n]++)*+{_LABEL}", re.IGNORECASE | re.MULTILINE
)
_ANSWER_IN_LINE = re.compile(rf"(?<![\w*`~-]){_LABEL}", re.IGNORECASE)
_DELIMITER_LINE = re.compile(r"(?:```|~~~)[\w+-]*|\$\$|\\[\[\]]")


def last_answer_line(text: str) -> str | None:
    """Return what follows the last "ANSWER:"; None without one, "" if nothing follows.

    A label at the start of a line goes before one within a line. The label may say "Final answer"
    or "The answer is", in any case and with any emphasis. If nothing follows on its line, the next
    line that is not blank counts, provided that it is the last one; lines that only delimit code or
    formulas are skipped. Invisible characters, such as U+200B, are removed.
    """
    text = text.translate(_INVISIBLE)
    labels = list(_ANSWER_LINE.finditer(text)) or list(_ANSWER_IN_LINE.finditer(text))
    if not labels:
        return None
    answer = labels[-1][1].strip()
    if answer.strip("*_`~") and not _DELIMITER_LINE.fullmatch(answer):
        return answer
    lines = [line.strip() for line in text[labels[-1].end() :].splitlines()]
    lines = [line for line in lines if line and not _DELIMITER_LINE.fullmatch(line)]
    return lines[0] if len(lines) == 1 else ""


_FENCED = re.compile(r"(?:```|~~~)(?:[\w+-]*+\n)?(.*?)(?:```|~~~)", re.DOTALL)
_PAIRS = (
    *(("**", "**"), ("__", "__"), ("~~", "~~"), ("*", "*"), ("_", "_"), ("`", "`")),
    *(('"', '"'), ("'", "'"), ("“", "”"), ("\u2018", "\u2019"), ("„", "“"), ("«", "»")),
)
_ESCAPED = re.compile(r"\\([$%#&_*`])")
_MAX_LAYERS = 8


def plain_answer(text: str) -> str:
    r"""Take Markdown, code fences, quotes and escapes (`\$`, `\%`) off a short answer.

    Only what surrounds the whole answer goes: `**18**` becomes `18`; `2**3` and `*a* or *b*` stay.
    A mark at one end without its partner is left of emphasis around a label and an answer, as in
    `**ANSWER: 18**`, and goes too. Invisible characters, such as U+200B, are removed everywhere.
    """
    text = _ESCAPED.sub(r"\1", text.translate(_INVISIBLE).strip())
    for _ in range(_MAX_LAYERS):
        inner = _without_layer(text)
        if inner == text:
            break
        text = inner
    return text


def _without_layer(text: str) -> str:
    """Remove one pair of marks around a text, or one mark that has no partner."""
    if fenced := _FENCED.fullmatch(text):
        return fenced[1].strip()
    for opening, closing in _PAIRS:
        inner = text[len(opening) : -len(closing)]
        is_wrapped = text == f"{opening}{inner}{closing}"
        if is_wrapped and inner.strip() and opening not in inner and closing not in inner:
            return inner.strip()
    for mark in ("**", "__", "~~", "`", "*"):
        if text.count(mark) == 1:
            return text.removeprefix(mark).removesuffix(mark).strip()
    return text


@dataclass(slots=True)
class _Brace:
    """A brace that is not closed yet."""

    place: int
    is_font: bool
    has_braces: bool = False


def without_text_commands(text: str) -> str:
    r"""Replace commands for fonts, such as `\text{...}` and `\mathbf{...}`, by their content.

    A command stays if there are other braces in its content. Invisible characters, such as U+200B,
    are removed.
    """
    pieces: list[str] = []
    open_braces: list[_Brace] = []
    for piece in _FONT_BRACES.split(text.translate(_INVISIBLE)):
        closed = open_braces.pop() if piece == "}" and open_braces else None
        if closed is not None and closed.is_font and not closed.has_braces:
            pieces[closed.place] = ""
            continue
        if closed is not None and open_braces:
            open_braces[-1].has_braces = True
        if piece.endswith("{"):
            open_braces.append(_Brace(len(pieces), is_font=piece != "{"))
        pieces.append(piece)
    return "".join(pieces)
