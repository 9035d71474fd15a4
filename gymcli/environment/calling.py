"""Runs the tool calls of one message, each within its time; what goes wrong is told the model."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gymcli.environment.gathering import gather_all
from gymcli.environment.parts import Task
from gymcli.environment.time_limit import LateError, within
from gymcli.environment.tool import Tool, ToolCallError, function_names, shortened
from gymcli.errors import AttemptError, RunError, described, frames_of
from gymcli.types import JSONObject, ToolCall

if TYPE_CHECKING:
    from gymcli.environment.contract import Environment

__all__ = ["Calling", "shown_of"]

TaskT = TypeVar("TaskT", bound=Task)

_LOGGER = logging.getLogger(__name__)

_SLOW_SECONDS = 0.05
"""After a tool that computed so long, other episodes get their turn."""


class Calling:
    """Answers the tool calls of one message.

    Args:
        environment: Whose tools they are; it counts what cannot be carried out.
        usable: The tools that the model may call, by name.
        bind: Gives the function of a tool, bound to the environment where it is a method.

    """

    __slots__ = ("_bind", "_environment", "_usable")

    def __init__(
        self,
        environment: Environment[TaskT],
        usable: Mapping[str, Tool],
        bind: Callable[[Tool], Callable[..., object]],
    ) -> None:
        self._environment = environment
        self._usable = usable
        self._bind = bind

    async def texts(self, calls: list[ToolCall]) -> list[str]:
        """Give what each call is answered with: all at once where every one of them only reads.

        Raises:
            AttemptError: A tool says that the attempt cannot go on.

        """
        if len(calls) > 1 and all(self._only_reads(call) for call in calls):
            return await gather_all(self._answer(call) for call in calls)
        return [await self._answer_in_turn(call) for call in calls]

    def _only_reads(self, call: ToolCall) -> bool:
        found = self._usable.get(call.name)
        return found is not None and found.reads_only

    async def _answer_in_turn(self, call: ToolCall) -> str:
        started = time.perf_counter()
        text = await self._answer(call)
        if time.perf_counter() - started > _SLOW_SECONDS:
            await asyncio.sleep(0)
        return text

    async def _answer(self, call: ToolCall) -> str:
        environment = self._environment
        try:
            text = await self._run(call)
        except ToolCallError as error:
            environment.tool_errors[error.fault] += 1
            text = str(error)
        if not text.isascii():
            # Half a surrogate pair, as from a file name, can neither be sent nor written.
            text = text.encode(errors="replace").decode()
        return shortened(text, environment.max_tool_output)

    async def _run(self, call: ToolCall) -> str:
        found = self._usable.get(call.name)
        if found is None:
            names = ", ".join(self._usable) or "none"
            raise ToolCallError(
                "unknown_tool", f"There is no tool {call.name!r}. Available tools: {names}."
            )
        environment = self._environment
        seconds = found.timeout or environment.tool_timeout
        try:
            result = await within(
                seconds,
                self._call(found, call.arguments),
                close_timeout=environment.close_timeout,
                now=environment.now,
            )
            if isinstance(result, str):
                return str.__str__(result)  # of a subclass the text alone: no line can hold it
            return _json_text(call.name, result)
        except (ToolCallError, AttemptError, RunError, KeyboardInterrupt):
            raise
        except LateError as error:
            reason = f"{call.name} did not finish within {seconds:g} seconds."
            raise ToolCallError("timeout", reason) from error
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            if _LOGGER.isEnabledFor(logging.INFO):
                where = " < ".join(reversed(frames_of(error)))
                _LOGGER.info("the tool %s failed: %s: %s", call.name, described(error), where)
            text = f"{call.name} failed: {environment.tool_error_text(error)}."
            raise ToolCallError("raised", text) from error

    async def _call(self, found: Tool, arguments: str) -> object:
        """Read the arguments of a call and make it; a row's schema may be slow to check as well."""
        is_lax = self._environment.reads_arguments_laxly
        function, keywords = self._bind(found), found.parse(arguments, is_lax=is_lax)
        if found.in_thread:
            return await asyncio.to_thread(function, **keywords)
        result = function(**keywords)
        return await result if inspect.isawaitable(result) else result


def _json_text(name: str, result: object) -> str:
    """Return a result as JSON.

    Raises:
        ToolCallError: It holds a number that JSON does not have, which would be written as null.

    """
    encoded = msgspec.json.encode(result)
    if b"null" in encoded:
        try:
            json.dumps(msgspec.to_builtins(result), allow_nan=False)
        except ValueError as error:
            reason = (
                f"{name} failed: its result holds NaN or an infinity, which JSON does not have."
            )
            raise ToolCallError("raised", reason) from error
    return encoded.decode()


def shown_of(tools: Mapping[str, Tool], shown_tools: list[JSONObject] | None) -> Mapping[str, Tool]:
    """Leave of the tools those that the model was shown: it may call no others."""
    if shown_tools is None:
        return tools
    shown = function_names(shown_tools)
    return {name: t for name, t in tools.items() if name in shown}
