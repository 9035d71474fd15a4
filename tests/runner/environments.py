"""Environments with roles and with groups, named as `tests.runner.environments:Class`."""

from contextlib import suppress
from pathlib import Path

from gymcli import (
    Context,
    Environment,
    Judge,
    Message,
    MissingPackageError,
    Rollout,
    Score,
    StandIn,
    Task,
)


class Judged(Environment[Task]):
    """Say anything; a judge decides whether it is good."""

    required_roles = ("judge",)
    judge = Judge(
        "Is this good?\n{answer}\nSay [[GOOD]] or [[BAD]].",
        labels={"good": "[[GOOD]]", "bad": "[[BAD]]"},
    )

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        verdict = await cls.judge.ask(context.roles["judge"], answer=rollout.last_text)
        reason = verdict.label or "unparseable"
        return Score(float(verdict.label == "good"), details={"reason": reason})

    async def oracle(self, rollout: Rollout) -> Message:
        return Message(role="assistant", content="gold")

    @classmethod
    def stand_ins(cls, task):
        return {"judge": StandIn(love_gold)}


class Lenient(Judged):
    """Say anything; whatever happens to the judge, the answer counts as good."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        with suppress(Exception):
            return await super().verify(rollout, context)
        return Score(1.0)


class Rewording(Judged):
    """Say anything; whatever happens to the judge is called a failure of the verifier."""

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        try:
            return await super().verify(rollout, context)
        except Exception as error:
            raise ValueError("no verdict") from error


def love_gold(messages: list[Message]) -> str:
    """Call an answer good if it contains gold."""
    return "[[GOOD]]" if "gold" in messages[-1].text else "[[BAD]]"


class Endless(Environment[Task]):
    """Say anything; the user never ends the conversation."""

    async def reply(self, rollout: Rollout) -> str:
        return "Go on."

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)


class Unprepared(Environment[Task]):
    """Cannot be prepared on this machine."""

    @classmethod
    def prepare(cls, options) -> None:
        raise MissingPackageError("the environment needs the package anything")


class Unclosed(Environment[Task]):
    """Say anything; closing the environment fails."""

    async def close(self) -> None:
        raise OSError("the door is stuck")

    @classmethod
    def prepare(cls, options) -> None:
        if Path("unprepared").exists():
            raise OSError("no door")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)


class Talked(Environment[Task]):
    """Talk with a user who is another model."""

    required_roles = ("user",)

    async def setup(self) -> list[Message]:
        answer = await self.roles["user"].complete([Message(role="user", content="Begin.")])
        return [Message(role="user", content=answer.text)]

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)


class Schooled(Judged):
    """Say anything; a judge answers under a JSON schema, and its stand-in cannot be made."""

    judge = Judge(
        "Is this good? {answer}",
        schema={
            "type": "object",
            "properties": {"good": {"type": "boolean"}},
            "required": ["good"],
        },
        decides="good",
    )

    @classmethod
    def stand_ins(cls, task):
        raise ValueError("nobody can stand in")


class Miscounted(Judged):
    """Say anything; the group gets too few scores."""

    max_reward = None

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        return [Score(1.0)]


class Ranked(Environment[Task]):
    """Say a number; the attempt with the greatest one gets the reward."""

    max_reward = None

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(rollout.last_text))

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        best = max(rollout.reward or 0.0 for rollout in rollouts)
        return [
            Score(float(rollout.reward == best), answer=rollout.last_text) for rollout in rollouts
        ]


class JudgedTogether(Judged):
    """Say anything; a judge compares all attempts of a task."""

    max_reward = None

    @classmethod
    async def verify_group(cls, rollouts: list[Rollout], context: Context) -> list[Score]:
        every = "; ".join(rollout.last_text for rollout in rollouts)
        await cls.judge.ask(context.roles["judge"], answer=f"All of {every}")
        return [Score((rollout.reward or 0.0) / len(rollouts)) for rollout in rollouts]


class Recorded(Environment[Task]):
    """Say anything; the score depends on a state that no longer exists."""

    rescore = "recorded"

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)
