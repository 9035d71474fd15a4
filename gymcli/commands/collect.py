"""`gym collect`: run tasks against a model and write scored rollouts."""

from __future__ import annotations

import dataclasses
import gc
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from gymcli.commands.ci import CiOptions, CiRequest
from gymcli.commands.console import (
    LOGGER,
    harmless,
    hide,
    message,
    one_line,
    print_json,
    result,
    warn,
)
from gymcli.commands.open_files import allow_open_files
from gymcli.commands.options import (
    EnvArgOption,
    RoleParamOption,
    announce_settings,
    check_cluster_options,
    check_parameters,
    check_role_parameters,
    complete_env,
    complete_model,
    complete_tasks,
    key_values,
    parameters,
    resolved_roles,
    role_params,
    roles,
    settings_secrets,
    with_expanded_options,
)
from gymcli.commands.signals import run_async, stop_at_signals
from gymcli.commands.summary import print_at_k, print_summary
from gymcli.errors import (
    BudgetReachedError,
    EngineError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    RunError,
    UsageError,
)
from gymcli.runner.run_options import Heading, RowOptions, RunOptions
from gymcli.store.supervised import Supervised, Tag

if TYPE_CHECKING:
    from gymcli.metrics.aggregate import Aggregator
    from gymcli.metrics.results import RunMetrics
    from gymcli.models.endpoint import Endpoint
    from gymcli.reporting.run_report import RunReport
    from gymcli.runner.collection import Collection

__all__ = ["EXAMPLES", "GARBAGE_THRESHOLD", "TYPED", "collect", "missing_coverage"]

EXAMPLES = """\b
Examples:
  a small real model, which needs no key:
    gym collect arithmetic -m local -n 20
  a server of your own, 4 attempts per task, a run with a name:
    gym collect tasks.jsonl --env mcqa -m NAME -o runs/a \\
      --base-url http://127.0.0.1:8000/v1 --repeats 4
  in CI, with a condition that decides the exit code:
    gym collect mcqa -m NAME --gate 'pass@1 >= 0.7' \\
      --junit junit.xml --quiet
"""
TYPED = "gymcli.typed"
"""The key in a command's context of the arguments as they were typed."""
GARBAGE_THRESHOLD = 50_000
"""New objects between two runs of the garbage collector (Python's default is 700). An attempt in
flight holds a few hundred objects until it ends: with 4,000 in flight, scanning them again and
again takes a third of the CPU."""
_SPARE_FILES = 128
"""Open files beyond connections: those of the run, of Python, of its workers and their pipes."""
_MAX_FAILURES = 3
"""Failures of an author's code that are printed with their place."""


@dataclasses.dataclass(kw_only=True)
class PolicyOptions:
    """Which model is asked, and where."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="Model at the endpoint or in gym.toml, local, local:PATH.gguf, or oracle.",
            rich_help_panel=Heading.MODEL,
            autocompletion=complete_model,
        ),
    ] = None
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Endpoint, such as http://127.0.0.1:8000/v1; repeat it for replicas.",
            rich_help_panel=Heading.MODEL,
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            help="Environment variable that holds the API key.",
            rich_help_panel=Heading.MODEL,
        ),
    ] = None
    dialect: Annotated[
        Literal["chat", "responses"] | None,
        typer.Option(
            help="Wire format.",
            show_default="gym.toml's, else chat",
            rich_help_panel=Heading.MODEL,
        ),
    ] = None


@dataclasses.dataclass(kw_only=True)
class SamplingOptions:
    """Request parameters that have an option of their own."""

    temperature: Annotated[
        float | None,
        typer.Option(help="Sampling temperature.", rich_help_panel=Heading.SAMPLING),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="Nucleus sampling probability.", rich_help_panel=Heading.SAMPLING),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum tokens of one answer.", rich_help_panel=Heading.SAMPLING),
    ] = None


@with_expanded_options
def collect(
    context: typer.Context,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS",
            help="JSONL, CSV or Parquet files, or an environment to use its own tasks: NAME, "
            "FILE.py or FILE.py:CLASS.",
            rich_help_panel=Heading.WHAT,
            autocompletion=complete_tasks,
        ),
    ],
    *,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Environment of rows that name none: NAME, FILE.py, FILE.py:CLASS or "
            "MODULE:CLASS; AGENT=ENV maps an agent_ref to an environment.",
            rich_help_panel=Heading.WHAT,
            autocompletion=complete_env,
        ),
    ] = None,
    env_arg: EnvArgOption = None,
    policy: PolicyOptions,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=MODEL",
            help="Model of a role, such as a judge: name in gym.toml, URL#MODEL, local, or oracle.",
            rich_help_panel=Heading.MODEL,
        ),
    ] = None,
    role_param: RoleParamOption = None,
    run_options: RunOptions,
    sampling: SamplingOptions,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed environments and requests, per task and attempt.",
            rich_help_panel=Heading.SAMPLING,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Set any other request parameter, as JSON or text.",
            rich_help_panel=Heading.SAMPLING,
        ),
    ] = None,
    row_options: RowOptions,
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
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the plan and the first request; send nothing.",
            rich_help_panel=Heading.RESULTS,
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="Print no progress and no warnings.",
            rich_help_panel=Heading.RESULTS,
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the metrics as JSON.", rich_help_panel=Heading.RESULTS),
    ] = False,
) -> None:
    """Run tasks against a model and write scored rollouts.

    Run the same command again to resume: scored attempts are kept, failed ones are retried.
    """
    from pydantic import SecretStr  # late: heavy

    from gymcli.runner.collect_options import CollectOptions
    from gymcli.runner.collection import Collection

    if not quiet:
        announce_settings()
    check_cluster_options(run_options.engine, run_options.address, run_options.num_workers)
    ci = CiRequest(
        ci_options, inputs=[*map(Path, tasks), *filter(None, [run_options.out])], is_json=json
    )
    params: dict[str, object] = {k: v for k, v in vars(sampling).items() if v is not None}
    params |= parameters(param or ())
    name, endpoint = _endpoint(policy)
    hide(endpoint.secrets if endpoint is not None else ())
    check_parameters(params, endpoint)
    sources, (default_roles, missing_roles) = roles(role or ()), resolved_roles()
    params_by_role = role_params(role_param or ())
    check_role_parameters(params_by_role, {**default_roles, **sources})
    supervised = context.find_object(Supervised)
    if supervised is not None and supervised.directory is not None:
        run_options = dataclasses.replace(run_options, out=Path(supervised.directory), fresh=False)
    options = CollectOptions(
        secrets=tuple(SecretStr(secret) for secret in settings_secrets()),
        model=name,
        endpoint=endpoint,
        env=env,
        env_args=key_values("--env-arg", env_arg or ()),
        params=params,
        seed=seed,
        roles=sources,
        default_roles=default_roles,
        missing_roles=missing_roles,
        role_params=params_by_role,
        **vars(run_options),
        **vars(row_options),
    )
    with _same_directory() as go_back:
        collection = Collection(
            tasks, options, supervised=supervised, notify=LOGGER.info if quiet else message
        )
        go_back()
        _check_gates(ci, collection)
        if dry_run:
            _show_plan(collection, is_json=json)
            return
        command = _resume_command(context, collection)
        gc.set_threshold(GARBAGE_THRESHOLD)
        found = run_async(_run(collection, command, go_back, ks=ci.ks, is_quiet=quiet))
        go_back()
        _end_run(context, collection, found, ci, min_coverage=min_coverage, is_json=json)


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


def _endpoint(policy: PolicyOptions) -> tuple[str, Endpoint | None]:
    from gymcli.models.endpoint import SCALAR_DIALECTS
    from gymcli.models.local_model import parse_local
    from gymcli.models.settings import load_settings, resolve_endpoint

    model = policy.model
    if model is not None and (model == "oracle" or parse_local(model) is not None):
        if policy.base_url or policy.api_key_env or policy.dialect:
            raise UsageError(f"--model {model} takes no --base-url, --api-key-env or --dialect")
        return model, None
    endpoint = resolve_endpoint(**vars(policy), settings=load_settings(), environ=os.environ)
    if endpoint.dialect in SCALAR_DIALECTS:
        raise UsageError(
            f"--model {endpoint.model}: is a reward model ({endpoint.dialect}), which cannot be "
            "the policy; use it as --role reward=..."
        )
    check_parameters(endpoint.params, endpoint, option=f"[models.{endpoint.name}]")
    return endpoint.model, endpoint


class _RunResult(NamedTuple):
    aggregator: Aggregator
    metrics: RunMetrics
    cause: GymError | None
    """The error that stopped the run early."""


def _check_gates(ci: CiRequest, collection: Collection) -> None:
    """Refuse before the first request what no result of this collection can meet."""
    from gymcli.runner.measure import facts_of

    def check() -> None:
        records = collection.manifest.environments.items()
        facts = {name: facts_of(record) for name, record in records}
        ci.check(facts, most_attempts=collection.most_attempts)

    try:
        check()
    except UsageError:
        if collection.path is None or not collection.path.is_dir():
            raise
        collection.check_existing_run()  # it may hold more environments, and more attempts
        check()


async def _run(
    collection: Collection,
    command: str,
    go_back: Callable[[], None],
    *,
    ks: Sequence[int],
    is_quiet: bool,
) -> _RunResult:
    """Run the collection under a progress display, then measure what is on disk."""
    import msgspec

    from gymcli.commands.progress import Progress
    from gymcli.runner.measure import measure

    cause: GymError | None = None
    async with collection:
        if collection.supervised is not None:
            collection.supervised.tell(Tag.COMMAND, command)
        for text in filter(None, [*collection.warnings, _allow_open_files(collection)]):
            (LOGGER.warning if is_quiet else warn)(text)
        if not is_quiet:
            message(_start_text(collection))
        environments = collection.manifest.environments
        scales = {record.max_reward for record in environments.values()}
        has_one_scale = len(environments) == 1 or (len(scales) == 1 and None not in scales)
        progress = Progress(collection, is_quiet=is_quiet, has_one_scale=has_one_scale)
        try:
            with progress:
                async with progress.ticking(), aclosing(collection.run()) as records:
                    with stop_at_signals(collection.stopping):
                        async for record in records:
                            progress.add(record)
        # These stop a run early; the numbers of its records are still printed.
        except (InterruptedRunError, BudgetReachedError, FatalEndpointError, EngineError) as error:
            cause = error
        go_back()  # no environment runs any more
        assert collection.path is not None
        aggregator = measure(collection.path, env=collection.options.env)
        metrics = aggregator.metrics(ks=ks)
        is_stopped = cause is not None and collection.num_left > 0
        collection.finish(msgspec.json.encode(metrics), None if is_stopped else time.time())
    return _RunResult(aggregator, metrics, cause)


def _allow_open_files(collection: Collection) -> str | None:
    """Raise the limit of open files as far as a run needs; return a warning if that fails."""
    # An attempt may hold a connection to each model and to a remote environment.
    options = collection.options
    models = (options.endpoint, *options.roles.values())
    num_places = sum(not isinstance(model, str | None) for model in models)
    num_places += (options.env or "").startswith(("http://", "https://"))
    needed = min(options.concurrency, collection.num_left) * num_places + _SPARE_FILES
    allowed = allow_open_files(needed)
    if allowed >= needed:
        return None
    return (
        f"--concurrency {options.concurrency} may need {needed} open files, but only {allowed} are "
        f"allowed: raise the limit (ulimit -n {needed}) or lower --concurrency"
    )


def _show_plan(collection: Collection, *, is_json: bool) -> None:
    """Print the plan and the body of the first request."""
    import msgspec

    collection.check_existing_run()
    for text in collection.warnings:
        warn(text)
    manifest, options = collection.manifest, collection.options
    if is_json:
        request = msgspec.Raw(_first_body(collection)) if collection.num_expected else None
        plan = {
            "tasks": manifest.tasks,
            "num_tasks": manifest.num_tasks,
            "shard": manifest.shard or None,
            "repeats": options.repeats,
            "num_expected": collection.num_expected,
            "num_scored": collection.num_scored,
            "num_left": collection.num_left,
            "environments": list(manifest.environments),
            "model": manifest.model,
            "base_url": options.endpoint.base_url if options.endpoint else None,
            "run": str(collection.path),
        }
        print_json({"plan": plan, "request": request})
        return
    files = ", ".join(f"{file['path']} ({file['num_rows']} rows)" for file in manifest.tasks)
    result(f"tasks         {files}")
    repeats = f", {options.repeats} of each" if options.repeats > 1 else ""
    result(f"attempts      {collection.num_expected} of {manifest.num_tasks} tasks{repeats}")
    if manifest.shard:
        result(f"shard         {manifest.shard}")
    if collection.num_scored:
        result(f"scored        {collection.num_scored}, left {collection.num_left}")
    result(f"environments  {', '.join(manifest.environments)}")
    place = options.endpoint.base_url if options.endpoint else "on this machine"
    result(f"model         {manifest.model} ({place})")
    result(f"run           {collection.path}")
    if collection.num_expected:
        result()
        result("first request (not sent):")
        print_json(_first_body(collection))


def _first_body(collection: Collection) -> bytes:
    from gymcli.models.client import Client
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.identity import emulates_tools

    options = collection.options
    endpoint = options.endpoint or Endpoint(
        base_url="http://127.0.0.1",
        model=collection.manifest.model,
        emulate_tools=emulates_tools(options),
    )
    return Client(endpoint, concurrency=1).payload(run_async(collection.first_request()))


def _start_text(collection: Collection) -> str:
    path, num_expected = collection.path, collection.num_expected
    failed = ""
    if num_failed := collection.num_left_failed - collection.num_crashed:
        failed += f", {num_failed} failed earlier and are not retried (--no-retry)"
    if collection.num_crashed:
        failed += f", {collection.num_crashed} crashed earlier (--retry-crashed retries them)"
    if not num_expected:
        return f"{path}: no task is in shard {collection.manifest.shard}; nothing to do"
    if not collection.num_left:
        if failed:
            return f"{path}: {collection.num_scored} attempts are already scored{failed}"
        return f"{path}: all {num_expected} attempts are already scored"
    done = f" ({collection.num_scored} already scored)" if collection.num_scored else ""
    attempts = "1 attempt" if collection.num_left == 1 else f"{collection.num_left} attempts"
    return f"{path}: {attempts} to go{done}{failed}"


def _end_run(
    context: typer.Context,
    collection: Collection,
    found: _RunResult,
    ci: CiRequest,
    *,
    min_coverage: float,
    is_json: bool,
) -> None:
    """Print the numbers and the verdicts, write the files, and end with the exit code.

    Only the first of several errors is raised: the one that stopped the run, too little coverage,
    then a file that cannot be written or a gate that cannot be judged.
    """
    cause, metrics = found.cause, found.metrics
    error: GymError | None
    if collection.num_crashed:
        num = collection.num_crashed
        attempts = "1 attempt is" if num == 1 else f"{num} attempts are"
        warn(
            f"{attempts} not retried, because the run's process crashed in it; "
            f"{collection.path}/failures.jsonl has the cause; retry with: "
            f"{_resume_command(context, collection)} --retry-crashed"
        )
    if not context.params.get("quiet"):
        _show_failures(found.aggregator)
    if cause is not None:
        error = _explained(collection, cause, _resume_command(context, collection))
    else:
        command = _resume_command(context, collection, without=("--no-retry",))
        error = missing_coverage(collection, metrics, min_coverage, command)
    reports = []
    if collection.num_scored or not isinstance(cause, FatalEndpointError | EngineError):
        if not ci.is_empty:
            reports = [_report(collection, found, ci, error)]
        if not ci.prints_file:
            _show(collection, metrics, ci, ci.as_json(reports), is_json=is_json)
        ci.show(reports, is_json=is_json)
        try:
            ci.write(reports, env=collection.options.env)
        except UsageError as unwritten:
            if error is None:
                raise
            warn(str(unwritten))
    if error is not None:
        raise error from cause
    ci.end(reports)


def _report(
    collection: Collection, found: _RunResult, ci: CiRequest, error: GymError | None
) -> RunReport:
    """Judge the run by its gates; if they name fields, measure it again, sliced by these."""
    from gymcli.runner.measure import measure

    assert collection.path is not None
    env, fields = collection.options.env, ci.fields()
    aggregator, metrics = found.aggregator, found.metrics
    if fields:
        try:
            aggregator = measure(collection.path, env=env, by=fields)
            metrics = aggregator.metrics(ks=ci.ks)
        except UsageError as too_many:  # a field has too many values: there are no slices to judge
            warn(str(too_many))
    incomplete = "" if error is None else str(error).partition(";")[0]
    return ci.report(
        collection.path, aggregator, metrics, env=env, by=fields, incomplete=incomplete
    )


def _show(
    collection: Collection,
    metrics: RunMetrics,
    ci: CiRequest,
    more: Mapping[str, object],
    *,
    is_json: bool,
) -> None:
    import msgspec

    if is_json:
        report = {"run": harmless(str(collection.path)), **msgspec.to_builtins(metrics), **more}
        print_json(report)
        return
    print_summary(metrics)
    if collection.num_outages:
        seconds = f"{collection.outage_seconds:.1f} s in all"
        result(f"outages       {collection.num_outages} of an endpoint, {seconds}")
    if collection.num_without_logprobs:
        result(f"logprobs      missing from {collection.num_without_logprobs} answers")
    result(f"time          {collection.manifest.seconds:.1f} s")
    result(f"files         {collection.path}")
    print_at_k(metrics, ci.requested_ks)


def _show_failures(aggregator: Aggregator) -> None:
    errors = [error for error in aggregator.errors() if error.frames]
    counts = Counter((error.error_class, error.frames[-1]) for error in errors)
    for (name, frame), num in counts.most_common(_MAX_FAILURES):
        first = next(e for e in errors if (e.error_class, e.frames[-1]) == (name, frame))
        attempts = "1 attempt" if num == 1 else f"{num} attempts"
        message(f"{attempts} failed with {name}: {one_line(first.message)}")
        for place in first.frames:
            message(f"  at {one_line(place)}")


def _explained(collection: Collection, cause: GymError, command: str) -> GymError:
    if isinstance(cause, InterruptedRunError):
        go_on = f"; resume with: {command}" if collection.num_left else ""
        text = f"{cause}: {collection.scored_text}{go_on}"
    elif isinstance(cause, BudgetReachedError):
        go_on = f"; resume, with a larger budget if it was too small: {command}"
        text = f"{cause}{go_on if collection.num_left else ''}"
    elif collection.num_scored:
        text = f"{cause}; resume with: {command}"
    else:
        text = str(cause)
    return type(cause)(text)  # the class has the exit code


def _resume_command(
    context: typer.Context, collection: Collection, *, without: Iterable[str] = ()
) -> str:
    """Return the command that resumes a run: the typed one, without `--fresh`."""
    is_fresh = bool(context.params.get("fresh"))  # after a restart the run options lack it
    dropped = {*without, *(("--fresh", "--out", "-o") if is_fresh else ())}
    options = [option for option in context.command.params if not getattr(option, "is_flag", False)]
    with_value = {name for option in options for name in option.opts if name.startswith("-")}
    kept: list[str] = []
    rest: list[str] = list(context.meta[TYPED])
    while rest and rest[0] != "--":
        size = 2 if rest[0] in with_value else 1  # `--option=value` is one argument
        if rest[0].partition("=")[0] not in dropped:
            kept += rest[:size]
        del rest[:size]
    if is_fresh:
        kept += ["--out", str(collection.path)]
    return " ".join(map(_quoted, ["gym", *kept, *rest]))


def _quoted(argument: str) -> str:
    """Quote for a shell, on one line and without control characters."""
    if argument.isprintable():
        return shlex.quote(argument)
    # $'...' of bash and zsh can escape bytes, other quotes cannot.
    escaped = (
        character
        if character.isprintable() and character not in "\\'"
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
        for character in argument
    )
    return f"$'{''.join(escaped)}'"


def missing_coverage(
    collection: Collection, metrics: RunMetrics, min_coverage: float, command: str
) -> RunError | None:
    """Return an error with exit code 4 if too little of the plan is scored."""
    # The run may hold attempts outside the plan; attempts missing from the files do not count.
    num_scored = min(collection.num_scored, metrics.num_scored)
    num_expected = collection.num_expected
    if not num_expected or (num_scored and num_scored / num_expected >= min_coverage):
        return None
    failures = ", ".join(f"{count} {name}" for name, count in metrics.failures.items())
    return RunError(
        f"{num_scored} of {num_expected} attempts are scored, less than --min-coverage "
        f"{min_coverage:g} (failed: {failures}); {collection.path}/failures.jsonl has the causes; "
        f"retry with: {command}"
    )
