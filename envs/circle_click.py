"""Asks for a click on the circle of a given colour; the first call of the tool `click` counts.

Source: the resources server circle_click of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently: coordinates are read as Python's `int` does, so that 12.9, "12" and true are 12, 12
and 1, and the edge of a circle belongs to it. The model has one message. Also as in the reference,
only the row's first circle of the colour counts, although a picture may show several. Differences
from the reference:

- A row without a circle of the colour is refused, since no click could be right.
- Coordinates that are not finite numbers are a miss, not an error.

One row, with its picture shortened:
{"id": "click-0", "difficulty": "easy", "messages": [{"role": "user", "content": [{"type":
"image_url", "image_url": {"url": "data:image/png;base64,..."}}, {"type": "text", "text": "..."}]}],
"circles": [{"x": 48, "y": 61, "radius": 30, "color": "red"}], "target_color": "red"}
"""

import json
import math
from collections.abc import Iterator
from random import Random
from typing import Self

from pydantic import model_validator

from gymcli import (
    Context,
    Environment,
    FunctionCall,
    JSONObject,
    Message,
    Properties,
    Rollout,
    Score,
    Step,
    ToolCall,
    tool,
)
from gymcli.envs import load_generator

from .circle_count import CircleTask

__all__ = ["CircleClick", "ClickTask"]

MAX_COORDINATE = 1_000_000
"""Clicks beyond it are unreadable: the distance of some would not fit into a float."""


class ClickTask(CircleTask):
    """The circles of a picture, and the colour to click."""

    @model_validator(mode="after")
    def _has_target(self) -> Self:
        if not self.targets:
            raise ValueError(f'no circle has the "target_color" {self.target_color!r}')
        return self


class CircleClick(Environment[ClickTask]):
    """Click the circle of a given colour in a picture."""

    properties = Properties("single-step", "perception", "images", "pointing", "distance")

    @tool
    def click(self, x: int, y: int) -> JSONObject:
        """Click a point of the picture, in pixels: x from its left edge, y from its top edge."""
        return {"x": x, "y": y}

    async def step(self, message: Message) -> Step:
        """Run the calls of the only message, then end the episode."""
        # The reference's driver, too, stops after one message.
        return Step(await self.call_tools(message.tool_calls), stop_reason="env_done")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the first click is not farther from the centre than the radius."""
        # The first circle and the first click, as in the reference.
        target = cls.parse_task(rollout.task).targets[0]
        clicks = [call.arguments for call in rollout.tool_calls if call.name == "click"]
        point = _point(clicks[0]) if clicks else None
        expected = f"{target.x}, {target.y} (radius {target.radius})"
        if point is None:
            return Score(0.0, details={"reason": "no_answer", "expected": expected})
        x, y = point
        is_hit = math.sqrt((x - target.x) ** 2 + (y - target.y) ** 2) <= target.radius
        return Score(
            float(is_hit),
            answer=f"{x}, {y}",
            details={"reason": "hit" if is_hit else "miss", "expected": expected},
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Click the centre."""
        target = self.task.targets[0]
        arguments = json.dumps({"x": round(target.x), "y": round(target.y)})
        call = ToolCall(id="call_0", function=FunctionCall("click", arguments))
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield pictures with one circle of the colour; harder ones have more, smaller circles."""
        yield from load_generator("circle_click").generate(rng, num)


def _point(arguments: str) -> tuple[int, int] | None:
    """Read the coordinates of a call; None if they are missing, unreadable or too large."""
    try:
        # `int` as in the reference, which also takes floats, booleans and texts.
        found = json.loads(arguments)
        x, y = int(found["x"]), int(found["y"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return (x, y) if max(abs(x), abs(y)) <= MAX_COORDINATE else None
