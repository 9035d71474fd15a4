r"""Plays any FutureHouse aviary environment; by default, our own calculator.

Source: the resources server and the agent aviary of NVIDIA NeMo Gym 0.7 (Apache-2.0), reimplemented
independently. The aviary environment, here called the world, supplies the opening messages, the
tools and a reward for every step; the reward of the episode is their sum. A message without tool
calls ends the episode, unless the option `nudge` answers it. The calculator follows aviary's GSM8K
environment: +1 for an answer within a relative 1e-4 of the right one, 0 for any other, including
numbers too large for a float. If a tool fails, the reward is -1 and the episode ends. Differences
from the reference:

- A call of an unknown tool, or with invalid arguments, is answered by a tool message and counted;
  the other calls of the message are still made. If none is left, the reward of the step is 0.
- A world without tools receives the text of the message.
- If the world raises an exception or a step takes too long, the attempt is unscored.
- Old messages about the world's state stay in the conversation.

The options alone name the world, because a name may load code. A row chooses the task: by
`task_idx` of a data set, or by `task` or `task_kwargs` of a class. Scoring loads no world: a
third-party world cannot be replayed, so the recorded rewards are the score.

A shipped row, and a row for `--env-arg dataset=gsm8k`:
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
    """The task that a row chooses."""

    task_idx: int | None = None
    """The position in the data set. Without it and `task_kwargs`, the data set's next environment
    is played."""
    task: str | None = None
    """The text that is passed to the class's `from_task`."""
    task_kwargs: JSONObject = {}
    """Keyword arguments of the class, or of the data set's `get_new_env_by_args`."""
    expression: str | None = None
    """The expression whose value is the answer; for the oracle."""


class Aviary(Environment[AviaryTask]):
    """Play any FutureHouse aviary environment; by default, word problems with a calculator."""

    max_reward = 1.0
    """For the shipped tasks and gsm8k; other worlds may reward more."""
    # A third-party world cannot be replayed.
    rescore = "recorded"
    properties = Properties("stateful", "tool use", "mathematics", "word problems", "step rewards")

    class Options(EnvironmentOptions):
        """The world to play, and its limits."""

        command_line_only = frozenset({"dataset", "dataset_args", "env_class"})

        dataset: str | None = None
        """A task data set: a name that aviary knows, such as gsm8k, or `module:Class`."""
        dataset_args: JSONObject = {}
        """Keyword arguments of the data set, such as its split."""
        env_class: str | None = None
        """An environment: a name that aviary knows, or `module:Class`. Any callable that
        returns an environment works."""
        nudge: str = ""
        """The reply to a message without tool calls. If empty, such a message ends the episode."""
        step_timeout: float = Field(default=300.0, gt=0)
        """Seconds that one step of the world may take. Only async tools can be interrupted."""

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
        """Make the world that the options name, for the task that the row chooses."""
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
        """Pass all valid calls to the world in one step, and return its answer."""
        # A world without tools acts on text, so it gets every message.
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
            # `call_tools` timed only the checks of the calls; here the world runs them.
            self.tool_seconds += time.perf_counter() - started
        messages = _in_order(message.tool_calls, refusals + answer.messages)
        if answer.is_done or answer.is_truncated:
            self._outcome = "done" if answer.is_done else "truncated"
            return Step(messages, answer.reward, stop_reason="env_done")
        return Step(messages, answer.reward)

    async def _sorted(
        self, calls: list[ToolCall]
    ) -> tuple[list[tuple[ToolCall, JSONObject]], list[Message]]:
        """Return the valid calls with their arguments, and answers to the others."""
        sound: list[tuple[ToolCall, JSONObject]] = []
        refusals: list[Message] = []
        for call in calls:
            # One call at a time, so that the recorded arguments are those of this call.
            self._taken.clear()
            answers = await self.call_tools([call])
            if self._taken:
                sound.append((call, self._taken[0]))
            else:
                refusals += answers
        return sound, refusals

    # The world runs all calls of a message in one step, so a call that passes the checks is only
    # recorded here. No docstring: it would become the description of a tool that has none.
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
        """Add up the recorded step rewards."""
        # None: the world was not shown the message, for example because it was nudged.
        rewards = [reward for reward in rollout.step_rewards if reward is not None]
        state = rollout.final_state
        outcome = state.get("outcome") if isinstance(state, dict) else None
        # `fsum` is exact, so the score does not depend on the order of the rewards.
        return Score(math.fsum(rewards), details={"reason": str(outcome or "unknown")})

    async def oracle(self, rollout: Rollout) -> Message | None:
        """Evaluate the row's expression with the calculator and submit the result.

        None for rows without an expression: other worlds do not tell how to solve their tasks.
        """
        if self.task.expression is None:
            return None
        if rollout.tool_calls:
            return _calling("submit_answer", answer=rollout.messages[-1].text)
        return _calling("calculator", expr=self.task.expression)

    @classmethod
    def generate(cls, rng: Random, num: int) -> Iterator[JSONObject]:
        """Yield word problems for the calculator; harder ones take more steps."""
        yield from load_generator("aviary").generate(rng, num)


def _calling(name: str, **arguments: str) -> Message:
    text = msgspec.json.encode(arguments).decode()
    call = ToolCall(id=f"call_{name}", function=FunctionCall(name, text))
    return Message(role="assistant", tool_calls=[call])


def _require_package() -> None:
    try:
        importlib.import_module("aviary.core")  # late: the package is optional
    except ModuleNotFoundError as error:
        # An import that fails inside aviary is another problem and must not be hidden.
        if error.name not in ("aviary", "aviary.core"):
            raise
        raise MissingPackageError(
            "the environment aviary needs the package fhaviary, not installed here; "
            "pip install 'gymcli[aviary]'"
        ) from error


def _in_order(calls: list[ToolCall], given: list[Message]) -> list[Message]:
    """Return one answer per call in the order of the calls, as endpoints require, then the rest."""
    left = list(given)
    answers = []
    for call in calls:
        found = (m for m in left if m.role == "tool" and m.tool_call_id == call.id)
        answer = next(found, None)
        if answer is None:
            # A world may leave a call unanswered; an endpoint would then refuse the conversation.
            answer = Message(role="tool", tool_call_id=call.id, content=UNANSWERED)
        else:
            # Two calls may share an id, as some endpoints send none; each takes one answer.
            left.remove(answer)
        answers.append(answer)
    # Endpoints refuse tool messages that answer no call, and only the policy writes as assistant.
    strays = [
        Message(role="user", content=m.content) if m.role in ("tool", "assistant") else m
        for m in left
    ]
    return answers + strays


CALCULATOR = "gymcli.envs.aviary.calculator:CalculatorEnv"

UNANSWERED = "The environment gave no answer to this call."
