"""What an engine is, which runs the attempts of a collection elsewhere than in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Protocol

from gymcli.runner.attempts import Attempt, Outcome, Shared
from gymcli.types import Failure, Rollout

__all__ = ["Engine"]


class Engine(Protocol):
    """Runs attempts as `run_attempts` does; this process writes what comes of them."""

    num_outages: int
    """How often an endpoint was gone."""
    outage_seconds: float
    """How long endpoints were gone."""

    def run(
        self,
        attempts: Iterator[Attempt],
        shared: Shared,
        *,
        concurrency: int,
        keep: Callable[[Outcome], Outcome],
    ) -> AsyncGenerator[Rollout | Failure]:
        """Run attempts and give each record as it ends.

        Raises:
            GymError: As of `run_attempts`; or the engine does not work.

        """
        ...
