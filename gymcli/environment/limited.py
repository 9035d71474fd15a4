"""Calls an environment's own code, each call within its time; what it does not override is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from gymcli.deadlines import Alarm, Limit, OverrunError, within
from gymcli.environment.context import Model
from gymcli.environment.contract import Environment
from gymcli.environment.parts import EnvironmentOptions, Step, Task
from gymcli.environment.tool import Tool
from gymcli.errors import AttemptError, EnvironmentTimeoutError, SetupTimeoutError
from gymcli.types import JSON, JSONObject, Message, Rollout

__all__ = ["answer", "close", "final_state", "make", "oracle", "set_up", "tools"]

T = TypeVar("T")


def make(
    environment: type[Environment[Task]],
    fields: JSONObject,
    *,
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    rng: Random,
    alarm: Alarm,
) -> Environment[Task]:
    """Type a row's fields and make the instance that plays them.

    Raises:
        SetupTimeoutError: It computed for too long.

    """

    def made() -> Environment[Task]:
        task = environment.parse_task(fields)
        return environment(task, options=options, roles=roles, rng=rng)

    instance = _computed(alarm, environment, "making the environment", SetupTimeoutError, made)
    instance.computing_alarm = alarm
    return instance


async def set_up(environment: Environment[Task]) -> list[Message]:
    """Give the opening of `setup`.

    Raises:
        SetupTimeoutError: It took too long.

    """
    if type(environment).setup is Environment.setup:
        return []
    seconds, computing = environment.setup_timeout, environment.blocking_timeout
    limit = Limit("setup", seconds, computing, SetupTimeoutError, "setup_timeout")
    return await within(environment.computing_alarm, limit, environment.setup)


def tools(environment: Environment[Task]) -> list[Tool]:
    """Give the tools of an episode.

    Raises:
        SetupTimeoutError: It computed for too long.

    """
    if type(environment).tools is Environment.tools:
        return environment.tools()
    alarm, method = environment.computing_alarm, environment.tools
    return _computed(alarm, type(environment), "tools", SetupTimeoutError, method)


async def answer(environment: Environment[Task], message: Message) -> Step:
    """Give what `step` answers to a message of the model.

    Raises:
        EnvironmentTimeoutError: It took too long.

    """
    return await within(
        environment.computing_alarm, _step(environment, "step"), environment.step, message
    )


async def oracle(environment: Environment[Task], rollout: Rollout) -> Message | None:
    """Give the gold next turn.

    Raises:
        EnvironmentTimeoutError: It took too long.

    """
    limit = _step(environment, "oracle")
    return await within(environment.computing_alarm, limit, environment.oracle, rollout)


async def final_state(environment: Environment[Task]) -> JSON:
    """Give what the environment exports at the end.

    Raises:
        EnvironmentTimeoutError: It took too long.

    """
    if type(environment).final_state is Environment.final_state:
        return None
    limit = _step(environment, "final_state")
    return await within(environment.computing_alarm, limit, environment.final_state)


async def close(environment: Environment[Task]) -> None:
    """Let an environment release what it took.

    Raises:
        EnvironmentTimeoutError: It took too long.

    """
    if type(environment).close is Environment.close:
        return
    seconds, computing = environment.close_timeout, environment.blocking_timeout
    limit = Limit("close", seconds, computing, EnvironmentTimeoutError, "close_timeout")
    await within(environment.computing_alarm, limit, environment.close)


def _step(environment: Environment[Task], name: str) -> Limit:
    seconds, computing = environment.step_timeout, environment.blocking_timeout
    return Limit(name, seconds, computing, EnvironmentTimeoutError, "step_timeout")


def _computed(
    alarm: Alarm,
    environment: type[Environment[Task]],
    name: str,
    error_class: type[AttemptError],
    function: Callable[[], T],
) -> T:
    seconds = environment.blocking_timeout
    try:
        return alarm.call(seconds, function)
    except OverrunError as error:
        raise Limit(name, seconds, seconds, error_class).too_much() from error
