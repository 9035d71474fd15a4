"""How much of a text was copied from another: three measures from 0 to 1.

Source: the measures of the resources server lc_niah of NVIDIA NeMo Gym (Apache-2.0), written anew.
Each takes normalized texts, and a text without words has copied nothing.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

__all__ = [
    "MAX_COMPARED",
    "Measure",
    "longest_common",
    "ngram16",
    "normalized",
    "overlaps",
    "seq_match",
]

Measure = Literal["lcs", "seq_match", "ngram16"]

MAX_COMPARED = 10_000
"""Characters of each text, the first ones, that `seq_match` compares: texts may be such that its
time grows with the third power of their length, and 10,000 take up to ten seconds."""

NGRAM = 16


def overlaps(text: str, source: str, measures: Sequence[Measure]) -> dict[str, float]:
    """Take these measures of two texts as they are written."""
    text, source = normalized(text), normalized(source)
    return {f"overlap_{measure}": MEASURES[measure](text, source) for measure in measures}


def normalized(text: str) -> str:
    """Give a text in small letters, with one space between words."""
    return " ".join(text.lower().split())


def longest_common(text: str, source: str) -> float:
    """Give the length of the longest substring that both have, as a share of the text's."""
    return _longest_length(text, source) / len(text) if text else 0.0


def ngram16(text: str, source: str) -> float:
    """Give the share of the text's passages of 16 words that the source has; each counts once."""
    own, others = _passages(text), _passages(source)
    return len(own & others) / len(own) if own else 0.0


def seq_match(text: str, source: str) -> float:
    """Give difflib's ratio of both texts, as far as they are compared.

    In a source of 200 characters or more difflib looks for nothing that begins with a character
    which makes up more than one in a hundred; that is its way, and the reference's.
    """
    if not text:
        return 0.0
    return difflib.SequenceMatcher(None, text[:MAX_COMPARED], source[:MAX_COMPARED]).ratio()


MEASURES: Mapping[Measure, Callable[[str, str], float]] = {
    "lcs": longest_common,
    "seq_match": seq_match,
    "ngram16": ngram16,
}


def _passages(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)}


def _longest_length(first: str, second: str) -> int:
    """Find the longest common substring, in time that grows with the sum of both lengths."""
    automaton = _SuffixAutomaton(min(first, second, key=len))
    state = length = longest = 0
    for character in max(second, first, key=len):
        while state and character not in automaton.moves[state]:
            state = automaton.links[state]
            length = automaton.lengths[state]
        if character in automaton.moves[state]:
            state = automaton.moves[state][character]
            length += 1
        longest = max(longest, length)
    return longest


class _SuffixAutomaton:
    """Reads exactly the substrings of a text, from state 0 (Blumer et al. 1985)."""

    def __init__(self, text: str) -> None:
        self.moves: list[dict[str, int]] = [{}]
        self.links = [-1]
        """By state, the one of its longest suffix that has a state of its own."""
        self.lengths = [0]
        """By state, the length of the longest substring that leads to it."""
        whole = 0
        for character in text:
            whole = self._extended(whole, character)

    def _extended(self, whole: int, character: str) -> int:
        """Append a character; `whole` is the state of all that was read so far."""
        new = self._added({}, 0, self.lengths[whole] + 1)
        state = whole
        while state != -1 and character not in self.moves[state]:
            self.moves[state][character] = new
            state = self.links[state]
        if state != -1:
            self.links[new] = self._suffix(state, character)
        return new

    def _suffix(self, state: int, character: str) -> int:
        """Give the state that a move leads to, split off where longer substrings share it."""
        target = self.moves[state][character]
        length = self.lengths[state] + 1
        if self.lengths[target] == length:
            return target
        split = self._added(dict(self.moves[target]), self.links[target], length)
        self.links[target] = split
        while state != -1 and self.moves[state].get(character) == target:
            self.moves[state][character] = split
            state = self.links[state]
        return split

    def _added(self, moves: dict[str, int], link: int, length: int) -> int:
        self.moves.append(moves)
        self.links.append(link)
        self.lengths.append(length)
        return len(self.moves) - 1
