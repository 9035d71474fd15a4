"""`gym collect`: run tasks against a model and write scored rollouts."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from gymcli.command_line import CommandOption, Heading
from gymcli.commands.ci import CiOptions, CiRequest
from gymcli.commands.console import LOGGER, folded, hide, message, warn
from gymcli.commands.dry_run import benchmark_texts, show_plans
from gymcli.commands.model_options import RoleOptions, with_model_options
from gymcli.commands.open_files import allow_open_files
from gymcli.commands.options import (
    CacheOption,
    announce_settings,
    complete_tasks,
    hide_models,
    role_specs,
    settings_secrets,
)
from gymcli.commands.run_results import end_runs, resume_command
from gymcli.commands.signals import run_async, stop_at_signals
from gymcli.reporting.formatting import counted
from gymcli.runner.collect_options import CollectOptions, RunOptions
from gymcli.store.supervised import Supervised, Tag
from gymcli.tasks.task_options import TaskOptions

if TYPE_CHECKING:
    from gymcli.benchmarks.benchmark import Benchmark
    from gymcli.library.run_collection import RunResult
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.collection import Collection
    from gymcli.tasks.task_source import TaskInput

EXAMPLES = """\b
Examples:
  a small real model, which needs no key:
    gym collect arithmetic -m local -n 20
  a server of your own, 4 attempts per task, a run with a name:
    gym collect tasks.jsonl --env mcqa -m NAME -o runs/a \\
      --base-url http://127.0.0.1:8000/v1 --repeats 4
  benchmarks, compared with the scores that others published:
    gym collect gsm8k mmlu-pro -m NAME
  in CI, with a condition that decides the exit code:
    gym collect mcqa -m NAME --gate 'pass@1 >= 0.7' \\
      --junit junit.xml --quiet
"""
GARBAGE_THRESHOLD = 50_000
"""New objects between two runs of the garbage collector (Python's default is 700). An attempt in
flight holds a few hundred objects until it ends: with 4,000 in flight, scanning them again and
again takes a third of the CPU."""
_SPARE_FILES = 128
"""Open files beyond connections: those of a run, of Python, of its workers and their pipes."""
_FILES_OF_RUN = 24
"""Open files of each further run."""


class PolicyOptions(BaseModel):
    """Which model is asked, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[
        tuple[str, ...],
        CommandOption(
            "Model at the endpoint or in gym.toml, local, local:PATH.gguf, or oracle; repeat it "
            "for a run of each, DIR/NAME.",
            Heading.MODEL,
            "-m",
            metavar="NAME",
            completion="model",
        ),
    ] = ()
    base_url: Annotated[
        tuple[str, ...],
        CommandOption(
            "Endpoint, such as http://127.0.0.1:8000/v1; repeat it for replicas.",
            Heading.MODEL,
            metavar="URL",
        ),
    ] = ()
    api_key_env: Annotated[
        str | None,
        CommandOption(
            "Environment variable that holds the API key.", Heading.MODEL, metavar="VARIABLE"
        ),
    ] = None
    dialect: Annotated[
        Literal["chat", "responses"] | None,
        CommandOption("Wire format.", Heading.MODEL, show_default="gym.toml's, else chat"),
    ] = None


class SamplingOptions(BaseModel):
    """Request parameters; the frequent ones have an option of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: Annotated[
        float | None, CommandOption("Sampling temperature.", Heading.SAMPLING)
    ] = None
    top_p: Annotated[
        float | None, CommandOption("Nucleus sampling probability.", Heading.SAMPLING)
    ] = None
    max_tokens: Annotated[
        int | None, Field(ge=1), CommandOption("Maximum tokens of one answer.", Heading.SAMPLING)
    ] = None
    params: Annotated[
        dict[str, object],
        CommandOption(
            "Set any other request parameter, as JSON or text.",
            Heading.SAMPLING,
            name="param",
            metavar="KEY=VALUE",
        ),
    ] = {}


class OutputOptions(BaseModel):
    """What is printed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dry_run: Annotated[
        bool,
        CommandOption(
            "Print the plan, an estimate of tokens and cost, and the first request; send nothing.",
            Heading.RESULTS,
        ),
    ] = False
    quiet: Annotated[bool, CommandOption("Print no progress and no warnings.", Heading.RESULTS)] = (
        False
    )
    as_json: Annotated[
        bool,
        CommandOption(
            "Print the metrics, or the plan of a dry run, as JSON.", Heading.RESULTS, name="json"
        ),
    ] = False


@with_model_options
def collect(
    context: typer.Context,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS",
            help="JSONL, CSV, Parquet or Excel files, or an environment to use its own tasks: "
            "NAME, FILE.py or FILE.py:CLASS; or benchmarks, a run of each: NAME (gym bench lists "
            "them) or the path of a benchmark.toml.",
            rich_help_panel=Heading.WHAT,
            autocompletion=complete_tasks,
        ),
    ],
    *,
    policy: PolicyOptions,
    role_options: RoleOptions,
    sampling: SamplingOptions,
    task_options: TaskOptions,
    run_options: RunOptions,
    cache: CacheOption = None,
    min_coverage: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Exit with 4 if a smaller share is scored, from 0 to 1.",
            rich_help_panel=Heading.RESULTS,
        ),
    ] = 0.95,
    ci_options: CiOptions,
    output: OutputOptions,
) -> None:
    """Run tasks against a model and write scored rollouts.

    Run the same command again to resume: scored attempts are kept, failed ones are retried.
    """
    from gymcli.benchmarks.resolution import resolve
    from gymcli.library.run_collection import check_cluster_options, engine_of_run, plan_runs
    from gymcli.runner.collection import Collection, command_resources

    if not output.quiet:
        announce_settings()
    check_cluster_options(run_options)
    policies, params = _policies(policy, sampling)
    inputs, benchmarks = resolve(tasks)
    settings = {**vars(run_options), **vars(task_options)}
    if benchmarks and getattr(context.get_parameter_source("repeats"), "name", "") != "COMMANDLINE":
        del settings["repeats"]  # those of a benchmark win over those of gym.toml
    supervised = context.find_object(Supervised)
    resumed = None if supervised is None else supervised.directory
    options = _options_of_runs(
        policies, params, role_options, settings, benchmarks, resumed=resumed
    )
    out_paths = [run.out for run in options if run.out is not None]
    ci = CiRequest(ci_options, inputs=[*map(Path, tasks), *out_paths], is_json=output.as_json)
    notify = LOGGER.info if output.quiet else message
    runs_to_plan = [(inputs, run) for run in options]
    if benchmarks:
        runs_to_plan = _benchmark_runs(benchmarks, options, cache, notify)
    with _same_directory() as go_back:
        engine = engine_of_run(*runs_to_plan[0])  # several runs have none
        plans = plan_runs(
            runs_to_plan,
            # The process that died has said how tables are read.
            notify=notify if resumed is None else lambda _: None,
            after_each=go_back,
        )
        for plan in plans.values():
            if ci.gates is not None:
                ci.gates.check_plan(plan)
        if output.dry_run:
            show_plans(list(plans.values()), is_json=output.as_json)
            return
        resources = command_resources(list(plans.values()), supervised)
        runs = {
            name: Collection(plan, engine=engine, resources=resources, notify=notify)
            for name, plan in plans.items()
        }
        command = resume_command(context, runs)
        gc.set_threshold(GARBAGE_THRESHOLD)
        results = run_async(
            _run(runs, supervised, command, go_back, ks=ci.ks, is_quiet=output.quiet)
        )
        go_back()
        end_runs(context, results, ci, min_coverage=min_coverage, is_json=output.as_json)


def _policies(
    policy: PolicyOptions, sampling: SamplingOptions
) -> tuple[list[tuple[str, Endpoint | None]], dict[str, object]]:
    """Return the name and the endpoint of each model, and the parameters of requests.

    The secrets of the endpoints are hidden from here on.
    """
    from gymcli.library.run_collection import resolve_policy
    from gymcli.models.endpoint import check_parameters

    models: Sequence[str | None] = policy.model or (None,)
    policies = [resolve_policy(**{**vars(policy), "model": model}) for model in models]
    params = sampling.model_dump(exclude={"params"}, exclude_none=True) | sampling.params
    for _, endpoint in policies:
        hide(endpoint.secrets if endpoint is not None else ())
        check_parameters(params, endpoint)
    return policies, params


def _options_of_runs(
    policies: Sequence[tuple[str, Endpoint | None]],
    params: dict[str, object],
    role_options: RoleOptions,
    settings: Mapping[str, object],
    benchmarks: Sequence[Benchmark],
    *,
    resumed: str | None,
) -> list[CollectOptions]:
    """Return the options of each model's run, or of each pair of a benchmark and a model."""
    from gymcli.library.role_models import check_role_parameters, default_roles, named_roles
    from gymcli.library.run_collection import with_own_folders

    sources = named_roles(role_specs(role_options.role), run_loop=run_async)
    defaults, missing_roles = default_roles()
    hide_models([*sources.values(), *defaults.values()])
    check_role_parameters(role_options.role_params, {**defaults, **sources})
    options = [
        CollectOptions.model_validate(
            {
                "secrets": tuple(SecretStr(secret) for secret in settings_secrets()),
                "model": name,
                "endpoint": endpoint,
                "params": params,
                "roles": sources,
                "default_roles": defaults,
                "missing_roles": missing_roles,
                "role_params": role_options.role_params,
                **settings,
            }
        )
        for name, endpoint in [*policies] * max(1, len(benchmarks))
    ]
    return with_own_folders(options, benchmarks, resumed=None if resumed is None else Path(resumed))


def _benchmark_runs(
    benchmarks: Sequence[Benchmark],
    options: Sequence[CollectOptions],
    cache: Path | None,
    notify: Callable[[str], None],
) -> list[tuple[list[TaskInput], CollectOptions]]:
    from gymcli.benchmarks.benchmark_runs import plan_benchmarks  # late: heavy
    from gymcli.library.role_models import check_role_parameters
    from gymcli.models.settings import load_settings

    runs = plan_benchmarks(
        benchmarks,
        options,
        settings=load_settings(),
        environ=os.environ,
        cache=cache,
        notify=notify,
    )
    for run in runs:
        check_role_parameters(run.options.role_params, run.options.roles)
    return [(run.inputs, run.options) for run in runs]


@contextmanager
def _same_directory() -> Iterator[Callable[[], None]]:
    """Yield a function that returns to the working directory, which environments may change."""
    try:
        descriptor = os.open(".", os.O_RDONLY)
    except OSError:  # it was deleted, or may not be read
        yield lambda: None
        return
    try:
        yield lambda: os.fchdir(descriptor)
    finally:
        os.close(descriptor)


async def _run(
    runs: Mapping[str, Collection],
    supervised: Supervised | None,
    command: str,
    go_back: Callable[[], None],
    *,
    ks: Sequence[int],
    is_quiet: bool,
) -> list[RunResult]:
    """Run the collections under a progress display, then measure what is on disk."""
    from gymcli.commands.progress import Progress, SeveralRuns
    from gymcli.library.run_collection import collect_all, measure_run

    collections = list(runs.values())
    first = collections[0]
    async with AsyncExitStack() as stack:
        for collection in collections:
            await stack.enter_async_context(collection)
        if supervised is not None:
            supervised.tell(Tag.COMMAND, command)
        _print_start(collections, is_quiet=is_quiet)
        environments = first.manifest.environments
        scales = {record.max_reward for record in environments.values()}
        has_one_scale = len(environments) == 1 or (len(scales) == 1 and None not in scales)
        several = SeveralRuns(runs) if len(runs) > 1 else None
        # The mean over several runs says nothing.
        has_one_mean = has_one_scale and several is None
        progress = Progress(several or first, is_quiet=is_quiet, has_one_scale=has_one_mean)
        with progress:
            async with progress.ticking():
                with stop_at_signals([collection.stopping for collection in collections]):
                    causes = await collect_all(
                        runs,
                        progress.add,
                        # An attempt that ends the process again must be known to be the one.
                        in_turn=supervised is not None and supervised.death is not None,
                    )
        go_back()  # no environment runs any more
        results = [measure_run(name, run, causes.get(name), ks) for name, run in runs.items()]
        for result in results:
            if result.score is not None and result.score.problem and result.metrics.num_scored:
                warn(result.score.problem)
        return results


def _print_start(collections: Sequence[Collection], *, is_quiet: bool) -> None:
    texts = [text for collection in collections for text in collection.warnings]
    for text in dict.fromkeys(filter(None, [*texts, _allow_open_files(collections)])):
        (LOGGER.warning if is_quiet else warn)(text)
    if is_quiet:
        return
    for collection in collections:
        message(_start_text(collection))
        if collection.token_note:
            message(collection.token_note)
        for text in benchmark_texts(collection.manifest):
            message(folded(f"{collection.path}: {text}", 2))


def _allow_open_files(collections: Sequence[Collection]) -> str | None:
    """Raise the limit of open files as far as the runs need; return a warning if that fails."""
    # An attempt may hold a connection to each model and to a remote environment.
    num_places = 0
    for options in (collection.options for collection in collections):
        models = (options.endpoint, *options.roles.values())
        num_models = sum(not isinstance(model, str | None) for model in models)
        is_remote = (options.env or "").startswith(("http://", "https://"))
        num_places = max(num_places, num_models + is_remote)
    options = collections[0].options
    num_left = sum(collection.num_left for collection in collections)
    num_needed = min(options.concurrency, num_left) * num_places + _SPARE_FILES
    num_needed += _FILES_OF_RUN * (len(collections) - 1)
    allowed = allow_open_files(num_needed)
    if allowed >= num_needed:
        return None
    return (
        f"--concurrency {options.concurrency} may need {num_needed} open files, but only "
        f"{allowed} are allowed: raise the limit (ulimit -n {num_needed}) or lower --concurrency"
    )


def _start_text(collection: Collection) -> str:
    path, num_expected = collection.path, collection.num_expected
    num_crashed, failed = collection.state.num_crashed, ""
    if num_failed := len(collection.state.left_failed) - num_crashed:
        failed += f", {num_failed} failed earlier and are not retried (--no-retry)"
    if num_crashed:
        failed += f", {num_crashed} crashed earlier (--retry-crashed retries them)"
    if not num_expected:
        return f"{path}: no task is in shard {collection.manifest.shard}; nothing to do"
    if not collection.num_left:
        if failed:
            return f"{path}: {collection.num_scored} attempts are already scored{failed}"
        return f"{path}: all {num_expected} attempts are already scored"
    done = f" ({collection.num_scored} already scored)" if collection.num_scored else ""
    return f"{path}: {counted(collection.num_left, 'attempt')} to go{done}{failed}"
