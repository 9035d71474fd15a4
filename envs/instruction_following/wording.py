"""Checks the words and letters of an answer: which, how often, in what case and where."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path
from types import ModuleType

from gymcli import MissingPackageError

from .answer import Answer, Arguments, compare, words

__all__ = [
    "begins_and_ends_alike",
    "begins_with_word",
    "ends_with_word",
    "has_capital_words",
    "has_few_lowercase_words",
    "has_keyword_at_place",
    "has_keyword_often",
    "has_keyword_once",
    "has_keywords",
    "has_letter_often",
    "has_letters",
    "has_no_consecutive_initials",
    "has_no_forbidden_word",
    "has_no_loose_keyword",
    "has_one_and_two",
    "has_palindrome",
    "has_unique_words",
    "is_in_language",
    "is_lowercase",
    "is_uppercase",
    "require_language",
    "sentences_begin_with_word",
    "sentences_end_with_word",
]

_LOWERCASE_WORD = re.compile(r"\b[a-z]+\b")
_LETTER = re.compile(r"[a-zA-Z]")
_PUNCTUATION = re.compile(r"[^\w\s]")
# Most of NLTK's separators, so that "P.S." and "WELL-KNOWN" are one word each, as in IFEval.
_CAPITALS = re.compile(r"[^\s,;:@#$%&?!()\[\]{}<>\"\u201c\u201d\u2018\u2019\u00ab\u00bb]+")


def _num_found(answer: Answer, keyword: str) -> int:
    return len(answer.find(answer.pattern(keyword)))


def has_keywords(answer: Answer, given: Arguments) -> bool:
    """Return whether every keyword is found, in any case, also within words."""
    return all(_num_found(answer, keyword) for keyword in given.keywords)


def has_keyword_often(answer: Answer, given: Arguments) -> bool:
    """Return whether a keyword is found at least, or less than, `frequency` times."""
    return compare(_num_found(answer, given.keyword), given.relation, given.frequency)


def has_keyword_once(answer: Answer, given: Arguments) -> bool:
    """Return whether a keyword is found exactly once."""
    return _num_found(answer, given.keyword) == 1


def has_one_and_two(answer: Answer, given: Arguments) -> bool:
    """Return whether one keyword is found exactly once and the other exactly twice."""
    found = (_num_found(answer, given.keyword1), _num_found(answer, given.keyword2))
    return found == (1, 2)


def has_no_forbidden_word(answer: Answer, given: Arguments) -> bool:
    """Return whether no forbidden word occurs as a whole word, in any case."""
    patterns = (rf"\b(?:{answer.pattern(word)})\b" for word in given.forbidden_words)
    return not any(answer.find(pattern) for pattern in patterns)


def has_no_loose_keyword(answer: Answer, given: Arguments) -> bool:
    """Return whether a keyword, in its own case, is never between two spaces."""
    # As in the reference, a word next to punctuation or at either end is not found.
    return f" {given.keyword} " not in answer.text


def has_keyword_at_place(answer: Answer, given: Arguments) -> bool:
    """Return whether the m-th word of the n-th sentence is the keyword, in its own case."""
    sentence = answer.sentences[given.n - 1 : given.n]
    return bool(sentence) and words(sentence[0])[given.m - 1 : given.m] == [given.keyword]


def begins_and_ends_alike(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer begins and ends with the same word, without marks around it."""
    text = answer.text.strip()
    found = words(text)
    if len(found) < 2 or found[0].lower() != found[-1].lower():
        return False
    return text.startswith(found[0]) and text.endswith(found[-1])


def has_no_consecutive_initials(answer: Answer, given: Arguments) -> bool:
    """Return whether no word's initial is the next letter after that of the word before it."""
    initials = [word[0].lower() for word in answer.text.split()]
    # Some capitals, such as "\u0130", are two characters in lower case, which `ord` refuses.
    if len(initials) > 1 and any(len(initial) != 1 for initial in initials):
        return False
    return not any(ord(later) - ord(first) == 1 for first, later in itertools.pairwise(initials))


def has_palindrome(answer: Answer, given: Arguments) -> bool:
    """Return whether a word, split at white space, reads the same backwards."""
    # As in the reference, a single letter is one.
    return any(word == word[::-1] for word in answer.text.split())


def has_unique_words(answer: Answer, given: Arguments) -> bool:
    """Return whether no word occurs twice; words that differ in case are different."""
    found = words(answer.text)
    return len(found) == len(set(found))


def has_letter_often(answer: Answer, given: Arguments) -> bool:
    """Return whether a letter of any case occurs at least, or less than, `let_frequency` times."""
    count = answer.text.lower().count(given.letter)
    return compare(count, given.let_relation, given.let_frequency)


def has_letters(answer: Answer, given: Arguments) -> bool:
    """Return whether there are at least, or less than, `N` letters from A to Z."""
    return compare(len(_LETTER.findall(answer.text)), given.relation, given.N)


def has_few_lowercase_words(answer: Answer, given: Arguments) -> bool:
    """Return whether at most `N` words have only lowercase letters from a to z."""
    return len(_LOWERCASE_WORD.findall(answer.text)) <= given.N


def has_capital_words(answer: Answer, given: Arguments) -> bool:
    """Return whether at least, or less than, `capital_frequency` words are in capitals."""
    # Single letters such as "I" count too.
    count = sum(word.isupper() for word in _CAPITALS.findall(answer.text))
    return compare(count, given.capital_relation, given.capital_frequency)


def is_uppercase(answer: Answer, given: Arguments) -> bool:
    """Return whether all letters are capitals, in any language."""
    # IFEval also asks langdetect whether the text is English.
    return answer.text.isupper()


def is_lowercase(answer: Answer, given: Arguments) -> bool:
    """Return whether all letters are lowercase, in any language."""
    return answer.text.islower()


def begins_with_word(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer begins with the word, in any case and without punctuation."""
    return _first_word(answer.text) == given.first_word.lower()


def ends_with_word(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer ends with the word, in any case; punctuation may follow."""
    return _last_word(answer.text) == given.last_word.lower()


def sentences_begin_with_word(answer: Answer, given: Arguments) -> bool:
    """Return whether every sentence begins with the word, in any case."""
    first_word = given.first_word.lower()
    return all(_first_word(sentence) == first_word for sentence in answer.sentences)


def sentences_end_with_word(answer: Answer, given: Arguments) -> bool:
    """Return whether every sentence ends with the word, in any case; punctuation may follow."""
    last_word = given.last_word.lower()
    return all(_last_word(sentence) == last_word for sentence in answer.sentences)


def _first_word(text: str) -> str:
    # As in the reference, punctuation at the first word stays, unlike that at the last.
    return "".join(text.split(maxsplit=1)[:1]).lower()


def _last_word(text: str) -> str:
    return _PUNCTUATION.sub("", "".join(text.rsplit(maxsplit=1)[-1:])).lower()


MAX_CHARACTERS = 10_000
"""The most characters of an answer that are read; langdetect reads as many, but first removes web
addresses."""


def require_language(given: Arguments) -> None:
    """Check that langdetect can detect the language.

    Raises:
        MissingPackageError: langdetect is not installed.
        ValueError: langdetect does not know the language.

    """
    known = sorted(path.name for path in Path(_langdetect().PROFILES_DIRECTORY).iterdir())
    if given.language not in known:
        raise ValueError(
            f"langdetect knows no language {given.language!r}, only {', '.join(known)}"
        )


def is_in_language(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer is in the language, or in none, such as a text of digits."""
    langdetect = _langdetect()
    # Without a seed, langdetect samples at random and its result varies.
    langdetect.DetectorFactory.seed = 0
    try:
        return bool(langdetect.detect(answer.text[:MAX_CHARACTERS]) == given.language)
    except langdetect.LangDetectException as error:
        # Any other code means that the package is damaged.
        if error.get_code() != langdetect.lang_detect_exception.ErrorCode.CantDetectError:
            raise
        return True


def _langdetect() -> ModuleType:
    try:
        return importlib.import_module("langdetect")  # late: an extra
    except ImportError as error:
        raise MissingPackageError(
            "language:response_language needs the package langdetect: pip install 'gymcli[ifeval]'"
        ) from error
