"""Calls an environment's own code, each call within its time; what it does not override is free."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from gymcli.deadlines import Alarm, Limit, OverrunError, limit_of, within
from gymcli.environment.context import Model
from gymcli.environment.contract import Environment
from gymcli.environment.parts import EnvironmentOptions, Step, Task
from gymcli.environment.tool import Tool
from gymcli.errors import EnvironmentTimeoutError, SetupTimeoutError
from gymcli.types import JSON, JSONObject, Message, Rollout

__all__ = ["answer", "close", "final_state", "made", "make", "oracle", "set_up", "tools"]


def make(
    environment: type[Environment[Task]],
    fields: JSONObject,
    *,
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    rng: Random | int,
    alarm: Alarm,
) -> Environment[Task]:
    """Type a row's fields and make the instance that plays them.

    Args:
        environment: Its class.
        fields: The row's fields.
        options: The options of the instance.
        roles: The models that it may ask.
        rng: Its random generator, or the seed of one.
        alarm: Ends what computes too long, in this call and in all of the instance.

    Raises:
        SetupTimeoutError: It computed for too long.

    """
    seconds = environment.blocking_timeout
    try:
        instance = alarm.interrupt(seconds, made, environment, fields, options, roles, rng)
    except OverrunError as error:
        name = "making the environment"
        raise Limit(name, seconds, seconds, SetupTimeoutError).too_much() from error
    instance.computing_alarm = alarm
    return instance


def made(
    environment: type[Environment[Task]],
    fields: JSONObject,
    options: EnvironmentOptions,
    roles: Mapping[str, Model],
    rng: Random | int,
) -> Environment[Task]:
    """Make an instance without a limit; the arguments are those of `make`."""
    if isinstance(rng, int) and environment.__init__ is not Environment.__init__:
        rng = Random(rng)  # an `__init__` of its own may use it
    return environment(environment.parse_task(fields), options=options, roles=roles, rng=rng)


async def set_up(environment: Environment[Task]) -> list[Message]:
    """Give the opening of `setup`.

    Raises:
        SetupTimeoutError: It took too long.

    """
    if type(environment).setup is Environment.setup:
        return []
    seconds, computing = environment.setup_timeout, environment.blocking_timeout
    limit = limit_of("setup", seconds, computing, SetupTimeoutError, "setup_timeout")
    return await within(environment.computing_alarm, limit, environment.setup)


def tools(environment: Environment[Task]) -> list[Tool]:
    """Give the tools of an episode.

    Raises:
        SetupTimeoutError: It computed for too long.

    """
    if type(environment).tools is Environment.tools:
        return environment.tools()
    seconds = environment.blocking_timeout
    try:
        return environment.computing_alarm.call(seconds, environment.tools)
    except OverrunError as error:
        raise Limit("tools", seconds, seconds, SetupTimeoutError).too_much() from error


async def answer(environment: Environment[Task], message: Message) -> Step:
    """Give what `step` answers to a message of the model.

    Raises:
        EnvironmentTimeoutError: It took too long.

    """
    kind = type(environment)
    is_ours = kind.step is Environment.step and kind.reply is Environment.reply
    if is_ours and not message.tool_calls:
        return Step([])
    limit = _step(environment, "step")
    return await within(environment.computing_alarm, limit, environment.step, message)


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
    limit = limit_of("close", seconds, computing, EnvironmentTimeoutError, "close_timeout")
    await within(environment.computing_alarm, limit, environment.close)


def _step(environment: Environment[Task], name: str) -> Limit:
    seconds, computing = environment.step_timeout, environment.blocking_timeout
    return limit_of(name, seconds, computing, EnvironmentTimeoutError, "step_timeout")
