"""`gym metrics`: report the numbers of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import UNSET

from gymcli.command_line import Heading
from gymcli.commands.ci import CiOptions, CiRequest
from gymcli.commands.console import message, print_json, result, warn
from gymcli.commands.model_options import with_model_options
from gymcli.commands.options import JsonOption, RunsArgument
from gymcli.commands.runs import print_runs
from gymcli.commands.signals import run_async
from gymcli.commands.summary import (
    metrics_object,
    print_advice,
    print_agreement,
    print_all_numbers,
    print_at_k,
    print_plans,
    print_references,
    print_slices,
    print_summary,
    print_tasks,
)
from gymcli.library.call_options import MetricsOptions

if TYPE_CHECKING:
    from gymcli.library.measurement import MeasuredRun


@with_model_options
def metrics(
    runs: RunsArgument,
    *,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Print every number; of several runs, not only the table.",
            rich_help_panel=Heading.NUMBERS,
        ),
    ] = False,
    options: MetricsOptions,
    ci_options: CiOptions,
    json: JsonOption = False,
) -> None:
    """Report rewards with intervals, pass@k, tokens and failures; several runs in one table.

    Also reports coverage and latency. Errors and intervals are computed over tasks, never over
    attempts, which are not independent; --json has the estimator, size, error, interval and method
    of every number. The numbers of a run directory are also written to its metrics.json.
    """
    from gymcli.library.measurement import measured_runs, report_of
    from gymcli.library.run_list import list_run

    ci = CiRequest(ci_options, inputs=runs, is_json=json)
    measured = []
    for run in measured_runs(
        runs,
        options,
        ci.gates,
        has_tasks=ci.has_tasks,
        warn=warn,
        notify=message,
        run_loop=run_async,
    ):
        measured.append(run)
        if not (json or options.power or ci.prints_file):
            ks = ci.requested_ks
            _print_run(run, options, ks=ks, num_runs=len(runs), show_all=show_all)
    judged = [run.judged for run in measured if run.judged is not None]
    if len(runs) > 1 and not (json or options.power or ci.prints_file):
        records = [run.manifest.benchmark if run.manifest else None for run in measured]
        names = {record and record.name for record in records}
        listed = [list_run(Path(run.report.run), run.manifest, run.report) for run in measured]
        print_runs(listed, with_differences=len(names) == 1)
    report = report_of(measured, options)
    if json:
        runs_reported = [metrics_object(run.report) for run in measured]
        several = {**msgspec.to_builtins(report), "runs": runs_reported}
        print_json(runs_reported[0] if len(runs) == 1 else several)
    elif report.power is not UNSET:
        print_plans(report.power)
    ci.show(judged, is_json=json)
    ci.write(judged, env=options.env, by_task=options.by_task)
    ci.end(judged)


def _print_run(
    run: MeasuredRun, options: MetricsOptions, *, ks: Sequence[int], num_runs: int, show_all: bool
) -> None:
    """Print the numbers of a run; of one of several, only those that an option asks for."""
    report, score, path = run.report, run.score, Path(run.report.run)
    is_whole = show_all or num_runs == 1
    is_sliced = any(environment.slices for environment in report.environments.values())
    has_benchmark = score is not None and (score.references or score.other_settings)
    if not (is_whole or is_sliced or report.tasks or report.agreement or ks or has_benchmark):
        return
    result(report.run)
    if is_whole:
        print_summary(report, path, with_doubts=False)
    if show_all:
        print_all_numbers(report)
    elif num_runs == 1:
        result(f"{'more':14}--all prints every number with its interval")
    if not show_all:
        print_at_k(report, ks)
    if score is not None:
        print_references(score)
    print_slices(report)
    if report.tasks is not UNSET:
        result()
        print_tasks(report.tasks)
    if report.agreement is not UNSET:
        print_agreement(report.agreement, source=str(options.labels))
    if is_whole:
        print_advice(report, path)
    if num_runs > 1:
        result()
