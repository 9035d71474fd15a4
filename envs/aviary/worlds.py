"""Makes aviary environments and converts between their messages and gymcli's; needs fhaviary."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar, cast

import msgspec
from aviary import core

from gymcli import JSONObject, Message, ToolCall

__all__ = ["Answer", "ShownTool", "World", "world_of_class", "world_of_dataset"]

T = TypeVar("T")


class ShownTool(NamedTuple):
    """The part of a tool that a model sees."""

    name: str
    description: str
    parameters: JSONObject


class Answer(NamedTuple):
    """A world's answer to one step."""

    messages: list[Message]
    reward: float
    is_done: bool
    is_truncated: bool


class World:
    """An aviary environment that takes and returns gymcli's messages."""

    def __init__(self, environment: core.Environment[object], *, timeout: float) -> None:
        self._environment = environment
        self._timeout = timeout
        """Seconds that `reset` and each step may take."""

    async def reset(self) -> tuple[list[Message], list[ShownTool]]:
        """Return the opening messages and the tools.

        Raises:
            TimeoutError: The world took too long.

        """
        observations, tools = await self._in_time("opening", self._environment.reset())
        return [_message(given) for given in observations], [_shown(tool) for tool in tools]

    async def step(self, text: str, calls: Iterable[tuple[ToolCall, JSONObject]]) -> Answer:
        """Take one step with a text and tool calls, each with its parsed arguments.

        Raises:
            TimeoutError: The world took too long.

        """
        functions = [
            (call, core.ToolCallFunction(name=call.name, arguments=arguments))
            for call, arguments in calls
        ]
        action = core.ToolRequestMessage(
            content=text or None,
            tool_calls=[core.ToolCall(id=call.id, function=f) for call, f in functions],
        )
        observations, reward, is_done, is_truncated = await self._in_time(
            "step", self._environment.step(action)
        )
        messages = [_message(given) for given in observations]
        return Answer(messages, float(reward), bool(is_done), bool(is_truncated))

    async def close(self) -> None:
        """Close the environment."""
        await self._environment.close()

    async def _in_time(self, what: str, doing: Awaitable[T]) -> T:
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                return await doing
        except TimeoutError:
            # A timeout inside the world's own code is not this limit.
            if not scope.expired():
                raise
            raise TimeoutError(
                f"the world's {what} took longer than {self._timeout:g} seconds (step_timeout)"
            ) from None


def world_of_dataset(
    name: str, dataset_args: JSONObject, *, task_idx: int | None, task_kwargs: JSONObject
) -> core.Environment[object]:
    """Return a new environment of a data set: by position, by arguments, or else the next one.

    Args:
        name: A data set that aviary knows, or `module:Class`.
        dataset_args: The data set's keyword arguments.
        task_idx: The position.
        task_kwargs: The arguments.

    Raises:
        ValueError: aviary knows no data set of this name.
        ImportError: The data set cannot be imported.
        TypeError: The name leads to something other than a data set.

    """
    dataset = _dataset(name, msgspec.json.encode(dataset_args))
    if task_idx is not None:
        environment = dataset.get_new_env_by_idx(task_idx)
    elif task_kwargs:
        environment = dataset.get_new_env_by_args(**task_kwargs)
    else:
        environment = dataset.get_new_env()
    return _checked(environment, name)


def world_of_class(
    name: str, *, task: str | None, task_kwargs: JSONObject
) -> core.Environment[object]:
    """Make an environment: with `from_task` if there is a text, else with keyword arguments.

    Args:
        name: An environment that aviary knows, or `module:Class`.
        task: The text.
        task_kwargs: The keyword arguments.

    Raises:
        ValueError: aviary knows no environment of this name.
        ImportError: The class cannot be imported.
        TypeError: The name leads to something other than an environment.

    """
    if ":" not in name:
        _check_known(name, "environment", core.Environment.available())
        return core.Environment.from_name(name, task, **task_kwargs)
    maker = _attribute(name)
    if task is not None:
        return _checked(cast("type[core.Environment[object]]", maker).from_task(task), name)
    return _checked(maker(**task_kwargs), name)


# Loading a data set may take minutes, and all episodes of a process share it. The arguments come
# as JSON text because a cache key must be hashable.
@functools.cache
def _dataset(name: str, arguments_text: bytes) -> core.TaskDataset[core.Environment[object]]:
    arguments = msgspec.json.decode(arguments_text, type=dict[str, object])
    if ":" in name:
        made = _attribute(name)(**arguments)
    else:
        _check_known(name, "task data set", core.TASK_DATASET_REGISTRY)
        made = core.TaskDataset.from_name(name, **arguments)
    if not isinstance(made, core.TaskDataset):
        raise TypeError(f"{name} returned {type(made).__name__}, not an aviary task data set")
    return made


def _check_known(name: str, kind: str, known: Iterable[str]) -> None:
    if name not in known:
        names = ", ".join(sorted(known))
        raise ValueError(
            f'aviary knows no {kind} "{name}" (it knows {names}); name others as module:Class'
        )


def _attribute(name: str) -> Callable[..., object]:
    place, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(place), attribute, None)
    if not callable(found):
        raise TypeError(f"{place} has no class {attribute}")
    return cast("Callable[..., object]", found)


def _checked(environment: object, name: str) -> core.Environment[object]:
    if not isinstance(environment, core.Environment):
        raise TypeError(f"{name} returned {type(environment).__name__}, not an aviary environment")
    return environment


def _message(given: core.Message) -> Message:
    """Convert a message of aviary's to ours."""
    # Marks for a prompt cache turn the content into parts that not every endpoint takes.
    plain = given.model_copy(update={"cache_breakpoint": False}).model_dump(exclude_none=True)
    # OpenAI's deprecated role; its successor `tool` needs the id of a call.
    if plain["role"] == "function":
        plain["role"] = "user"
    # aviary names the tool in every answer; the chat format has no such field.
    plain.pop("name", None)
    plain.setdefault("content", "")
    return msgspec.convert(plain, Message)


def _shown(tool: core.Tool) -> ShownTool:
    info = tool.info
    parameters = info.parameters.model_dump(exclude_none=True) if info.parameters else {}
    # Unknown arguments must fail the check of the call: in the world they may raise, and an
    # exception of the world leaves the attempt unscored.
    shown = {"type": "object", "properties": {}, "additionalProperties": False, **parameters}
    return ShownTool(info.name, info.description, shown)
