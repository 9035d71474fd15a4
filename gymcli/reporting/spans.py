"""Pieces of Markdown in which no text has a meaning: code spans, sentences, tables.

GitHub Flavored Markdown splits a table's cells before it reads them, so that `|` is written as `¦`
in a code span, and a backtick as an apostrophe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gymcli.reporting.words import Clean, one_line

__all__ = ["MAX_CHARACTERS", "MAX_ROWS", "Spans", "joined", "table"]

MAX_CHARACTERS = 65_000
"""A comment of GitHub may have 65,536 characters, a step summary 1 MiB."""
MAX_ROWS = 30

_ADDRESS = re.compile(r"(:|www)(//|\.)")
"""Where an address that would become a link gets a character that nobody sees."""
_MEANINGFUL = frozenset("\\*_[]#|~$")
_REPLACED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "`": "'", "@": "@\N{WORD JOINER}"}


class Spans:
    """Writes texts of models, tasks and providers.

    Args:
        clean: Takes secrets out of them.

    """

    def __init__(self, clean: Clean) -> None:
        self._clean = clean

    def code(self, text: str, max_characters: int = 80) -> str:
        """Give a text as a code span: nothing in it is a link, an image, a mention or HTML."""
        line = one_line(self._clean(text), max_characters)
        return f"`{line.replace('`', chr(39)).replace('|', '¦') or '(empty)'}`"

    def sentence(self, text: str) -> str:
        """Give a sentence of ours, with what it might quote made harmless."""
        line = _ADDRESS.sub("\\1\N{WORD JOINER}\\2", one_line(self._clean(text), 400))
        return "".join(
            f"\\{sign}" if sign in _MEANINGFUL else _REPLACED.get(sign, sign) for sign in line
        )

    def listed(self, texts: Sequence[str], count: int) -> str:
        """Give the first of so many texts as code spans, and how many more there are."""
        shown = texts[:MAX_ROWS]
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        return ", ".join(map(self.code, shown)) + more


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, most: int = MAX_ROWS) -> str:
    """Give a table, which says how many of its rows are left out."""
    cells = [*rows]
    lines = [_row(head), _row(["---"] * len(head)), *map(_row, cells[:most])]
    if len(cells) > most:
        lines.append(f"\n{len(cells) - most:,} more are left out.")
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def joined(blocks: Sequence[str]) -> str:
    """Give as many blocks as fit, and say how many do not."""
    text = ""
    for place, block in enumerate(blocks):
        if len(text) + len(block) + 100 > MAX_CHARACTERS:
            left = len(blocks) - place
            return f"{text}{left} more sections did not fit; `gym metrics` prints everything.\n"
        text += block + "\n\n"
    return text.rstrip("\n") + "\n"
