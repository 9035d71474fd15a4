"""Environments with one defect each, which `check` must report."""

from gymcli import MissingPackageError, StandIn
from gymcli.environment.contract import Environment
from gymcli.environment.tool import Task
from tests.checks.subjects import Sound


class Good(Sound):
    """Say the answer."""

    skipped_checks = {"leaks": "the answer is part of the question"}


class Unknown(Sound):
    skipped_checks = {"speling": "nobody knows it"}


class Forbidden(Sound):
    skipped_checks = {"repeatable": "chance", "tasks": "none are valid"}


class Reasonless(Sound):
    skipped_checks = {"empty": " "}


class Roleless(Sound):
    required_roles = ("judge",)


class Undeclared(Sound):
    """Asks a role that it does not declare."""

    @classmethod
    def stand_ins(cls, task):
        return {"judge": StandIn(lambda messages: "good")}

    @classmethod
    async def verify(cls, rollout, context):
        await context.roles["judge"].complete([])
        return await super().verify(rollout, context)


class Packless(Sound):
    """Needs a package that is not installed."""

    @classmethod
    def prepare(cls, options):
        raise MissingPackageError("Packless needs x: pip install 'gymcli[x]'")


class LatePackless(Packless):
    """Reports the missing package only in `verify`."""

    @classmethod
    def prepare(cls, options):
        """Find nothing missing."""

    @classmethod
    async def verify(cls, rollout, context):
        super().prepare(context.options)


class Unready(Sound):
    """Has stand-ins that fail."""

    @classmethod
    def stand_ins(cls, task):
        raise KeyError("gold")


class Barren(Environment[Task]):
    """Does not implement `generate`."""


class Empty(Sound):
    @classmethod
    def generate(cls, rng, num):
        return iter(())


class Untidy(Sound):
    """Generates invalid rows."""

    @classmethod
    def generate(cls, rng, num):
        yield {"id": "a", "prompt": "A?", "answer": "gold-a"}
        yield {"id": "b", "prompt": "B?"}
        yield {"id": "c", "prompt": "C?", "answer": 3}


class Copying(Sound):
    @classmethod
    def generate(cls, rng, num):
        for name in "aba":
            yield {"id": name, "prompt": f"{name}?", "answer": f"gold-{name}"}


class Exploding(Sound):
    @classmethod
    def generate(cls, rng, num):
        raise ZeroDivisionError("no luck")


class Undecided(Sound):
    @classmethod
    def choices(cls, task):
        raise LookupError("which?")
