"""Gives the checks an answer: its words, sentences and lines, and what a row looks for in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gymcli import Context

__all__ = ["Answer", "sentences", "stretches", "words"]

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "vs", "e.g", "i.e")
_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]\u201d]))"
    + "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS)
    + r"\s+"
)


class Answer(NamedTuple):
    """An answer, and what may look for a row's patterns in it."""

    text: str
    context: Context

    def find(self, pattern: str, *, flags: int = re.IGNORECASE) -> list[str]:
        """Give every match of a pattern that a row brings, within the time limit."""
        return self.context.search(pattern, self.text, flags=flags)

    def pattern(self, keyword: str) -> str:
        """Give a keyword as the pattern that it is, else one that finds it as it stands."""
        try:
            self.context.search(keyword, "")
        except ValueError:
            return re.escape(keyword)
        return keyword


def sentences(text: str) -> list[str]:
    """Split at white space after `.`, `!` or `?` and a closing mark, but not after "Mr."."""
    stripped = text.strip()
    return _SENTENCE_END.split(stripped) if stripped else []


def words(text: str) -> list[str]:
    """Give the words without punctuation; what hyphens or apostrophes join is one word."""
    return _WORD.findall(text)


def stretches(text: str, start: str, end: str) -> Iterator[str]:
    """Give what reaches, on one line, from each `start` to the next `end`, both included.

    A pattern with `.*?` says the same and takes quadratic time where no `end` follows.
    """
    for line in text.split("\n"):
        begin = line.find(start)
        while begin >= 0 and (found := line.find(end, begin + len(start))) >= 0:
            stop = found + len(end)
            yield line[begin:stop]
            begin = line.find(start, stop)
