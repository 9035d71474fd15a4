"""Collecting from Python: the rollouts of a run as an async iterator."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path

import msgspec

from gymcli.engines.cluster import Cluster
from gymcli.engines.ray_engine import RayEngine
from gymcli.errors import BudgetReachedError, EngineError, FatalEndpointError, GymError
from gymcli.runner.collection import Collection
from gymcli.runner.engine import Engine
from gymcli.runner.identity import policy_source
from gymcli.runner.judging import scrubber_of_run
from gymcli.runner.measure import measure
from gymcli.runner.options import CollectOptions
from gymcli.types import Failure, Rollout

__all__ = ["collect", "engine_of"]


async def collect(
    tasks: str | Path | Iterable[str | Path], **options: object
) -> AsyncGenerator[Rollout | Failure]:
    """Run tasks against a model and give each rollout as it ends, in no certain order.

    Args:
        tasks: A task file, several, or the name of an environment for its shipped tasks.
        options: The fields of `gymcli.runner.CollectOptions`: `endpoint`, or `model` for `local`
            and `oracle`; `env`, `repeats`, `seed`, `params` and so on. With `out` a run directory
            is written, and resumed where it exists; what is done already is not given again.

    Raises:
        GymError: As `gym collect` would end, before or in the middle of the run.
        pydantic.ValidationError: An option is unknown or has the wrong type.

    """
    given = [tasks] if isinstance(tasks, str | Path) else list(tasks)
    checked = CollectOptions.model_validate(options)
    collection = Collection(
        given, checked, keeps=checked.out is not None, engine=engine_of(checked)
    )
    async with collection:
        cause: GymError | None = None
        try:
            async with aclosing(collection.run()) as records:
                async for record in records:
                    yield record
        except (BudgetReachedError, FatalEndpointError, EngineError) as error:
            cause = error
        if collection.path is not None:
            metrics = measure(collection.path, env=collection.options.env).metrics()
            collection.finish(msgspec.json.encode(metrics), None if cause else time.time())
        if cause is not None:
            raise cause


def engine_of(options: CollectOptions) -> Engine | None:
    """Give what runs the attempts, where that is not this process.

    Raises:
        MissingPackageError: It needs a package that is not installed.
        UsageError: The address of a cluster is none.

    """
    if options.engine == "local":
        return None
    options = options.with_outage_deadline()
    return RayEngine(
        Cluster(options.address, options.num_workers),
        env=options.env,
        policy=policy_source(options),
        role_params=options.role_params,
        scrubber=scrubber_of_run(options),
    )
