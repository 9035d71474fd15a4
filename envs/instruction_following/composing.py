"""Composes answers that follow instructions, step by step for each instruction."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .answer import Arguments, SplitSentences, words

__all__ = ["Draft", "compose"]

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
"""Sentences without commas, capitals, words of one letter, and the letters j, x and z."""


@dataclass
class Draft:
    """The parts of an answer; its sentences have neither a capital nor a full stop yet."""

    split_sentences: SplitSentences
    contents: list[str] = field(default_factory=list)
    """Sentences with the content that was asked for."""
    num_paragraphs: int = 1
    separator: str = "\n\n"
    num_bullets: int = 0
    unwanted_marks: str = ""
    avoided: list[str] = field(default_factory=list)
    """Words that no filler may contain."""
    beginning: str = ""
    beginning_paragraph: int = 1
    """The number, from 1, of the paragraph that starts with the beginning."""
    ending: str = ""
    begins_all: bool = False
    """Every sentence starts with the beginning."""
    ends_all: bool = False
    is_closed: bool = True
    """Whether a mark follows the last sentence."""
    closing: str = ""
    """The text after all sentences."""
    finish: list[Callable[[str], str]] = field(default_factory=list)
    """Changes to the whole text, in order."""
    goals: list[Callable[[str], bool]] = field(default_factory=list)
    """Tests of the text's length, to be passed by adding sentences."""

    @property
    def mark(self) -> str:
        """The mark at the end of a sentence."""
        return next((mark for mark in ".!?" if mark not in self.unwanted_marks), "")

    def text(self, num_fillers: int) -> str:
        """Return the text, with `num_fillers` sentences more than it needs."""
        avoided = {word.lower() for word in self.avoided}
        usable = [filler for filler in FILLERS if not avoided & {*filler.split()}]
        fillers = itertools.cycle(usable or FILLERS)
        # Every paragraph needs a sentence, whatever the contents.
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


STAND_INS = ("other", "little", "bright", "new", "old")
"""Words that replace one in the middle of a phrase."""
MAX_FILLERS = 400


def compose(
    instructions: Sequence[tuple[str, Arguments]], split_sentences: SplitSentences
) -> str | None:
    """Return a text that follows instructions; None if one of them has no step here.

    Contradictions between instructions are not detected.
    """
    draft = Draft(split_sentences)
    for name, given in instructions:
        if name not in STEPS:
            return None
        STEPS[name](draft, given)
    # The shortest that reaches all lengths.
    texts = (draft.text(num_fillers) for num_fillers in range(MAX_FILLERS))
    return next((text for text in texts if all(goal(text) for goal in draft.goals)), None)


def _repeat(draft: Draft, keyword: str, count: int) -> None:
    draft.contents += [f"we remember the {keyword}"] * count


def _frequency(draft: Draft, given: Arguments) -> None:
    if given.relation == "at least":
        _repeat(draft, given.keyword, given.frequency)


def _existence(draft: Draft, given: Arguments) -> None:
    for keyword in given.keywords:
        _repeat(draft, keyword, 1)


def _once(draft: Draft, given: Arguments) -> None:
    _repeat(draft, given.keyword, 1)


def _one_and_two(draft: Draft, given: Arguments) -> None:
    _repeat(draft, given.keyword1, 1)
    _repeat(draft, given.keyword2, 2)


def _palindrome(draft: Draft, given: Arguments) -> None:
    draft.contents.append("by noon all is done")


def _capital_words(draft: Draft, given: Arguments) -> None:
    if given.capital_relation == "at least":
        draft.contents.append(f"everybody says {'YES ' * given.capital_frequency}at once")


def _phrase(draft: Draft, given: Arguments) -> None:
    phrase = given.phrase.split()
    fresh = itertools.cycle(word for word in STAND_INS if word not in phrase)
    middle = len(phrase) // 2
    for _ in range(given.small_n):
        variant = " ".join([*phrase[:middle], next(fresh), *phrase[middle + 1 :]])
        draft.contents.append(f"we tell them that {variant} once again")


def _placeholders(draft: Draft, given: Arguments) -> None:
    marks = " and ".join(f"[item {n}]" for n in range(1, given.num_placeholders + 1))
    draft.contents.append(f"please think of {marks} too")


def _highlights(draft: Draft, given: Arguments) -> None:
    marks = " and ".join(f"*point {n}*" for n in range(1, given.num_highlights + 1))
    draft.contents.append(f"please note {marks} too")


def _title(draft: Draft, given: Arguments) -> None:
    draft.contents.append("the title is <<our day>> this time")


def _postscript(draft: Draft, given: Arguments) -> None:
    draft.contents.append(f"{given.postscript_marker} all is well")


def _sections(draft: Draft, given: Arguments) -> None:
    numbers = range(1, given.num_sections + 1)
    draft.contents += [f"{given.section_spliter} {n} is about this hour" for n in numbers]


def _bullets(draft: Draft, given: Arguments) -> None:
    draft.num_bullets = given.num_bullets


def _paragraphs(separator: str, num: int | None = None) -> Callable[[Draft, Arguments], None]:
    """Return a step that divides the text into `num` paragraphs, or into the row's number."""

    def step(draft: Draft, given: Arguments) -> None:
        draft.separator = separator
        draft.num_paragraphs = num or given.num_paragraphs

    return step


def _paragraph_beginning(draft: Draft, given: Arguments) -> None:
    draft.num_paragraphs = given.num_paragraphs
    draft.beginning, draft.beginning_paragraph = given.first_word, given.nth_paragraph


def _beginning(draft: Draft, given: Arguments) -> None:
    draft.beginning = given.first_word


def _all_beginnings(draft: Draft, given: Arguments) -> None:
    draft.beginning, draft.begins_all = given.first_word, True


def _ending(draft: Draft, given: Arguments) -> None:
    draft.ending = given.last_word


def _all_endings(draft: Draft, given: Arguments) -> None:
    draft.ending, draft.ends_all = given.last_word, True


def _same_ends(draft: Draft, given: Arguments) -> None:
    draft.beginning = draft.ending = "river"
    # The last word must be the end of the text.
    draft.is_closed = False


def _closing(draft: Draft, given: Arguments) -> None:
    draft.closing = given.end_phrase


def _num_words(draft: Draft, given: Arguments) -> None:
    if given.relation == "at least":
        draft.goals.append(lambda text: len(words(text)) >= given.num_words)


def _num_sentences(draft: Draft, given: Arguments) -> None:
    if given.relation == "at least":
        goal = given.num_sentences
        draft.goals.append(lambda text: len(draft.split_sentences(text)) >= goal)


def _num_letters(draft: Draft, given: Arguments) -> None:
    if given.relation == "at least":
        draft.goals.append(lambda text: len(re.findall("[a-zA-Z]", text)) >= given.N)


def _letter(draft: Draft, given: Arguments) -> None:
    if given.let_relation != "at least":
        return
    if given.letter not in " ".join(FILLERS):
        draft.contents.append(f"we write {' '.join(given.letter * given.let_frequency)} too")
    else:
        draft.goals.append(lambda text: text.lower().count(given.letter) >= given.let_frequency)


def _request(draft: Draft, given: Arguments) -> None:
    draft.finish.append(lambda text: f"{given.prompt_to_repeat}\n\n{text}")


def _constrained(draft: Draft, given: Arguments) -> None:
    draft.closing = "My answer is maybe."


def _avoided(draft: Draft, given: Arguments) -> None:
    draft.avoided += [*given.forbidden_words, given.keyword]


def _no_mark(mark: str) -> Callable[[Draft, Arguments], None]:
    """Return a step that avoids a mark; the sentences have no commas anyway."""

    def step(draft: Draft, given: Arguments) -> None:
        draft.unwanted_marks += mark

    return step


def _finished(change: Callable[[str], str]) -> Callable[[Draft, Arguments], None]:
    """Return a step that changes the finished text."""

    def step(draft: Draft, given: Arguments) -> None:
        draft.finish.append(change)

    return step


STEPS: dict[str, Callable[[Draft, Arguments], None]] = {
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": _finished(str.upper),
    "change_case:english_lowercase": _finished(str.lower),
    "combination:repeat_prompt": _request,
    "combination:two_responses": _paragraphs("\n******\n", 2),
    "copy:repeat_phrase": _phrase,
    "count:count_increment_word": _one_and_two,
    # In capitals, so that no word is lowercase.
    "count:lowercase_counting": _finished(str.upper),
    "detectable_content:number_placeholders": _placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:constrained_response": _constrained,
    "detectable_format:json_format": _finished(lambda text: json.dumps({"answer": text})),
    "detectable_format:multiple_sections": _sections,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:title": _title,
    "first_word:first_word_answer": _beginning,
    "first_word:first_word_sent": _all_beginnings,
    "keywords:exclude_word_harder": _avoided,
    "keywords:existence": _existence,
    "keywords:forbidden_words": _avoided,
    "keywords:frequency": _frequency,
    "keywords:letter_frequency": _letter,
    "keywords:palindrome": _palindrome,
    "keywords:start_end": _same_ends,
    "keywords:word_count_different_numbers": _frequency,
    "keywords:word_once": _once,
    "last_word:last_word_answer": _ending,
    "last_word:last_word_sent": _all_endings,
    "length_constraints:nth_paragraph_first_word": _paragraph_beginning,
    "length_constraints:number_paragraphs": _paragraphs("\n***\n"),
    "length_constraints:number_sentences": _num_sentences,
    "length_constraints:number_words": _num_words,
    "letters:letter_counting": _num_letters,
    "letters:letter_counting2": _letter,
    "paragraphs:paragraphs": _paragraphs("\n***\n", 2),
    "paragraphs:paragraphs2": _paragraphs("\n\n", 2),
    "punctuation:no_comma": _no_mark(","),
    "punctuation:punctuation_dot": _no_mark("."),
    "punctuation:punctuation_exclamation": _no_mark("!"),
    "startend:end_checker": _closing,
    "startend:quotation": _finished(lambda text: f'"{text}"'),
}
