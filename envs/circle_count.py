r"""Asks how many circles of a colour a picture shows; the number is read from a box.

Source: the resources server circle_count of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently: the answer is the first `\boxed{...}` in all the text of the model that holds only
digits. Differences from the reference:

- A number of more than 1,000 digits is wrong, not an error.

One row, with its picture shortened:
{"id": "count-0", "difficulty": "easy", "messages": [{"role": "user", "content": [{"type":
"image_url", "image_url": {"url": "data:image/png;base64,..."}}, {"type": "text", "text": "..."}]}],
"circles": [{"x": 48, "y": 61, "radius": 30, "color": "red"}], "target_color": "red"}
"""

import re
from collections.abc import Iterator
from random import Random

from pydantic import BaseModel

from gymcli import (
    Context,
    Environment,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Task,
)
from gymcli.envs import load_generator

__all__ = ["Circle", "CircleCount", "CircleTask"]

NUMBER = re.compile(r"\\boxed\{(\d+)\}")
MAX_DIGITS = 1000
"""Python refuses to convert a number of more than 4,300 digits by default."""


class Circle(BaseModel):
    """A circle of a picture, in pixels; y counts from the top."""

    x: int | float
    y: int | float
    radius: int | float
    color: str


class CircleTask(Task):
    """The circles of a picture, and the colour to count."""

    circles: list[Circle]
    """The circles of the picture."""
    target_color: str
    """The colour that the prompt asks for."""

    @property
    def targets(self) -> list[Circle]:
        """The circles of the requested colour."""
        return [circle for circle in self.circles if circle.color == self.target_color]


class CircleCount(Environment[CircleTask]):
    """Count the circles of one colour in a picture."""

    properties = Properties("single-step", "perception", "images", "counting", "exact match")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the first number in a box is the number of circles of the colour."""
        num_expected = len(cls.parse_task(rollout.task).targets)
        # As in the reference, the first box counts, not the last.
        found = NUMBER.search(rollout.output_text)
        digits = found[1] if found else ""
        is_short = 0 < len(digits) <= MAX_DIGITS
        is_right = is_short and int(digits) == num_expected
        reason = "correct" if is_right else "wrong_number" if digits else "no_answer"
        return Score(
            float(is_right),
            # Through `int`, since `\d` also matches digits of other scripts, and zeros may lead.
            answer=str(int(digits)) if is_short else None,
            details={"reason": reason, "expected": str(num_expected)},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Return the number in a box."""
        return Message(role="assistant", content=_boxed(len(self.task.targets)))

    @classmethod
    def choices(cls, task: CircleTask) -> list[str]:
        """Return every number from 0 to the number of circles."""
        return [_boxed(number) for number in range(len(task.circles) + 1)]

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield pictures in which every number of circles of the colour is equally likely."""
        yield from load_generator("circle_count").generate(rng, num)


def _boxed(number: int) -> str:
    return f"\\boxed{{{number}}}"
