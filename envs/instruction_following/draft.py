"""Writes an answer down from the sentences and wrappings that it is built from."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Draft"]

FILLERS = """
the light is soft and the street is still half asleep
two neighbours talk about the weather
there is time for another cup of tea
someone opens the window to let the air in
the old clock on the wall is late once more
people come and go until it gets dark
nobody needs to hurry at this hour
small details turn out to matter most
""".strip().splitlines()
"""Sentences without a comma, a capital, a word of one letter, and the letters j, x and z."""


@dataclass
class Draft:
    """What an answer is built from; a sentence has neither capital nor full stop yet."""

    contents: list[str] = field(default_factory=list)
    """Sentences that hold what was asked for."""
    num_paragraphs: int = 1
    separator: str = "\n\n"
    num_bullets: int = 0
    unwanted_marks: str = ""
    avoided: list[str] = field(default_factory=list)
    """Words that no filler may have."""
    beginning: str = ""
    beginning_paragraph: int = 1
    """The paragraph, from 1, that the beginning belongs to."""
    ending: str = ""
    begins_all: bool = False
    """The beginning is that of every sentence."""
    ends_all: bool = False
    is_closed: bool = True
    """A mark follows the last sentence."""
    closing: str = ""
    """What comes after all sentences."""
    finish: list[Callable[[str], str]] = field(default_factory=list)
    """What is done to the whole text."""
    goals: list[Callable[[str], bool]] = field(default_factory=list)
    """Lengths that are reached by adding sentences."""

    @property
    def mark(self) -> str:
        """What stands at the end of a sentence."""
        return next((mark for mark in ".!?" if mark not in self.unwanted_marks), "")

    def text(self, num_fillers: int) -> str:
        """Write it down with so many sentences beyond those that it needs."""
        avoided = {word.lower() for word in self.avoided}
        usable = [filler for filler in FILLERS if not avoided & {*filler.split()}]
        fillers = itertools.cycle(usable or FILLERS)
        paragraphs = [[next(fillers)] for _ in range(self.num_paragraphs)]
        paragraphs[0] += self.contents
        paragraphs[-1] += [next(fillers) for _ in range(num_fillers + bool(self.num_bullets))]
        written = [self._paragraph(number, part) for number, part in enumerate(paragraphs, start=1)]
        if self.num_bullets:
            first, _, rest = written[0].partition(f"{self.mark} ")
            bullets = [f"- {self._closed(next(fillers))}" for _ in range(self.num_bullets)]
            written[0] = "\n".join([first + self.mark, *bullets, rest])
        text = self.separator.join(written)
        if not self.is_closed:
            text = text.removesuffix(self.mark)
        text = f"{text} {self.closing}".strip()
        for change in self.finish:
            text = change(text)
        return text

    def _paragraph(self, number: int, plain: list[str]) -> str:
        last = len(plain) - 1
        is_last = number == self.num_paragraphs
        made = []
        for place, sentence in enumerate(plain):
            is_first = place == 0 and number == self.beginning_paragraph
            if self.beginning and (self.begins_all or is_first):
                sentence = f"{self.beginning} makes me think that {sentence}"
            if self.ending and (self.ends_all or (place == last and is_last)):
                sentence = f"{sentence} near the {self.ending}"
            made.append(self._closed(sentence))
        return " ".join(made)

    def _closed(self, sentence: str) -> str:
        return sentence[0].upper() + sentence[1:] + self.mark
