"""Environments for `bench/kills.py`: one turn with a computed score, and two turns with a judge.

{"id": "task-0", "prompt": "This is task-0. Begin."}
"""

from __future__ import annotations

from gymcli import Context, Environment, Judge, Rollout, Score, Task

__all__ = ["Computed", "JudgedTalk"]


class Computed(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 for any text."""
        return Score(float(bool(rollout.last_text)))


class JudgedTalk(Environment[Task]):
    """Say anything twice; a judge decides whether it is good."""

    required_roles = ("judge",)
    judge = Judge(
        "Is this talk good?\n{opening}\n{answer}\nSay [[GOOD]] or [[BAD]].",
        labels={"good": "[[GOOD]]", "bad": "[[BAD]]"},
    )

    async def reply(self, rollout: Rollout) -> str | None:
        """Ask a second time, naming the task again."""
        # The mock logs only the last user text, in which `kills.py` finds the task.
        spoken = sum(message.role == "assistant" for message in rollout.responses)
        return f"{rollout.messages[0].text} Once more." if spoken == 1 else None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 if the judge calls it good."""
        verdict = await cls.judge.ask(
            context.roles["judge"], opening=rollout.messages[0].text, answer=rollout.last_text
        )
        return Score(float(verdict.label == "good"))
