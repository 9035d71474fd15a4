r"""Asks multiple-choice questions and reads the chosen letter in one of six ways.

Sources: the resources server mcqa of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented independently;
of `last_answer_colon`, the scorer `choice` of inspect_ai 0.3.285 (MIT) for questions with one right
answer. The mode `letter` is our own. A row's `template_metadata.output_regex` is tried first; if it
finds nothing, the option `grading_mode` decides, else the row's. Leniency kept from NeMo Gym: a
row's pattern may find a letter that no option has, `\boxed{E. coli}` is E, "Answer: b" is B, and
"Answer: I'd say B" is I. Differences from NeMo Gym 0.7:

- If a pattern has several groups, the first one counts.
- An invalid pattern finds nothing; one that takes too long leaves the rollout unscored.
- Letters of other scripts are mapped only if they are not part of a word, so that option texts stay
  whole. `lenient_answer_colon`, and a box that holds nothing else, map them too.
- Commands for fonts, such as `\text{...}` and `\mathbf{...}`, are read as their content, without
  invisible characters, in boxes, options and after "Answer:". There, `lenient_answer_colon` reads
  what is in a box, or between `$`, `*`, `_` or backquotes on both sides.
- In `lenient_boxed`, the text of an option counts only as whole words and whole signed numbers:
  there is no 71 in `\boxed{171}` or `\boxed{71:2}`, no 5 in -5, and no "organic" in "inorganic". In
  scripts without spaces between words it counts anywhere. A box that is exactly the text of one
  option is that option, even if the text begins like a label.
- In `lenient_answer_colon_md`, letters that no option has are skipped: "Answer: I think B" is B
  where there is no I. A leading letter may be in brackets, and "A, or B" is ambiguous.

One row:
{"id": "mcqa-0", "prompt": "Which is the largest?\n\nA: 12\nB: 71\n\nPut the letter in \\boxed{}.",
"options": [{"A": "12"}, {"B": "71"}], "expected_answer": "B", "grading_mode": "lenient_boxed"}
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal

from pydantic import BaseModel

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    closed_boxes,
    last_answer_line,
    last_boxed,
    plain_answer,
    without_text_commands,
)
from gymcli.envs import load_generator

__all__ = ["MultipleChoice", "Question"]

RowMode = Literal[
    "strict_single_letter_boxed",
    "lenient_boxed",
    "lenient_answer_colon",
    "last_answer_colon",
    "letter",
]
Mode = Literal[RowMode, "lenient_answer_colon_md"]

Choices = dict[str, str]
"""The options' texts by their letters, in upper case."""

OTHER_LETTERS = "أبجدঅবডঢ"
OTHER_SCRIPTS = str.maketrans(OTHER_LETTERS, "ABCD" * 2)
# `\w` leaves out the combining vowel signs of Arabic and Bengali.
IN_WORD = r"[\w\u064b-\u065f\u0980-\u09ff]"
OTHER_LETTER_ALONE = re.compile(rf"(?<!{IN_WORD})[{OTHER_LETTERS}](?!{IN_WORD})")
LETTER_ALONE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?![A-Za-z0-9])")
# The rules of the reference: the one capital of the box, else a label such as "E: foo".
ONLY_CAPITAL = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*$")
LABEL = re.compile(r"\s*([A-Z])\s*[:).\-]")
SEPARATORS = re.compile(r"(?:[/|&,;\s]|\bor\b|\band\b)+", re.IGNORECASE)
# What may not stand beside the text of an option: "inorganic" is not "organic", and there is no 71
# in 171, 71.5, 71:00, -71, 3 - 71, 71/2, 2^71 and \sqrt{71}. Scripts without spaces have no words.
IN_SPACED_WORD = r"[^\W\u0e00-\u1dff\u3000-\U0010ffff]"
OPERATORS = r"+*/^\u00d7\u00b7\u00f7\u2013\u00b1\u2213\u221a-"
BEFORE_OPTION = rf"(?<!{IN_SPACED_WORD})(?<![.,{{{OPERATORS}])(?<![\d{OPERATORS}] |\d[:'\u2019])"
AFTER_OPTION = rf"(?!-?{IN_SPACED_WORD}| ?(?:[/^}}]|\\[a-z])| ?[.,:'\u2019{OPERATORS}]? ?\d)"
ANSWER_COLON = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
ANSWER_COLON_MARKDOWN = re.compile(r"[*_]{0,3}answer[*_]{0,3}\s*:[*_\s]{0,2}(.+)", re.IGNORECASE)
# What the patterns of inspect_ai find, in linear time for any run of spaces: the answer without
# $...$, **...** or (...); the lines that it begins and ends; any other. Space alone is an answer.
WRAPPED = r"{0}\s*+([A-Za-z\d](?: *+[A-Za-z\d,]++)*+)\s*+{0}"
WRAPPERS = [re.compile(WRAPPED.format(mark)) for mark in (r"\$", r"\*\*")]
IN_PARENTHESES = re.compile(r"(^|[:,])(\s*+)\(([A-Za-z\d])\)(?=\s*+(?:[,.]|\Z)|\s*?\n)")
ANSWER_LINE = re.compile(
    r"^answer\s*+:(?:\s*+([A-Za-z\d ,]++)|[^\S ]*+ ++)[^\S\n]*+(?:$|\.)",
    re.IGNORECASE | re.MULTILINE,
)
ANSWER_ANYWHERE = re.compile(r"answer\s*:\s*([A-Za-z\d ,]+)(?:\W|$)", re.IGNORECASE)
# The rule of `letter`: "B" alone, a label such as "B)" or "B.", "B - its text", or "A or B".
MARKS = r"""\s_*`~"'“”\u2018\u2019„«»$\\(){}\[\]<>「」【】"""
CHOSEN = re.compile(
    rf"(?i)(?:[{MARKS}#•]|[-+] )*+([A-Z])(?:[{MARKS}.,;!。]*+\Z"
    rf"|[{MARKS}]*+(?:[/|&,]|or|and)(?=[{MARKS}]*+(?!\1)(?P<other>[A-Z])(?!\w))"
    rf"|[{MARKS}]*?(?:[:)\]]|\.(?!\w)|(?P<dash>[(,\u2013\u2014-])[\s*_`]*+))"
)
# Behind a label, the label of another option; neither "vitamin C." nor "i.e." nor "f(a)".
OTHER_LABEL = re.compile(r"(?<![\w.])(?<!\w\()([A-Z])[*_`]*+(?:[:)]|\.[*_`]*+\s++\w)")


class TemplateMetadata(BaseModel):
    """How the prompt asks for the answer."""

    output_regex: str | list[str] | None = None
    """One or several patterns, case-insensitive; the last match is the answer."""
    answer_prefix: str | None = None
    """The words before the answer, such as "Die Antwort ist", for `lenient_answer_colon_md`."""


class Question(Task):
    """A question with its options."""

    options: list[dict[str, str | None]]
    """Each item is one option: `{"A": "its text"}`; a letter without a text (null) is no option."""
    expected_answer: str
    """The letter of the right option."""
    grading_mode: RowMode = "strict_single_letter_boxed"
    """How the letter is read: from a box with one letter, from any box, after the first or the last
    "Answer:", or, with `letter`, from the last box, "Answer:" or line of any answer."""
    template_metadata: TemplateMetadata | None = None
    """The row's own patterns for the answer, in `output_regex`, which are tried first, and the
    words before it, in `answer_prefix`."""

    @property
    def choices(self) -> Choices:
        """The options' texts by their letters."""
        items = (item for option in self.options for item in option.items())
        return {key.upper(): text for key, text in items if text is not None}

    @property
    def gold(self) -> str:
        """The letter of the right option."""
        return self.expected_answer.strip().upper()

    @property
    def patterns(self) -> list[str]:
        """The row's own patterns, in the order they are tried."""
        patterns = self.template_metadata.output_regex if self.template_metadata else None
        return [patterns] if isinstance(patterns, str) else patterns or []

    @property
    def answer_prefix(self) -> str:
        """The words before the answer, or an empty text."""
        return (self.template_metadata and self.template_metadata.answer_prefix) or ""


class MultipleChoice(Environment[Question]):
    """Choose one of several options; the letter is read from a box, a line or by a pattern."""

    version = "3"
    properties = Properties("single-step", "knowledge", "general", "multiple choice", "exact match")

    class Options(EnvironmentOptions):
        """How the letter is read."""

        grading_mode: Mode | None = None
        """The grading mode of all rows; by default each row has its own."""

    options: Options

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the chosen letter is that of the right option."""
        question = cls.parse_task(rollout.task)
        text = rollout.output_text
        read_by: str = "output_regex"
        letter = _by_patterns(question, text.strip(), context)
        if letter is None:
            read_by = cls.options_of(context).grading_mode or question.grading_mode
            letter = GRADERS[read_by](text, question)
        is_right = letter == question.gold
        reason = "correct" if is_right else "wrong_answer" if letter else "no_answer"
        return Score(
            float(is_right),
            metrics={"no_answer": float(letter is None)},
            answer=letter,
            details={"reason": reason, "expected": question.gold, "read_by": read_by},
        )

    @classmethod
    def answer_mark(cls, task: Question, options: EnvironmentOptions) -> str:
        r"""Return `\boxed` if the grading mode reads boxes alone, and the row has no pattern."""
        assert isinstance(options, cls.Options)
        mode = options.grading_mode or task.grading_mode
        return "\\boxed" if "boxed" in mode and not task.patterns else ""

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the right letter in the form that the grading mode reads."""
        mode = self.options.grading_mode or self.task.grading_mode
        return Message(role="assistant", content=_written(self.task.gold, mode))

    @classmethod
    def choices(cls, task: Question) -> list[str]:
        """Return the letter of every option in the form that the row's grading mode reads."""
        return [_written(letter, task.grading_mode) for letter in task.choices]

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write questions whose answers are computed, for every grading mode."""
        yield from load_generator("mcqa").generate(rng, num)


def _written(letter: str, mode: Mode) -> str:
    """Write an answer in the form that a grading mode reads."""
    if mode == "letter":
        return letter
    return f"\\boxed{{{letter}}}" if "boxed" in mode else f"Answer: {letter}"


def _by_patterns(question: Question, text: str, context: Context) -> str | None:
    """Read the answer with the row's own patterns."""
    for pattern in question.patterns:
        try:
            matches = context.search(pattern, text, flags=re.IGNORECASE)
        except ValueError:
            # An invalid pattern; one that takes too long raises another error.
            continue
        last = matches[-1].strip() if matches else ""
        letter = _latin(last).upper()
        # Even a letter that no option has, as in the reference: a wrong answer, not a missing one.
        if len(letter) == 1 and letter.isalpha():
            return letter
        if letter_of_text := _equal_option(last, question.choices):
            return letter_of_text
    return None


def _strict_boxed(text: str, question: Question) -> str | None:
    """Read the only capital letter in the last box, or the one that labels its text."""
    inner = without_text_commands(last_boxed(text) or "")
    letter = _latin(inner).strip()
    inner = letter if len(letter) == 1 else inner
    match = ONLY_CAPITAL.match(inner) or LABEL.match(inner)
    return match[1] if match and match[1] in question.choices else None


def _lenient_boxed(text: str, question: Question) -> str | None:
    """Read the letter as the strict mode does, else the only option quoted in the last box."""
    letter, inner = _strict_boxed(text, question), _content(last_boxed(text) or "")
    texts = {key: _content(option) for key, option in question.choices.items()}
    equal = [key for key, option in texts.items() if inner and option == inner]
    is_one_character = len(re.sub(r"[\W_]", "", inner)) == 1
    if letter is not None and (is_one_character or len(equal) != 1):
        return letter
    options = equal if len(equal) == 1 else [k for k, text in texts.items() if _quotes(inner, text)]
    return options[0] if len(options) == 1 else None


def _content(text: str) -> str:
    r"""Return the content of a box or an option, for comparisons, with `\sqrt 5` as `\sqrt5`."""
    text = plain_answer(without_text_commands(text)).replace("\u2212", "-")
    return re.sub(r"(\\[a-z]++) (?=\W?\d)", r"\1", _normalized(text))


def _quotes(text: str, option: str) -> bool:
    """Return whether a text has an option's text as whole words and whole signed numbers."""
    return bool(option and re.search(f"{BEFORE_OPTION}{re.escape(option)}{AFTER_OPTION}", text))


def _answer_colon(text: str, question: Question) -> str | None:
    """Read the text after the first "answer:": a single letter, or an option's text."""
    match = ANSWER_COLON.search(text)
    written = match[1].strip() if match else ""
    plain = _unwrapped(written)
    # As written first, because an option's text may have `\text{...}` itself.
    for payload in (written, plain, _latin(plain)):
        letter = payload.upper()
        if letter in question.choices:
            return letter
        if letter_of_text := _equal_option(payload, question.choices):
            return letter_of_text
    return None


def _unwrapped(payload: str) -> str:
    """Return a payload without boxes, and without emphasis, backquotes and `$` on both sides."""
    for box in reversed(closed_boxes(payload)):
        payload = payload[: box.start] + box.content + payload[box.end :]
    payload = without_text_commands(payload).strip()
    marks = payload[: len(payload) - len(payload.lstrip("$*_`"))]
    if payload.endswith(marks[::-1]):
        payload = payload[len(marks) : len(payload) - len(marks)].strip()
    return payload


def _answer_colon_markdown(text: str, question: Question) -> str | None:
    """Read the text after an "answer:" with any emphasis, from the last one to the first.

    A row's `answer_prefix` is another "answer:", and allows the strict box where none has a letter.
    """
    choices, prefix = question.choices, question.answer_prefix
    for payload in reversed(_payloads(unicodedata.normalize("NFKC", text), prefix)):
        payload = _latin(payload)
        letters = [m for m in LETTER_ALONE.finditer(payload) if m[0].upper() in choices]
        # "A or B" is ambiguous: an earlier "answer:" may be clearer.
        if not letters or any(_is_pair(*pair) for pair in itertools.pairwise(letters)):
            continue
        # As in the reference: a leading letter counts in either case, a later one as a capital.
        if not re.search(r"[A-Za-z0-9]", payload[: letters[0].start()]):
            return letters[0][0].upper()
        capitals = [match[0] for match in letters if match[0].isupper()]
        if capitals:
            return capitals[-1]
    return _strict_boxed(text, question) if prefix else None


def _is_pair(first: re.Match[str], second: re.Match[str]) -> bool:
    """Return whether only separators are between two different letters, as in "A or B"."""
    differ = first[0].upper() != second[0].upper()
    return differ and bool(SEPARATORS.fullmatch(first.string, first.end(), second.start()))


def _payloads(text: str, prefix: str) -> list[str]:
    """Return what follows "answer:" or a prefix in its line, in the order of the text."""
    starts = [(match.start(), match[1]) for match in ANSWER_COLON_MARKDOWN.finditer(text)]
    if prefix:
        words = re.escape(unicodedata.normalize("NFKC", prefix.strip()))
        # Up to the next prefix in the line, which has a payload of its own: in linear time.
        matches = list(re.finditer(rf"{words}\s*+", text, re.IGNORECASE))
        ends = [*(match.start() for match in matches[1:]), len(text)]
        for match, end in zip(matches, ends, strict=False):
            starts.append((match.start(), text[match.end() : end].partition("\n")[0]))
    return [payload for _, payload in sorted(starts)]


def _last_answer_colon(text: str, question: Question) -> str | None:
    """Read the one letter after the last line "ANSWER: B", else after the last "ANSWER:"."""
    for wrapped in WRAPPERS:
        text = wrapped.sub(r"\1", text)
    plain = IN_PARENTHESES.sub(r"\1\2\3", text)
    answers = ANSWER_LINE.findall(plain) or ANSWER_ANYWHERE.findall(plain)
    letters = [part for part in answers[-1].strip().upper().split(",") if part] if answers else []
    return letters[0] if len(letters) == 1 and letters[0] in question.choices else None


def _letter(text: str, question: Question) -> str | None:
    """Read the one letter in the last box and those joined to it, else in the last "Answer:" line.

    Without them, it is read after the last "answer is", else in the last line, else in the first:
    the only letter of all lines that are a letter alone or, if there are none, begin with a label.
    """
    choices, text = question.choices, re.sub("</?answer>", "", _latin(without_text_commands(text)))
    boxes, answer = closed_boxes(text), last_answer_line(text)
    joined = boxes[-1:]
    for box in reversed(boxes[:-1]):
        if not {*re.findall(r"\w+", text[box.end : joined[-1].start].lower())} <= {"and", "or"}:
            break
        joined.append(box)
    boxed = [_stated(box.content.replace(r"\boxed", ""), choices) for box in joined]
    places = [set().union(*boxed), _stated(answer or "", choices)]
    if not boxes and not answer:
        rests = re.findall(r"(?im)^.*\banswer is\b(.*)", text)
        lines = [line for line in text.splitlines() if re.search(r"\w", line)]
        stated = {line: letters for line in {*lines} if (letters := _stated(line, choices))}
        listed = {line for line in stated if len(re.sub(r"[^\w:]|_", "", line)) == 1} or {*stated}
        places = [_stated(rest, choices) for rest in rests[-1:]]
        for end in lines[-1:] + lines[:1]:
            if end in listed or len(stated.get(end, "")) > 1:
                places.append(stated[end].union(*(stated[line] for line in listed)))
    letters = next(filter(None, places), set())
    return letters.pop() if len(letters) == 1 and letters <= choices.keys() else None


def _stated(place: str, choices: Choices) -> set[str]:
    """Return the letters that a text states: one, several as in "A or B" and "A: B", or none."""
    if not (chosen := CHOSEN.match(place)):
        return set()
    letter, rest = chosen[1].upper(), _content(place[chosen.end() :])
    option = _content(_latin(choices.get(letter, "")))
    if option and re.fullmatch(rf"{re.escape(option)}[{MARKS}.]*", rest):
        return {letter}
    if chosen["other"]:
        return {letter, chosen["other"]}
    # A text such as "E. coli" may itself be an option, of another letter.
    is_other_option = _equal_option(plain_answer(place), choices) not in {None, letter}
    if chosen["dash"] or (rest and is_other_option):
        return set()
    rest = rest.replace(option, "", 1).upper()
    return {letter} | {*OTHER_LABEL.findall(rest), re.sub(r"[\W_]", "", rest)} & choices.keys()


GRADERS: dict[str, Callable[[str, Question], str | None]] = {
    "strict_single_letter_boxed": _strict_boxed,
    "lenient_boxed": _lenient_boxed,
    "lenient_answer_colon": _answer_colon,
    "lenient_answer_colon_md": _answer_colon_markdown,
    "last_answer_colon": _last_answer_colon,
    "letter": _letter,
}


def _latin(text: str) -> str:
    """Return a text in the form NFKC, with letters of other scripts mapped where they are alone."""
    text = unicodedata.normalize("NFKC", text)
    return OTHER_LETTER_ALONE.sub(lambda match: match[0].translate(OTHER_SCRIPTS), text)


def _normalized(text: str) -> str:
    return " ".join(text.lower().split())


def _equal_option(text: str, choices: Choices) -> str | None:
    """Return the letter of the first option with this text; case and spaces do not count."""
    normalized = _normalized(text) or None  # an empty text means no option
    return next((key for key, option in choices.items() if _normalized(option) == normalized), None)
