"""Hooks for TRL's `GRPOTrainer` (1.16); importing this module needs no TRL.

With `dataset`, `rollout_func` and `reward`, gymcli plays the episodes, and TRL trains on the token
ids that the engine reported. With `environment`, TRL generates, and gymcli runs the tools and
scores.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import itertools
import logging
import operator
import os
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from gymcli.environment.contract import Environment
from gymcli.environment.registry import EnvironmentClass, Registration
from gymcli.environment.tool import Tool
from gymcli.errors import MissingPackageError, RunError, UsageError
from gymcli.models.endpoint import Endpoint
from gymcli.models.in_process import PolicyModel
from gymcli.rollout import event_loop
from gymcli.runner.identity import command_params
from gymcli.secrets import scrubber_of
from gymcli.tasks.task_options import TaskOptions
from gymcli.training.sampler import SampledRollout, Sampler, Tasks, TaskTable
from gymcli.types import FunctionCall, JSONObject, Message, ToolCall

P = ParamSpec("P")
T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

_CLOSE_SECONDS = 10.0
"""How long the exit of the process waits for the end of open episodes and worker processes."""

_STEP_ATTEMPTS = 10_000
"""More attempts at one task than a step of a trainer has, evaluation included."""

_MAX_OPEN = 1_000_000
"""Episodes of TRL's environments at once: TRL decides how many it opens."""


def dataset(
    tasks: Tasks, *, env: str | EnvironmentClass | None = None, messages: bool = False
) -> Sequence[JSONObject]:
    """Return the tasks as a `datasets.Dataset` for TRL.

    Args:
        tasks: A tasks file, the name of an environment for its shipped tasks, rows, or several.
        env: The environment of rows that name none.
        messages: For `environment`, the prompt of a row is its messages, and its id is in the
            column `task_id`. For `rollout_func`, the prompt is the id itself, since TRL passes
            nothing else.

    Raises:
        UsageError: A file, a row or a name is wrong.
        MissingPackageError: The package datasets, which TRL needs too, is not installed.
    """
    table = TaskTable(env, tasks, TaskOptions(), scrubber_of((), os.environ))
    try:
        # Late: heavy, and only training needs it. By name: type checkers see our folder of tasks.
        from_list = importlib.import_module("datasets").Dataset.from_list
    except (ImportError, AttributeError) as error:
        raise MissingPackageError(
            "gymcli.training.trl.dataset needs the package datasets: pip install trl"
        ) from error
    dataset_rows: list[JSONObject] = []
    for task_id in table.ids:
        row = table.rows[task_id]
        if not messages:
            dataset_rows.append({"prompt": task_id})
            continue
        if not all(isinstance(message.content, str) for message in row.messages):
            raise UsageError(
                f"{row.place}: the prompt is more than texts, which TRL cannot render here; use "
                "rollout_func"
            )
        prompt = [{"role": message.role, "content": message.content} for message in row.messages]
        # TRL adds what `reset` returns to the last message.
        prompt = prompt or [{"role": "user", "content": ""}]
        dataset_rows.append({"prompt": prompt, "task_id": task_id, "environment": row.env})
    trl_dataset: Sequence[JSONObject] = from_list(dataset_rows)
    return trl_dataset


def rollout_func(
    env: str | EnvironmentClass | None = None,
    tasks: Tasks | None = None,
    *,
    endpoint: Endpoint | None = None,
    policy: PolicyModel | None = None,
    first_attempt: int = 0,
    **options: object,
) -> RolloutFunction:
    """Return the `rollout_func` of a `GRPOTrainer` whose dataset is `dataset(tasks)`.

    The arguments are those of `gymcli.training.Sampler`. A training that resumes from a checkpoint
    needs no `first_attempt`: the numbers continue according to the trainer's step.

    Raises:
        UsageError: A file, a row, an option or a name is wrong. Nothing was sent.
    """
    sampler = Sampler(
        env,
        tasks=tasks,
        endpoint=endpoint,
        policy=policy,
        first_attempt=first_attempt,
        **options,
    )
    return RolloutFunction(sampler)


def reward(
    prompts: list[object],
    completions: list[object],
    gym_reward: list[float | None],
    **_: object,
) -> list[float | None]:
    """Return the rewards that `rollout_func` reported, a reward function of `GRPOTrainer`.

    TRL leaves a completion out where the reward is None.
    """
    return gym_reward


class _TrainerState(Protocol):
    global_step: int


class _Trainer(Protocol):
    """What is read of a `GRPOTrainer`."""

    state: _TrainerState
    temperature: float


class RolloutFunction:
    """Plays episodes for a `GRPOTrainer`, which calls it with the prompts of a batch.

    The attempts are played in an event loop in a thread of its own, which is closed by `close` or
    when the process ends.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.counts: Counter[str] = Counter()
        """Of all `rows` so far, those without a reward: `unscored` attempts, `forked` ones (TRL can
        train one sequence of each, and they have several) and those `without_ids`; and those that
        were trained although they are `off_policy`."""
        self._is_new = True
        self._thread = _SamplerThread(sampler)

    def __call__(self, prompts: list[str], trainer: _Trainer) -> dict[str, list[object]]:
        """Return a row for each prompt: the last sequence of an attempt at this task.

        Adjacent equal prompts are attempts of one group. A row has `prompt_ids`, `completion_ids`,
        `logprobs` and `env_mask` (0.0 and 0 for what the environment said), and `gym_reward`. A row
        whose reward is None is masked as a whole; without ids it has one id of 0 in each part.

        Raises:
            UsageError: The requests have another temperature than the trainer.
            RunError: No attempt has token ids.
            GymError: What ends every attempt: the key is refused, the endpoint is gone.
        """
        temperature = command_params(self.sampler.options).get("temperature", 1)
        if temperature != trainer.temperature:
            raise UsageError(
                f"the trainer's temperature is {trainer.temperature:g} and that of the requests "
                f"is {temperature}: pass params={{'temperature': {trainer.temperature:g}}}"
            )
        if not all(isinstance(prompt, str) for prompt in prompts):
            raise UsageError(
                "a prompt is no id of a task: make the dataset with gymcli.training.trl.dataset"
            )
        sizes = [(prompt, len(list(copies))) for prompt, copies in itertools.groupby(prompts)]
        step = trainer.state.global_step
        if self._is_new:  # a training that was resumed must not repeat its first seeds
            self._is_new = False
            self.sampler.first_attempt = max(self.sampler.first_attempt, step * _STEP_ATTEMPTS)
        rollouts = self._thread.run(self._sample, sizes, step)
        if any(rollout.reward is not None for rollout in rollouts) and not any(
            rollout.sequences for rollout in rollouts
        ):
            raise RunError(
                "the policy reports no usable token ids, so nothing can be trained; a warning "
                "in the log says why"
            )
        rows = [self._row(rollout) for rollout in rollouts]
        return {name: [getattr(row, name) for row in rows] for name in _TrainedRow._fields}

    def close(self) -> None:
        """End open episodes and the thread."""
        self._thread.close()

    async def _sample(self, sizes: list[tuple[str, int]], version: int) -> list[SampledRollout]:
        group = self.sampler.group
        try:
            async with asyncio.TaskGroup() as tasks:
                group_tasks = [
                    tasks.create_task(group(task_id, attempts=size, version=version))
                    for task_id, size in sizes
                ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [rollout for group_task in group_tasks for rollout in group_task.result()]

    def _row(self, sampled_rollout: SampledRollout) -> _TrainedRow:
        self.counts["rows"] += 1
        if not sampled_rollout.sequences:
            self.counts["unscored" if sampled_rollout.reward is None else "without_ids"] += 1
            return _TrainedRow([0], [0], [0.0], [0], None)
        last = sampled_rollout.sequences[-1]
        start = last.prompt_length
        is_forked = len(sampled_rollout.sequences) > 1
        mask = last.loss_mask[start:]
        if is_forked:
            if not self.counts["forked"]:
                _LOGGER.warning(
                    "%s %s: what the policy sampled is not how later prompts show it, so this "
                    "attempt has %d sequences, and TRL can train only one of each: it is masked. "
                    "`counts` of the rollout function counts such attempts",
                    sampled_rollout.rollout.env,
                    sampled_rollout.rollout.task_id,
                    len(sampled_rollout.sequences),
                )
            self.counts["forked"] += 1
            mask = [0] * len(mask)
        elif last.off_policy:
            self.counts["off_policy"] += 1
        return _TrainedRow(
            last.input_ids[:start],
            last.input_ids[start:],
            last.logprobs[start:],
            mask,
            None if is_forked else sampled_rollout.reward,
        )


class _TrainedRow(NamedTuple):
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    env_mask: list[int]
    gym_reward: float | None


class _SamplerThread:
    """Keeps a sampler open in an event loop in a thread of its own, from its next use on."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._loop: asyncio.AbstractEventLoop | None = None
        self.close: Callable[[], object] = lambda: None

    def run(
        self,
        function: Callable[P, Coroutine[object, object, T]],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Call an async function in the loop, and wait for its result."""
        if self._loop is None or self._loop.is_closed():
            self._open()
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(function(*arguments, **keywords), self._loop)
        try:
            return future.result()
        except BaseException:  # an interrupt must end the attempts
            future.cancel()
            raise

    def _open(self) -> None:
        future: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        sampler = self.sampler  # not `self`, which would then never be collected
        thread = threading.Thread(
            target=lambda: event_loop.run(_keep_open(sampler, future)), daemon=True
        )
        thread.start()
        self._loop, is_over = future.result()
        # At the end of the process too: worker processes are closed, not left behind.
        self.close = weakref.finalize(self, _end, self._loop, is_over, thread)


async def _keep_open(
    sampler: Sampler, future: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    try:
        async with sampler:
            is_over = asyncio.Event()
            future.set_result((asyncio.get_running_loop(), is_over))
            await is_over.wait()
    except BaseException as error:
        if future.done():
            raise
        future.set_exception(error)  # raised in the thread that waits for it


def _end(loop: asyncio.AbstractEventLoop, is_over: asyncio.Event, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(is_over.set)
    if thread is not threading.current_thread():
        thread.join(_CLOSE_SECONDS)


def environment(
    env: str | EnvironmentClass,
    tasks: Tasks | None = None,
    *,
    first_attempt: int = 0,
    **options: object,
) -> type[TrlEnvironment]:
    """Return a class for TRL's `environment_factory`, which plays with the environment's tools.

    TRL generates, renders and tokenises itself, and tells nobody what the last message says: an
    environment that scores this message needs `rollout_func`. The dataset is
    `dataset(tasks, messages=True)`.

    Args:
        env: A name, `FILE.py:CLASS` or a class.
        tasks: The tasks; by default those that ship with the environment, or that it generates.
        first_attempt: As in `gymcli.training.Sampler`. TRL does not tell an environment its step.
        options: As in `gymcli.training.Sampler`, such as `env_args` and `roles`.

    Raises:
        UsageError: TRL cannot play in this environment, or an argument is wrong.
    """
    if refused_options := options.keys() & {"endpoint", "policy"}:
        raise UsageError(f"{min(refused_options)}=: leave it out, since TRL generates")
    # TRL resets all environments of a batch before any of them ends.
    options["concurrency"] = _MAX_OPEN
    sampler = Sampler(
        env,
        tasks=tasks,
        endpoint=None,
        policy=_TrlPolicy(),
        first_attempt=first_attempt,
        **options,
    )
    registration, *other_environments = sampler.tasks.survey.environments.values()
    environment_class = registration.environment
    _check_playable(registration, has_others=bool(other_environments))
    methods = {name: _method(tool) for name, tool in environment_class.method_tools().items()}
    class_attributes = {"_thread": _SamplerThread(sampler), "__doc__": environment_class.__doc__}
    return type(environment_class.__name__, (TrlEnvironment,), {**methods, **class_attributes})


def _check_playable(registration: Registration, *, has_others: bool) -> None:
    environment = registration.environment
    for is_wrong, why in (
        (has_others, "its tasks belong to several environments"),
        (environment.scores_groups(), "it scores all attempts of a task together"),
        (environment.reply is not Environment.reply, "it answers texts, and TRL only calls tools"),
        (not environment.method_tools(), "it has no tools"),
        (environment.tools is not Environment.tools, "its tools depend on the task"),
    ):
        if is_wrong:
            raise UsageError(
                f"{registration.name}: TRL cannot play in it, since {why}; use rollout_func"
            )


class TrlEnvironment:
    """An environment as TRL plays it: methods are tools; an object plays one episode at a time.

    The episode is that of a `Sampler` whose policy waits for what TRL does.
    """

    _thread: _SamplerThread

    def __init__(self) -> None:
        self._turns: _Turns | None = None

    def reset(self, *, task_id: str, **_: object) -> str | None:
        """Begin an episode of a task; return the messages that the environment opens it with."""
        return self._thread.run(self._begin, task_id)

    def get_reward(self) -> float | None:
        """End the episode; return its reward, None if it could not be scored."""
        return None if self._turns is None else self._thread.run(self._end, self._turns)

    async def _begin(self, task_id: str) -> str | None:
        if self._turns is not None:  # TRL did not ask for the reward of the last episode
            await self._turns.cancel()
        self._turns = turns = _Turns()
        _TURNS.set(turns)
        group = self._thread.sampler.group(task_id, attempts=1)
        turns.playing = asyncio.create_task(group)  # its context has the turns
        num_prompt_messages = len(self._thread.sampler.tasks.find(task_id).messages)
        opening = await turns.next_messages()
        return "\n".join(message.text for message in opening[num_prompt_messages:]) or None

    async def _call(self, name: str, arguments: JSONObject) -> str:
        turns = self._turns
        if turns is None or turns.playing is None or turns.playing.done():
            raise RunError("the episode is over")
        turns.num_calls += 1
        text = msgspec.json.encode(arguments).decode()
        call = ToolCall(id=f"call_{turns.num_calls}", function=FunctionCall(name, text))
        turns.answers.put_nowait(Message(role="assistant", tool_calls=[call]))
        messages = await turns.next_messages()
        results = itertools.takewhile(
            lambda message: message.role != "assistant", reversed(messages)
        )
        return "\n".join(message.text for message in reversed(list(results)))

    async def _end(self, turns: _Turns) -> float | None:
        assert turns.playing is not None, "an episode that has begun is being played"
        if not turns.playing.done():
            turns.answers.put_nowait(Message(role="assistant", content=""))
            await turns.next_messages()
            if not turns.playing.done():  # the environment goes on, and TRL does not
                await turns.cancel()
                return None
        return turns.playing.result()[0].reward


@dataclass(eq=False)
class _Turns:
    """Passes the turns of one episode between its environment and TRL."""

    playing: asyncio.Task[list[SampledRollout]] | None = None
    answers: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    """What the model did, as TRL reports it."""
    requests: asyncio.Queue[list[Message]] = field(default_factory=asyncio.Queue)
    """The conversation, each time that the environment waits for the model."""
    num_calls: int = 0

    async def next_messages(self) -> list[Message]:
        """Wait until the environment waits for the model, or the episode has ended."""
        assert self.playing is not None
        next_request = asyncio.create_task(self.requests.get())
        await asyncio.wait((next_request, self.playing), return_when=asyncio.FIRST_COMPLETED)
        if next_request.done():
            return next_request.result()
        next_request.cancel()
        return self.playing.result()[0].messages

    async def cancel(self) -> None:
        """End the episode without a score."""
        assert self.playing is not None
        self.playing.cancel()
        await asyncio.wait((self.playing,))


_TURNS: ContextVar[_Turns] = ContextVar("_TURNS")
"""The turns of the episode that the current task plays."""


class _TrlPolicy:
    """A policy that waits for what TRL does."""

    name = "trl"

    async def complete(
        self,
        messages: list[Message],
        *,
        tools: list[JSONObject] | None,
        schema: JSONObject | None,
    ) -> Message:
        turns = _TURNS.get()
        turns.requests.put_nowait(messages)
        return await turns.answers.get()


class _Schema(msgspec.Struct, rename={"any_of": "anyOf"}):
    """The JSON Schema of an argument, as far as a type can say it."""

    type: str | list[str] = ""
    description: str = ""
    default: object = None
    enum: list[object] = []
    any_of: list[_Schema] = []
    items: _Schema | bool = True

    @property
    def hint(self) -> object:
        """A type from which transformers makes the schema again, or a wider one."""
        if self.enum:
            return Literal[tuple(self.enum)]
        hints = [schema.hint for schema in self.any_of] or [
            _HINTS.get(name, Any)
            for name in ([self.type] if isinstance(self.type, str) else self.type)
        ]
        if hints == [list] and isinstance(self.items, _Schema):
            return types.GenericAlias(list, (self.items.hint,))
        return functools.reduce(operator.or_, hints)


class _Arguments(msgspec.Struct):
    properties: dict[str, _Schema] = {}
    required: list[str] = []


_HINTS: dict[str, object] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def _method(tool: Tool) -> Callable[..., str]:
    """Return a method that transformers turns back into the tool's schema."""

    def method(self: TrlEnvironment, **arguments: object) -> str:
        return self._thread.run(self._call, tool.name, arguments)

    arguments_schema = msgspec.convert(tool.parameters, _Arguments)
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    lines = [tool.description, *(["", "Args:"] if arguments_schema.properties else [])]
    for name, schema in arguments_schema.properties.items():
        default = inspect.Parameter.empty if name in arguments_schema.required else schema.default
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=schema.hint
            )
        )
        lines.append(f"    {name}: {schema.description or name}")
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join(lines)
    method.__annotations__ = {
        **{parameter.name: parameter.annotation for parameter in parameters[1:]},
        "return": str,
    }
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method
