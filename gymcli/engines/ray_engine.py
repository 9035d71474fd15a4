"""Runs attempts in the workers of a Ray cluster, while this process alone writes.

A worker is handed as many attempts as it may have under way and a few more, and reports each as it
ends. What a worker had when it died is handed to others, and so is what it saved, which is only
scored there. Ray is imported when the first attempt is to be run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from gymcli.client import Endpoint
from gymcli.engines.cluster import Cluster, check_installed
from gymcli.engines.code import code_of
from gymcli.engines.deaths import start_limit
from gymcli.engines.driving import Driving
from gymcli.engines.worker import Job
from gymcli.role_models import ModelSource
from gymcli.runner.attempts import Attempt, Outcome, Shared
from gymcli.runner.judging import Judges
from gymcli.secrets import Scrubber
from gymcli.types import Failure, JSONObject, Rollout

__all__ = ["RayEngine"]

T = TypeVar("T")


class RayEngine:
    """Runs the attempts of one run on a Ray cluster.

    Args:
        address: Of the cluster that is joined; None: one of this machine alone.
        num_workers: Workers; None: one for each core of the cluster.
        env: What `--env` named.
        policy: What the policy is opened as; None: nothing asks it.
        role_params: Request parameters by role.
        scrubber: Knows the secrets of the run.
        start_seconds: So long the first worker may take to start; None: as long as is usual.

    Raises:
        MissingPackageError: Ray is not installed.

    """

    def __init__(
        self,
        address: str | None,
        num_workers: int | None,
        *,
        env: str | None,
        policy: ModelSource | None = None,
        role_params: Mapping[str, JSONObject],
        scrubber: Scrubber,
        start_seconds: float | None = None,
    ) -> None:
        check_installed()
        self._address = address
        self._num_workers = num_workers
        self._env = env
        self._policy = policy
        self._role_params = role_params
        self._scrubber = scrubber
        self._start_seconds = start_seconds or start_limit(address)
        self.num_outages = 0
        """How often an endpoint was gone, as the worker saw it that saw most."""
        self.outage_seconds = 0.0
        """How long, as the worker saw it that waited longest."""

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
            GymError: The cause, once every record is given, where the run was stopped.

        """
        cluster = Cluster(self._address, self._num_workers)
        working: asyncio.Task[None] | None = None
        try:
            await asyncio.wrap_future(cluster.start())
            job = self._job(shared, concurrency, cluster.num_workers)
            driving = Driving(
                cluster, job, attempts, shared, keep, concurrency, self._start_seconds
            )
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
            await asyncio.wrap_future(cluster.stop())
        cause = shared.stopping.cause
        if cause is not None:
            raise cause from cause.__cause__

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
