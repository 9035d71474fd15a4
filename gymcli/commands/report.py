"""`gym report`: write one HTML page about one run or several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.ci import CiRequest, GateOptions
from gymcli.commands.console import harmless, message, warn
from gymcli.commands.model_options import with_model_options
from gymcli.commands.options import LineEnvOption, RunsArgument
from gymcli.errors import UsageError
from gymcli.secrets import scrubber_of


@with_model_options
def report(
    runs: RunsArgument,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Page to write, such as run.html.")
    ],
    env: LineEnvOption = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Slice by a field of the tasks, such as task.category.",
        ),
    ] = None,
    gate_options: GateOptions,
) -> None:
    """Write a self-contained HTML report about runs.

    It opens without a network. With two runs, the second is also compared with the first. Needs the
    extra `report`. Overwrites an existing report, but no other file.
    """
    from gymcli.library.measurement import recorded_score
    from gymcli.reporting.html_comparison import read_comparison
    from gymcli.reporting.html_page import MARK, html_report
    from gymcli.reporting.html_run import read_run
    from gymcli.reporting.run_report import RunReport
    from gymcli.store.output import whole_file
    from gymcli.store.rollout_files import torn_line_warning

    if out.is_file():
        with out.open("rb") as file:
            start = file.read(500)
        if start and MARK.encode() not in start:
            raise UsageError(f"{out}: exists and is not a report; choose another -o")
    has_baseline = len(runs) == 2
    ci = CiRequest(gate_options, has_baseline=has_baseline)
    fields = ci.fields(by or ())
    scrubber = scrubber_of((), os.environ)
    comparison = read_comparison(*runs, env=env, by=fields) if has_baseline else None
    compared = None if comparison is None else comparison.comparison
    readings, reports = [], []
    for number, run in enumerate(runs):
        reading = read_run(run, env=env, by=fields, ks=ci.ks)
        readings.append(reading)
        for text in filter(None, [torn_line_warning(run), *reading.warnings]):
            warn(text)
        is_baseline = has_baseline and number == 0
        score = recorded_score(reading.manifest, reading.aggregator, reading.metrics, warn=warn)
        run_report = RunReport(str(run), reading.metrics, score=score)
        if ci.gates is not None:
            verdicts, problems = ci.gates.judge(
                reading.metrics,
                None if is_baseline else compared,
                is_baseline=is_baseline,
                score=score,
            )
            run_report = run_report._replace(gates=verdicts, problems=problems)
        reports.append(run_report)
    page = html_report(
        readings,
        comparison=comparison,
        verdicts=[run_report.gates for run_report in reports],
        scores=[run_report.score for run_report in reports],
        clean=lambda text: harmless(scrubber.text(text)),
    )
    with whole_file(out, inputs=runs) as written:
        written.write(page.encode())
    message(f"wrote {out}")
    ci.show(reports)
    ci.end(reports)
