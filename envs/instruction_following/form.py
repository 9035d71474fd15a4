"""Checks the form of an answer: length, paragraphs, sections, punctuation, wrapping and copies."""

from __future__ import annotations

import json
import re

from .answer import Answer, Arguments, compare, stretches, words

__all__ = [
    "begins_paragraph_with_word",
    "begins_with_request",
    "ends_with_phrase",
    "has_bracketed_words",
    "has_bullets",
    "has_composition",
    "has_highlights",
    "has_no_comma",
    "has_no_dot",
    "has_no_exclamation_mark",
    "has_num_paragraphs",
    "has_num_sentences",
    "has_num_words",
    "has_placeholders",
    "has_postscript",
    "has_sections",
    "has_title",
    "has_two_paragraphs",
    "has_two_spaced_paragraphs",
    "has_wrapped_bigrams",
    "is_constrained",
    "is_copy",
    "is_copy_of_span",
    "is_hyphenated",
    "is_json",
    "is_quoted",
    "is_repeated_copy",
    "is_two_responses",
    "varies_phrase",
]

_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
# As in IFEval, apostrophes and hyphens separate words here; in `answer.words` they join them.
_WORD = re.compile(r"\w+")
_DIVIDER = re.compile(r"\s?\*\*\*\s?")
# White space without line breaks: with IFEval's `\s*`, many blank lines take quadratic time.
_STAR_BULLET = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*-", re.MULTILINE)
_EMPHASIS = re.compile(r"\*[^\n*]*\*")
_STRONG = re.compile(r"\*\*[^\n*]*\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")
# IFEval's patterns for its own two markers; any other marker is a pattern itself.
_POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
_MARK_AFTER_WORD = re.compile(r"[.,?!'\"]")


def has_num_sentences(answer: Answer, given: Arguments) -> bool:
    """Return whether there are at least, or less than, `num_sentences` sentences."""
    return compare(len(answer.sentences), given.relation, given.num_sentences)


def has_num_words(answer: Answer, given: Arguments) -> bool:
    """Return whether there are at least, or less than, `num_words` runs of letters and digits."""
    return compare(len(_WORD.findall(answer.text)), given.relation, given.num_words)


def has_num_paragraphs(answer: Answer, given: Arguments) -> bool:
    """Return whether `***` divides the answer into `num_paragraphs` paragraphs."""
    return _num_parts(_DIVIDER.split(answer.text)) == given.num_paragraphs


def has_two_paragraphs(answer: Answer, given: Arguments) -> bool:
    """Return whether `***` divides the answer into two paragraphs."""
    return _num_parts(_DIVIDER.split(answer.text)) == 2


def has_two_spaced_paragraphs(answer: Answer, given: Arguments) -> bool:
    """Return whether a blank line divides the answer into two paragraphs."""
    return _num_parts(answer.text.split("\n\n")) == 2


def _num_parts(parts: list[str]) -> int | None:
    """Count the parts that are not blank; None if one between the first and the last is blank."""
    # As in IFEval, a separator may begin or end the text.
    if not all(part.strip() for part in parts[1:-1]):
        return None
    return sum(bool(part.strip()) for part in parts)


def begins_paragraph_with_word(answer: Answer, given: Arguments) -> bool:
    """Return whether there are `num_paragraphs` paragraphs and the n-th begins with the word."""
    paragraphs = answer.text.split("\n\n")
    if sum(bool(paragraph.strip()) for paragraph in paragraphs) != given.num_paragraphs:
        return False
    # As in IFEval, blank paragraphs are not counted above, but have a number here.
    first = "".join(paragraphs[given.nth_paragraph - 1].split(maxsplit=1)[:1])
    bare = first.lstrip("'").lstrip('"')
    return _MARK_AFTER_WORD.split(bare, maxsplit=1)[0].lower() == given.first_word.lower()


def has_composition(answer: Answer, given: Arguments) -> bool:
    """Return whether `***` divides three paragraphs of `n_sent` sentences of `n_words` words."""
    paragraphs = _DIVIDER.split(answer.text)
    return len(paragraphs) == 3 and all(
        [len(words(sentence)) for sentence in answer.split_sentences(paragraph)]
        == [given.n_words] * given.n_sent
        for paragraph in paragraphs
    )


def has_placeholders(answer: Answer, given: Arguments) -> bool:
    """Return whether there are at least `num_placeholders` placeholders in square brackets."""
    return sum(1 for _ in stretches(answer.text, "[", "]")) >= given.num_placeholders


def has_postscript(answer: Answer, given: Arguments) -> bool:
    """Return whether the postscript's marker occurs anywhere, in any case."""
    marker = given.postscript_marker
    return bool(answer.find(_POSTSCRIPTS.get(marker, answer.pattern(marker))))


def has_bullets(answer: Answer, given: Arguments) -> bool:
    """Return whether exactly `num_bullets` lines begin with a single `*` or with `-`."""
    text = answer.text
    count = len(_STAR_BULLET.findall(text)) + len(_DASH_BULLET.findall(text))
    return count == given.num_bullets


def has_highlights(answer: Answer, given: Arguments) -> bool:
    """Return whether at least `num_highlights` parts are emphasised with `*` or `**`."""
    # The pattern for `*` also finds the marks of `**` alone, which hold nothing.
    found = [*_EMPHASIS.findall(answer.text), *_STRONG.findall(answer.text)]
    return sum(bool(stretch.strip("*").strip()) for stretch in found) >= given.num_highlights


def has_sections(answer: Answer, given: Arguments) -> bool:
    """Return whether the section's word precedes a number at least `num_sections` times."""
    pattern = rf"(?:{answer.pattern(given.section_spliter)})\s?\d+"
    # In its own case, unlike keywords.
    return len(answer.find(pattern, flags=0)) >= given.num_sections


def has_title(answer: Answer, given: Arguments) -> bool:
    """Return whether a line has a text in double angle brackets."""
    for line in answer.text.split("\n"):
        # From the first bracket to the last, like IFEval's greedy pattern.
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def is_constrained(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer contains one of the three sentences that IFEval allows."""
    return any(sentence in answer.text for sentence in _CONSTRAINED)


def is_json(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer is JSON, with or without a code fence."""
    text = answer.text.strip()
    # IFEval's list; text after any other fence is not JSON.
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    return True


def is_hyphenated(answer: Answer, given: Arguments) -> bool:
    """Return whether sentences are joined by hyphens only, and hyphens are nowhere else."""
    parts = answer.text.split("-")
    # As in the reference, surplus parts on either side are ignored.
    pairs = zip(parts, answer.split_sentences(answer.text.replace("-", " ")), strict=False)
    return all(part == sentence for part, sentence in pairs)


def has_bracketed_words(answer: Answer, given: Arguments) -> bool:
    """Return whether every word, split at white space, is in square brackets."""
    return all(word.startswith("[") and word.endswith("]") for word in answer.text.split())


def has_wrapped_bigrams(answer: Answer, given: Arguments) -> bool:
    """Return whether pairs of words are in double angle brackets; a last odd word need not be."""
    found = answer.text.split()
    pairs = zip(found[::2], found[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


def is_two_responses(answer: Answer, given: Arguments) -> bool:
    """Return whether `******` separates two different answers."""
    parts = answer.text.split("******")
    texts = [part.strip() for part in parts if part.strip()]
    return _num_parts(parts) == 2 and texts[0] != texts[1]


def begins_with_request(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer begins with the request, in any case."""
    return answer.text.strip().lower().startswith(given.prompt_to_repeat.strip().lower())


def ends_with_phrase(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer ends with the phrase, in any case; quotation marks may follow."""
    return answer.text.strip().strip('"').lower().endswith(given.end_phrase.lower())


def is_quoted(answer: Answer, given: Arguments) -> bool:
    """Return whether the whole answer is in double quotation marks."""
    text = answer.text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def has_no_comma(answer: Answer, given: Arguments) -> bool:
    """Return whether there is no comma."""
    return "," not in answer.text


def has_no_dot(answer: Answer, given: Arguments) -> bool:
    """Return whether there is no full stop."""
    return "." not in answer.text


def has_no_exclamation_mark(answer: Answer, given: Arguments) -> bool:
    """Return whether there is no exclamation mark."""
    return "!" not in answer.text


def varies_phrase(answer: Answer, given: Arguments) -> bool:
    """Return whether the phrase occurs `small_n` times, each with at most one word changed.

    The last one must have a changed word.
    """
    phrase = given.phrase.split()
    found = [s.split() for s in stretches(answer.text, f"{phrase[0]} ", f" {phrase[-1]}")]
    if len(found) != given.small_n or any(len(variant) != len(phrase) for variant in found):
        return False
    num_changes = [sum(a != b for a, b in zip(v, phrase, strict=True)) for v in found]
    return max(num_changes, default=0) == 1 == num_changes[-1]


def is_copy(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer is the request, in any case, and nothing else."""
    return answer.text.strip().lower() == given.prompt_to_repeat.strip().lower()


def is_repeated_copy(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer is the request `N` times, separated by `******`."""
    wanted = given.prompt_to_repeat.strip().lower()
    return [part.strip().lower() for part in answer.text.split("******")] == [wanted] * given.N


def is_copy_of_span(answer: Answer, given: Arguments) -> bool:
    """Return whether the answer is the request's characters from `n_start` up to `n_end`."""
    span = given.prompt_to_repeat[given.n_start : given.n_end]
    return answer.text.strip().lower() == span.strip().lower()
