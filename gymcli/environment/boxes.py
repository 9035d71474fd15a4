r"""Reads what an answer gives in `\boxed{...}`."""

from __future__ import annotations

import re

__all__ = ["last_boxed", "without_text_commands"]


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
    r"""Replace every \text{...} by what stands in it, the inner ones first."""
    while (shorter := re.sub(r"\\text\{([^{}]*)\}", r"\1", text)) != text:
        text = shorter
    return text
