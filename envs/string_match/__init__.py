r"""Asks for a short answer and compares it as text, on a ladder from exact to nearly the same.

Source: the resources server string_match of NVIDIA NeMo Gym (Apache-2.0), its rules written anew.
The answer is read from all messages, joined by line breaks: the last closed `\boxed{...}`, without
`\text{...}` around it; what follows the last "answer:" on its line, without a full stop, else a
box; the last line; or everything. With `case_sensitive` it has to be the expected text. Without,
the first of these that is the same in both decides: the text in lower case, the number, the digits
without a comma, the text without LaTeX, the items of a list, the postal codes of states of the USA;
then a number about one in a hundred off is worth 0.98; then what is left without units counts.
Known limits that are kept: units are never compared, "5 km" for 5 is worth 0.98 as is "1,234,567"
for 1234567, `and` and `or` also vanish from within words, "cats and dogs" is not "cats, dogs", and
what follows "answer:" keeps its asterisks. Where this differs:

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

import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal

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

from .normalization import Match, closing_braces, compare
from .questions import rows

__all__ = ["ShortAnswer", "StringMatch"]

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
        """Reward 1 where the answer is the expected one, 0.98 for a number that is near."""
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
        """Give the expected answer in a form that is read; None where the row's mode reads none."""
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
        return rows(rng, num)


def _compared(answer: str, task: ShortAnswer) -> Match | None:
    """Say how an answer is the expected one."""
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
