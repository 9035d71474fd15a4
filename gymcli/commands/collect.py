"""`gym collect`: run tasks against a model and write scored rollouts."""

from __future__ import annotations

import os
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gymcli.commands.console import LOGGER, message, print_json, result, run_async, warn
from gymcli.commands.options import (
    IdByFileOption,
    IdFieldOption,
    PromptOption,
    check_parameters,
    check_role_parameters,
    key_values,
    parameters,
    resolved_roles,
    role_params,
    roles,
)
from gymcli.errors import RunError, UsageError

if TYPE_CHECKING:
    from gymcli.client import Endpoint
    from gymcli.metrics import RunMetrics
    from gymcli.runner import Collection

__all__ = ["collect"]

_INTERRUPTED = 130


def collect(
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS", help="JSONL files (.gz, .zst), or an environment for its own tasks."
        ),
    ],
    env: Annotated[
        str | None,
        typer.Option(help="Environment of rows that name none: NAME, FILE.py:CLASS, MODULE:CLASS."),
    ] = None,
    env_arg: Annotated[
        list[str] | None, typer.Option(metavar="[ENV.]KEY=VALUE", help="An environment's option.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A model's name, a name in gym.toml, local, local:PATH.gguf, or oracle."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="The endpoint, such as http://127.0.0.1:8000/v1.")
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
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Take the tasks in a random order (in memory).")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts under way at once.")] = 64,
    max_turns: Annotated[
        int | None, typer.Option(min=1, help="Model messages of an episode; else 32.")
    ] = None,
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
    from gymcli.runner import Collection, CollectOptions

    sampling: dict[str, object] = {
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
    }
    params = {name: value for name, value in sampling.items() if value is not None}
    params |= parameters(param or ())
    name, endpoint = _endpoint(model, base_url, api_key_env, dialect)
    check_parameters(params, endpoint)
    sources, defaults = roles(role or ()), resolved_roles()
    params_by_role = role_params(role_param or ())
    check_role_parameters(params_by_role, {**defaults.sources, **sources})
    options = CollectOptions(
        model=name,
        endpoint=endpoint,
        env=env,
        env_args=key_values("--env-arg", env_arg or ()),
        out=out,
        fresh=fresh,
        repeats=repeats,
        limit=limit,
        task_ids=tuple(task or ()),
        shuffle=shuffle,
        concurrency=concurrency,
        max_turns=max_turns,
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
    collection = Collection(tasks, options)
    if dry_run:
        _show_plan(collection, is_json=json)
        return
    metrics = _run_to_the_end(collection, is_quiet=quiet)
    _show_end(collection, metrics, is_json=json)
    _check_coverage(collection, metrics, min_coverage)


def _endpoint(
    model: str | None, base_url: str | None, api_key_env: str | None, dialect: str | None
) -> tuple[str, Endpoint | None]:
    """Find where the model is asked, from options, gym.toml and environment variables."""
    from gymcli.client import SCALAR_DIALECTS, load_settings, resolve_endpoint
    from gymcli.local import parse_local

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


def _show_plan(collection: Collection, *, is_json: bool) -> None:
    """Print what would be done, and the body of the first request."""
    import msgspec

    collection.look()
    for text in collection.warnings:
        warn(text)
    if is_json:
        request = msgspec.Raw(_first_body(collection))
        print_json(msgspec.json.encode({"plan": _plan(collection), "request": request}))
        return
    _print_plan(collection)
    result()
    result("the first request, which is not sent:")
    print_json(_first_body(collection))


def _plan(collection: Collection) -> dict[str, object]:
    """Give the plan for `--json`."""
    manifest, endpoint = collection.manifest, collection.options.endpoint
    return {
        "tasks": manifest.tasks,
        "num_tasks": manifest.num_tasks,
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
    from gymcli.client import Client, Endpoint

    options = collection.options
    endpoint = options.endpoint
    is_local = endpoint is None and options.model != "oracle"
    shown = endpoint or Endpoint(
        base_url="http://127.0.0.1", model=collection.manifest.model, emulate_tools=is_local
    )
    request = run_async(collection.first_request())
    return Client(shown, concurrency=1).payload(request)


def _run_to_the_end(collection: Collection, *, is_quiet: bool) -> RunMetrics:
    """Run the collection; where it is interrupted, say how to go on and end with exit code 130."""
    try:
        return run_async(_run(collection, is_quiet=is_quiet))
    except KeyboardInterrupt as error:
        message(
            f"interrupted; {collection.num_scored} of {collection.num_expected} attempts are "
            f"scored in {collection.path}, the same command goes on"
        )
        raise typer.Exit(_INTERRUPTED) from error


async def _run(collection: Collection, *, is_quiet: bool) -> RunMetrics:
    """Run the collection under a progress display and measure what is on disk then."""
    import msgspec

    from gymcli.commands.progress import Progress
    from gymcli.runner import measure

    async with collection:
        for text in collection.warnings:
            if is_quiet:
                LOGGER.warning(text)
            else:
                warn(text)
        if not is_quiet:
            message(_start_line(collection))
        with Progress(collection.num_left, is_quiet=is_quiet) as progress:
            async with progress.ticking(), aclosing(collection.run()) as records:
                async for record in records:
                    progress.add(record)
        assert collection.path is not None
        metrics = measure(collection.path).metrics()
        collection.finish(msgspec.json.encode(metrics), time.time())
    return metrics


def _start_line(collection: Collection) -> str:
    if not collection.num_left:
        return f"{collection.path}: all {collection.num_expected} attempts are scored already"
    done = f" ({collection.num_scored} are scored already)" if collection.num_scored else ""
    return f"{collection.path}: {collection.num_left} attempts to go{done}"


def _show_end(collection: Collection, metrics: RunMetrics, *, is_json: bool) -> None:
    import msgspec

    from gymcli.commands.summary import print_summary

    if is_json:
        report = {"run": str(collection.path), **msgspec.to_builtins(metrics)}
        print_json(msgspec.json.encode(report))
        return
    print_summary(metrics)
    result(f"time          {collection.manifest.seconds:.1f} s")
    result(f"files         {collection.path}")


def _check_coverage(collection: Collection, metrics: RunMetrics, min_coverage: float) -> None:
    """End with exit code 4 where too little of the plan is scored.

    Raises:
        RunError: It is.

    """
    num_scored, num_expected = collection.num_scored, collection.num_expected
    if num_scored and num_scored / num_expected >= min_coverage:
        return
    failures = ", ".join(f"{count} {name}" for name, count in metrics.failures.items())
    raise RunError(
        f"{num_scored} of {num_expected} attempts are scored, less than --min-coverage "
        f"{min_coverage:g} (failed: {failures}); run the same command to try them again, "
        f"{collection.path}/failures.jsonl says why they failed"
    )
