"""What a run asks of an engine that plays its attempts in other processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Protocol

from gymcli.runner.attempts import Attempt, Outcome, Shared
from gymcli.types import Failure, Rollout, TokenSource


class Engine(Protocol):
    """Runs attempts outside of this process, such as on a Ray cluster; only this process writes."""

    token_source: TokenSource | None
    """Where the policy's token ids come from, if they are recorded."""
    num_outages: int
    """How often an endpoint was down."""
    outage_seconds: float
    """How long endpoints were down."""
    retries: Counter[str]
    """Failed requests that were sent again, by error class."""

    def run(
        self,
        attempts: Iterator[Attempt],
        shared: Shared,
        *,
        concurrency: int,
        write: Callable[[Outcome], Outcome],
    ) -> AsyncGenerator[Rollout | Failure]:
        """Run attempts as `run_attempts` does; raise EngineError if the engine fails."""
        ...

    def close(self) -> None:
        """End what the engine has started."""
        ...
