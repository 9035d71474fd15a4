"""Runs attempts in the workers of a Ray cluster, while this process alone writes.

A worker is handed as many attempts as it may have under way and a few more, and reports each as it
ends. What a worker had when it died is handed to others, and so is what it saved, which is only
scored there. Ray is imported when the first attempt is to be run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from gymcli.engines.cluster import Cluster
from gymcli.engines.code import code_of
from gymcli.engines.driving import Driving
from gymcli.engines.worker import IDLE_SECONDS, Job
from gymcli.models.endpoint import Endpoint
from gymcli.models.roles import ModelSource
from gymcli.runner.attempts import Attempt, Outcome, Shared
from gymcli.runner.judging import Judges
from gymcli.runner.stopping import Stopping
from gymcli.secrets import Scrubber
from gymcli.types import Failure, JSONObject, Rollout

__all__ = ["RayEngine"]

T = TypeVar("T")


class RayEngine:
    """Runs the attempts of one run on a Ray cluster; a context manager for who may be interrupted.

    Args:
        cluster: Where they run; the engine starts and ends it.
        env: What `--env` named.
        policy: What the policy is opened as; None: nothing asks it.
        role_params: Request parameters by role.
        scrubber: Knows the secrets of the run.

    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        env: str | None,
        policy: ModelSource | None = None,
        role_params: Mapping[str, JSONObject],
        scrubber: Scrubber,
    ) -> None:
        self._cluster = cluster
        self._env = env
        self._policy = policy
        self._role_params = role_params
        self._scrubber = scrubber
        self.num_outages = 0
        """How often an endpoint was gone, as the worker saw it that saw most."""
        self.outage_seconds = 0.0
        """How long, as the worker saw it that waited longest."""

    def __enter__(self) -> Self:
        """Give the engine."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the end of the cluster, where a loop that was interrupted did not."""
        self._cluster.stop().result()

    async def run(
        self,
        attempts: Iterator[Attempt],
        shared: Shared,
        *,
        concurrency: int,
        keep: Callable[[Outcome], Outcome],
    ) -> AsyncGenerator[Rollout | Failure]:
        """Run attempts and give each record as it ends, as `run_attempts` does.

        Raises:
            EngineError: There are no workers, or they die one after another.
            UsageError: Ray makes nothing of the cluster's address.
            GymError: The cause, once every record is given, where the run was stopped.

        """
        working: asyncio.Task[None] | None = None
        try:
            if await self._is_started(shared.stopping):
                job = self._job(shared, concurrency, self._cluster.num_workers)
                driving = Driving(self._cluster, job, attempts, shared, keep, concurrency)
                working = asyncio.create_task(driving.do_all())
                while (outcome := await driving.ended.get()) is not None:
                    driving.room.release()
                    self.num_outages = driving.num_outages
                    self.outage_seconds = driving.outage_seconds
                    yield outcome.record
                await working
        finally:
            shared.stopping.close()
            if working is not None:
                working.cancel()
                with suppress(asyncio.CancelledError):
                    await working
            await asyncio.wrap_future(self._cluster.stop())
        cause = shared.stopping.cause
        if cause is not None:
            raise cause from cause.__cause__

    async def _is_started(self, stopping: Stopping) -> bool:
        """Start or join the cluster; False where the run was stopped first."""
        started = asyncio.wrap_future(self._cluster.start())
        try:
            while not started.done():
                if stopping.cause is not None:
                    return False
                await asyncio.wait([started], timeout=IDLE_SECONDS)
            started.result()
        finally:
            started.cancel()  # else what it fails with later is logged as lost
        return True

    def _job(self, shared: Shared, concurrency: int, num_workers: int) -> Job:
        """Give what every worker is told, with its share of what is allowed at once."""
        share = -(-concurrency // num_workers)
        sources = {
            role: _share_of(source, num_workers) for role, source in shared.roles.sources.items()
        }
        return Job(
            code_of(self._env),
            Judges(sources, self._role_params, share, others=self._scrubber),
            _share_of(self._policy, num_workers),
            share,
            shared.watchdog.blocking_timeout,
        )


def _share_of(source: T, num_workers: int) -> T:
    """Give an endpoint whose limits are those of one worker: each keeps to them by itself."""
    if not isinstance(source, Endpoint):
        return source
    limits = source.limits
    most = limits.max_concurrency
    shares = {
        "requests_per_minute": _divided(limits.requests_per_minute, num_workers),
        "tokens_per_minute": _divided(limits.tokens_per_minute, num_workers),
        "max_concurrency": None if most is None else max(1, most // num_workers),
    }
    return source.model_copy(update={"limits": limits.model_copy(update=shares)})


def _divided(rate: float | None, by: int) -> float | None:
    return None if rate is None else rate / by
