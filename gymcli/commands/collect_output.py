"""What `gym collect` prints: its plan, its numbers, what stopped it, and how to resume it."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gymcli.commands.console import harmless, message, one_line, print_json, result, warn
from gymcli.commands.signals import run_async
from gymcli.commands.summary import print_summary
from gymcli.errors import (
    BudgetReachedError,
    EngineError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    RunError,
    UsageError,
)

if TYPE_CHECKING:
    import typer

    from gymcli.commands.ci import CiRequest
    from gymcli.metrics.aggregate import Aggregator
    from gymcli.metrics.results import RunMetrics
    from gymcli.reporting.run_report import RunReport
    from gymcli.runner.collection import Collection

__all__ = [
    "TYPED",
    "RunResult",
    "end_run",
    "missing_coverage",
    "resume_command",
    "show_plan",
    "start_text",
]

TYPED = "gymcli.typed"
"""The key of a command's context under which the arguments stand as they were typed."""

_MAX_FAILURES = 3
"""Failures of an author's code that are shown with their place."""


def show_plan(collection: Collection, *, is_json: bool) -> None:
    """Print what would be done, and the body of the first request."""
    import msgspec  # late: heavy

    collection.check_existing_run()
    for text in collection.warnings:
        warn(text)
    if is_json:
        request = msgspec.Raw(_first_body(collection)) if collection.num_expected else None
        print_json(msgspec.json.encode({"plan": _plan(collection), "request": request}))
        return
    _print_plan(collection)
    if collection.num_expected:
        result()
        result("the first request, which is not sent:")
        print_json(_first_body(collection))


def _plan(collection: Collection) -> dict[str, object]:
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
    """Return the body of the first request, as it would be sent."""
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


def start_text(collection: Collection) -> str:
    """Return what is left to do, as one line."""
    path, num_expected = collection.path, collection.num_expected
    failed = ""
    if num_failed := collection.num_left_failed - collection.num_crashed:
        failed += f", {num_failed} failed before and stay so (--no-retry)"
    if collection.num_crashed:
        failed += f", {collection.num_crashed} crashed before and stay so (--retry-crashed)"
    if not num_expected:
        return f"{path}: no task is in shard {collection.manifest.shard}; nothing to do"
    if not collection.num_left:
        if failed:
            return f"{path}: {collection.num_scored} attempts are scored already{failed}"
        return f"{path}: all {num_expected} attempts are scored already"
    done = f" ({collection.num_scored} are scored already)" if collection.num_scored else ""
    attempts = "1 attempt" if collection.num_left == 1 else f"{collection.num_left} attempts"
    return f"{path}: {attempts} to go{done}{failed}"


class RunResult(NamedTuple):
    """The numbers of a run, and why it stopped."""

    aggregator: Aggregator
    """Holds the counts of what the files hold."""
    metrics: RunMetrics
    cause: GymError | None = None
    """What stopped the run before all was done."""


def end_run(
    context: typer.Context,
    collection: Collection,
    found: RunResult,
    ci: CiRequest,
    *,
    min_coverage: float,
    is_json: bool,
) -> None:
    """Print the numbers and the verdicts, write the files, and end with the exit code.

    Of several errors one is raised: what stopped the run, else that too little is scored, else that
    a file cannot be written or a gate not be judged.

    Raises:
        GymError: The run was stopped, too little is scored, or a gate or file is wrong.
        typer.Exit: A gate does not hold.

    """
    cause, metrics = found.cause, found.metrics
    error: GymError | None
    if collection.num_crashed:
        num = collection.num_crashed
        attempts = "1 attempt is" if num == 1 else f"{num} attempts are"
        warn(
            f"{attempts} not tried again, since the process of the run died with it; "
            f"{collection.path}/failures.jsonl says how; try again with: "
            f"{resume_command(context, collection)} --retry-crashed"
        )
    if not context.params.get("quiet"):
        _show_failures(found.aggregator)
    if cause is not None:
        error = _explained(collection, cause, resume_command(context, collection))
    else:
        command = resume_command(context, collection, without=("--no-retry",))
        error = missing_coverage(collection, metrics, min_coverage, command)
    reports = []
    if collection.num_scored or not isinstance(cause, FatalEndpointError | EngineError):
        if not ci.is_empty:
            reports = [_report(collection, found, ci, error)]
        if not ci.prints_file:
            _show(collection, metrics, ci.as_json(reports), is_json=is_json)
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
    collection: Collection, found: RunResult, ci: CiRequest, error: GymError | None
) -> RunReport:
    """Judge the run by its gates; where they name fields, count it again, sliced by these."""
    from gymcli.runner.measure import measure

    assert collection.path is not None
    env, fields = collection.options.env, ci.fields()
    aggregator, metrics = found.aggregator, found.metrics
    if fields:
        try:
            aggregator = measure(collection.path, env=env, by=fields)
            metrics = aggregator.metrics()
        except UsageError as too_many:  # values of a field; there are no slices to judge then
            warn(str(too_many))
    incomplete = "" if error is None else str(error).partition(";")[0]
    return ci.report(
        collection.path, aggregator, metrics, env=env, by=fields, incomplete=incomplete
    )


def _show(
    collection: Collection,
    metrics: RunMetrics,
    more: Mapping[str, object],
    *,
    is_json: bool,
) -> None:
    """Print the numbers of the run, as JSON with the keys of `more`."""
    import msgspec

    if is_json:
        report = {"run": harmless(str(collection.path)), **msgspec.to_builtins(metrics), **more}
        print_json(msgspec.json.encode(report))
        return
    print_summary(metrics)
    if collection.num_outages:
        seconds = f"{collection.outage_seconds:.1f} s in all"
        result(f"outages       {collection.num_outages} of an endpoint, {seconds}")
    if collection.num_without_logprobs:
        result(f"logprobs      missing from {collection.num_without_logprobs} answers")
    result(f"time          {collection.manifest.seconds:.1f} s")
    result(f"files         {collection.path}")


def _show_failures(aggregator: Aggregator) -> None:
    """Print where an author's code failed, the most common failures first."""
    errors = [error for error in aggregator.errors() if error.frames]
    counts = Counter((error.error_class, error.frames[-1]) for error in errors)
    for (name, frame), num in counts.most_common(_MAX_FAILURES):
        first = next(e for e in errors if (e.error_class, e.frames[-1]) == (name, frame))
        attempts = "1 attempt" if num == 1 else f"{num} attempts"
        message(f"{attempts} failed with {name}: {one_line(first.message)}")
        for place in first.frames:
            message(f"  at {one_line(place)}")


def _explained(collection: Collection, cause: GymError, command: str) -> GymError:
    """Return what stopped a run as an error of the same class that says how to resume it."""
    if isinstance(cause, InterruptedRunError):
        go_on = f"; go on with: {command}" if collection.num_left else ""
        text = f"{cause}: {collection.scored_text}{go_on}"
    elif isinstance(cause, BudgetReachedError):
        go_on = f"; go on, with more where it was too little: {command}"
        text = f"{cause}{go_on if collection.num_left else ''}"
    elif collection.num_scored:
        text = f"{cause}; go on with: {command}"
    else:
        text = str(cause)
    return type(cause)(text)


def resume_command(
    context: typer.Context, collection: Collection, *, without: Iterable[str] = ()
) -> str:
    """Return the command that resumes a run: what was typed, without `--fresh`.

    Args:
        context: Knows what was typed, and which options take a value.
        collection: The run; where `--fresh` made its directory, `--out` names it.
        without: Options to leave out as well.

    """
    is_fresh = bool(context.params.get("fresh"))  # a restart leaves it out of the options
    dropped = {*without, *(("--fresh", "--out") if is_fresh else ())}
    options = [option for option in context.command.params if not getattr(option, "is_flag", False)]
    with_value = {name for option in options for name in option.opts if name.startswith("-")}
    kept: list[str] = []
    rest: list[str] = list(context.meta[TYPED])
    while rest and rest[0] != "--":
        size = 2 if rest[0] in with_value else 1
        if rest[0].partition("=")[0] not in dropped:
            kept += rest[:size]
        del rest[:size]
    if is_fresh:
        kept += ["--out", str(collection.path)]
    return " ".join(map(_quoted, ["gym", *kept, *rest]))


def _quoted(argument: str) -> str:
    """Quote for a shell, in one line and with nothing that a terminal would obey."""
    if argument.isprintable():
        return shlex.quote(argument)
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
    """Return the error with exit code 4 where too little of the plan is scored."""
    # The run may hold other attempts as well; what the files lack no longer counts.
    num_scored = min(collection.num_scored, metrics.num_scored)
    num_expected = collection.num_expected
    if not num_expected or (num_scored and num_scored / num_expected >= min_coverage):
        return None
    failures = ", ".join(f"{count} {name}" for name, count in metrics.failures.items())
    return RunError(
        f"{num_scored} of {num_expected} attempts are scored, less than --min-coverage "
        f"{min_coverage:g} (failed: {failures}); {collection.path}/failures.jsonl says why; try "
        f"them again with: {command}"
    )
