"""`gym collect`: run tasks against a model and write scored rollouts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gymcli.commands.console import LOGGER, hide, message, print_json, result, run_async, warn
from gymcli.commands.ending import Ending, command_to_go_on, end_run
from gymcli.commands.gating import (
    BaselineOption,
    CsvOption,
    GateOnOption,
    GateOption,
    JUnitOption,
    MarkdownOption,
    gating_of,
)
from gymcli.commands.options import (
    AddressOption,
    EngineOption,
    IdByFileOption,
    IdFieldOption,
    PromptOption,
    WorkersOption,
    check_cluster_options,
    check_parameters,
    check_role_parameters,
    key_values,
    not_negative,
    parameters,
    positive,
    resolved_roles,
    role_params,
    roles,
    settings_secrets,
    shard_of,
)
from gymcli.commands.signals import stopped_by_signals
from gymcli.errors import (
    BudgetReachedError,
    EngineError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    UsageError,
)
from gymcli.store.supervised import Supervised, Tag

if TYPE_CHECKING:
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.collection import Collection

__all__ = ["collect", "give_back_large_blocks", "rarely_collected", "show_plan"]


_M_MMAP_THRESHOLD = -3
"""What glibc calls it: malloc.h, mallopt(3)."""
_LARGE_BYTES = 1 << 17
"""Where glibc's own threshold starts."""


def give_back_large_blocks() -> None:
    """Have every large block go back to the system when it is freed, where the allocator can.

    glibc raises its threshold to the size of the largest block that was freed, and from then on
    keeps smaller ones for itself, in pieces that do not fit the next arrays. This saves 4 of
    80 MB of a run of 200,000 tasks.
    """
    import ctypes  # late: nothing of `gym --help`

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # macOS has none, and needs none
        set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def show_plan(collection: Collection, *, is_json: bool) -> None:
    """Print what would be done, and the body of the first request."""
    import msgspec

    collection.look()
    for text in collection.warnings:
        warn(text)
    if is_json:
        request = msgspec.Raw(_first_body(collection)) if collection.num_expected else None
        print_json(msgspec.json.encode({"plan": _plan(collection), "request": request}))
        return
    _print_plan(collection)
    if not collection.num_expected:
        return
    result()
    result("the first request, which is not sent:")
    print_json(_first_body(collection))


def _plan(collection: Collection) -> dict[str, object]:
    """Give the plan for `--json`."""
    manifest, endpoint = collection.manifest, collection.options.endpoint
    return {
        "tasks": manifest.tasks,
        "num_tasks": manifest.num_tasks,
        "shard": manifest.shard or None,
        "repeats": collection.options.repeats,
        "num_expected": collection.num_expected,
        "num_scored": collection.num_scored,
        "num_left": collection.num_left,
        "environments": list(manifest.environments),
        "model": manifest.model,
        "base_url": endpoint.base_url if endpoint else None,
        "run": str(collection.path),
    }


def _print_plan(collection: Collection) -> None:
    manifest, options = collection.manifest, collection.options
    files = ", ".join(f"{file['path']} ({file['num_rows']} rows)" for file in manifest.tasks)
    result(f"tasks         {files}")
    repeats = f", {options.repeats} of each" if options.repeats > 1 else ""
    result(f"attempts      {collection.num_expected} of {manifest.num_tasks} tasks{repeats}")
    if manifest.shard:
        result(f"shard         {manifest.shard}")
    if collection.num_scored:
        result(f"scored        {collection.num_scored}, left {collection.num_left}")
    result(f"environments  {', '.join(manifest.environments)}")
    endpoint = options.endpoint
    result(
        f"model         {manifest.model} ({endpoint.base_url if endpoint else 'in this machine'})"
    )
    result(f"run           {collection.path}")


def _first_body(collection: Collection) -> bytes:
    """Give the body of the first request, as it would be sent."""
    from gymcli.models.client import Client
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.identity import emulates_tools

    options = collection.options
    endpoint = options.endpoint
    shown = endpoint or Endpoint(
        base_url="http://127.0.0.1",
        model=collection.manifest.model,
        emulate_tools=emulates_tools(options),
    )
    request = run_async(collection.first_request())
    return Client(shown, concurrency=1).payload(request)


_CAUSES = (InterruptedRunError, BudgetReachedError, FatalEndpointError, EngineError)
"""What stops a run before all is done; the numbers of what is there are printed all the same."""


def collect(
    context: typer.Context,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS", help="JSONL files (.gz, .zst), or an environment for its own tasks."
        ),
    ],
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
    out: Annotated[
        Path | None, typer.Option(help="The run directory; default runs/TASKS-MODEL-HASH.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start another run.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Attempts of each task.")] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many rows of each file.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only the task of this id.")] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", callback=shard_of, help="Only this part of the tasks, 1/N to N/N."
        ),
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Take the tasks in a random order (in memory).")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts under way at once.")] = 64,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    max_turns: Annotated[
        int | None, typer.Option(min=1, help="Model messages of an episode; else 32.")
    ] = None,
    max_episode_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the model in one episode.")
    ] = None,
    max_episode_cost: Annotated[
        float | None, typer.Option(callback=positive, help="The same, by gym.toml's prices.")
    ] = None,
    max_episode_time: Annotated[
        float, typer.Option(callback=positive, help="Seconds of one episode.")
    ] = 3600.0,
    max_tokens_total: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the run, roles included; it stops there.")
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(callback=positive, help="Cost of the run by gym.toml's prices; it stops."),
    ] = None,
    max_run_time: Annotated[
        float | None, typer.Option(callback=positive, help="Seconds of this command; it stops.")
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            callback=not_negative, help="Seconds for attempts in flight when the run stops early."
        ),
    ] = 30.0,
    outage_deadline: Annotated[
        float | None,
        typer.Option(
            callback=not_negative, help="Seconds that a dead endpoint is waited for; else 300."
        ),
    ] = None,
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="Leave attempts that failed before as they are.")
    ] = False,
    retry_crashed: Annotated[
        bool,
        typer.Option("--retry-crashed", help="Try attempts again with which the process died."),
    ] = False,
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
    prompt: PromptOption = None,
    id_field: IdFieldOption = None,
    id_by_file: IdByFileOption = False,
    min_coverage: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Scored share below which the exit code is 4.")
    ] = 0.95,
    gate: GateOption = None,
    gate_on: GateOnOption = "bound",
    junit: JUnitOption = None,
    markdown: MarkdownOption = None,
    csv: CsvOption = None,
    baseline: BaselineOption = None,
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

    from gymcli.runner.collection import Collection
    from gymcli.runner.options import CollectOptions

    check_cluster_options(engine, address, workers)
    gating = gating_of(
        gate,
        gate_on,
        junit,
        markdown,
        csv,
        baseline,
        inputs=[*map(Path, tasks), *filter(None, [out])],
        is_json=json,
    )
    sampling: dict[str, object] = {
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
    }
    params = {name: value for name, value in sampling.items() if value is not None}
    params |= parameters(param or ())
    name, endpoint = _endpoint(model, base_url, api_key_env, dialect)
    hide(endpoint.secrets if endpoint is not None else ())
    check_parameters(params, endpoint)
    sources, defaults = roles(role or ()), resolved_roles()
    params_by_role = role_params(role_param or ())
    check_role_parameters(params_by_role, {**defaults.sources, **sources})
    options = CollectOptions(
        secrets=tuple(SecretStr(secret) for secret in settings_secrets()),
        model=name,
        endpoint=endpoint,
        env=env,
        env_args=key_values("--env-arg", env_arg or ()),
        out=out,
        fresh=fresh,
        repeats=repeats,
        limit=limit,
        task_ids=tuple(task or ()),
        shard=shard,
        shuffle=shuffle,
        concurrency=concurrency,
        engine=engine,
        address=address,
        num_workers=workers,
        max_turns=max_turns,
        max_episode_tokens=max_episode_tokens,
        max_episode_cost=max_episode_cost,
        max_episode_time=max_episode_time,
        max_tokens_total=max_tokens_total,
        max_cost=max_cost,
        max_run_time=max_run_time,
        grace=grace,
        outage_deadline=outage_deadline,
        no_retry=no_retry,
        retry_crashed=retry_crashed,
        params=params,
        seed=seed,
        roles=sources,
        default_roles=defaults.sources,
        missing_roles=defaults.missing,
        role_params=params_by_role,
        prompt=prompt,
        id_field=id_field,
        id_by_file=id_by_file,
    )
    give_back_large_blocks()
    supervised = context.find_object(Supervised)
    if supervised is not None and supervised.directory is not None:
        options = options.model_copy(update={"out": Path(supervised.directory), "fresh": False})
    with _same_directory() as go_back:
        collection = Collection(tasks, options, supervised=supervised, tell=message)
        go_back()
        if dry_run:
            show_plan(collection, is_json=json)
            return
        go_on = command_to_go_on(context, collection)
        ending = run_async(_run(collection, go_on, go_back, is_quiet=quiet))
        go_back()
        end_run(context, collection, ending, gating, min_coverage=min_coverage, is_json=json)


@contextmanager
def _same_directory() -> Iterator[Callable[[], None]]:
    """Yield what goes back to the working directory of now, which environments may leave."""
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
) -> Ending:
    """Run the collection under a progress display and measure what is on disk then.

    Args:
        collection: What is run.
        command: Goes on with it; for the supervisor.
        go_back: Returns to the working directory, once no environment runs any more.
        is_quiet: Show nothing meanwhile.

    """
    import msgspec

    from gymcli.commands.open_files import allow_collection
    from gymcli.commands.progress import Progress, has_one_scale, start_line
    from gymcli.runner.measure import measure

    cause: GymError | None = None
    async with collection:
        if collection.supervised is not None:
            collection.supervised.tell(Tag.COMMAND, command)
        for text in (*collection.warnings, *filter(None, [allow_collection(collection)])):
            if is_quiet:
                LOGGER.warning(text)
            else:
                warn(text)
        if not is_quiet:
            message(start_line(collection))
        is_comparable = has_one_scale(collection)
        try:
            with (
                rarely_collected(),
                Progress(
                    collection.num_left, is_quiet=is_quiet, has_one_scale=is_comparable
                ) as progress,
            ):
                async with progress.ticking(), aclosing(collection.run()) as records:
                    with stopped_by_signals(collection.stopping):
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
    return Ending(aggregator, metrics, cause)


_NUM_NEW = 50_000
"""Objects that are made before new ones are looked at; 700 is Python's own number. An attempt under
way has some hundred objects that live until it ends, so that each look at them finds nothing, and
thousands of attempts are looked at many times while they start."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Look for garbage seldom while the block lasts, and never at what was there before.

    What is in no cycle of references, and that is nearly all, is freed at once as ever; what is in
    one, at the latest when the block ends, so that its memory serves what comes after.
    """
    import gc  # late: nothing of `gym --help`

    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_NUM_NEW, *before[1:])
    try:
        yield
    finally:
        gc.collect()  # of what is new alone: what was there before is still left out
        gc.set_threshold(*before)
        gc.unfreeze()
