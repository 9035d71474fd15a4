"""The models of a run, each opened when it is first asked and shared by all who ask it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.models.governors import Governors
from gymcli.models.local_server import LocalServer
from gymcli.models.local_weights import has_tool_template

__all__ = ["ModelPool", "ModelSource"]

ModelSource: TypeAlias = Endpoint | Path
"""An endpoint, or the weights of an embedded model."""

_LOCAL_OUTAGE_DEADLINE = 5.0
"""Seconds: an embedded model that died does not come back."""


class ModelPool:
    """One client for each model, whatever roles it plays.

    Models behind one address, with one key, share its limits and are gone together. An async
    context manager that closes what it opened.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._governors = Governors(concurrency)
        self._opening = asyncio.Lock()
        self._clients: list[tuple[ModelSource, Client]] = []
        self._stack = AsyncExitStack()

    async def client(self, source: ModelSource) -> Client:
        """Give the client of a model; the first call opens it.

        Raises:
            RunError: The embedded model does not start.
            ConfigError: The endpoint's own authorities cannot be read.

        """
        async with self._opening:
            for known, client in self._clients:
                if known == source:
                    return client
            if isinstance(source, Path):
                server = await self._stack.enter_async_context(LocalServer(source))
                endpoint = Endpoint(
                    base_url=server.base_url,
                    model=server.model,
                    emulate_tools=not has_tool_template(source),
                    outage_deadline=_LOCAL_OUTAGE_DEADLINE,
                )
            else:
                endpoint = source
            client = Client(endpoint, concurrency=self._concurrency, governors=self._governors)
            await self._stack.enter_async_context(client)
            self._clients.append((source, client))
            return client

    @property
    def num_outages(self) -> int:
        """How often an address was gone."""
        return self._governors.num_outages

    @property
    def outage_seconds(self) -> float:
        """How long addresses were gone, all of them together."""
        return self._governors.outage_seconds

    async def __aenter__(self) -> Self:
        """Give the pool; nothing is opened yet."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the clients and end the embedded models."""
        await self._stack.aclose()
