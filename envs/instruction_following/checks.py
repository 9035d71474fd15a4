"""Maps the id of every instruction to its check and the arguments that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import form, wording
from .answer import Answer, Arguments

__all__ = ["CHECKS", "Check"]


class Check(NamedTuple):
    """A check, with the names of the arguments that a row must have."""

    is_followed: Callable[[Answer, Arguments], bool]
    needs: tuple[str, ...] = ()
    require: Callable[[Arguments], None] | None = None
    """Raises if the arguments are such that no answer can be checked."""
    splits_sentences: bool = False


# The reference has several ids for some of its checks.
_FREQUENCY = Check(wording.has_keyword_often, ("keyword", "frequency", "relation"))
_LETTER = Check(wording.has_letter_often, ("letter", "let_frequency", "let_relation"))
_COPY = Check(form.is_copy, ("prompt_to_repeat",))
_CAPITAL_WORDS = Check(wording.has_capital_words, ("capital_frequency", "capital_relation"))
_FIRST_WORDS = ("num_paragraphs", "nth_paragraph", "first_word")

CHECKS = {
    "change_case:capital_word_frequency": _CAPITAL_WORDS,
    "change_case:english_capital": Check(wording.is_uppercase),
    "change_case:english_lowercase": Check(wording.is_lowercase),
    "combination:repeat_prompt": Check(form.begins_with_request, ("prompt_to_repeat",)),
    "combination:two_responses": Check(form.is_two_responses),
    "copy:copy": _COPY,
    "copy:copying_multiple": Check(form.is_repeated_copy, ("prompt_to_repeat", "N")),
    "copy:copying_simple": _COPY,
    "copy:repeat_phrase": Check(form.varies_phrase, ("phrase", "small_n")),
    "count:count_increment_word": Check(wording.has_one_and_two, ("keyword1", "keyword2")),
    "count:count_unique": Check(wording.has_unique_words),
    "count:counting_composition": Check(
        form.has_composition, ("n_sent", "n_words"), splits_sentences=True
    ),
    "count:lowercase_counting": Check(wording.has_few_lowercase_words, ("N",)),
    "detectable_content:number_placeholders": Check(form.has_placeholders, ("num_placeholders",)),
    "detectable_content:postscript": Check(form.has_postscript, ("postscript_marker",)),
    "detectable_format:bigram_wrapping": Check(form.has_wrapped_bigrams),
    "detectable_format:constrained_response": Check(form.is_constrained),
    "detectable_format:json_format": Check(form.is_json),
    "detectable_format:multiple_sections": Check(
        form.has_sections, ("section_spliter", "num_sections")
    ),
    "detectable_format:number_bullet_lists": Check(form.has_bullets, ("num_bullets",)),
    "detectable_format:number_highlighted_sections": Check(
        form.has_highlights, ("num_highlights",)
    ),
    "detectable_format:sentence_hyphens": Check(form.is_hyphenated, splits_sentences=True),
    "detectable_format:square_brackets": Check(form.has_bracketed_words),
    "detectable_format:title": Check(form.has_title),
    "first_word:first_word_answer": Check(wording.begins_with_word, ("first_word",)),
    "first_word:first_word_sent": Check(
        wording.sentences_begin_with_word, ("first_word",), splits_sentences=True
    ),
    "keywords:exclude_word_harder": Check(wording.has_no_loose_keyword, ("keyword",)),
    "keywords:existence": Check(wording.has_keywords, ("keywords",)),
    "keywords:forbidden_words": Check(wording.has_no_forbidden_word, ("forbidden_words",)),
    "keywords:frequency": _FREQUENCY,
    "keywords:keyword_specific_position": Check(
        wording.has_keyword_at_place, ("keyword", "n", "m"), splits_sentences=True
    ),
    "keywords:letter_frequency": _LETTER,
    "keywords:no_adjacent_consecutive": Check(wording.has_no_consecutive_initials),
    "keywords:palindrome": Check(wording.has_palindrome),
    "keywords:start_end": Check(wording.begins_and_ends_alike),
    "keywords:word_count_different_numbers": _FREQUENCY,
    "keywords:word_once": Check(wording.has_keyword_once, ("keyword",)),
    "language:response_language": Check(
        wording.is_in_language, ("language",), wording.require_language
    ),
    "last_word:last_word_answer": Check(wording.ends_with_word, ("last_word",)),
    "last_word:last_word_sent": Check(
        wording.sentences_end_with_word, ("last_word",), splits_sentences=True
    ),
    "length_constraints:nth_paragraph_first_word": Check(
        form.begins_paragraph_with_word, _FIRST_WORDS
    ),
    "length_constraints:number_paragraphs": Check(form.has_num_paragraphs, ("num_paragraphs",)),
    "length_constraints:number_sentences": Check(
        form.has_num_sentences, ("num_sentences", "relation"), splits_sentences=True
    ),
    "length_constraints:number_words": Check(form.has_num_words, ("num_words", "relation")),
    "letters:letter_counting": Check(wording.has_letters, ("N", "relation")),
    "letters:letter_counting2": _LETTER,
    "new:copy_span_idx": Check(form.is_copy_of_span, ("prompt_to_repeat", "n_start", "n_end")),
    "paragraphs:paragraphs": Check(form.has_two_paragraphs),
    "paragraphs:paragraphs2": Check(form.has_two_spaced_paragraphs),
    "punctuation:no_comma": Check(form.has_no_comma),
    "punctuation:punctuation_dot": Check(form.has_no_dot),
    "punctuation:punctuation_exclamation": Check(form.has_no_exclamation_mark),
    "startend:end_checker": Check(form.ends_with_phrase, ("end_phrase",)),
    "startend:quotation": Check(form.is_quoted),
}
