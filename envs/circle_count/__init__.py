r"""Asks how many circles of a colour a picture shows; the number is read from a box.

Source: the resources server circle_count of NVIDIA NeMo Gym (Apache-2.0), its rules written anew:
the first `\boxed{...}` of all that was said that holds digits, and digits alone, is the answer.
Where this differs:

- A number of more than 1,000 digits is wrong, not an error.

One row, but for the picture, which is a part of the message:
{"id": "count-0", "difficulty": "easy", "messages": [{"role": "user", "content": [{"type":
"image_url", "image_url": {"url": "data:image/png;base64,..."}}, {"type": "text", "text": "..."}]}],
"circles": [{"x": 48, "y": 61, "radius": 30, "color": "red"}], "target_color": "red"}
"""

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gymcli import Context, Environment, JSONObject, Message, Properties, Rollout, Score

from .picture import COLORS, SIZE, Circle, CircleTask, drawn, places, shown

__all__ = ["COLORS", "SIZE", "Circle", "CircleCount", "CircleTask", "drawn", "places", "shown"]

NUMBER = re.compile(r"\\boxed\{(\d+)\}")
MAX_DIGITS = 1000
"""Python converts no number of more than 4,300 digits."""


class Level(NamedTuple):
    """What pictures of a difficulty show."""

    num_circles: tuple[int, int]
    num_colors: int
    num_columns: int
    """Of the grid in which circles lie."""
    radius: tuple[int, int]


LEVELS = {
    "easy": Level((3, 6), 2, 4, (26, 40)),
    "medium": Level((8, 13), 3, 5, (18, 30)),
    "hard": Level((16, 26), 5, 7, (9, 19)),
}
QUESTIONS = [
    "How many {color} circles do you see?",
    "Count the circles that are {color}.",
    "What is the number of {color} circles in this picture?",
    "Some of these circles may be {color}. How many are?",
    "Look at the picture and count every {color} circle in it.",
]
FORM = "Give the number once, in \\boxed{}; write 0 where there is none."


class CircleCount(Environment[CircleTask]):
    """Count the circles of one colour in a picture."""

    properties = Properties("single-step", "perception", "images", "counting", "exact match")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 where the first number in a box is that of the circles of the colour."""
        num_expected = len(cls.parse_task(rollout.task).targets)
        found = NUMBER.search(rollout.output_text)
        digits = found[1] if found else ""
        is_short = 0 < len(digits) <= MAX_DIGITS
        is_right = is_short and int(digits) == num_expected
        reason = "correct" if is_right else "wrong_number" if digits else "no_number"
        return Score(
            float(is_right),
            answer=str(int(digits)) if is_short else None,
            details={"reason": reason, "expected_count": num_expected},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Give the number in a box."""
        return Message(role="assistant", content=_boxed(len(self.task.targets)))

    @classmethod
    def choices(cls, task: CircleTask) -> list[str]:
        """Give every number from none to all of the circles."""
        return [_boxed(number) for number in range(len(task.circles) + 1)]

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Draw pictures in which every number of circles of the colour is as likely."""
        for number in range(num):
            difficulty = list(LEVELS)[number % len(LEVELS)]
            level = LEVELS[difficulty]
            circles, target = _scene(rng, level)
            question = rng.choice(QUESTIONS).format(color=target)
            text = f"The picture is {SIZE} by {SIZE} pixels. {question} {FORM}"
            yield {
                "id": f"count-{number}",
                "difficulty": difficulty,
                **shown(circles, target, text),
            }


def _scene(rng: Random, level: Level) -> tuple[list[Circle], str]:
    """Choose circles of one size, and the colour to count."""
    num_circles = rng.randint(*level.num_circles)
    radius = rng.randint(*level.radius)
    target, *others = rng.sample(list(COLORS), level.num_colors)
    num_targets = rng.randint(0, num_circles)
    colors = [target] * num_targets + rng.choices(others, k=num_circles - num_targets)
    centres = places(rng, num_circles, level.num_columns, radius)
    circles = [
        Circle(x=x, y=y, radius=radius, color=color)
        for (x, y), color in zip(centres, colors, strict=True)
    ]
    return rng.sample(circles, num_circles), target


def _boxed(number: int) -> str:
    return f"\\boxed{{{number}}}"
