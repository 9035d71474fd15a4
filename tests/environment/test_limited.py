"""Calls of an environment's own code end in time, and are free where nothing is overridden."""

import asyncio
from random import Random

import pytest

from gymcli.deadlines import Alarm
from gymcli.environment import Environment, Step, Task, limited, tool
from gymcli.errors import EnvironmentTimeoutError, SetupTimeoutError
from gymcli.types import FunctionCall, Message, Rollout, ToolCall

CALL = ToolCall(id="1", function=FunctionCall("look", "{}"))


def spin():
    while True:
        pass


async def hang():
    await asyncio.get_running_loop().create_future()


class Spinning(Environment[Task]):
    """Computes without an end."""

    blocking_timeout = tool_timeout = 0.02

    async def setup(self):
        spin()

    def tools(self):
        spin()

    async def step(self, message):
        spin()

    async def oracle(self, rollout):
        spin()

    async def final_state(self):
        spin()

    async def close(self):
        spin()


class Hanging(Environment[Task]):
    """Waits without an end."""

    setup_timeout = step_timeout = close_timeout = 0.02

    async def setup(self):
        await hang()

    async def reply(self, rollout):
        await hang()

    async def oracle(self, rollout):
        await hang()

    async def final_state(self):
        await hang()

    async def close(self):
        await hang()


class Unmade(Environment[Task]):
    """Is never made."""

    blocking_timeout = 0.02

    def __init__(self, *positional, **named):
        spin()


class Unread(Unmade):
    """Never reads its row."""

    @classmethod
    def parse_task(cls, fields):
        spin()


class Plain(Environment[Task]):
    """Overrides nothing but a tool."""

    @tool
    def look(self) -> str:
        """Look."""
        return "a door"


def made(environment, alarm):
    return limited.make(
        environment,
        {"id": "a"},
        options=environment.Options(),
        roles={},
        rng=Random(0),
        alarm=alarm,
    )


def called(environment, call):
    async def run():
        with Alarm() as alarm:
            found = call(made(environment, alarm))
            return await found if asyncio.iscoroutine(found) else found

    return asyncio.run(run())


def test_make_gives_the_generator_of_a_seed():
    class Dicing(Environment[Task]):
        """Throws its dice as it is made."""

        def __init__(self, task, *, options=None, roles=None, rng=None):
            super().__init__(task, options=options, roles=roles, rng=rng)
            self.number = rng.random()

    def seeded(environment):
        return limited.make(
            environment, {}, options=environment.Options(), roles={}, rng=5, alarm=Alarm()
        )

    assert seeded(Plain).rng.random() == Random(5).random()
    assert seeded(Dicing).number == Random(5).random()


CALLS = {
    "setup": (limited.set_up, SetupTimeoutError),
    "tools": (limited.tools, SetupTimeoutError),
    "step": (
        lambda one: limited.answer(one, Message(role="assistant", content="a")),
        EnvironmentTimeoutError,
    ),
    "oracle": (lambda one: limited.oracle(one, Rollout()), EnvironmentTimeoutError),
    "final_state": (limited.final_state, EnvironmentTimeoutError),
    "close": (limited.close, EnvironmentTimeoutError),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_end_where_they_compute(name):
    call, error = CALLS[name]
    with pytest.raises(error) as caught:
        called(Spinning, call)
    assert str(caught.value) == f"{name} computed for longer than 0.02 seconds (blocking_timeout)"


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"tools"}))
def test_calls_end_where_they_wait(name):
    call, error = CALLS[name]
    limit = {"setup": "setup_timeout", "close": "close_timeout"}.get(name, "step_timeout")
    with pytest.raises(error) as caught:
        called(Hanging, call)
    assert str(caught.value) == f"{name} took longer than 0.02 seconds ({limit})"


@pytest.mark.parametrize("environment", [Unmade, Unread])
def test_make_ends(environment):
    with pytest.raises(SetupTimeoutError, match="making the environment computed for longer than"):
        called(environment, limited.close)


def test_calls_give_what_the_environment_gives():
    assert called(Plain, limited.set_up) == []
    assert [one.name for one in called(Plain, limited.tools)] == ["look"]
    assert called(Plain, CALLS["step"][0]) == Step([])
    assert called(Plain, CALLS["oracle"][0]) is None
    assert called(Plain, limited.final_state) is None
    assert called(Plain, limited.close) is None
    assert called(Plain, lambda one: one.task.model_extra) == {"id": "a"}


def test_a_tool_that_computes_gives_others_their_turn_after_it():
    """A message may call many of them; a limit of the whole step must come to its right."""

    class Working(Plain):
        """Has a tool that is not async and computes."""

        tool_timeout = 0.06

        @tool
        def look(self) -> str:
            """Look."""
            spin()

    async def run():
        turns = []

        async def other():
            while True:
                turns.append(len(turns))
                await asyncio.sleep(0)

        with Alarm() as alarm:
            environment = made(Working, alarm)
            task = asyncio.create_task(other())
            answers = await environment.call_tools([CALL] * 3)
            task.cancel()
        return environment, answers, turns

    environment, answers, turns = asyncio.run(run())
    assert [one.text for one in answers] == ["look did not finish within 0.06 seconds."] * 3
    assert environment.tool_errors == {"timeout": 3}
    assert len(turns) == 3
