"""Where an attempt is: its own phase, or that of the roles while a model of one is asked."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gymcli.environment.contract import Cache, Model
from gymcli.errors import Phase
from gymcli.types import JSONObject, Message

__all__ = ["Asking"]


class Asking(msgspec.Struct, eq=False):
    """Counts the models of roles that one attempt is waiting for."""

    num_asked: int = 0

    def phase(self, otherwise: Phase) -> Phase:
        """Give the phase of an attempt."""
        return "role" if self.num_asked else otherwise

    def follow(self, roles: Mapping[str, Model]) -> Mapping[str, Model]:
        """Give the same models, counted while they are asked."""
        return {role: _Followed(model, self) for role, model in roles.items()}


class _Followed:
    """The model of one role."""

    def __init__(self, model: Model, asking: Asking) -> None:
        self._model = model
        self._asking = asking

    @property
    def is_scalar(self) -> bool:
        return self._model.is_scalar

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        self._asking.num_asked += 1
        try:
            return await self._model.complete(messages, schema=schema, params=params, cache=cache)
        finally:
            self._asking.num_asked -= 1
