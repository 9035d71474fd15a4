"""How `gym collect` ends: its numbers, what stopped it, and the command that goes on."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gymcli.commands.console import harmless, message, one_line, print_json, result, warn
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

    from gymcli.commands.gating import Gating
    from gymcli.metrics import Aggregator, RunMetrics
    from gymcli.reporting.run_report import RunReport
    from gymcli.runner.collection import Collection

__all__ = ["TYPED", "Ending", "command_to_go_on", "end_run", "missing_coverage"]

TYPED = "gymcli.typed"
"""Where the context of a command keeps the arguments as they were typed."""


_MAX_FAILURES = 3
"""That are shown with their place."""


class Ending(NamedTuple):
    """What a run came to."""

    aggregator: Aggregator
    """Has counted what the files hold."""
    metrics: RunMetrics
    cause: GymError | None = None
    """What stopped it before all was done."""


def end_run(
    context: typer.Context,
    collection: Collection,
    ending: Ending,
    gating: Gating,
    *,
    min_coverage: float,
    is_json: bool,
) -> None:
    """Print the numbers and the verdicts, write the files, and end with the exit code.

    What stopped the run says more than that too little is scored, and that more than a file that
    cannot be written, or than its gates.

    Raises:
        GymError: The run was stopped, too little is scored, or a gate or file is wrong.
        typer.Exit: A gate does not hold.

    """
    cause, metrics = ending.cause, ending.metrics
    error: GymError | None
    if collection.num_crashed:
        warn(_crashed(collection, command_to_go_on(context, collection)))
    if not context.params.get("quiet"):
        _show_failures(ending.aggregator)
    if cause is not None:
        error = _explained(collection, cause, command_to_go_on(context, collection))
    else:
        command = command_to_go_on(context, collection, without=("--no-retry",))
        error = missing_coverage(collection, metrics, min_coverage, command)
    reports = []
    if collection.num_scored or not isinstance(cause, FatalEndpointError | EngineError):
        if gating.is_asked:
            reports = [_report(collection, ending, gating, error)]
        if not gating.prints_file:
            _show(collection, metrics, gating.as_json(reports), is_json=is_json)
        gating.show(reports, is_json=is_json)
        try:
            gating.write(reports, env=collection.options.env)
        except UsageError as unwritten:
            if error is None:
                raise
            warn(str(unwritten))
    if error is not None:
        raise error from cause
    gating.end(reports)


def _report(
    collection: Collection, ending: Ending, gating: Gating, error: GymError | None
) -> RunReport:
    """Judge the run by its gates; sliced by what they name, it is counted once more."""
    from gymcli.runner.measure import measure

    assert collection.path is not None
    env, fields = collection.options.env, gating.fields()
    aggregator, metrics = ending.aggregator, ending.metrics
    if fields:
        try:
            aggregator = measure(collection.path, env=env, by=fields)
            metrics = aggregator.metrics()
        except UsageError as too_many:  # values of a field; there are no slices to judge then
            warn(str(too_many))
    incomplete = "" if error is None else str(error).partition(";")[0]
    return gating.report(
        collection.path, aggregator, metrics, env=env, by=fields, incomplete=incomplete
    )


def _show(
    collection: Collection,
    metrics: RunMetrics,
    more: Mapping[str, object],
    *,
    is_json: bool,
) -> None:
    """Print the numbers of the run; in JSON, what there is more of it."""
    import msgspec

    from gymcli.commands.summary import print_summary

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
    """Print where an author's code failed, the commonest failures."""
    errors = [error for error in aggregator.errors() if error.frames]
    counts = Counter((error.error_class, error.frames[-1]) for error in errors)
    for (name, frame), num in counts.most_common(_MAX_FAILURES):
        first = next(e for e in errors if (e.error_class, e.frames[-1]) == (name, frame))
        attempts = "1 attempt" if num == 1 else f"{num} attempts"
        message(f"{attempts} failed with {name}: {one_line(first.message)}")
        for place in first.frames:
            message(f"  at {one_line(place)}")


def _explained(collection: Collection, cause: GymError, command: str) -> GymError:
    """Give what stopped a run as an error of its class that says how to go on."""
    if isinstance(cause, InterruptedRunError):
        go_on = f"; go on with: {command}" if collection.num_left else ""
        text = f"{cause}: {collection.told}{go_on}"
    elif isinstance(cause, BudgetReachedError):
        go_on = f"; go on, with more where it was too little: {command}"
        text = f"{cause}{go_on if collection.num_left else ''}"
    elif collection.num_scored:
        text = f"{cause}; go on with: {command}"
    else:
        text = str(cause)
    return type(cause)(text)


def command_to_go_on(
    context: typer.Context, collection: Collection, *, without: Iterable[str] = ()
) -> str:
    """Give the command that goes on with a run: what was typed, without the start of a new one.

    Args:
        context: Holds what was typed, and which options there are.
        collection: What is gone on with; where `--fresh` made its directory, that is named now.
        without: Options to leave out as well.

    """
    is_fresh = bool(context.params.get("fresh"))  # the options of a restart say no
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


def _crashed(collection: Collection, command: str) -> str:
    """Say how many attempts are left out because the process died with them."""
    num = collection.num_crashed
    attempts = "1 attempt is" if num == 1 else f"{num} attempts are"
    return (
        f"{attempts} not tried again, since the process of the run died with it; "
        f"{collection.path}/failures.jsonl says how; try again with: {command} --retry-crashed"
    )


def _quoted(argument: str) -> str:
    """Quote for a shell, in one line and with nothing that a terminal would obey."""
    if argument.isprintable():
        return shlex.quote(argument)
    characters = (
        character if character.isprintable() and character not in "\\'" else _escaped(character)
        for character in argument
    )
    return f"$'{''.join(characters)}'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def missing_coverage(
    collection: Collection, metrics: RunMetrics, min_coverage: float, command: str
) -> RunError | None:
    """Give an error where too little of the plan is scored, which ends with exit code 4."""
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
