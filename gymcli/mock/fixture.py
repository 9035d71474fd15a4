"""A pytest fixture that starts mock servers: `pytest_plugins = ["gymcli.mock.fixture"]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gymcli.mock.behaviours import Behaviour, parse_behaviour
from gymcli.mock.faults import Faults, Latency, Outage
from gymcli.mock.process import serving
from gymcli.mock.server import MockServer
from gymcli.mock.tokenizer import TokenSampler


@pytest.fixture
def gym_mock() -> Iterator[Callable[..., MockServer]]:
    """Yield a function that starts mock servers in threads; they end with the test."""

    def start(
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
        tokens: str | None = None,
        token_drift: float = 0.0,
        weight_version: str = "",
    ) -> MockServer:
        # Texts are read like the options of `gym mock`.
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
            sampler=TokenSampler.parse(
                tokens, drift=token_drift, weight_version=weight_version, seed=seed
            ),
        )
        return stack.enter_context(serving(server))

    with ExitStack() as stack:
        yield start
