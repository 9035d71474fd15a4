"""Collect from Python against a mock server, for the tests of the runner."""

import asyncio
from pathlib import Path

import gymcli
from gymcli.mock import MockServer
from gymcli.mock.behaviours import Behaviour
from gymcli.models.endpoint import Endpoint
from gymcli.types import Failure, Rollout
from tests.commands.running import add_up

QUICK = {"max_attempts": 1}
"""Options of an endpoint that is asked once, so that no test waits for retries."""


def collect_all(
    tasks: Path | list[Path], behaviour: Behaviour = add_up, *, max_attempts: int = 1, **options
) -> tuple[list[Rollout | Failure], MockServer]:
    """Collect everything from a mock server; return the records and the stopped server."""

    async def run() -> tuple[list[Rollout | Failure], MockServer]:
        async with MockServer(behaviour) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", max_attempts=max_attempts)
            records = [r async for r in gymcli.collect(tasks, endpoint=endpoint, **options)]
            return records, server

    return asyncio.run(run())
