"""Criteria that a rule can decide: how they are worded, and when a text meets them."""

import re
from collections.abc import Callable, Mapping
from typing import Literal

__all__ = ["criterion", "decided", "pattern_of"]

Kind = Literal["num_lines", "line", "num_words", "word", "absent"]

WORDINGS: Mapping[Kind, str] = {
    "num_lines": "Is the number of lines in the response, blank ones aside, {number}?",
    "line": 'Is line {number}, blank ones aside, exactly "{text}"?',
    "num_words": "Is the number of words in the response {number}?",
    "word": 'Is word {number} of the response exactly "{text}"?',
    "absent": 'Does the response do without the word "{text}"?',
}
FORMS = {"number": "[0-9]{1,6}", "text": '[^"]*'}
_FIELD = re.compile(r"\{(\w+)\}")


def _lines(response: str) -> list[str]:
    return [line.strip() for line in response.split("\n") if line.strip()]


def _at(items: list[str], number: str) -> str | None:
    place = int(number) - 1
    return items[place] if place < len(items) else None


def _is_without(words: list[str], word: str) -> bool:
    return bool(words) and word not in words


RULES: Mapping[Kind, Callable[[str, Mapping[str, str]], bool]] = {
    "num_lines": lambda response, given: len(_lines(response)) == int(given["number"]),
    "line": lambda response, given: _at(_lines(response), given["number"]) == given["text"],
    "num_words": lambda response, given: len(response.split()) == int(given["number"]),
    "word": lambda response, given: _at(response.split(), given["number"]) == given["text"],
    "absent": lambda response, given: _is_without(response.split(), given["text"]),
}


def criterion(kind: Kind, **given: str | int) -> str:
    """Write a criterion."""
    return WORDINGS[kind].format(**given)


def decided(text: str, response: str) -> bool | None:
    """Say whether a response meets a criterion; None where the criterion is not one of ours."""
    for kind, wording in WORDINGS.items():
        found = pattern_of(wording, FORMS).fullmatch(text)
        if found:
            return RULES[kind](response, found.groupdict())
    return None


def pattern_of(template: str, forms: Mapping[str, str]) -> re.Pattern[str]:
    """Give a pattern that finds the fields of a template, each in its form, in what it became."""
    pieces, seen = [], set()
    for position, piece in enumerate(_FIELD.split(template)):
        if position % 2 == 0:
            pieces.append(re.escape(piece))
        else:
            pieces.append(f"(?P={piece})" if piece in seen else f"(?P<{piece}>{forms[piece]})")
            seen.add(piece)
    return re.compile("".join(pieces), re.DOTALL)
