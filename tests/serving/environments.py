"""Environments for the tests of `gym serve`."""

import asyncio
import os

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    Message,
    Rollout,
    Score,
    Step,
    Task,
    tool,
)

CLOSED = []
"""Nonces of the tasks whose environments were closed."""


class NonceTask(Task):
    nonce: str


class Notebook(Environment[NonceTask]):
    """Write notes with a tool, then read them: state that belongs to one session."""

    class Options(EnvironmentOptions):
        bonus: float = 0.0

    options: Options

    async def setup(self) -> list[Message]:
        self.notes: list[str] = []
        self.num_inside = 0
        return []

    @tool
    async def write(self, text: str) -> dict[str, int]:
        """Write a note down."""
        self.num_inside += 1
        assert self.num_inside == 1, "two calls at once in one session"
        for _ in range(3):
            await asyncio.sleep(0)
        self.notes.append(text)
        self.num_inside -= 1
        return {"num_notes": len(self.notes)}

    @tool(reads_only=True)
    def read(self) -> str:
        """Read all notes."""
        return ", ".join(self.notes)

    @tool
    def open_drawer(self) -> str:
        """Open the drawer, which is stuck."""
        raise ValueError("the drawer is stuck")

    @tool
    def open_safe(self) -> str:
        """Open the safe, which tells too much."""
        raise RuntimeError(f"/home/user/secret.txt has {os.environ['SAFE_KEY']}")

    @tool(timeout=0.2)
    async def wait_for_ever(self) -> str:
        """Wait, and never end."""
        await asyncio.Event().wait()
        return "over"

    async def final_state(self) -> dict[str, list[str]]:
        return {"notes": self.notes}

    async def close(self) -> None:
        CLOSED.append(self.task.nonce)
        if self.task.nonce == "unclosable":
            raise OSError("it does not close")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        assert isinstance(context.options, Notebook.Options)
        assert isinstance(rollout.final_state, dict)
        is_own = rollout.final_state["notes"] == [rollout.task["nonce"]]
        is_said = rollout.last_text == rollout.task["nonce"]
        return Score(
            float(is_own and is_said) + context.options.bonus,
            components={"kept": float(is_own), "said": float(is_said)},
            metrics={"num_turns": float(sum(m.role == "assistant" for m in rollout.responses))},
            answer=rollout.last_text,
            details={"reason": "kept and said" if is_own and is_said else "not"},
        )


class Riddle(Environment[NonceTask]):
    """Answers the model itself: it opens the conversation, and hints after a wrong guess."""

    max_turns = 5

    async def setup(self) -> list[Message]:
        self.number = self.rng.randrange(10)
        return [Message(role="user", content=f"Guess. ({self.task.nonce})")]

    async def step(self, message: Message) -> Step:
        if message.text == str(self.number):
            return Step([], 1.0, stop_reason="env_done")
        return Step([Message(role="user", content=f"It is {self.number}.")], -0.25)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(sum(one or 0.0 for one in rollout.step_rewards) / 2)


class Plain(Environment[NonceTask]):
    """Say the nonce; it keeps no state between requests."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(rollout.last_text == rollout.task["nonce"]))


class Broken(Environment[NonceTask]):
    """A verifier that fails, with a path and a secret in its message."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        raise FileNotFoundError(f"/srv/data/answers.db is missing; {os.environ['SERVED_API_KEY']}")


class Judged(Environment[NonceTask]):
    """A judge decides."""

    required_roles = ("judge",)

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        verdict = await context.roles["judge"].complete(
            [Message(role="user", content=rollout.last_text)], cache="1"
        )
        return Score(float(verdict.text == "yes"), details={"reason": verdict.text})


class TurnCounter(Environment[NonceTask]):
    """Says how many messages came; its verifier reads usage, model and step rewards."""

    max_turns = 4

    async def step(self, message: Message) -> Step:
        number = sum(m.role == "assistant" for m in self.rollout.messages)
        return Step([Message(role="user", content=f"That was {number}.")], float(number))

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(
            rollout.usage.completion_tokens / 1000,
            details={"rewards": list(rollout.step_rewards), "model": rollout.model},
        )


class Lingering(Environment[NonceTask]):
    """Is slow to close, and counts how many instances close concurrently."""

    num_closing = 0
    most_closing = 0

    async def close(self) -> None:
        counts = type(self)
        counts.num_closing += 1
        counts.most_closing = max(counts.most_closing, counts.num_closing)
        for _ in range(3):
            await asyncio.sleep(0)
        counts.num_closing -= 1


class Together(Environment[NonceTask]):
    """Scores attempts together."""

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        return [Score(0.0) for _ in rollouts]
