"""The end of `gym collect`: the numbers and verdicts of its runs, its exit code, how to resume."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from gymcli.commands.ci import CiRequest
from gymcli.commands.console import (
    TYPED,
    message,
    one_line,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.runs import print_runs
from gymcli.commands.summary import metrics_object, print_at_k, print_references, print_summary
from gymcli.errors import (
    BudgetReachedError,
    GymError,
    InterruptedRunError,
    RunError,
    TooManyFailuresError,
    UsageError,
)
from gymcli.reporting.formatting import between, counted, number

if TYPE_CHECKING:
    from gymcli.library.run_collection import RunResult
    from gymcli.library.run_list import ListedRun
    from gymcli.metrics.results import RunMetrics
    from gymcli.reporting.run_report import RunReport
    from gymcli.runner.collection import Collection
    from gymcli.types import ErrorRecord

_RETRY = "retry with:"
_MAX_FAILURES = 3
"""Kinds of failures that are printed with their message."""


class _Ending(NamedTuple):
    """The error that ends the command for one of its runs."""

    error: GymError
    way_out: str
    """What the resuming command does, as the words before it; empty if it would do nothing."""


def end_runs(
    context: typer.Context,
    results: Sequence[RunResult],
    ci: CiRequest,
    *,
    min_coverage: float,
    is_json: bool,
) -> None:
    """Print the numbers and the verdicts, write the files, and end with the exit code.

    Only the first of several errors is raised: the one that stopped a run, too little coverage,
    then a file that cannot be written or a gate that cannot be judged.
    """
    from gymcli.library.run_collection import run_report

    runs = {run.name: run.collection for run in results}
    is_quiet = bool(context.params.get("quiet"))
    endings: dict[str, _Ending] = {}
    for run in results:
        _show_problems(context, runs, run, is_quiet=is_quiet)
        ending = _ending_of(run, min_coverage)
        if ending is not None:
            endings[run.name] = ending
    errors = {name: ending.error for name, ending in endings.items()}
    reports: dict[str, RunReport] = {}
    if ci.gates is not None:  # files that lack a run without numbers would look like a success
        reports = {
            run.name: run_report(
                run, ci.gates, errors.get(run.name), has_tasks=ci.has_tasks, warn=warn
            )
            for run in results
        }
    if not ci.prints_file:
        gates = {name: ci.as_json([report]) for name, report in reports.items()}
        _show(results, ci, errors, gates, is_json=is_json)
    ci.show(list(reports.values()), is_json=is_json)
    try:
        ci.write(list(reports.values()), env=results[0].collection.options.env)
    except UsageError as unwritten:
        if not errors:
            raise
        warn(str(unwritten))
    if context.params.get("fresh") and not is_quiet:
        verb = "runs are" if len(runs) > 1 else "run is"
        message(f"the new {verb} in {' and '.join(str(run.path) for run in runs.values())}")
    if endings:
        raise _gravest(context, runs, endings)
    ci.end(list(reports.values()))


def _show_problems(
    context: typer.Context, runs: Mapping[str, Collection], run: RunResult, *, is_quiet: bool
) -> None:
    collection = run.collection
    if num := collection.state.num_crashed:
        are, them = ("is", "it") if num == 1 else ("are", "them")
        warn(
            f"{counted(num, 'attempt')} {are} not retried, because the run's process crashed in "
            f"{them}; {collection.path}/failures.jsonl has the cause; retry with: "
            f"{resume_command(context, runs, extra=('--retry-crashed',))}"
        )
    if is_quiet:
        return
    _show_failures(run)
    if run.attempts is not None:
        message(
            f"{collection.path}: numbers and gates cover the {len(run.attempts):,} attempts of "
            f"the selected tasks, of {collection.manifest.num_expected:,} of the run"
        )


def _ending_of(run: RunResult, min_coverage: float) -> _Ending | None:
    """Return the error that ends the command for one of its runs, if any."""
    collection, cause = run.collection, run.cause
    if cause is None:
        lack = missing_coverage(collection, run.metrics, min_coverage)
        return None if lack is None else _Ending(lack, _RETRY)
    text, way_out, has_more = str(cause), "resume with:", collection.num_left > 0
    if isinstance(cause, InterruptedRunError):
        text += f": {collection.scored_text}"
    elif isinstance(cause, TooManyFailuresError):
        text += f"; {collection.scored_text}; {collection.path}/failures.jsonl has the causes"
    elif isinstance(cause, BudgetReachedError):
        way_out = "resume, with a larger budget if it was too small:"
    else:
        has_more = collection.num_scored > 0
    # The class has the exit code.
    return _Ending(type(cause)(text), way_out if has_more else "")


def _gravest(
    context: typer.Context, runs: Mapping[str, Collection], endings: Mapping[str, _Ending]
) -> GymError:
    """Return the error that decides the exit code; of several runs, with a line for each error.

    Its text ends with the command that resumes the runs.
    """

    def order(ending: _Ending) -> tuple[bool, bool]:
        error = ending.error
        return not isinstance(error, InterruptedRunError), not isinstance(error, BudgetReachedError)

    gravest = min(endings.values(), key=order)
    text, way_out = str(gravest.error), gravest.way_out
    if len(runs) > 1:
        text = "\n".join(f"{runs[name].path}: {ending.error}" for name, ending in endings.items())
        way_out = way_out or "resume with:"
    if way_out:
        without = ("--no-retry",) if way_out == _RETRY else ()
        text += f"; {way_out} {resume_command(context, runs, without=without)}"
    return type(gravest.error)(text)


def _show(
    results: Sequence[RunResult],
    ci: CiRequest,
    errors: Mapping[str, GymError],
    gates: Mapping[str, Mapping[str, object]],
    *,
    is_json: bool,
) -> None:
    """Print the numbers of each run that has some; as JSON, those of all if there are several."""
    if is_json:
        objects = []
        for run in results:
            error = str(errors.get(run.name, ""))
            report = run.report(is_one_of_several=len(results) > 1, error=error)
            objects.append({**metrics_object(report), **gates.get(run.name, {})})
        if len(results) > 1:
            print_json({"runs": objects})
        elif results[0].has_numbers:
            print_json(objects[0])
        return
    runs = [run for run in results if run.has_numbers]
    for run in runs:
        if len(results) > 1 and run.benchmark:
            result(f"{'benchmark':14}{run.benchmark}")
        if len(results) > 1:
            result(f"{'model':14}{one_line(run.model)}")
        _show_numbers(run, ci.requested_ks)
        if len(results) > 1:
            result()
    if len({run.benchmark for run in runs}) > 1:
        _print_benchmarks(runs)
    elif len(runs) > 1:
        print_runs(list(map(_listed, runs)), with_differences=True)


def _print_benchmarks(runs: Sequence[RunResult]) -> None:
    """Print the table of several benchmarks."""
    rows = []
    for run in runs:
        collection, metrics = run.collection, run.metrics
        value, interval = metrics.mean_reward, metrics.interval
        if run.score is not None and run.score.metric != "mean_reward":
            value, interval = run.score.value, None
        rows.append(
            (
                run.benchmark,
                one_line(run.model),
                number(value),
                between(interval),
                f"{metrics.num_scored:,}/{metrics.num_expected:,}",
                _published(run),
                str(collection.path),
            )
        )
    head = ("benchmark", "model", "score", "95 %", "scored", "published", "run")
    print_table(head, rows, left=("model", "published", "run"), optional=("run",))


def _published(run: RunResult) -> str:
    """Return the verdicts on the published scores of the run's model."""
    if run.score is None:
        return ""
    # Where others were tested, scores of other settings say nothing.
    references = run.score.references
    tested = [item for item in references if item.verdict != "other_settings"] or references
    scores: dict[str, list[str]] = {}
    for item in tested:
        scores.setdefault(item.verdict_text, []).append(f"{item.score:g}")
    return ", ".join(f"{'/'.join(texts)} {verdict}" for verdict, texts in scores.items()) or "-"


def _listed(run: RunResult) -> ListedRun:
    """Return the run's row in the table of several models."""
    import msgspec

    from gymcli.library.run_list import list_run

    assert run.collection.path is not None
    manifest = run.collection.manifest
    if run.attempts is not None:
        manifest = msgspec.structs.replace(manifest, num_expected=len(run.attempts))
    return list_run(run.collection.path, manifest, run.metrics)


def _show_numbers(run: RunResult, ks: Sequence[int]) -> None:
    collection = run.collection
    assert collection.path is not None
    print_summary(run.metrics, collection.path)
    if collection.num_outages:
        seconds = f"{collection.outage_seconds:.1f} s in all"
        result(f"outages       {collection.num_outages} of an endpoint, {seconds}")
    if collection.num_without_logprobs:
        result(f"logprobs      missing from {collection.num_without_logprobs} answers")
    result(f"time          {collection.manifest.seconds:.1f} s")
    result(f"files         {collection.path}")
    print_at_k(run.metrics, ks)
    if run.score is not None:
        print_references(run.score)


def _show_failures(run: RunResult) -> None:
    """Print the commonest failures of an author's code, and of a model that did not end the run."""

    def kind(error: ErrorRecord) -> tuple[str, ...]:
        return (error.error_class, *error.frames[-1:])

    is_complete = run.cause is None  # else the cause says what the model answered
    errors = [
        error
        for error in run.aggregator.errors()
        if error.frames or (is_complete and error.phase == "model")
    ]
    for common, num in Counter(map(kind, errors)).most_common(_MAX_FAILURES):
        first = next(error for error in errors if kind(error) == common)
        failed = f"{counted(num, 'attempt')} failed with {first.error_class}"
        message(f"{failed}: {one_line(first.message)}")
        for place in first.frames:
            message(f"  at {one_line(place)}")


def resume_command(
    context: typer.Context,
    runs: Mapping[str, Collection],
    *,
    without: Iterable[str] = (),
    extra: Iterable[str] = (),
) -> str:
    """Return the command that resumes its runs: the typed one, without `--fresh`.

    `without` are options to drop, `extra` options to add.
    """
    is_fresh = bool(context.params.get("fresh"))  # after a restart the run options lack it
    dropped = {*without, *(("--fresh", "--out", "-o") if is_fresh else ())}
    options = [option for option in context.command.params if not getattr(option, "is_flag", False)]
    with_value = {name for option in options for name in option.opts if name.startswith("-")}
    words: list[str] = []
    arguments: list[str] = list(context.meta[TYPED])
    while arguments and arguments[0] != "--":
        size = 2 if arguments[0] in with_value else 1  # `--option=value` is one argument
        if arguments[0].partition("=")[0] not in dropped:
            words += arguments[:size]
        del arguments[:size]
    if is_fresh:
        # Several runs are in folders of this one.
        words += ["--out", os.path.commonpath([run.path or "" for run in runs.values()])]
    # `arguments` begin with "--", after which nothing is an option.
    return " ".join(map(_quoted, ["gym", *words, *extra, *arguments]))


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
    collection: Collection, metrics: RunMetrics, min_coverage: float
) -> RunError | None:
    """Return an error with exit code 4 if too little of the plan is scored."""
    # The run may hold attempts outside the plan; attempts missing from the files do not count.
    num_scored = min(collection.num_scored, metrics.num_scored)
    num_expected = collection.num_expected
    if not num_expected or (num_scored and num_scored / num_expected >= min_coverage):
        return None
    # With --min-coverage 0 too, a run without a score has no result.
    reason = (
        f"less than --min-coverage {min_coverage:g}" if min_coverage else "so there is no result"
    )
    failures = ", ".join(f"{count} {name}" for name, count in metrics.failures.items())
    failed = f" (failed: {failures})" if failures else ""
    return RunError(
        f"{num_scored} of {num_expected} attempts are scored, {reason}{failed}; "
        f"{collection.path}/failures.jsonl has the causes"
    )
