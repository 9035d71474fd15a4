r"""Reads what an answer gives in `\boxed{...}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["last_boxed", "without_text_commands"]

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
