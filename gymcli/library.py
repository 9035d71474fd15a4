"""What `import gymcli` offers and the commands call: collects tasks, on the engine of a run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import msgspec

from gymcli.benchmarks.resolution import resolve
from gymcli.errors import GymError, UsageError
from gymcli.metrics.measure import measure
from gymcli.models.roles import ModelSource
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import STOPS_EARLY, Collection
from gymcli.runner.engine import Engine
from gymcli.runner.identity import policy_source
from gymcli.runner.plan import plan_run
from gymcli.tasks.task_source import TaskInput, env_of_tasks
from gymcli.types import Failure, Rollout

_LOGGER = logging.getLogger(__name__)


def make_engine(
    name: Literal["local", "ray"],
    *,
    address: str | None,
    num_workers: int | None,
    env: str | None,
    policy: ModelSource | None = None,
) -> Engine | None:
    """Return the engine of this name; None for "local": then this process plays the attempts.

    Args:
        name: The option `engine`.
        address: The cluster's address; None starts one on this machine.
        num_workers: How many workers play; None for one per core.
        env: The code that stands for environments, if any.
        policy: The model under test; None if attempts are only scored.

    Raises:
        MissingPackageError: The engine's package is not installed.
        UsageError: The address is malformed.
    """
    if name == "local":
        return None
    from gymcli.ray.driver import RayEngine  # late: few runs need it

    return RayEngine(address, num_workers, env=env, policy=policy)


def engine_of_run(inputs: Sequence[TaskInput], options: CollectOptions) -> Engine | None:
    """Return the engine for a run with these options, as `make_engine` does.

    Called before any task is read, since a package may be missing or an address malformed.
    """
    options = options.with_outage_deadline()
    return make_engine(
        options.engine,
        address=options.address,
        num_workers=options.num_workers,
        env=env_of_tasks(inputs, options.env),
        policy=policy_source(options),
    )


async def collect(
    tasks: str | Path | Iterable[str | Path], **options: object
) -> AsyncGenerator[Rollout | Failure]:
    """Run tasks against a model and yield each rollout when it ends, in arbitrary order.

    Args:
        tasks: A task file, the name of an environment or its code, `FILE.py:CLASS`, for its own
            tasks, or several of these; or a benchmark, by its name or the path of its
            benchmark.toml.
        options: The fields of `gymcli.runner.collect_options.CollectOptions`: `endpoint`, or
            `model` for `local`, `oracle` and a model in this process; `env`, `repeats`, `seed`,
            `params` and so on. With `out`, a run directory is written, or resumed if it exists;
            attempts that are already done are not yielded again.

    Raises:
        GymError: Any error that would end `gym collect`, before or during the run.
    """
    checked = CollectOptions.from_arguments("collect", options)
    inputs, benchmarks = resolve([tasks] if isinstance(tasks, str | Path) else tasks)
    if len(benchmarks) > 1:
        names = " and ".join(benchmark.name for benchmark in benchmarks)
        raise UsageError(f"{names}: are benchmarks, each a run of its own; collect them one by one")
    if benchmarks:
        from gymcli.benchmarks.benchmark_runs import plan_benchmarks  # late: heavy

        # In a thread, since fetching the tasks runs an event loop of its own.
        [(inputs, checked)] = await asyncio.to_thread(plan_benchmarks, benchmarks, [checked])
    engine = engine_of_run(inputs, checked)
    plan = plan_run(inputs, checked, has_directory=checked.out is not None, notify=_LOGGER.warning)
    collection = Collection(plan, engine=engine)
    async with collection:
        cause: GymError | None = None
        try:
            async with aclosing(collection.run()) as records:
                async for record in records:
                    yield record
        except STOPS_EARLY as error:
            # The results so far are valid: their metrics are written before the error is raised.
            cause = error
        if collection.path is not None:
            metrics = measure(collection.path, env=collection.options.env).metrics()
            collection.finish(msgspec.json.encode(metrics), None if cause else time.time())
        if cause is not None:
            raise cause
