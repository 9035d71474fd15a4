"""A pytest fixture that starts mock servers: `pytest_plugins = ["gymcli.mock.fixture"]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gymcli.mock.behaviours import Behaviour, parse_behaviour
from gymcli.mock.faults import Faults, Latency, Outage
from gymcli.mock.process import serving
from gymcli.mock.server import MockServer

__all__ = ["StartMock", "gym_mock"]


class StartMock:
    """Starts mock servers in threads, which end with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(
        self,
        behaviour: Behaviour | str = "echo",
        *,
        faults: Sequence[str] = (),
        latency: float | str = 0.0,
        seed: int = 0,
        models: Sequence[str] = (),
        api_key: str | None = None,
        max_in_flight: int | None = None,
        requests_per_minute: int | None = None,
        down_after: str | None = None,
        down_for: str | None = None,
        log: Path | None = None,
    ) -> MockServer:
        """Start a server; texts are those of the options of `gym mock`."""
        server = MockServer(
            parse_behaviour(behaviour) if isinstance(behaviour, str) else behaviour,
            faults=Faults.parse(faults),
            latency=Latency.parse(latency) if isinstance(latency, str) else latency,
            seed=seed,
            models=models,
            api_key=api_key,
            max_in_flight=max_in_flight,
            requests_per_minute=requests_per_minute,
            outage=Outage.parse(down_after, down_for),
            log=log,
        )
        return self._stack.enter_context(serving(server))


@pytest.fixture
def gym_mock() -> Iterator[StartMock]:
    """Yield a function that starts mock servers, which end with the test."""
    with ExitStack() as stack:
        yield StartMock(stack)
