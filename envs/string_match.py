r"""Asks for a short answer and compares it as text, exactly or in normal forms.

Source: the resources server string_match of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The answer is read from all messages, joined by line breaks: the last closed
`\boxed{...}`, without `\text{...}` around it; the rest of the line after the last "answer:",
without a full stop, else a box; the last line; the last number, without commas and final zeros, as
simple-evals reads MGSM's answers; or everything. With `case_sensitive` it must equal
the expected text. Otherwise both answers are rewritten in several ways, and the first one that
makes them equal decides: as text in lower case, as a number, without a comma between digits,
without LaTeX, as a list, with postal codes for states of the USA. If none does, a number within
about 1% gets 0.98, and then both are compared without units. Known limits kept from the reference:
units are never compared, "5 km" for 5 gets 0.98, as does "1,234,567" for 1234567, `and` and `or`
are also removed from within words, "cats and dogs" is not "cats, dogs", and the text after
"answer:" keeps its asterisks. Differences from the reference:

- NaN, infinity and values too large for a float are not numbers.
- Units are removed only if they are not part of a word ("ham" is not "ha"), and two answers do not
  match because nothing is left of both ("km" and "cm").
- `\text{...}` around a boxed answer ends with its own brace: `\text{a} or \text{b}` is kept.
- Texts are read in one pass, and an answer 10,000 characters longer than the expected one is wrong.
- A row with an empty expected answer is refused; the reference gives every answer 0.

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
from typing import Literal, NamedTuple

from pydantic import field_validator

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
    last_boxed,
)
from gymcli.envs import load_generator

__all__ = [
    "NEAR",
    "RUNGS",
    "Match",
    "Rung",
    "ShortAnswer",
    "StringMatch",
    "closing_braces",
    "compare",
]

Mode = Literal["boxed", "final_answer", "last_line", "last_number", "full_response"]

MAX_SPARE = 10_000
"""The number of characters by which an answer may be longer than the expected one."""
MAX_SHOWN = 1_000
"""Characters of the answer that the record keeps."""

BOX = "\\boxed{"
TEXT_COMMAND = re.compile(r"\\text\{\s*")
NUMBER = re.compile(r"\d+\.?\d*")
ANSWER_COLON = re.compile(r"answer\s*[:\uff1a]\s*(.+)", re.IGNORECASE)


class ShortAnswer(Task):
    """An expected answer, and how the model's answer is read."""

    expected_answer: str
    """The right answer."""
    extraction_mode: Mode = "final_answer"
    """How the answer is read from the model's text."""
    answer_prefix: str = ""
    """Only the text after the last occurrence of this word, and a colon, is read."""
    case_sensitive: bool = False
    """Whether the texts must be equal; else they are compared in several normal forms."""

    @field_validator("expected_answer")
    @classmethod
    def _is_there(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("the expected answer is empty")
        return text


class StringMatch(Environment[ShortAnswer]):
    """Answer in a few words, compared as text, as a number or as a list."""

    properties = Properties(
        "single-step", "short answers", "general", "short answer", "normalised string match"
    )

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the answer is the expected one, 0.98 if it is a number close to it."""
        task = cls.parse_task(rollout.task)
        said = "\n".join(m.text for m in rollout.responses if m.role == "assistant").strip()
        answer = _extracted(said, task)
        if not answer:
            return Score(0.0, metrics={"no_answer": 1.0}, details={"reason": "no_answer"})
        match = _compared(answer, task)
        details: JSONObject = {"reason": "wrong_answer"}
        if match is not None:
            is_near = match.rung == "near_number"
            details = {"reason": "near_number" if is_near else "correct", "matched_by": match.rung}
        return Score(
            match.reward if match else 0.0,
            metrics={"no_answer": 0.0},
            answer=answer[:MAX_SHOWN],
            details=details,
        )

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Return the expected answer in a form that the mode reads, if there is one."""
        gold, mode = self.task.expected_answer.strip(), self.task.extraction_mode
        prefix = self.task.answer_prefix and f"{self.task.answer_prefix}: "
        box = f"{BOX}{gold}}}"
        texts = {"boxed": [box], "final_answer": [f"Final answer: {gold}", box]}.get(mode, [gold])
        for text in (f"{prefix}{text}" for text in texts):
            answer = _extracted(text, self.task)
            if answer and _compared(answer, self.task) == Match(1.0, "text"):
                return Message(role="assistant", content=text)
        return None

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write questions with computed answers, for every extraction mode."""
        yield from load_generator("string_match").generate(rng, num)


# Two short answers are compared on a ladder of normal forms, in the order of the reference. Each
# rung rewrites both; the first one on which they are equal decides.

Rung = Literal["text", "number", "thousands", "latex", "list", "state", "near_number", "bare"]


class Match(NamedTuple):
    """The rung on which two answers are equal, and its reward."""

    reward: float
    rung: Rung


def _compared(answer: str, task: ShortAnswer) -> Match | None:
    """Return how an answer matches the expected one, if it does."""
    if task.case_sensitive:
        is_same = answer.strip() == task.expected_answer.strip()
        return Match(1.0, "text") if is_same else None
    if len(answer) > len(task.expected_answer) + MAX_SPARE:
        return None
    return compare(answer, task.expected_answer)


def _extracted(text: str, task: ShortAnswer) -> str | None:
    """Read the answer as the row says."""
    if task.answer_prefix:
        _, word, text = text.rpartition(task.answer_prefix)
        text = text.strip(" :\uff1a*\n") if word else ""
    return EXTRACTORS[task.extraction_mode](text)


def _boxed(text: str) -> str | None:
    """Read the last closed box."""
    # Each box is read only up to the next one, so that many unclosed boxes take linear time.
    pieces = text.split(BOX)[1:]
    closed = (last_boxed(BOX + piece) for piece in reversed(pieces))
    return next((_unwrapped(inner.strip()) for inner in closed if inner is not None), None)


def _unwrapped(text: str) -> str:
    r"""Remove every `\text{...}` around a text."""
    closing = closing_braces(text)
    first, last = 0, len(text)
    while command := TEXT_COMMAND.match(text, first):
        end = closing.get(text.index("{", first))
        if end is None or text[end + 1 : last].strip():
            break
        first, last = command.end(), end
    return text[first:last].strip()


def _final_answer(text: str) -> str | None:
    """Read the text after the last "answer:", without a full stop; else a box."""
    found = ANSWER_COLON.findall(text)
    return found[-1].strip().removesuffix(".").strip().rstrip(".") if found else _boxed(text)


def _last_line(text: str) -> str | None:
    """Read the last line that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)


def _last_number(text: str) -> str | None:
    """Read the last number, 1,450.0 as 1450; a minus sign is no part of it."""
    numbers: list[str] = NUMBER.findall(text.replace(",", ""))
    if not numbers:
        return None
    return numbers[-1].rstrip("0").rstrip(".") if "." in numbers[-1] else numbers[-1]


EXTRACTORS: Mapping[Mode, Callable[[str], str | None]] = {
    "boxed": _boxed,
    "final_answer": _final_answer,
    "last_line": _last_line,
    "last_number": _last_number,
    "full_response": lambda text: text or None,
}
"""How each mode reads the answer from a stripped text."""

NEAR = 0.98
"""The bound that (1 - relative error) squared must exceed, and the reward of such a number."""

BRACES = re.compile("[{}]")
COMMANDS = re.compile(r"\\(?:boxed|emph|url|text(?:bf|it|tt)?|math(?:rm|bf|it|sf|bb|cal))\{")
MATH_MODE = re.compile(r"\\[()\[\]]|\$")
SIGNS = re.compile("[$£€%,]")
# The lookbehind and the possessive quantifier keep long runs of digits in linear time.
THOUSANDS = re.compile(r"(?<!\d)(\d++),(\d+)")
UNITS = re.compile(r"(?:\^\{?\\circ|°)\}?|\\circ|(?<![a-z])(?:cm|mm|km|m|kg)(?![a-z])")

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


def compare(answer: str, expected: str) -> Match | None:
    """Return the first rung on which two answers are equal, if there is one."""
    one, other = _plain(answer), _plain(expected)
    if one == other:
        return Match(1.0, "text")
    for rung, normalize in RUNGS.items():
        # Nothing left of both is no match.
        if normalize(one) == normalize(other) != "":
            return Match(1.0, rung)
    if _are_near(one, other):
        return Match(NEAR, "near_number")
    one, other = _bare(one), _bare(other)
    if one == other != "":
        return Match(1.0, "bare")
    return Match(NEAR, "near_number") if _are_near(one, other) else None


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
