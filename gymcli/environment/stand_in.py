"""A scripted model for a role, so that an environment can be tried without any endpoint."""

from __future__ import annotations

from collections.abc import Callable

from gymcli.environment.context import Cache
from gymcli.types import JSONObject, Message

__all__ = ["StandIn"]


class StandIn:
    """A model that answers every conversation with what a function says of it.

    Args:
        answer: Gives the text of the answer to a conversation.
        is_scalar: The texts are numbers, as of a reward model that takes whole conversations.

    """

    def __init__(self, answer: Callable[[list[Message]], str], *, is_scalar: bool = False) -> None:
        self.is_scalar = is_scalar
        self._answer = answer

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        """Answer a conversation with the function's text."""
        return Message(role="assistant", content=self._answer(messages))
