"""Hides a treasure behind doors with notes; each right door is rewarded when it opens.

One row: {"id": "hunt-0", "difficulty": "easy", "prompt": "A treasure lies behind one of the doors
100 to 999. Open door 417 and do as the notes say.", "doors": [417, 802]}
"""

import math
from collections.abc import Iterator
from random import Random

import msgspec

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
    Task,
    ToolCall,
    tool,
)


class Hunt(Task):
    """The doors to open, in order; the treasure lies behind the last one."""

    doors: list[int]


class NewEnvironment(Environment[Hunt]):
    """Follow notes from door to door to a treasure."""

    properties = Properties("multi-step", "instructions", "games", "search", "replayed rewards")

    num_opened: int
    is_lost: bool

    async def setup(self) -> list[Message]:
        """Close all doors."""
        self.num_opened, self.is_lost = 0, False
        return []

    @tool
    def open_door(self, number: int) -> JSONObject:
        """Open a door; one that no note names ends the hunt."""
        doors = self.task.doors
        if self.is_lost or self.num_opened == len(doors):
            raise ValueError("the hunt is over")
        if number != doors[self.num_opened]:
            self.is_lost = True
            return {"found": "nothing: the hunt is over"}
        self.num_opened += 1
        if self.num_opened == len(doors):
            return {"found": "the treasure"}
        return {"found": f'a note: "Open door {doors[self.num_opened]}."'}

    async def step(self, message: Message) -> Step:
        """Run the calls of a message; their reward is the share of the doors that they opened."""
        if not message.tool_calls:
            return Step([])  # the model has ended the hunt
        num_before = self.num_opened
        results = await self.call_tools(message.tool_calls)
        num_doors = len(self.task.doors)
        is_over = self.is_lost or self.num_opened == num_doors
        reward = (self.num_opened - num_before) / num_doors
        return Step(results, reward=reward, stop_reason="env_done" if is_over else None)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Replay the record and add up the rewards of its steps."""
        world = await context.replay(rollout)
        reward = math.fsum(step or 0.0 for step in world.rollout.step_rewards)
        return Score(reward, details={"reason": "found" if reward == 1.0 else "not_found"})

    async def oracle(self, rollout: Rollout) -> Message:
        """Open the next door."""
        arguments = msgspec.json.encode({"number": self.task.doors[self.num_opened]}).decode()
        call = ToolCall(f"call_{self.num_opened}", FunctionCall("open_door", arguments))
        return Message(role="assistant", tool_calls=[call])

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield hunts through two to eight doors; no two begin at the same one."""
        starts = rng.sample(DOORS, num)
        for number, start in enumerate(starts):
            difficulty, num_doors = list(LEVELS.items())[number % len(LEVELS)]
            other_doors = rng.sample([door for door in DOORS if door != start], num_doors - 1)
            hint = f"A treasure lies behind one of the doors {DOORS[0]} to {DOORS[-1]}."
            yield {
                "id": f"hunt-{number}",
                "difficulty": difficulty,
                "prompt": f"{hint} Open door {start} and do as the notes say.",
                "doors": [start, *other_doors],
            }


DOORS = range(100, 1000)
LEVELS = {"easy": 2, "medium": 4, "hard": 8}
"""The number of doors by difficulty; the rewards of a power of two add up to exactly 1."""
