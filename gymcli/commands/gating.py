"""Files about runs that CI systems read: JUnit, Markdown, CSV; each whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from gymcli.commands.console import harmless, message, result, results, scrubbed, warn
from gymcli.errors import RunError, UsageError

if TYPE_CHECKING:
    from gymcli.metrics import Aggregator, RunMetrics
    from gymcli.metrics.comparison_results import Comparison
    from gymcli.metrics.gates import Gate, GateOn, GateProblem, GateVerdict
    from gymcli.reporting.run_report import RunReport

__all__ = [
    "STDOUT",
    "BaselineOption",
    "CsvOption",
    "GateOnOption",
    "GateOption",
    "Gating",
    "JUnitOption",
    "MarkdownOption",
    "check_target",
    "files_of",
    "gating_of",
    "write_comparison",
    "write_csv",
    "write_junit",
    "write_markdown",
]


STDOUT = Path("-")
"""In the place of a file: it is printed."""


def write_junit(path: Path, reports: Sequence[RunReport], *, env: str | None) -> None:
    """Write tasks and gates as JUnit.

    Raises:
        UsageError: The file cannot be written, or a run not be read.

    """
    from gymcli.data.output import whole_file
    from gymcli.reporting import junit
    from gymcli.runner.indexing import index_run

    with ExitStack() as stack:
        runs = [
            junit.IndexedReport(report, stack.enter_context(index_run(Path(report.run), env=env)))
            for report in reports
        ]
        if path == STDOUT:
            file = io.BytesIO()
            junit.write_junit(runs, file, clean=_clean)
            result(file.getvalue().decode().rstrip("\n"))
            return
        inputs = (file for report in reports for file in files_of(Path(report.run)))
        target = stack.enter_context(whole_file(path, inputs=inputs))
        junit.write_junit(runs, target, clean=_clean)


def write_markdown(path: Path, reports: Sequence[RunReport]) -> None:
    """Write a summary in Markdown.

    Raises:
        UsageError: The file cannot be written.

    """
    from gymcli.reporting.markdown import markdown

    _write(path, markdown(reports, clean=_clean), [report.run for report in reports])


def write_comparison(path: Path, comparison: Comparison) -> None:
    """Write a comparison of two runs in Markdown.

    Raises:
        UsageError: The file cannot be written.

    """
    from gymcli.reporting.markdown import comparison_markdown

    runs = [comparison.a.run, comparison.b.run]
    _write(path, comparison_markdown(comparison, clean=_clean), runs)


def write_csv(path: Path, reports: Sequence[RunReport], *, by_task: bool) -> None:
    """Write the numbers as a table, or the tasks.

    Raises:
        UsageError: The file cannot be written.

    """
    from gymcli.reporting.table import environments_csv, tasks_csv

    table = tasks_csv if by_task else environments_csv
    _write(path, table(reports, clean=_clean), [report.run for report in reports])


def _write(path: Path, text: str, runs: Sequence[str]) -> None:
    from gymcli.data.output import whole_file

    if path == STDOUT:
        result(text.rstrip("\n"))
        return
    inputs = (file for run in runs for file in files_of(Path(run)))
    with whole_file(path, inputs=inputs) as file:
        file.write(text.encode())


def files_of(run: Path) -> list[Path]:
    """Give the files of a run directory, or a file alone: what must not be written over."""
    from gymcli.store.manifest import MANIFEST
    from gymcli.store.rollout_files import FAILURES, GENERATIONS, METRICS, ROLLOUTS, VERDICTS

    if not run.is_dir():
        return [run]
    names = (MANIFEST, ROLLOUTS, FAILURES, GENERATIONS, VERDICTS, METRICS)
    return [run / name for name in names]


def check_target(option: str, path: Path, needed: Iterable[Path]) -> None:
    """Refuse a file that could not be written, or is needed, before anything is sent.

    Raises:
        UsageError: It is one.

    """
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"{option} {path}: is no regular file; give another")
    if any(path.samefile(file) for file in needed):
        raise UsageError(f"{option} {path}: is needed here, and would be written over")


def _clean(text: str) -> str:
    return harmless(scrubbed(text, results()))


GateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gate",
        metavar="EXPR",
        help="What has to hold, such as 'pass@1 >= 0.8' (repeatable); else the exit code is 3, or "
        "5 where the run cannot tell.",
    ),
]
GateOnOption = Annotated[
    Literal["bound", "point"],
    typer.Option(
        "--gate-on", help="Gates hold for the whole interval of a number, or the number itself."
    ),
]
JUnitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write tasks and gates as JUnit; - prints it."),
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE", help="Write a summary in Markdown; - prints it."),
]
CsvOption = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write the numbers as a table; - prints it."),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="RUN", help="A run that it is compared with."),
]

_FAIL, _INCONCLUSIVE = 3, 5


class Gating(NamedTuple):
    """What was asked for."""

    gates: Sequence[Gate]
    on: GateOn
    junit: Path | None
    markdown: Path | None
    csv: Path | None
    baseline: Path | None

    @property
    def prints_file(self) -> bool:
        """Whether a file goes to stdout, which then has nothing else."""
        return STDOUT in (self.junit, self.markdown, self.csv)

    @property
    def is_asked(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.gates) or any((self.junit, self.markdown, self.csv, self.baseline))

    def fields(self, by: Iterable[str] = ()) -> list[str]:
        """Give the fields to slice by: those of `--by`, then those that gates are about."""
        fields = list(by)
        for gate in self.gates:
            known = {field.removeprefix("task.") for field in fields}
            if gate.field is not None and gate.field.removeprefix("task.") not in known:
                fields.append(gate.field)
        return fields

    def report(
        self,
        run: Path,
        aggregator: Aggregator,
        metrics: RunMetrics,
        *,
        env: str | None = None,
        by: Sequence[str] = (),
        incomplete: str = "",
    ) -> RunReport:
        """Judge a run; what cannot be judged, or compared with the baseline, is a problem of it."""
        from gymcli.metrics.gates import GateProblem
        from gymcli.reporting.run_report import RunReport
        from gymcli.runner.paired_runs import compare_runs
        from gymcli.store.manifest import read_manifest

        comparison = None
        problems: list[GateProblem] = []
        if self.baseline is not None and metrics.num_scored:
            try:
                comparison = compare_runs(self.baseline, run, by=by, env=env, allow_drift=True)
            except (UsageError, RunError) as error:
                what = f"--baseline {self.baseline}"
                problems.append(GateProblem(what=what, reason=str(error)))
        verdicts, others = self.judged(metrics, comparison)
        problems += others
        manifest = read_manifest(run) if run.is_dir() else None
        needs_tasks = self.markdown is not None or self.csv is not None
        return RunReport(
            run=str(run),
            metrics=metrics,
            tasks=aggregator.task_rows() if needs_tasks else (),
            gates=verdicts,
            problems=problems,
            comparison=comparison,
            model=manifest.model if manifest is not None else "",
            started_at=run.stat().st_mtime if manifest is None else manifest.started_at,
            incomplete=incomplete,
        )

    def judged(
        self, metrics: RunMetrics, comparison: Comparison | None = None
    ) -> tuple[list[GateVerdict], list[GateProblem]]:
        """Give the verdicts, and what is wrong with gates that could not be judged."""
        from gymcli.metrics.gates import DIFFERENCE, GateProblem, judge, with_differences

        verdicts, problems = [], []
        known = metrics if comparison is None else with_differences(metrics, comparison)
        for gate in self.gates:
            try:
                if gate.name == DIFFERENCE and comparison is not None and comparison.drift:
                    raise UsageError(
                        f"the baseline was not made alike: {comparison.drift[0]}; "
                        "gym compare --allow-drift compares them all the same"
                    )
                verdicts.append(judge(gate, known, on=self.on))
            except UsageError as error:
                problems.append(GateProblem(what=gate.text, reason=str(error)))
        return verdicts, problems

    def as_json(self, reports: Sequence[RunReport]) -> dict[str, object]:
        """Give what --json has of the gates of the last run."""
        return {"gates": reports[-1].gates} if self.gates and reports else {}

    def finish(
        self,
        reports: Sequence[RunReport],
        *,
        is_json: bool = False,
        env: str | None = None,
        by_task: bool = False,
    ) -> None:
        """Print the verdicts, write the files and end with the exit code of the gates.

        Raises:
            UsageError: A file cannot be written, or a gate not be judged.
            typer.Exit: A gate does not hold.

        """
        self.show(reports, is_json=is_json)
        self.write(reports, env=env, by_task=by_task)
        self.end(reports)

    def show(self, reports: Sequence[RunReport], *, is_json: bool = False) -> None:
        """Print the verdicts, to stderr where stdout has something else."""
        show = message if is_json or self.prints_file else result
        for report in reports:
            if len(reports) > 1 and (report.gates or report.problems or report.comparison):
                show(report.run)
            if report.comparison is not None:
                show(_difference(report.comparison))
            for gate in report.gates:
                show(_line(gate))
            for problem in report.problems:
                warn(f"{problem.what}: {problem.reason}")

    def write(
        self, reports: Sequence[RunReport], *, env: str | None = None, by_task: bool = False
    ) -> None:
        """Write the files, each whole or not at all.

        Raises:
            UsageError: One of them cannot be written.

        """
        if self.junit is not None:
            write_junit(self.junit, reports, env=env)
        if self.markdown is not None:
            write_markdown(self.markdown, reports)
        if self.csv is not None:
            write_csv(self.csv, reports, by_task=by_task)

    def end(self, reports: Sequence[RunReport]) -> None:
        """End with the exit code of the gates.

        Raises:
            UsageError: One of them could not be judged.
            typer.Exit: One of them does not hold.

        """
        num_problems = sum(len(report.problems) for report in reports)
        if num_problems:
            raise UsageError(
                f"{num_problems} of the gates and comparisons could not be judged; the warnings "
                "say why"
            )
        verdicts = {gate.verdict for report in reports for gate in report.gates}
        if "FAIL" in verdicts:
            raise typer.Exit(_FAIL)
        if "INCONCLUSIVE" in verdicts:
            raise typer.Exit(_INCONCLUSIVE)


def gating_of(
    gate: Iterable[str] | None,
    gate_on: GateOn,
    junit: Path | None,
    markdown: Path | None,
    csv: Path | None,
    baseline: Path | None,
    *,
    inputs: Iterable[Path] = (),
    is_json: bool = False,
) -> Gating:
    """Read the options; `inputs` are runs and files that must not be written over.

    Raises:
        UsageError: A gate cannot be read, a file cannot be written, or two go to one place.

    """
    files = {"--junit": junit, "--markdown": markdown, "--csv": csv}
    given = {option: path for option, path in files.items() if path is not None}
    printed = [option for option, path in given.items() if path == STDOUT]
    if is_json and printed:
        raise UsageError(f"{printed[0]} -: --json goes to stdout; give a file")
    if len(given) > len({os.path.realpath(path) for path in given.values()}):
        raise UsageError(f"{', '.join(given)}: give each a file of its own")
    if baseline is not None and not baseline.exists():
        raise UsageError(f"--baseline {baseline}: there is no such run")
    if given:
        runs = [*inputs, *filter(None, [baseline])]
        needed = [file for run in runs for file in files_of(run) if file.exists()]
        for option, path in given.items():
            if path != STDOUT:
                check_target(option, path, needed)
    gates: Sequence[Gate] = ()
    if gate:
        from gymcli.metrics.gates import DIFFERENCE, parse_gate

        gates = [parse_gate(text) for text in gate]
        if baseline is None and any(one.name == DIFFERENCE for one in gates):
            raise UsageError(f"--gate {DIFFERENCE}: takes --baseline RUN")
    return Gating(gates, gate_on, junit, markdown, csv, baseline)


def _line(gate: GateVerdict) -> str:
    value = f"{gate.value:.6g}" if gate.judged_on == "number" else f"{gate.value:.3f}"
    text = f"{'gate':14}{' '.join(gate.gate.split())}: {gate.verdict}, {value}"
    if gate.interval is not None:
        text += f" ({gate.interval.low:.3f} .. {gate.interval.high:.3f})"
    return f"{text}; {gate.way_out}" if gate.way_out else text


def _difference(comparison: Comparison) -> str:
    text = f"{'baseline':14}{comparison.a.run}: {comparison.verdict}"
    found = comparison.difference
    if found is not None:
        text += f", {found.value:+.3f}"
        if found.interval is not None:
            text += f" ({found.interval.low:+.3f} .. {found.interval.high:+.3f})"
        text += f" over {comparison.num_tasks:,} tasks"
    return f"{text}; not made alike: {comparison.drift[0]}" if comparison.drift else text
