"""Asks for a sum, which a tool adds: one turn to call the tool, and one to answer.

One row:
{"id": "3+4", "prompt": "What is 3 + 4? Answer with the number.", "a": 3, "b": 4, "answer": 7}
"""

import msgspec

from gymcli import (
    Context,
    Environment,
    FunctionCall,
    Message,
    Rollout,
    Score,
    Task,
    ToolCall,
    tool,
)


class Addition(Task):
    """Two numbers and their sum."""

    a: int
    b: int
    answer: int


class AddingMachine(Environment[Addition]):
    """Add two numbers with a tool."""

    max_turns = 3

    @tool(reads_only=True)
    def add(self, a: int, b: int) -> str:
        """Return the sum of two numbers."""
        return str(a + b)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if a tool was called and the answer is the sum."""
        answer = rollout.output_text.strip()
        is_right = bool(rollout.tool_calls) and answer == str(cls.parse_task(rollout.task).answer)
        return Score(float(is_right), answer=answer or None)

    async def oracle(self, rollout: Rollout) -> Message:
        """Call the tool, then answer with its result."""
        if rollout.tool_calls:
            return Message(role="assistant", content=str(self.task.answer))
        arguments = msgspec.json.encode({"a": self.task.a, "b": self.task.b}).decode()
        call = ToolCall(id="call_0", function=FunctionCall("add", arguments))
        return Message(role="assistant", tool_calls=[call])
