"""Lists the instructions that tasks give, with what the prompt says of them."""

from __future__ import annotations

from typing import NamedTuple

from . import draws

__all__ = ["FIRM", "OTHERS", "Offer"]


class Offer(NamedTuple):
    """An instruction that a task may give."""

    id: str
    claims: str
    """What it decides; two that claim the same are not given together."""
    text: str
    """What the prompt says, with places for the arguments."""
    draw: draws.Draw = draws.nothing


FIRM = (
    Offer(
        "keywords:frequency",
        "words",
        'Use the word "{keyword}" {relation} {frequency} times.',
        draws.frequency,
    ),
    Offer(
        "startend:end_checker",
        "edges case",
        'Let the text end with "{end_phrase}", and put nothing after it, not even a full stop.',
        draws.end_phrase,
    ),
    Offer(
        "first_word:first_word_sent",
        "edges sentences",
        'Begin every single sentence with the word "{first_word}", with nothing before it, and '
        "with a space and no punctuation after it.",
        draws.first_word,
    ),
    Offer(
        "length_constraints:nth_paragraph_first_word",
        "structure edges",
        "Write {num_paragraphs} paragraphs with one blank line between them, and let paragraph "
        '{nth_paragraph} begin with the word "{first_word}", with a space and no punctuation after '
        "it.",
        draws.paragraph_word,
    ),
    Offer(
        "count:count_increment_word",
        "words",
        'Use the word "{keyword1}" exactly once and the word "{keyword2}" exactly twice, both '
        "counted inside longer words too.",
        draws.one_and_two,
    ),
    Offer(
        "last_word:last_word_answer",
        "edges",
        'Let "{last_word}" be the very last word of the text.',
        draws.last_word,
    ),
    Offer(
        "copy:repeat_phrase",
        "words case",
        'Use the phrase "{phrase}" exactly {small_n} times, and each time replace one word in the '
        "middle of it by one that it does not have. Keep its first and its last word as they are, "
        "in small letters even at the start of a sentence, and use its first word nowhere else.",
        draws.phrase,
    ),
    Offer(
        "first_word:first_word_answer",
        "edges",
        'Let "{first_word}" be the very first word of the text, with nothing before it, and with a '
        "space and no punctuation after it.",
        draws.first_word,
    ),
    Offer(
        "keywords:word_count_different_numbers",
        "words",
        'The word "{keyword}" has to come {relation} {frequency} times.',
        draws.frequency,
    ),
    Offer(
        "last_word:last_word_sent",
        "edges sentences",
        'End every single sentence with the word "{last_word}", followed by its punctuation.',
        draws.last_word,
    ),
)
"""Instructions that neither silence nor the prompt said back nor another task's answer follows."""

OTHERS = (
    Offer(
        "keywords:existence",
        "words",
        "Mention each of these words: {keywords}.",
        draws.keywords,
    ),
    Offer(
        "keywords:word_once",
        "words",
        'Use the word "{keyword}" once and only once, counted inside longer words too.',
        draws.keyword,
    ),
    Offer(
        "keywords:letter_frequency",
        "letters",
        'The letter "{letter}" has to come {let_relation} {let_frequency} times.',
        draws.letter,
    ),
    Offer(
        "letters:letter_counting2",
        "letters",
        'Use the letter "{letter}" {let_relation} {let_frequency} times.',
        draws.letter,
    ),
    Offer(
        "letters:letter_counting",
        "length",
        "Use {relation} {N} letters in all.",
        draws.length("N", (200, 400), (900, 1200)),
    ),
    Offer(
        "length_constraints:number_words",
        "length",
        'Write {relation} {num_words} words; "don\'t" and "well-lit" count as two each.',
        draws.length("num_words", (80, 160), (180, 240)),
    ),
    Offer(
        "length_constraints:number_sentences",
        "length",
        "Write {relation} {num_sentences} sentences.",
        draws.length("num_sentences", (6, 12), (20, 25)),
    ),
    Offer(
        "keywords:palindrome",
        "palindrome",
        "Use at least one word of three letters or more that reads the same backwards; let it "
        "stand between two spaces, all in capitals or all in small letters.",
    ),
    Offer(
        "length_constraints:number_paragraphs",
        "structure sentences",
        "Write {num_paragraphs} paragraphs, with a line that holds only *** between them.",
        draws.count("num_paragraphs", 3, 5),
    ),
    Offer(
        "paragraphs:paragraphs",
        "structure sentences",
        "Write two paragraphs, with a line that holds only *** between them.",
    ),
    Offer(
        "paragraphs:paragraphs2",
        "structure",
        "Write two paragraphs with one blank line between them and none elsewhere.",
    ),
    Offer(
        "combination:two_responses",
        "structure sentences",
        "Write two different versions, with a line that holds only ****** between them.",
    ),
    Offer(
        "detectable_format:number_bullet_lists",
        "ornament structure sentences",
        "Have a list of exactly {num_bullets} bullet points, each on a line that begins with a "
        "hyphen, and no other line that begins with a hyphen or a star.",
        draws.count("num_bullets", 2, 6),
    ),
    Offer(
        "detectable_format:multiple_sections",
        "structure sentences case",
        'Write {num_sections} sections or more, which begin with "{section_spliter} 1", '
        '"{section_spliter} 2" and so on.',
        draws.sections,
    ),
    Offer(
        "detectable_format:json_format",
        "structure sentences edges",
        "Give all of it as one JSON object, with the text as the value of a key.",
    ),
    Offer(
        "detectable_format:title",
        "ornament structure sentences edges",
        "Give it a title, written <<like this>>.",
    ),
    Offer(
        "detectable_content:number_placeholders",
        "ornament",
        "Leave {num_placeholders} things or more open as placeholders in square brackets, such as "
        "[name].",
        draws.count("num_placeholders", 2, 5),
    ),
    Offer(
        "detectable_format:number_highlighted_sections",
        "ornament",
        "Highlight {num_highlights} places or more in Markdown, *like this*.",
        draws.count("num_highlights", 2, 5),
    ),
    Offer(
        "detectable_content:postscript",
        "ornament structure sentences stop case",
        'Add a postscript that begins with "{postscript_marker}".',
        draws.marker,
    ),
    Offer(
        "keywords:forbidden_words",
        "avoidance",
        "Avoid each of these words: {forbidden_words}.",
        draws.forbidden,
    ),
    Offer(
        "keywords:exclude_word_harder", "avoidance", 'Avoid the word "{keyword}".', draws.excluded
    ),
    Offer("punctuation:no_comma", "comma", "Use no commas."),
    Offer("punctuation:punctuation_dot", "stop", "Use no full stops, and no other dots."),
    Offer("punctuation:punctuation_exclamation", "stop", "Use no exclamation marks."),
    Offer("change_case:english_capital", "case", "Write in capital letters only."),
    Offer("change_case:english_lowercase", "case", "Write in small letters only."),
    Offer(
        "count:lowercase_counting",
        "case",
        "Have at most {N} words that are written in small letters alone; what follows an "
        "apostrophe or a hyphen is a word of its own.",
        draws.count("N", 2, 5),
    ),
    Offer(
        "change_case:capital_word_frequency",
        "case",
        "Write {capital_relation} {capital_frequency} words in capital letters.",
        draws.capitals,
    ),
    Offer(
        "startend:quotation",
        "edges",
        'Put the whole text in straight double quotation marks, "like this".',
    ),
    Offer(
        "keywords:start_end",
        "edges",
        "Begin and end the text with the same word, with nothing before or after it, not even a "
        "full stop.",
    ),
)
"""Further instructions; some of them are followed by silence or by the prompt said back."""
