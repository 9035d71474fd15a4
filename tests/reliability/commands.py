"""Collect from Python as `gym collect` does, and stop at a moment that a test has drawn."""

import asyncio
import functools
import shutil
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import RunError
from gymcli.metrics.measure import measure
from gymcli.mock import MockServer
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from gymcli.runner.plan import plan_run
from gymcli.tasks.task_source import TaskFile
from tests.reliability.law import Key, final_set
from tests.reliability.worlds import NUM_TASKS, WORLDS, Model, World, write_tasks

SEED = 7


class Selection(NamedTuple):
    """The options of one command on a run."""

    concurrency: int = 4
    limit: int | None = None
    task_id: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The same as arguments of the command line."""
        limit = () if self.limit is None else ("--limit", str(self.limit))
        task = () if self.task_id is None else ("--task", self.task_id)
        return ("--concurrency", str(self.concurrency), *limit, *task)


def write_settings(folder: Path, base_url: str) -> None:
    """Write a gym.toml with a policy and a judge without retries, so that no test waits."""
    tables = (
        f'[models.{name}]\nbase_url = "{base_url}"\nmodel = "{name}"\nmax_attempts = 1\n'
        for name in ("policy", "judge")
    )
    (folder / "gym.toml").write_text("\n".join(tables))


def collect_arguments(world: World, selection: Selection) -> tuple[str, ...]:
    """Return the arguments for a run in a folder with tasks and a gym.toml."""
    roles = (f"--role={role}={role}" for role in world.roles)
    run = ("--env", world.spec, "--model", "policy", "--out", "run", "--seed", str(SEED))
    repeats = ("--repeats", str(world.repeats))
    return ("collect", "tasks.jsonl", *run, *repeats, *roles, *selection.arguments)


async def collect(world: World, tasks: Path, out: Path, server: MockServer, selection: Selection):
    """Run a collection to its end; a RunError ends it early, as it ends the command."""
    policy = Endpoint(base_url=server.base_url, model="policy", max_attempts=1)
    judge = Endpoint(base_url=server.base_url, model="judge", max_attempts=1)
    options = CollectOptions(
        endpoint=policy,
        env=world.spec,
        out=out,
        repeats=world.repeats,
        seed=SEED,
        concurrency=selection.concurrency,
        limit=selection.limit,
        task_ids=() if selection.task_id is None else (selection.task_id,),
        roles=dict.fromkeys(world.roles, judge),
    )
    async with Collection(plan_run([TaskFile(tasks)], options)) as collection:
        try:
            async with aclosing(collection.run()) as records:
                async for _ in records:
                    pass
        except RunError:
            return
        metrics = measure(out).metrics()
        collection.finish(msgspec.json.encode(metrics), 2e9)


def collect_until(
    num: int,
    world: World,
    tasks: Path,
    out: Path,
    model: Model,
    selection: Selection,
    *,
    is_killed: bool,
) -> None:
    """Collect until the model was asked `num` times; then cancel the program or kill it.

    A kill is simulated: the run is copied at that instant, and what the program writes later is
    dropped.
    """
    asyncio.run(_collect_until(num, world, tasks, out, model, selection, is_killed=is_killed))


async def _collect_until(num, world, tasks, out, model, selection, *, is_killed):
    left = out.with_name("left")
    async with MockServer(model) as server:
        working = asyncio.create_task(collect(world, tasks, out, server, selection))

        def stop() -> None:
            if is_killed:
                shutil.copytree(out, left)
            working.cancel()

        model.begin(num, stop)
        await asyncio.wait([working])
    if not working.cancelled():
        working.result()
    if left.is_dir():
        shutil.rmtree(out)
        left.rename(out)


@functools.cache
def undisturbed(name: str) -> dict[Key, dict]:
    """Return the rollouts of an undisturbed run."""

    async def run(folder: Path) -> None:
        async with MockServer(Model()) as server:
            tasks = write_tasks(folder / "tasks.jsonl")
            await collect(WORLDS[name], tasks, folder / "run", server, Selection())

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
        found = final_set(Path(folder) / "run")
    assert len(found) == NUM_TASKS * WORLDS[name].repeats
    return found
