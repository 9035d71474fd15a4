r"""Plays any FutureHouse aviary environment; a calculator of our own stands in where none is named.

Source: the resources server and the agent aviary of NVIDIA NeMo Gym (Apache-2.0), reimplemented
independently. The world gives opening, tools and a reward for every step; the score is their sum. A
message without tool calls ends the episode, unless the option `nudge` answers it. The calculator
follows the GSM8K environment of aviary: +1 for an answer within 1e-4 of the right one, 0 for any
other, a number beyond every float among them, -1 and the end where a tool fails. Differences from
the reference:

- A call of no tool, or with arguments that do not fit, is answered by a tool message and counted;
  the other calls of its message are still made. Where none is left the reward is 0.
- A world without tools is given the text of the message.
- An exception that leaves the world, and a step that takes too long, leave the attempt unscored.
- Old messages about the world's state stay in the conversation.

Which world is played is said by the options alone, since they may name code; a row says which task
of it: `task_idx` of a data set, or `task` or `task_kwargs` for a class. Nothing is loaded for a
record: what others wrote cannot be played again, so the rewards on record are the score.

One row of ours, and one for `--env-arg dataset=gsm8k`:
{"id": "calculator-3", "difficulty": "easy", "prompt": "Ana packs 15 crates with 12 jars of honey in
each. How many jars is that?\n\n...", "expression": "15 * 12", "task_kwargs": {"answer": 180}}
{"task_idx": 0, "responses_create_params": {"input": []}}
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Literal

import msgspec
from pydantic import Field, ValidationInfo, field_validator

from gymcli import (
    Context,
    Environment,
    EnvironmentOptions,
    FunctionCall,
    JSONObject,
    Message,
    MissingPackageError,
    Properties,
    Rollout,
    Score,
    Step,
    Task,
    Tool,
    ToolCall,
)
from gymcli.envs import load_generator

if TYPE_CHECKING:
    from .worlds import World


__all__ = ["Aviary", "AviaryTask"]


class AviaryTask(Task):
    """Which task of the world a row means."""

    task_idx: int | None = None
    """The position in the data set; without it and `task_kwargs`, its next environment."""
    task: str | None = None
    """The text for `from_task` of the class."""
    task_kwargs: JSONObject = {}
    """Keyword arguments of the class, or of `get_new_env_by_args` of the data set."""
    expression: str | None = None
    """What the calculator comes to the answer by; for the oracle."""


class Aviary(Environment[AviaryTask]):
    """Play any FutureHouse aviary environment; by default, word problems with a calculator."""

    max_reward = 1.0
    """Of the shipped tasks, and of gsm8k; the worlds of others may give more."""
    rescore = "recorded"
    properties = Properties("stateful", "tool use", "mathematics", "word problems", "step rewards")

    class Options(EnvironmentOptions):
        """Which world is played."""

        dataset: str | None = None
        """A task data set: a name that aviary knows, such as gsm8k, or `module:Class`."""
        dataset_args: JSONObject = {}
        """Keyword arguments of the data set, such as its split."""
        env_class: str | None = None
        """An environment: a name that aviary knows, or `module:Class`; any callable that gives an
        environment will do."""
        nudge: str = ""
        """The answer to a message without tool calls; empty: such a message ends the episode."""
        step_timeout: float = Field(default=300.0, gt=0)
        """Seconds that one step of the world may take. Only async tools can be stopped."""

        @field_validator("env_class")
        @classmethod
        def _is_alone(cls, value: str | None, info: ValidationInfo) -> str | None:
            if value is not None and info.data.get("dataset") is not None:
                raise ValueError("give env_class or dataset, not both")
            return value

    options: Options

    _world: World | None = None
    _tools: Sequence[Tool] = ()
    _outcome: Literal["open", "done", "truncated"] = "open"

    @classmethod
    def prepare(cls, options: EnvironmentOptions) -> None:
        """Check that the package is installed."""
        _require_package()

    async def setup(self) -> list[Message]:
        """Make the world and return its opening messages."""
        self._taken: list[JSONObject] = []
        self._world = self._made()
        opening, shown = await self._world.reset()
        self._tools = [
            Tool(self._take_down, name=name, description=description, parameters=parameters)
            for name, description, parameters in shown
        ]
        return opening

    def _made(self) -> World:
        """Make the world that the options name, for the task that the row names."""
        _require_package()
        from . import worlds  # late: it needs the package

        options, task = self.options, self.task
        if options.dataset is not None:
            environment = worlds.world_of_dataset(
                options.dataset,
                options.dataset_args,
                task_idx=task.task_idx,
                task_kwargs=task.task_kwargs,
            )
        elif task.task_idx is not None:
            raise ValueError(
                "the row has a task_idx and no data set is named; give --env-arg dataset=NAME"
            )
        else:
            name = options.env_class or CALCULATOR
            environment = worlds.world_of_class(name, task=task.task, task_kwargs=task.task_kwargs)
        return worlds.World(environment, timeout=options.step_timeout)

    def tools(self) -> list[Tool]:
        """Return the world's tools."""
        return list(self._tools)

    async def step(self, message: Message) -> Step:
        """Hand the calls that can be made to the world, all at once, and pass its answer on."""
        if not message.tool_calls and self._tools:
            nudge = self.options.nudge
            return Step([Message(role="user", content=nudge)] if nudge else [])
        sound, refusals = await self._sorted(message.tool_calls)
        if refusals and not sound:
            return Step(refusals, reward=0.0)
        assert self._world is not None
        started = time.perf_counter()
        try:
            answer = await self._world.step(message.text, sound)
        finally:
            self.tool_seconds += time.perf_counter() - started
        messages = _in_order(message.tool_calls, refusals + answer.messages)
        if answer.is_done or answer.is_truncated:
            self._outcome = "done" if answer.is_done else "truncated"
            return Step(messages, answer.reward, stop_reason="env_done")
        return Step(messages, answer.reward)

    async def _sorted(
        self, calls: list[ToolCall]
    ) -> tuple[list[tuple[ToolCall, JSONObject]], list[Message]]:
        """Return the calls that can be made with their arguments, and answers to all others."""
        sound: list[tuple[ToolCall, JSONObject]] = []
        refusals: list[Message] = []
        for call in calls:
            self._taken.clear()
            answers = await self.call_tools([call])
            if self._taken:
                sound.append((call, self._taken[0]))
            else:
                refusals += answers
        return sound, refusals

    # The world makes all calls of a message at once, so a call that passes the checks is only taken
    # down. No docstring: it would stand in for the description of a tool that has none.
    def _take_down(self, /, **arguments: object) -> str:
        self._taken.append(arguments)
        return ""

    async def final_state(self) -> JSONObject:
        """Return how the world ended."""
        return {"outcome": self._outcome}

    async def close(self) -> None:
        """Close the world."""
        if self._world is not None:
            await self._world.close()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Add up the step rewards on record."""
        rewards = [reward for reward in rollout.step_rewards if reward is not None]
        state = rollout.final_state
        outcome = state.get("outcome") if isinstance(state, dict) else None
        return Score(math.fsum(rewards), details={"reason": str(outcome or "unknown")})

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Work out the row's expression and hand in what the calculator gave.

        None for rows without one: a world of others does not say how it is won.
        """
        if self.task.expression is None:
            return None
        if rollout.tool_calls:
            return _calling("submit_answer", answer=rollout.messages[-1].text)
        return _calling("calculator", expr=self.task.expression)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Write word problems for the calculator; the more steps they take, the harder."""
        yield from load_generator("aviary").generate(rng, num)


def _calling(name: str, **arguments: str) -> Message:
    text = msgspec.json.encode(arguments).decode()
    call = ToolCall(id=f"call_{name}", function=FunctionCall(name, text))
    return Message(role="assistant", tool_calls=[call])


def _require_package() -> None:
    try:
        importlib.import_module("aviary.core")  # late: the package is optional
    except ModuleNotFoundError as error:
        if error.name not in ("aviary", "aviary.core"):
            raise
        raise MissingPackageError(
            "the environment aviary needs the package fhaviary, not installed here; "
            "pip install 'gymcli[aviary]'"
        ) from error


def _in_order(calls: list[ToolCall], given: list[Message]) -> list[Message]:
    """Put an answer to every call first, in their order, as endpoints want it; the rest follows."""
    left = list(given)
    answers = []
    for call in calls:
        found = (m for m in left if m.role == "tool" and m.tool_call_id == call.id)
        answer = next(found, None)
        if answer is None:
            answer = Message(role="tool", tool_call_id=call.id, content=UNANSWERED)
        else:
            left.remove(answer)
        answers.append(answer)
    strays = [
        Message(role="user", content=m.content) if m.role in ("tool", "assistant") else m
        for m in left
    ]
    return answers + strays


CALCULATOR = "gymcli.envs.aviary.calculator:CalculatorEnv"

UNANSWERED = "The environment gave no answer to this call."
