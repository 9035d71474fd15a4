"""Keeps a counter that two tools change and read, and checks its final value.

Source: the resources server example_session_state_mgmt of NVIDIA NeMo Gym 0.7 (Apache-2.0),
reimplemented independently: the reward is 1 if the counter equals `expected_count`, else 0. Whether
the model reads the counter or states its value does not matter. Differences from the reference:

- The counter lives in the episode, so no session can be lost and score 0 for it.
- The verifier replays the recorded calls instead of reading a live counter.
- A call whose count is a text, or that has an unknown argument, is refused with a sentence that
  says so; replayed records of other programs are read more loosely.

One row:
{"id": "counter-0", "difficulty": "easy", "messages": [{"role": "user", "content": "Add 2, then add
5, then tell me the counter."}], "initial_count": 4, "expected_count": 11, "additions": [2, 5]}
"""

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
    Task,
    ToolCall,
    tool,
)

__all__ = ["CounterTask", "ExampleSessionStateMgmt"]


class CounterTask(Task):
    """The initial and the expected final value of the counter."""

    expected_count: int
    """The value that the counter must have in the end."""
    initial_count: int = 0
    """The value of the counter at the start."""
    additions: list[int] = []
    """The additions that the prompt asks for, for the oracle; empty: a single one."""


class ExampleSessionStateMgmt(Environment[CounterTask]):
    """Add to a counter with a tool, then read it."""

    properties = Properties("stateful", "tool use", "counting", "state change", "end state")

    count: int

    async def setup(self) -> list[Message]:
        """Set the counter to the task's start."""
        self.count = self.task.initial_count
        return []

    @tool
    def increment_counter(self, count: int) -> JSONObject:
        """Add a number to the counter."""
        self.count += count
        return {"success": True}

    @tool(reads_only=True)
    def get_counter_value(self) -> JSONObject:
        """Read the counter."""
        return {"count": self.count}

    async def final_state(self) -> int:
        """Return the counter."""
        return self.count

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the counter, after the recorded calls, is as expected."""
        # Only the calls: records of other programs have no final state.
        world = await context.replay(rollout)
        assert isinstance(world, cls)
        is_right = world.count == world.task.expected_count
        return Score(
            float(is_right),
            answer=str(world.count),
            details={
                "reason": "correct" if is_right else "wrong_count",
                "expected": str(world.task.expected_count),
            },
        )

    async def oracle(self, rollout: Rollout) -> Message:
        """Make one addition per turn, read the counter, and report it."""
        task = self.task
        additions = task.additions or [task.expected_count - task.initial_count]
        num_calls = len(rollout.tool_calls)
        if num_calls > len(additions):
            return Message(role="assistant", content=f"The counter is {task.expected_count}.")
        if num_calls == len(additions):
            function = FunctionCall("get_counter_value", "{}")
        else:
            arguments = msgspec.json.encode({"count": additions[num_calls]}).decode()
            function = FunctionCall("increment_counter", arguments)
        return Message(
            role="assistant", tool_calls=[ToolCall(id=f"call_{num_calls}", function=function)]
        )

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield chains of one to six additions; hard ones also subtract."""
        for number in range(num):
            difficulty, longest, smallest = LEVELS[number % len(LEVELS)]
            steps = range(rng.randint(longest - 1, longest))
            additions = [rng.choice([*range(smallest, 0), *range(1, 50)]) for _ in steps]
            parts = [f"add {n}" if n > 0 else f"take away {-n}" for n in additions]
            text = ", then ".join([*parts, "tell me the counter."]).capitalize()
            initial_count = rng.randint(0, 20)
            yield {
                "id": f"counter-{number}",
                "difficulty": difficulty,
                "messages": [{"role": "user", "content": text}],
                "initial_count": initial_count,
                "expected_count": initial_count + sum(additions),
                "additions": additions,
            }


LEVELS = [("easy", 2, 0), ("medium", 4, 0), ("hard", 6, -30)]
"""Each difficulty with its most additions and the lowest number to add."""
