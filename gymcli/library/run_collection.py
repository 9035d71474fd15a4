"""Collects tasks with one or more models."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET

from gymcli.benchmarks.resolution import resolve
from gymcli.errors import (
    EngineError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    UsageError,
)
from gymcli.library.result import Results
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.measure import measure
from gymcli.metrics.results import RunMetrics
from gymcli.models.endpoint import SCALAR_DIALECTS, Endpoint, check_parameters
from gymcli.models.local_model import parse_local
from gymcli.models.roles import ORACLE, ModelSource
from gymcli.models.settings import load_settings, resolve_endpoint
from gymcli.runner.attempts import Engine, run_together
from gymcli.runner.collect_options import CollectOptions, RunOptions
from gymcli.runner.collection import STOPS_EARLY, Collection, command_resources
from gymcli.runner.identity import file_safe, policy_source, unused
from gymcli.runner.plan import RunPlan, plan_run
from gymcli.store.manifest import MANIFEST
from gymcli.suggestions import options_from
from gymcli.tasks.task_source import TaskInput, env_of_tasks
from gymcli.types import AttemptKey, Failure, Rollout

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark import Benchmark
    from gymcli.comparison.reproduction import BenchmarkScore
    from gymcli.library.measurement import MetricsReport
    from gymcli.library.run_gates import RunGates
    from gymcli.reporting.run_report import RunReport
    from gymcli.rescoring.verify_options import VerifyOptions

_LOGGER = logging.getLogger(__name__)


def check_cluster_options(options: RunOptions | VerifyOptions) -> None:
    """Refuse options of a cluster if none is used."""
    has_some = options.address is not None or options.num_workers is not None
    if options.engine == "local" and has_some:
        raise UsageError("--address and --workers need --engine ray")


def make_engine(
    options: RunOptions | VerifyOptions, *, env: str | None, policy: ModelSource | None = None
) -> Engine | None:
    """Return the engine of the options; None for "local": then this process plays the attempts.

    `env` is the code that stands for environments, if any, `policy` the model under test; None if
    attempts are only scored.

    Raises:
        MissingPackageError: The engine's package is not installed.
        UsageError: The address is malformed, or the options of a cluster need one.
    """
    check_cluster_options(options)
    if options.engine == "local":
        return None
    from gymcli.ray.driver import RayEngine  # late: few runs need it

    return RayEngine(options.address, options.num_workers, env=env, policy=policy)


def engine_of_run(inputs: Sequence[TaskInput], options: CollectOptions) -> Engine | None:
    """Return the engine for a run with these options, as `make_engine` does.

    Called before any task is read, since a package may be missing or an address malformed.
    """
    options = options.with_outage_deadline()
    env, policy = env_of_tasks(inputs, options.env), policy_source(options)
    return make_engine(options, env=env, policy=policy)


def resolve_policy(
    model: str | None,
    *,
    base_url: Sequence[str] | None = None,
    api_key_env: str | None = None,
    dialect: str | None = None,
) -> tuple[str, Endpoint | None]:
    """Return the name and the endpoint of a policy; None: it plays in this process.

    Names are those of gym.toml, whose keys, like OPENAI_API_KEY, are environment variables.

    Raises:
        UsageError: No endpoint serves the model, or it cannot be a policy.
    """
    if model is not None and (model == ORACLE or parse_local(model) is not None):
        if base_url or api_key_env or dialect:
            raise UsageError(f"--model {model} takes no --base-url, --api-key-env or --dialect")
        return model, None
    endpoint = resolve_endpoint(
        model,
        base_url=base_url,
        api_key_env=api_key_env,
        dialect=dialect,
        settings=load_settings(),
        environ=os.environ,
    )
    if endpoint.dialect in SCALAR_DIALECTS:
        raise UsageError(
            f"--model {endpoint.model}: is a reward model ({endpoint.dialect}), which cannot be "
            "the policy; use it as --role reward=..."
        )
    check_parameters(endpoint.params, endpoint, option=f"[models.{endpoint.name}]")
    return endpoint.model, endpoint


def model_of_run(options: CollectOptions) -> str:
    """Return the name of a run's model as the user wrote it."""
    return (options.endpoint and options.endpoint.name) or options.model


def with_own_folders(
    options: Sequence[CollectOptions],
    benchmarks: Sequence[Benchmark] = (),
    *,
    resumed: Path | None = None,
) -> list[CollectOptions]:
    """Return the options of the runs of one command, with the directory of each.

    Several are in BENCHMARK/MODEL of `out`, each part only if there are several.

    Args:
        options: Those of each model, the same `out` in all, for one benchmark after the other.
        benchmarks: The benchmarks that are collected, if any.
        resumed: The directory of the first run in the process that died before.

    Raises:
        UsageError: A model is named twice, or the directory cannot hold several runs.
    """
    num_models = len(options) // max(1, len(benchmarks))
    names = list(map(model_of_run, options[:num_models]))
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"--model {repeated}: is named twice; name each model once")
    first = options[0]
    if len(options) == 1:
        update = {} if resumed is None else {"out": resumed, "fresh": False}
        return [first.model_copy(update=update)]
    if first.engine != "local":
        raise UsageError(
            "--engine ray takes one --model and one benchmark; run the command once for each"
        )
    kind, out = "benchmarks" if len(benchmarks) > 1 else "models", first.out
    if out is None:
        if first.fresh:
            raise UsageError(f"--fresh with several {kind} needs --out DIR")
        return list(options)
    if (out / MANIFEST).exists() and not first.fresh:
        raise UsageError(
            f"--out {out}: holds a run; several {kind} need a folder that holds a run of each"
        )
    stems = [file_safe(name.removeprefix("local:").removesuffix(".gguf")) for name in names]
    models = [Path(stem or "model") for stem in stems] if num_models > 1 else [Path()]
    parents = (
        [Path(benchmark.name) for benchmark in benchmarks] if len(benchmarks) > 1 else [Path()]
    )
    folders = [parent / model for parent in parents for model in models]
    if resumed is not None:
        out = resumed.parents[len(folders[0].parts) - 1]
    elif first.fresh:
        out = unused(out)
    return [
        run.model_copy(update={"out": out / folder, "fresh": False})
        for run, folder in zip(options, folders, strict=True)
    ]


def plan_runs(
    runs: Sequence[tuple[Sequence[TaskInput], CollectOptions]],
    *,
    has_directory: bool = True,
    notify: Callable[[str], None] = lambda _: None,
    after_each: Callable[[], object] = lambda: None,
) -> dict[str, RunPlan]:
    """Return the plans of the runs of one command, named by benchmark or model.

    Args:
        runs: The tasks and the options of each.
        has_directory: Whether each writes a run directory.
        notify: Called with how tables are read, before their rows are checked.
        after_each: Called after each plan, which has run code of environments.

    Raises:
        UsageError: As `plan_run`, or two runs would have the same directory.
    """
    records = (options.benchmark for _, options in runs)
    num_benchmarks = len({record.name for record in records if record is not None})
    has_models = len(runs) > max(1, num_benchmarks)
    plans: dict[str, RunPlan] = {}
    model_by_path: dict[str, str] = {}
    for inputs, options in runs:
        first = next(iter(plans.values()), None)
        plan = plan_run(
            inputs,
            options,
            has_directory=has_directory,
            # Runs of one command have the same tables, or a benchmark's.
            notify=notify if first is None else lambda _: None,
            earlier=first,
        )
        model, record = model_of_run(options), options.benchmark
        # Upper and lower case are the same on some file systems.
        other = model_by_path.setdefault(str(plan.path).casefold(), model)
        if has_directory and other != model:
            raise UsageError(
                f"--model {other} and --model {model}: both runs would be {plan.path}; "
                "run the command once for each, with another --out"
            )
        parts = [record.name] if record is not None and num_benchmarks > 1 else []
        if has_models or not parts:
            parts.append(model)
        plans[" ".join(parts)] = plan
        after_each()
    return plans


async def collect_all(
    runs: Mapping[str, Collection],
    add: Callable[[Rollout | Failure, str], None],
    *,
    in_turn: bool = False,
) -> dict[str, GymError]:
    """Run open collections, at once unless `in_turn`; return what stopped some of them early.

    `add` is called with each record and the name of its run.
    """
    causes: dict[str, GymError] = {}

    async def collect_from(name: str) -> None:
        try:
            async with aclosing(runs[name].run()) as records:
                async for record in records:
                    add(record, name)
        # What these runs have recorded is valid.
        except (InterruptedRunError, *STOPS_EARLY) as error:
            causes[name] = error

    if not in_turn:
        await run_together(map(collect_from, runs))
        return causes
    for name in runs:
        await collect_from(name)
    return causes


class RunResult(NamedTuple):
    """How a run ended, and what it measured."""

    name: str
    """What tells it apart from the other runs of the command: its model or its benchmark."""
    path: Path | None
    """The run directory; None if nothing was to be written."""
    metrics: RunMetrics
    """Those of the selected tasks."""
    collection: Collection
    aggregator: Aggregator
    """Counts the attempts of the selected tasks."""
    cause: GymError | None
    """The error that stopped the run early."""
    attempts: frozenset[AttemptKey] | None
    """Those of the selected tasks; None if the run holds no other tasks."""
    score: BenchmarkScore | None = None
    """None unless it is the run of a benchmark."""

    @property
    def model(self) -> str:
        """The name of the model as the user wrote it."""
        return model_of_run(self.collection.options)

    @property
    def benchmark(self) -> str:
        """The name of its benchmark, if any."""
        record = self.collection.manifest.benchmark
        return "" if record is None else record.name

    def report(self, *, is_one_of_several: bool = False, error: str = "") -> MetricsReport:
        """Return what `gym collect --json` prints of the run.

        Of one of several, it names the model and the benchmark, and the `error` that ended it.
        """
        from gymcli.library.measurement import MetricsReport  # late: few commands need it

        report = MetricsReport.of(self.path or "", self.metrics)
        if self.score is not None:
            report.references = self.score.references
        if is_one_of_several:
            report.model = self.model
            report.benchmark = self.benchmark or UNSET
            report.error = error or UNSET
        return report

    @property
    def has_numbers(self) -> bool:
        """Whether there is anything to show: an endpoint may have refused everything."""
        is_refused = isinstance(self.cause, FatalEndpointError | EngineError)
        return self.collection.num_scored > 0 or not is_refused


def measure_run(
    name: str, collection: Collection, cause: GymError | None = None, ks: Sequence[int] = ()
) -> RunResult:
    """Write the metrics of an open run that has ended, and return those of this command."""
    assert collection.path is not None, "a run without a directory has no metrics"
    env = collection.options.env
    aggregator = measure(collection.path, env=env)
    metrics = aggregator.metrics(ks=ks)
    is_stopped = cause is not None and collection.num_left > 0
    collection.finish(msgspec.json.encode(metrics), None if is_stopped else time.time())
    attempts = collection.state.selection
    if attempts is not None:
        aggregator = measure(collection.path, env=env, attempts=attempts)
        metrics = aggregator.metrics(ks=ks)
    score = None
    if collection.manifest.benchmark is not None:
        from gymcli.benchmarks.benchmark_runs import benchmark_score  # late: heavy

        score = benchmark_score(collection.manifest, aggregator, metrics)
    return RunResult(name, collection.path, metrics, collection, aggregator, cause, attempts, score)


def run_report(
    run: RunResult,
    gates: RunGates,
    error: GymError | None,
    *,
    has_tasks: bool,
    warn: Callable[[str], None] = _LOGGER.warning,
) -> RunReport:
    """Judge a run by its gates; if they name fields, measure it again, sliced by these.

    `error` ended it, if any. With `has_tasks`, the report lists every task.
    """
    path = run.collection.path
    assert path is not None, "a run without a directory has no report"
    env, fields = run.collection.options.env, gates.fields()
    aggregator, metrics = run.aggregator, run.metrics
    if fields:
        try:
            aggregator = measure(path, env=env, by=fields, attempts=run.attempts)
            metrics = aggregator.metrics(ks=gates.ks)
        except UsageError as too_many:  # a field has too many values: there are no slices to judge
            warn(str(too_many))
    return gates.report(
        path,
        aggregator,
        metrics,
        env=env,
        by=fields,
        incomplete="" if error is None else str(error).partition(";")[0],
        attempts=run.attempts,
        score=run.score,
        has_tasks=has_tasks,
    )


class RolloutStream:
    """The rollouts of `collect`, each when it ends; awaited, the results of the runs."""

    def __init__(self, tasks: str | Path | Iterable[str | Path], options: Mapping[str, object]):
        sources = tasks if isinstance(tasks, Iterable) and not isinstance(tasks, str) else [tasks]
        self._tasks: list[str | Path] = []
        for source in sources:
            if not isinstance(source, str | Path):
                raise UsageError(f"collect: {source!r} is not the path or the name of tasks")
            self._tasks.append(source)
        self._options = options
        self._records: AsyncGenerator[Rollout | Failure] | None = None

    def __aiter__(self) -> AsyncGenerator[Rollout | Failure]:
        if self._records is None:
            self._records = _collected(self._tasks, self._options)
        return self._records

    async def __anext__(self) -> Rollout | Failure:
        return await anext(aiter(self))

    def __await__(self) -> Generator[object, None, MetricsReport | Results[MetricsReport]]:
        return self._result().__await__()

    async def _result(self) -> MetricsReport | Results[MetricsReport]:
        if self._records is not None:
            raise UsageError("collect: its rollouts have been iterated; await it in their place")
        results: list[RunResult] = []
        self._records = _collected(self._tasks, self._options, results)
        async with aclosing(self._records) as records:
            async for _ in records:
                pass
        if len(results) == 1 and not isinstance(self._options.get("model"), list | tuple):
            return results[0].report()
        return Results(result.report(is_one_of_several=True) for result in results)

    async def aclose(self) -> None:
        """End the runs; what they have written stays."""
        if self._records is not None:
            await self._records.aclose()


def collect(tasks: str | Path | Iterable[str | Path], **options: object) -> RolloutStream:
    """Run tasks against one or more models.

    `async for` yields each rollout when it ends, in arbitrary order; `await` returns the
    numbers of the run, a `MetricsReport`, or a list of them if there are several benchmarks or
    `model` is a list.

    Args:
        tasks: A task file, the name of an environment or its code, `FILE.py:CLASS`, for its own
            tasks, or several of these; or benchmarks, each a run of its own, by their names or the
            paths of their benchmark.toml.
        options: The fields of `gymcli.runner.collect_options.CollectOptions`: `endpoint`, or
            `model` for `local`, `oracle`, a model in this process and a name in gym.toml or at
            OPENAI_BASE_URL; `env`, `repeats`, `seed`, `params` and so on. A list of models, or of
            their endpoints, as `model` has a run of each. With `out`, a run directory is written,
            or resumed if it exists; attempts that are already done are not yielded again. Several
            runs are in folders of it.

    Raises:
        GymError: Any error that would end `gym collect`, before or during the run; of several runs
            once all have ended.
    """
    return RolloutStream(tasks, options)


async def _collected(
    tasks: Sequence[str | Path],
    arguments: Mapping[str, object],
    results: list[RunResult] | None = None,
) -> AsyncGenerator[Rollout | Failure]:
    """Run tasks and yield the records; add to `results`, if any, what each run has measured."""
    options = _options_of_models(arguments)
    inputs, benchmarks = resolve(tasks)
    options = with_own_folders(options * max(1, len(benchmarks)), benchmarks)
    runs: Sequence[tuple[Sequence[TaskInput], CollectOptions]] = [(inputs, run) for run in options]
    if benchmarks:
        from gymcli.benchmarks.benchmark_runs import plan_benchmarks  # late: heavy

        # In a thread, since fetching the tasks runs an event loop of its own.
        runs = await asyncio.to_thread(plan_benchmarks, benchmarks, options)
    has_directory = options[0].out is not None
    is_temporary = results is not None and not has_directory
    async with AsyncExitStack() as stack:
        if is_temporary:  # numbers are measured on disk
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="gym-")))
            runs = [
                (inputs, run.model_copy(update={"out": folder / str(number)}))
                for number, (inputs, run) in enumerate(runs)
            ]
            has_directory = True
        engine = engine_of_run(*runs[0])  # several runs have none
        plans = plan_runs(runs, has_directory=has_directory, notify=_LOGGER.warning)
        resources = command_resources(list(plans.values()))
        collections = {
            name: Collection(plan, engine=engine, resources=resources)
            for name, plan in plans.items()
        }
        for collection in collections.values():
            await stack.enter_async_context(collection)
        causes: dict[str, GymError] = {}
        async with aclosing(_records_of(collections, causes)) as records:
            async for record in records:
                yield record
        # What a run that stopped early has recorded is valid: its metrics are written first.
        for name, collection in collections.items():
            if has_directory:
                measured = measure_run(name, collection, causes.get(name))
                if results is not None:
                    results.append(measured._replace(path=None) if is_temporary else measured)
        for cause in causes.values():
            raise cause


async def _records_of(
    collections: Mapping[str, Collection], causes: dict[str, GymError]
) -> AsyncGenerator[Rollout | Failure]:
    """Run collections at once and yield their records; `causes` gets what stopped some early."""
    if len(collections) == 1:
        [(name, collection)] = collections.items()
        try:
            async with aclosing(collection.run()) as records:
                async for record in records:
                    yield record
        except STOPS_EARLY as error:
            causes[name] = error
        return
    queue: asyncio.Queue[Rollout | Failure | None] = asyncio.Queue()

    async def run_all() -> None:
        causes.update(await collect_all(collections, lambda record, _: queue.put_nowait(record)))

    running = asyncio.create_task(run_all())
    # Also if it fails: the loop below ends, and `await running` raises the error.
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        await running
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def _options_of_models(arguments: Mapping[str, object]) -> list[CollectOptions]:
    """Return the options of `collect` for each model that its arguments name."""
    models = arguments.get("model")
    if not isinstance(models, list | tuple):
        models = [models]
    elif not models:
        raise UsageError("collect: model: the list is empty; name one model or more")
    elif "endpoint" in arguments:
        raise UsageError("collect: endpoint: is for one model; put the endpoints into model=[...]")
    options = []
    for model in models:
        policy: dict[str, object] = {}
        if isinstance(model, Endpoint):
            policy = {"model": model.model, "endpoint": model}
        elif isinstance(model, str) and model and arguments.get("endpoint") is None:
            name, endpoint = resolve_policy(model)
            policy = {"model": name, "endpoint": endpoint}
        elif model is not None:
            policy = {"model": model}
        options.append(options_from(CollectOptions, "collect", {**arguments, **policy}))
    return options
