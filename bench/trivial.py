"""An environment whose verifier costs next to nothing, for `bench/parsing.py`.

{"id": "task-0", "prompt": "What is 3 + 4?", "expected": "7"}
"""

from __future__ import annotations

from gymcli import Context, Environment, Rollout, Score, Task

__all__ = ["Trivial"]


class Trivial(Environment[Task]):
    """Answer a question."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the last letter is the expected one."""
        letter = rollout.messages[-1].text[-1:]
        return Score(float(letter == rollout.task["expected"]), answer=letter)
