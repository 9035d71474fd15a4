r"""Asks for a short answer and compares it as text, on a ladder from exact to nearly the same.

Source: the resources server string_match of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The answer is read from all messages, joined by line breaks: the last closed
`\boxed{...}`, without `\text{...}` around it; what follows the last "answer:" on its line, without
a full stop, else a box; the last line; or everything. With `case_sensitive` it has to be the
expected text. Without, the first of these that is the same in both decides: the text in lower case,
the number, the digits without a comma, the text without LaTeX, the items of a list, the postal
codes of states of the USA; then a number about one in a hundred off is worth 0.98; then what is
left without units counts. Known limits kept from the reference: units are never compared, "5 km"
for 5 is worth 0.98 as is "1,234,567" for 1234567, `and` and `or` also vanish from within words,
"cats and dogs" is not "cats, dogs", and what follows "answer:" keeps its asterisks. Differences
from the reference:

- NaN, infinity and what is too large for a float are no numbers.
- Units are dropped where they stand alone, not from within words ("ham" is not "ha"), and two
  answers are not the same for having nothing left ("km" and "cm").
- `\text{...}` around a boxed answer ends with its own brace: `\text{a} or \text{b}` is kept.
- Texts are read in one pass, and an answer 10,000 characters longer than the expected one is wrong.
- A row whose expected answer is empty is refused; the reference gives every answer 0.

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

Mode = Literal["boxed", "final_answer", "last_line", "full_response"]

MAX_SPARE = 10_000
"""Characters that an answer may be longer than the expected one."""
MAX_SHOWN = 1_000
"""Characters of an answer that are kept for the record."""

BOX = "\\boxed{"
TEXT_COMMAND = re.compile(r"\\text\{\s*")
ANSWER_COLON = re.compile(r"answer\s*[:\uff1a]\s*(.+)", re.IGNORECASE)


class ShortAnswer(Task):
    """An expected answer, and how the model's is read."""

    expected_answer: str
    extraction_mode: Mode = "final_answer"
    case_sensitive: bool = False
    """Whether it has to be the same text; else the ladder decides."""

    @field_validator("expected_answer")
    @classmethod
    def _is_there(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("the expected answer is empty")
        return text


class StringMatch(Environment[ShortAnswer]):
    """Give a short answer, which is compared as text, number, list or unit."""

    properties = Properties(
        "single-step", "short answers", "general", "short answer", "normalised string match"
    )

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the answer is the expected one, 0.98 for a number that is near."""
        task = cls.parse_task(rollout.task)
        said = "\n".join(m.text for m in rollout.responses if m.role == "assistant").strip()
        answer = EXTRACTORS[task.extraction_mode](said)
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
        """Return the expected answer in a form that is read; None where the mode reads none."""
        gold, mode = self.task.expected_answer.strip(), self.task.extraction_mode
        box = f"{BOX}{gold}}}"
        texts = {"boxed": [box], "final_answer": [f"Final answer: {gold}", box]}.get(mode, [gold])
        for text in texts:
            answer = EXTRACTORS[mode](text)
            if answer and _compared(answer, self.task) == Match(1.0, "text"):
                return Message(role="assistant", content=text)
        return None

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write questions with computed answers, in every way of asking."""
        yield from load_generator("string_match").generate(rng, num)


# Compares two short answers on a ladder of normalisations, from the plain text to units.
#
# Source: the resources server string_match of NVIDIA NeMo Gym (Apache-2.0), its rules written anew.
# Each rung rewrites both answers; the first one on which they are the same decides.

Rung = Literal["text", "number", "thousands", "latex", "list", "state", "near_number", "bare"]


class Match(NamedTuple):
    """How two answers are the same."""

    reward: float
    rung: Rung


def _compared(answer: str, task: ShortAnswer) -> Match | None:
    """Return how an answer is the expected one."""
    if task.case_sensitive:
        is_same = answer.strip() == task.expected_answer.strip()
        return Match(1.0, "text") if is_same else None
    if len(answer) > len(task.expected_answer) + MAX_SPARE:
        return None
    return compare(answer, task.expected_answer)


def _boxed(text: str) -> str | None:
    """Read the last box that is closed; one that is not holds all that follow it."""
    pieces = text.split(BOX)[1:]
    closed = (last_boxed(BOX + piece) for piece in reversed(pieces))
    return next((_unwrapped(inner.strip()) for inner in closed if inner is not None), None)


def _unwrapped(text: str) -> str:
    r"""Take `\text{...}` from around a text, however often."""
    closing = closing_braces(text)
    first, last = 0, len(text)
    while command := TEXT_COMMAND.match(text, first):
        end = closing.get(text.index("{", first))
        if end is None or text[end + 1 : last].strip():
            break
        first, last = command.end(), end
    return text[first:last].strip()


def _final_answer(text: str) -> str | None:
    """Read what follows the last "answer:", without a full stop; a box where there is none."""
    found = ANSWER_COLON.findall(text)
    return found[-1].strip().removesuffix(".").strip().rstrip(".") if found else _boxed(text)


def _last_line(text: str) -> str | None:
    """Read the last line that has something on it."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)


EXTRACTORS: Mapping[Mode, Callable[[str], str | None]] = {
    "boxed": _boxed,
    "final_answer": _final_answer,
    "last_line": _last_line,
    "full_response": lambda text: text or None,
}
"""How an answer is read out of a text, blanks around which are gone."""

NEAR = 0.98
"""How near a number must be, (1 - relative error) squared, and the reward for one that is."""

BRACES = re.compile("[{}]")
COMMANDS = re.compile(r"\\(?:boxed|emph|url|text(?:bf|it|tt)?|math(?:rm|bf|it|sf|bb|cal))\{")
MATH_MODE = re.compile(r"\\[()\[\]]|\$")
SIGNS = re.compile("[$£€%,]")
THOUSANDS = re.compile(r"(?<!\d)(\d++),(\d+)")
UNITS = re.compile(r"(?:\^\{?\\circ|°)\}?|\\circ|(?<![a-z])(?:cm|mm|km|m|kg)(?![a-z])")

# Where a name has another one in it, it stands first. In capitals no rule for lists changes a code.
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
    """Return the first rung on which two answers are the same, else None."""
    one, other = _plain(answer), _plain(expected)
    if one == other:
        return Match(1.0, "text")
    for rung, normalize in RUNGS.items():
        if normalize(one) == normalize(other) != "":
            return Match(1.0, rung)
    if _are_near(one, other):
        return Match(NEAR, "near_number")
    one, other = _bare(one), _bare(other)
    if one == other != "":
        return Match(1.0, "bare")
    return Match(NEAR, "near_number") if _are_near(one, other) else None


def closing_braces(text: str) -> dict[int, int]:
    """Return by the place of each opening brace the place of its closing one, where it has one."""
    closing: dict[int, int] = {}
    still_open: list[int] = []
    for brace in BRACES.finditer(text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            closing[still_open.pop()] = brace.start()
    return closing


def _plain(text: str) -> str:
    """Fold compatibility forms (NFKC) and case; drop quotes around it, then `.!?` at the end."""
    text = unicodedata.normalize("NFKC", text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def _number(text: str) -> str:
    """Rewrite a number, in dollars or percent of LaTeX or not, as Python does: 80 as 80.0."""
    value = _finite(text.replace("\\%", "").replace("\\$", "").replace("$", ""))
    return text if value is None else str(value)


def _thousands(text: str) -> str:
    """Close up digits, comma, digits; in `1,234,567` this takes the first comma only."""
    return THOUSANDS.sub(r"\1\2", text).replace("\\%", "%")


def _latex(text: str) -> str:
    """Drop commands of text and boxes, what shifts to mathematics, and spare blanks."""
    closing = closing_braces(text)
    dropped: set[int] = set()
    for command in COMMANDS.finditer(text):
        dropped.update(range(*command.span()))
        dropped.add(closing.get(command.end() - 1, -1))
    kept = "".join(character for place, character in enumerate(text) if place not in dropped)
    return " ".join(MATH_MODE.sub("", kept).split())


def _list(text: str) -> str:
    """Make blanks of `,`, `;`, `and` and `or`, also in words, where little of the text is lost."""
    spaced = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    return text if len(spaced) < 0.9 * len(text) else " ".join(spaced.split())


def _state(text: str) -> str:
    """Write the states of the USA as their postal codes, then as in a list."""
    for name, code in STATES.items():
        text = text.replace(name, code)
    return _list(text).lower()


def _bare(text: str) -> str:
    """Drop LaTeX and units, and write roots and pi as LaTeX does."""
    bare = UNITS.sub("", _latex(text))
    return bare.replace("√", "\\sqrt").replace("π", "\\pi").strip()


def _are_near(answer: str, expected: str) -> bool:
    """Return whether both are numbers, but for signs and units, about one in a hundred apart."""
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
"""What is tried on two plain texts that differ, in this order."""
