"""`gym collect`: run tasks against a model and write scored rollouts."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gymcli.commands.ci import CiOptions, CiRequest
from gymcli.commands.collect_output import (
    RunResult,
    end_run,
    resume_command,
    show_plan,
    start_text,
)
from gymcli.commands.console import LOGGER, hide, message, warn
from gymcli.commands.open_files import allow_open_files
from gymcli.commands.options import (
    check_cluster_options,
    check_parameters,
    check_role_parameters,
    key_values,
    parameters,
    resolved_roles,
    role_params,
    roles,
    settings_secrets,
    with_expanded_options,
)
from gymcli.commands.signals import run_async, stop_at_signals
from gymcli.errors import (
    BudgetReachedError,
    EngineError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    UsageError,
)
from gymcli.runner.run_options import RowOptions, RunOptions
from gymcli.store.supervised import Supervised, Tag

if TYPE_CHECKING:
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.collection import Collection

__all__ = ["GARBAGE_THRESHOLD", "collect"]

_CAUSES = (InterruptedRunError, BudgetReachedError, FatalEndpointError, EngineError)
"""What stops a run before all is done; the numbers of its records are printed all the same."""
GARBAGE_THRESHOLD = 50_000
"""New objects between two runs of the garbage collector, 700 by default. An attempt under way has
some hundred objects that live until it ends: with 4,000 in flight, to look at them again and again
takes a third of the CPU."""
_SPARE_FILES = 128
"""Open files beside the connections: the run's, those of Python, of its workers and their pipes."""


@with_expanded_options
def collect(
    context: typer.Context,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS", help="JSONL files (.gz, .zst), or an environment for its own tasks."
        ),
    ],
    *,
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment of rows that name none: NAME, FILE.py:CLASS, MODULE:CLASS; or "
            "AGENT=ENV, which says what an agent_ref means."
        ),
    ] = None,
    env_arg: Annotated[
        list[str] | None, typer.Option(metavar="[ENV.]KEY=VALUE", help="An environment's option.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A model's name, a name in gym.toml, local, local:PATH.gguf, or oracle."),
    ] = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option(help="The endpoint, such as http://127.0.0.1:8000/v1; repeated: replicas."),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds the key.")
    ] = None,
    dialect: Annotated[
        Literal["chat", "responses"] | None, typer.Option(help="The wire format; else chat.")
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=MODEL",
            help="A model beside the policy: a name in gym.toml, URL#MODEL, local, or oracle.",
        ),
    ] = None,
    role_param: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE.KEY=VALUE", help="A request parameter of a role."),
    ] = None,
    run_options: RunOptions,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus sampling.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one answer.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of environments and requests, by task and attempt.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other request parameter; JSON or text."),
    ] = None,
    row_options: RowOptions,
    min_coverage: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Scored share below which the exit code is 4.")
    ] = 0.95,
    ci_options: CiOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and the first request, send nothing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no warnings.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
) -> None:
    """Run tasks against a model and write scored rollouts.

    The same command again goes on where it stopped: scored attempts are kept, failed ones are
    tried again.
    """
    from pydantic import SecretStr  # late: heavy

    from gymcli.runner.collect_options import CollectOptions
    from gymcli.runner.collection import Collection

    check_cluster_options(run_options.engine, run_options.address, run_options.num_workers)
    inputs = [*map(Path, tasks), *filter(None, [run_options.out])]
    ci = CiRequest(ci_options, inputs=inputs, is_json=json)
    sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
    params: dict[str, object] = {k: v for k, v in sampling.items() if v is not None}
    params |= parameters(param or ())
    name, endpoint = _endpoint(model, base_url, api_key_env, dialect)
    hide(endpoint.secrets if endpoint is not None else ())
    check_parameters(params, endpoint)
    sources, defaults = roles(role or ()), resolved_roles()
    params_by_role = role_params(role_param or ())
    check_role_parameters(params_by_role, {**defaults.sources, **sources})
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
        default_roles=defaults.sources,
        missing_roles=defaults.missing,
        role_params=params_by_role,
        **vars(run_options),
        **vars(row_options),
    )
    with _same_directory() as go_back:
        collection = Collection(tasks, options, supervised=supervised, notify=message)
        go_back()
        if dry_run:
            show_plan(collection, is_json=json)
            return
        command = resume_command(context, collection)
        gc.set_threshold(GARBAGE_THRESHOLD)
        found = run_async(_run(collection, command, go_back, is_quiet=quiet))
        go_back()
        end_run(context, collection, found, ci, min_coverage=min_coverage, is_json=json)


@contextmanager
def _same_directory() -> Iterator[Callable[[], None]]:
    """Yield a function that returns to this working directory, which environments may leave."""
    try:
        descriptor = os.open(".", os.O_RDONLY)
    except OSError:  # it was deleted, or may not be read
        yield lambda: None
        return
    try:
        yield lambda: os.fchdir(descriptor)
    finally:
        os.close(descriptor)


def _endpoint(
    model: str | None, base_url: list[str] | None, api_key_env: str | None, dialect: str | None
) -> tuple[str, Endpoint | None]:
    """Find where the model is asked, from options, gym.toml and environment variables."""
    from gymcli.models.endpoint import SCALAR_DIALECTS
    from gymcli.models.local_model import parse_local
    from gymcli.models.settings import load_settings, resolve_endpoint

    if model is not None and (model == "oracle" or parse_local(model) is not None):
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
            "the policy; give it as --role reward=..."
        )
    return endpoint.model, endpoint


async def _run(
    collection: Collection, command: str, go_back: Callable[[], None], *, is_quiet: bool
) -> RunResult:
    """Run the collection under a progress display, then measure what is on disk.

    Args:
        collection: What is run.
        command: The command that resumes it; for the supervisor.
        go_back: Returns to the working directory, once no environment runs any more.
        is_quiet: Print nothing meanwhile.

    """
    import msgspec

    from gymcli.commands.progress import Progress
    from gymcli.runner.measure import measure

    cause: GymError | None = None
    async with collection:
        if collection.supervised is not None:
            collection.supervised.tell(Tag.COMMAND, command)
        for text in (*collection.warnings, *filter(None, [_allow_open_files(collection)])):
            if is_quiet:
                LOGGER.warning(text)
            else:
                warn(text)
        if not is_quiet:
            message(start_text(collection))
        scales = {record.max_reward for record in collection.manifest.environments.values()}
        num_environments = len(collection.manifest.environments)
        has_one_scale = num_environments == 1 or (len(scales) == 1 and None not in scales)
        try:
            with Progress(
                collection.num_left, is_quiet=is_quiet, has_one_scale=has_one_scale
            ) as progress:
                async with progress.ticking(), aclosing(collection.run()) as records:
                    with stop_at_signals(collection.stopping):
                        async for record in records:
                            progress.add(record)
        except _CAUSES as error:
            cause = error
        go_back()
        assert collection.path is not None
        aggregator = measure(collection.path, env=collection.options.env)
        metrics = aggregator.metrics()
        is_stopped = cause is not None and collection.num_left > 0
        collection.finish(msgspec.json.encode(metrics), None if is_stopped else time.time())
    return RunResult(aggregator, metrics, cause)


def _allow_open_files(collection: Collection) -> str | None:
    """Raise the limit of open files as far as a run needs; return a warning if that fails.

    An attempt may have a connection to each model, and to the server that its environment is.
    """
    options = collection.options
    models = (options.endpoint, *options.roles.values())
    num_places = sum(not isinstance(model, str | None) for model in models)
    num_places += (options.env or "").startswith(("http://", "https://"))
    needed = min(options.concurrency, collection.num_left) * num_places + _SPARE_FILES
    allowed = allow_open_files(needed)
    if allowed >= needed:
        return None
    return (
        f"--concurrency {options.concurrency} may need {needed} open files, and {allowed} are "
        f"allowed here: raise that (ulimit -n {needed}) or lower --concurrency"
    )
