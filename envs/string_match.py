r"""Asks for a short answer and compares it as text, exactly or in normal forms.

Source: the resources server string_match of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The answer is read from all messages, joined by line breaks; `extraction_mode` says
where: the last closed `\boxed{...}`; the rest of the line after the last "answer:", or the next
line with text, without a full stop, else a box; the last line; or everything. With `case_sensitive`
it must equal the expected text. Otherwise both answers are rewritten in several ways, and the first
one that makes them equal decides: as text in lower case, as a number, without a comma between
digits, without LaTeX, as a list, with postal codes for states of the USA. If none does, a number
within about 1% gets 0.98, and then both are compared without units. Known limits kept from the
reference: units are never compared, "5 km" for 5 gets 0.98, as does "1,234,567" for 1234567, `and`
and `or` are also removed from within words, and "cats and dogs" is not "cats, dogs". Differences
from the reference:

- What surrounds the whole answer does not count, in every mode: Markdown, code fences, quotes, the
  delimiters of a formula, a box, commands for fonts. The answer as it was written counts, too.
- The label may be in bold (`**Answer:** Paris`). If nothing follows the last one, earlier ones do
  not count. Without a label and a box, "The answer is: Paris" is one.
- Lines that only delimit code or a formula are no answer.
- There are two more modes. `last_number` reads the last number with its sign: -5 in "x = -5" and
  "x = - 5", but 5 in "10-5". No-break and thin spaces may separate thousands, as may commas; a
  blank only where the number is the whole text. `last_digits` reads the last digits without commas
  and final zeros, and no sign, as simple-evals (ee3b031, `mgsm_eval.py`) reads the answers of MGSM.
- With `near` false, only equal numbers match, and get 1. One of them may have a unit, a percent or
  a currency sign; two different ones do not match. Tables have this default.
- NaN, infinity and values too large for a float are not numbers.
- Units are removed only if they are not part of a word ("ham" is not "ha"), and two answers do not
  match because nothing is left of both ("km" and "cm").
- Texts are read in one pass, and an answer 10,000 characters longer than the expected one is wrong.
- A row is refused if no answer can match the expected one: if that is empty, for example, or "1/2"
  with the mode `last_number`. The reference gives every answer 0.

One row:
{"id": "string-match-1", "difficulty": "medium", "prompt": "Write 1987 in Roman numerals.\n\nGive
the answer alone on the last line.", "expected_answer": "MCMLXXXVII", "extraction_mode":
"last_line", "case_sensitive": false}
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    last_answer_line,
    last_boxed,
    plain_answer,
)
from gymcli.envs import load_generator

__all__ = [
    "EXTRACTORS",
    "NEAR",
    "RUNGS",
    "Match",
    "Rung",
    "ShortAnswer",
    "StringMatch",
    "closing_braces",
    "compare",
]

Mode = Literal["boxed", "final_answer", "last_line", "last_number", "last_digits", "full_response"]

MAX_SPARE = 10_000
"""The number of characters by which an answer may be longer than the expected one."""
MAX_SHOWN = 1_000
"""Characters of the answer that the record keeps."""
MAX_LAYERS = 3
"""The number of times that decoration is taken off, as in `**$\\boxed{\\text{"Paris"}}$**`."""


class ShortAnswer(Task):
    """An expected answer, and how the model's answer is read."""

    expected_answer: str = Field(coerce_numbers_to_str=True)
    """The right answer."""
    extraction_mode: Mode = "final_answer"
    """How the answer is read from the model's text."""
    answer_prefix: str = ""
    """Only the text after the last occurrence of this word, and a colon, is read."""
    case_sensitive: bool = False
    """Whether the texts must be equal; else they are compared in several normal forms."""
    near: bool = True
    """Whether a number within about 1% of the expected one earns 0.98; else it must be equal."""

    @model_validator(mode="after")
    def _can_be_matched(self) -> Self:
        if not self.expected_answer.strip():
            raise ValueError("the expected answer is empty")
        if _gold_text(self) is None:
            raise ValueError(
                f"no answer in the mode {self.extraction_mode} can match the expected answer "
                f'{self.expected_answer!r:.60}; set another "extraction_mode"'
            )
        return self


class StringMatch(Environment[ShortAnswer]):
    """Answer in a few words, compared as text, as a number or as a list."""

    properties = Properties(
        "single-step", "short answers", "general", "short answer", "normalised string match"
    )
    version = "2"

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the answer is the expected one, 0.98 if it is a number close to it."""
        task = cls.parse_task(rollout.task)
        texts = (message.text for message in rollout.responses if message.role == "assistant")
        reading = _read("\n".join(texts).strip(), task)
        expected = task.expected_answer[:MAX_SHOWN]
        if reading is None:
            details: JSONObject = {"reason": "no_answer", "expected": expected}
            return Score(0.0, metrics={"no_answer": 1.0}, details=details)
        reason = "wrong_answer"
        if match := reading.match:
            reason = "near_number" if match.rung == "near_number" else "correct"
        return Score(
            match.reward if match else 0.0,
            metrics={"no_answer": 0.0},
            answer=reading.answer[:MAX_SHOWN],
            details={
                "reason": reason,
                "expected": expected,
                **({"matched_by": match.rung} if match else {}),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the expected answer in a form that the mode reads."""
        return Message(role="assistant", content=_gold_text(self.task))

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write questions with computed answers, for every extraction mode."""
        yield from load_generator("string_match").generate(rng, num)


Rung = Literal[
    "text", "number", "thousands", "latex", "list", "state", "quantity", "near_number", "bare"
]


class Match(NamedTuple):
    """The rung on which two answers are equal, and its reward."""

    reward: float
    rung: Rung


class Reading(NamedTuple):
    """An answer, and how it matches the expected one."""

    answer: str
    match: Match | None


def _read(text: str, task: ShortAnswer) -> Reading | None:
    """Read the answer as the row says, and compare it without its decoration and as written."""
    if task.answer_prefix:
        _, word, text = text.rpartition(task.answer_prefix)
        text = text.strip(" :\uff1a*\n") if word else ""
    written = EXTRACTORS[task.extraction_mode](text)
    if not written:
        return None
    plain = _undecorated(written)
    if task.extraction_mode == "final_answer":
        plain = _without_stop(plain)
    readings = [Reading(answer, _compared(answer, task)) for answer in (plain, written)]
    best = max(readings, key=lambda reading: reading.match.reward if reading.match else 0.0)
    return best if best.answer else None


def _gold_text(task: ShortAnswer) -> str | None:
    """Return a text in which the expected answer is read; None if there is none."""
    gold = task.expected_answer.strip()
    box = f"{BOX}{gold}}}"
    texts = {"boxed": [box], "final_answer": [f"Final answer: {gold}", box]}
    prefix = task.answer_prefix and f"{task.answer_prefix}: "
    for text in texts.get(task.extraction_mode, [gold]):
        reading = _read(prefix + text, task)
        if reading is not None and reading.match is not None and reading.match.reward == 1.0:
            return prefix + text
    return None


# Each mode reads the answer from a text without blanks at its ends.

BOX = "\\boxed{"
ANSWER = re.compile(
    r"answer[*_`~]*+\s*+[:\uff1a](?:[*_`~]++(?=\s|\Z))?+"
    # Blanks, and lines that only open code or a formula.
    r"(?:\s++|(?:(?:```|~~~)[\w+-]*+|\$\$|\\\[)\n)*+(.*)",
    re.IGNORECASE,
)
CLOSING_LINES = ("```", "~~~", "$$", "\\]")
DIGITS = re.compile(r"\d+\.?\d*")
# A minus after a digit, a letter or a closing bracket subtracts or joins: 10-5, x-5, (a)-5, 5%-10%.
NUMBER = re.compile(
    r"(?:(?<![^\W_])(?<![)\]}%°\u2212-])([-\u2212])\\?[$£€]?)?"
    r"(\d+\.?\d*|(?<![^\W_])(?<!\.)\.\d+)([eE][+-]?\d++(?!\w))?"
)
# A sign with a blank before its number, or an en dash as a sign, where nothing can be subtracted
# from: "x = - 5". On a line that is not the first, "- 5" is an item of a Markdown list.
SIGN = re.compile(
    r"((?:\A|^(?![ \t]*+- )|[=(\[{:,]|(?<![\w)}\]])[$£€])[^\S\n]*+)[-\u2212\u2013][^\S\n]*+"
    r"(?=\\?[$£€]?\.?\d)",
    re.MULTILINE,
)
COMMA = re.compile(r"(?<=\d),(?=\d)")
NO_BREAK_GROUPS = re.compile(r"(?<!\d)\d{1,3}(?:[\u00a0\u2007\u2009\u202f]\d{3})+(?!\d)")
BLANK_GROUPS = re.compile(r"[+\u2212-]?\\?[$£€]?\d{1,3}(?: \d{3})+(?:\.\d*)? ?[%$£€]?\.?")
WRAPPER = re.compile(r"\\(?:boxed|emph|mbox|text\w*|math\w*)\s*\{\s*")
FORMULA = re.compile(r"\$\$?([^$]++)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)


def _boxed(text: str) -> str | None:
    """Read the last closed box; of a box in a box, the inner one."""
    # Each box is read only up to the next one, so that many unclosed boxes take linear time.
    pieces = text.split(BOX)[1:]
    closed = (last_boxed(BOX + piece) for piece in reversed(pieces))
    return next((_unwrapped(content.strip()) for content in closed if content is not None), None)


def _final_answer(text: str) -> str | None:
    """Read the text after the last "answer:"; else a box; else what "The answer is:" names."""
    answers = ANSWER.findall(text)
    if answer := _without_stop(answers[-1]) if answers else "":
        return answer
    box = _boxed(text)
    return _without_stop(last_answer_line(text) or "") if box is None else box


def _without_stop(text: str) -> str:
    return text.strip().removesuffix(".").strip().rstrip(".")


def _last_line(text: str) -> str | None:
    """Read the last line that is not blank, and does not only close code or a formula."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    content = [line for line in lines if line not in CLOSING_LINES]
    return next(reversed(content or lines), None)


def _last_number(text: str) -> str | None:
    """Read the last number with its sign, -1,450.0 as -1450 and .5 as 0.5."""
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def _numbers(text: str) -> list[str]:
    text = text.replace("{,}", ",").replace("\\,", "\u2009")  # LaTeX's separators of thousands
    text = SIGN.sub(r"\1-", text)
    if BLANK_GROUPS.fullmatch(plain := plain_answer(text)):
        text = plain.replace(" ", "")
    text = NO_BREAK_GROUPS.sub(lambda group: re.sub(r"\s", "", group[0]), COMMA.sub("", text))
    return [_canonical(*number.groups(default="")) for number in NUMBER.finditer(text)]


def _canonical(sign: str, digits: str, exponent: str) -> str:
    if "." in digits:
        digits = ("0" if digits.startswith(".") else "") + digits.rstrip("0").rstrip(".")
    return f"{sign and digits.strip('0') and '-'}{digits}{exponent}"


def _last_digits(text: str) -> str | None:
    """Read the last digits, 1,450.0 as 1450; a minus sign is no part of them."""
    numbers: list[str] = DIGITS.findall(text.replace(",", ""))
    if not numbers:
        return None
    return numbers[-1].rstrip("0").rstrip(".") if "." in numbers[-1] else numbers[-1]


EXTRACTORS: Mapping[Mode, Callable[[str], str | None]] = {
    "boxed": _boxed,
    "final_answer": _final_answer,
    "last_line": _last_line,
    "last_number": _last_number,
    "last_digits": _last_digits,
    "full_response": lambda text: text or None,
}
"""How each mode reads the answer from a stripped text."""


def _undecorated(answer: str) -> str:
    """Take off what surrounds a whole answer: Markdown, quotes, formulas, boxes, fonts."""
    for _ in range(MAX_LAYERS):
        answer = plain_answer(answer)
        if formula := FORMULA.fullmatch(answer):
            answer = next(filter(None, formula.groups()), "").strip()
        answer = _unwrapped(answer)
    return plain_answer(answer)


def _unwrapped(text: str) -> str:
    """Remove every command whose braces surround a whole text."""
    closing = closing_braces(text)
    first, last = 0, len(text)
    while command := WRAPPER.match(text, first):
        end = closing.get(text.index("{", first))
        if end is None or text[end + 1 : last].strip():
            break
        first, last = command.end(), end
    return text[first:last].strip()


# Two short answers are compared on a ladder of normal forms, in the order of the reference. Each
# rung rewrites both; the first one on which they are equal decides.


def _compared(answer: str, task: ShortAnswer) -> Match | None:
    """Return how an answer matches the expected one, if it does."""
    expected = task.expected_answer.strip()
    if task.extraction_mode == "last_number":
        # The expected number is written as the mode writes the answer; a unit may follow it.
        numbers = _numbers(expected)
        if len(numbers) != 1 or expected[0].isalpha():
            return None
        expected = numbers[0]
    elif task.extraction_mode == "final_answer":
        expected = _without_stop(expected) or expected
    if task.case_sensitive:
        return Match(1.0, "text") if answer.strip() == expected else None
    if len(answer) > len(expected) + MAX_SPARE:
        return None
    return compare(answer, expected, near=task.near)


NEAR = 0.98
"""The bound that (1 - relative error) squared must exceed, and the reward of such a number."""

BRACES = re.compile("[{}]")
COMMANDS = re.compile(r"\\(?:boxed|emph|url|text(?:bf|it|tt)?|math(?:rm|bf|it|sf|bb|cal))\{")
MATH_MODE = re.compile(r"\\[()\[\]]|\$")
SIGNS = re.compile("[$£€%,]")
# The lookbehind and the possessive quantifier keep long runs of digits in linear time.
THOUSANDS = re.compile(r"(?<!\d)(\d++),(\d+)")
DEGREES = re.compile(r"(?:\^\{?\\circ|°)\}?|\\circ")
UNITS = re.compile(rf"{DEGREES.pattern}|(?<![a-z])(?:cm|mm|km|m|kg)(?![a-z])")
MEASURES = re.compile(rf"[$£€%]|{UNITS.pattern}")
GROUP_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

# A name that contains another one comes first. Codes are in capitals, so that the list rule does
# not take OR for "or".
STATE_CODES = (
    "district of columbia DC, new hampshire NH, new jersey NJ, new mexico NM, new york NY, "
    "north carolina NC, north dakota ND, rhode island RI, south carolina SC, south dakota SD, "
    "west virginia WV, alabama AL, alaska AK, arizona AZ, arkansas AR, california CA, colorado CO, "
    "connecticut CT, delaware DE, florida FL, georgia GA, hawaii HI, idaho ID, illinois IL, "
    "indiana IN, iowa IA, kansas KS, kentucky KY, louisiana LA, maine ME, maryland MD, "
    "massachusetts MA, michigan MI, minnesota MN, mississippi MS, missouri MO, montana MT, "
    "nebraska NE, nevada NV, ohio OH, oklahoma OK, oregon OR, pennsylvania PA, tennessee TN, "
    "texas TX, utah UT, vermont VT, virginia VA, washington WA, wisconsin WI, wyoming WY"
)
STATES = dict(entry.rsplit(" ", 1) for entry in STATE_CODES.split(", "))


def compare(answer: str, expected: str, *, near: bool = True) -> Match | None:
    """Return the first rung on which two answers are equal, if there is one."""
    texts = [_plain(answer), _plain(expected)]
    if texts[0] == texts[1]:
        return Match(1.0, "text")
    for rung, normalize in RUNGS.items():
        # Nothing left of both is no match.
        if normalize(texts[0]) == normalize(texts[1]) != "":
            return Match(1.0, rung)
    if not near:
        return Match(1.0, "quantity") if _is_same_quantity(*texts) else None
    if _are_near(*texts):
        return Match(NEAR, "near_number")
    bare = [_bare(text) for text in texts]
    if bare[0] == bare[1] != "":
        return Match(1.0, "bare")
    return Match(NEAR, "near_number") if _are_near(*bare) else None


def closing_braces(text: str) -> dict[int, int]:
    """Map the place of each opening brace to that of its closing brace, if it has one."""
    closing: dict[int, int] = {}
    still_open: list[int] = []
    for brace in BRACES.finditer(text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            closing[still_open.pop()] = brace.start()
    return closing


def _plain(text: str) -> str:
    """Fold compatibility forms (NFKC) and case; remove outer quotes, then `.!?` at the end."""
    text = unicodedata.normalize("NFKC", text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def _number(text: str) -> str:
    r"""Rewrite a number as Python prints it, 80 as 80.0, without `$`, `\$` and `\%`."""
    value = _finite(text.replace("\\%", "").replace("\\$", "").replace("$", ""))
    return text if value is None else str(value)


def _thousands(text: str) -> str:
    """Remove a comma between digits; in `1,234,567` only the first, as in the reference."""
    return THOUSANDS.sub(r"\1\2", text).replace("\\%", "%")


def _latex(text: str) -> str:
    """Remove commands for text and boxes, math delimiters, and extra blanks."""
    closing = closing_braces(text)
    dropped: set[int] = set()
    for command in COMMANDS.finditer(text):
        dropped.update(range(*command.span()))
        dropped.add(closing.get(command.end() - 1, -1))
    kept = "".join(character for place, character in enumerate(text) if place not in dropped)
    return " ".join(MATH_MODE.sub("", kept).split())


def _list(text: str) -> str:
    """Replace `,`, `;`, `and` and `or`, also in words, by blanks, unless too much would go."""
    spaced = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    return text if len(spaced) < 0.9 * len(text) else " ".join(spaced.split())


def _state(text: str) -> str:
    """Replace states of the USA by their postal codes, then compare as a list."""
    for name, code in STATES.items():
        text = text.replace(name, code)
    return _list(text).lower()


def _bare(text: str) -> str:
    """Remove LaTeX and units, and write roots and pi as LaTeX does."""
    bare = UNITS.sub("", _latex(text))
    return bare.replace("√", "\\sqrt").replace("π", "\\pi").strip()


def _is_same_quantity(answer: str, expected: str) -> bool:
    """Return whether values are equal, and units, percent and currency signs not different."""
    (value, measures), (gold, gold_measures) = map(_quantity, (answer, expected))
    return value == gold != "" and (measures == gold_measures or not (measures and gold_measures))


def _quantity(text: str) -> tuple[str, set[str]]:
    """Return a value without its measures and commas between thousands, and its measures."""
    text = DEGREES.sub("°", _undecorated(text))
    value = GROUP_COMMA.sub("", MEASURES.sub("", text))
    return _number(_bare(value)), set(MEASURES.findall(text))


def _are_near(answer: str, expected: str) -> bool:
    """Return whether both, without signs and units, are numbers within about 1% of each other."""
    value, gold = (_finite(UNITS.sub("", SIGNS.sub("", text))) for text in (answer, expected))
    if value is None or gold is None:
        return False
    error = abs(value - gold) / max(abs(gold), 1e-9)
    return max(0.0, 1.0 - error) ** 2 > NEAR


def _finite(text: str) -> float | None:
    """Read a finite number as Python does."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


RUNGS: Mapping[Rung, Callable[[str], str]] = {
    "number": _number,
    "thousands": _thousands,
    "latex": _latex,
    "list": _list,
    "state": _state,
}
"""The rungs for two plain texts that differ, in this order."""
