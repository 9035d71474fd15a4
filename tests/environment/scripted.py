"""A model that answers from a script and records its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from gymcli.errors import RoleError
from gymcli.types import JSONObject, Message

Script = Callable[[str], "str | Exception"] | list["str | Exception"]


class Asked(NamedTuple):
    """One call of a scripted model."""

    messages: list[Message]
    schema: JSONObject | None
    params: JSONObject | None
    cache: str | None

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        return self.messages[-1].text


class Scripted:
    """Answers by a function of the last message or from a list; an exception in it is raised."""

    def __init__(self, script: Script, *, is_scalar: bool = False) -> None:
        self.script = script
        self.is_scalar = is_scalar
        self.asked: list[Asked] = []
        self.num_ended = 0

    @property
    def prompts(self) -> list[str]:
        """The text of the last message of each call."""
        return [asked.prompt for asked in self.asked]

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: str | None = None,
    ) -> Message:
        number = len(self.asked)
        self.asked.append(Asked(messages, schema, params, cache))
        said = (
            self.script[number] if isinstance(self.script, list) else self.script(messages[-1].text)
        )
        try:
            # Failures end before answers, which exposes a caller that does not await all calls.
            for _ in range(0 if isinstance(said, Exception) else 3):
                await asyncio.sleep(0)
        finally:
            self.num_ended += 1
        if isinstance(said, Exception):
            raise said
        return Message(role="assistant", content=said)


def failing(message: str) -> RoleError:
    """Return the error that a failed call raises."""
    return RoleError(message)
