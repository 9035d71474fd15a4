"""Options for CI: gates, files that CI systems read, and the comparison with a baseline."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel, ConfigDict

from gymcli.command_line import CommandOption, Heading
from gymcli.commands.console import harmless, message, result, results, scrubbed, warn
from gymcli.errors import UsageError
from gymcli.reporting.formatting import between, number, signed

if TYPE_CHECKING:
    from gymcli.comparison.comparison_results import Comparison
    from gymcli.comparison.gates import GateVerdict
    from gymcli.library.run_gates import RunGates
    from gymcli.reporting.junit import TaskPasses
    from gymcli.reporting.run_report import RunReport

STDOUT = Path("-")
"""Stands for stdout where a file is expected."""


class GateOptions(BaseModel):
    """Conditions that a run must meet, and the k of its metrics of k attempts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: Annotated[
        str | None,
        CommandOption(
            "Also compute pass@k and the like for these k, such as 3,5,10.",
            Heading.RESULTS,
            metavar="K,K",
        ),
    ] = None
    gate: Annotated[
        tuple[str, ...],
        CommandOption(
            "Require a condition, such as 'pass@1 >= 0.8', or 'reference': the benchmark's "
            "published scores are reproduced; exit with 3 if it fails, or 5 if the run cannot "
            "tell.",
            Heading.RESULTS,
            metavar="EXPR",
        ),
    ] = ()
    gate_on: Annotated[
        Literal["bound", "point"],
        CommandOption(
            "Judge a gate by the whole interval, bound, or by the number, point.", Heading.RESULTS
        ),
    ] = "bound"


class CiOptions(GateOptions):
    """Gates, files to write and a baseline to compare with."""

    junit: Annotated[
        Path | None,
        CommandOption(
            "Write the gates as JUnit XML; - prints it.", Heading.RESULTS, metavar="FILE"
        ),
    ] = None
    junit_tasks: Annotated[
        Literal["any", "majority", "all"] | None,
        CommandOption(
            "Add a JUnit case for each task, which passes if any, the majority or all of its "
            "attempts pass.",
            Heading.RESULTS,
        ),
    ] = None
    markdown: Annotated[
        Path | None,
        CommandOption("Write a summary in Markdown; - prints it.", Heading.RESULTS, metavar="FILE"),
    ] = None
    csv: Annotated[
        Path | None,
        CommandOption("Write the numbers as CSV; - prints it.", Heading.RESULTS, metavar="FILE"),
    ] = None
    baseline: Annotated[
        Path | None,
        CommandOption("Compare with this run.", Heading.RESULTS, metavar="RUN", completion="run"),
    ] = None


class CiRequest:
    """The options, checked before any work is done.

    `inputs` are runs and files that must not be overwritten; with `is_json`, stdout holds JSON;
    with `has_baseline`, the command compares with one without `--baseline`.
    """

    def __init__(
        self,
        options: GateOptions,
        *,
        inputs: Iterable[Path] = (),
        is_json: bool = False,
        has_baseline: bool = False,
    ) -> None:
        files = options if isinstance(options, CiOptions) else CiOptions()
        self._junit, self._markdown, self._csv = files.junit, files.markdown, files.csv
        self._junit_tasks = files.junit_tasks
        by_option = {"--junit": files.junit, "--markdown": files.markdown, "--csv": files.csv}
        paths = {option: path for option, path in by_option.items() if path is not None}
        printed = [option for option, path in paths.items() if path == STDOUT]
        self.prints_file = bool(printed)
        """Whether a file is printed to stdout, which then holds nothing else."""
        if files.junit_tasks is not None and files.junit is None:
            raise UsageError(f"--junit-tasks {files.junit_tasks}: add --junit FILE")
        if is_json and printed:
            raise UsageError(f"{printed[0]} -: --json already uses stdout; name a file")
        # Different names may lead to one file, even one that does not exist yet.
        if len(paths) > len({os.path.realpath(path) for path in paths.values()}):
            raise UsageError(f"{', '.join(paths)}: name a different file for each")
        if files.baseline is not None and not files.baseline.exists():
            raise UsageError(f"--baseline {files.baseline}: there is no such run")
        if paths:
            runs = [*inputs, *filter(None, [files.baseline])]
            run_files = [file for run in runs for file in _files_of(run) if file.exists()]
            for option, path in paths.items():
                if path != STDOUT:
                    _check_target(option, path, run_files)
        self.requested_ks = _ks_of(options.k)
        """Those of --k."""
        self.has_tasks = files.markdown is not None or files.csv is not None
        """Whether the files list every task."""
        self.gates: RunGates | None = None
        """None if no k, gate, file or baseline was requested."""
        if options.gate or self.requested_ks or paths or files.baseline:
            from gymcli.library.run_gates import RunGates  # late: heavy

            self.gates = RunGates(
                options.gate,
                requested_ks=self.requested_ks,
                gate_on=options.gate_on,
                baseline=files.baseline,
                has_baseline=has_baseline,
                way_out="--baseline RUN"
                if isinstance(options, CiOptions)
                else "two runs, the first of which is the baseline",
            )

    @property
    def ks(self) -> list[int]:
        """The k of --k and of the gates."""
        return [] if self.gates is None else self.gates.ks

    def fields(self, by: Iterable[str] = ()) -> list[str]:
        """Return the fields to slice by: those of `--by`, then those that gates name."""
        return list(by) if self.gates is None else self.gates.fields(by)

    def as_json(self, reports: Sequence[RunReport]) -> dict[str, object]:
        """Return the gates of the last run for --json."""
        return (
            {"gates": reports[-1].gates}
            if self.gates is not None and self.gates.gates and reports
            else {}
        )

    def show(self, reports: Sequence[RunReport], *, is_json: bool = False) -> None:
        """Print the verdicts, to stderr if stdout holds something else."""
        show = message if is_json or self.prints_file else result
        has_several = len(reports) > 1
        judged = [report for report in reports if report.gates or report.comparison]
        if has_several and judged:
            show("")
        for report in judged:
            if has_several:
                show(report.run)
            if report.comparison is not None:
                show(_difference_text(report.comparison), word=report.comparison.verdict)
            for gate in report.gates:
                show(_gate_text(gate), word=gate.verdict)
        for report in reports:
            place = f"{report.run}: " if has_several else ""
            for problem in report.problems:
                warn(f"{place}{problem.what}: {problem.reason}")

    def write(
        self, reports: Sequence[RunReport], *, env: str | None = None, by_task: bool = False
    ) -> None:
        """Write the files, each whole or not at all."""
        runs = [report.run for report in reports]
        if self._junit is not None:
            _write_junit(self._junit, reports, env, self._junit_tasks)
        if self._markdown is not None:
            from gymcli.reporting.markdown import markdown

            _write(self._markdown, markdown(reports, clean=_clean), runs)
        if self._csv is not None:
            from gymcli.reporting.run_report import environments_csv, tasks_csv

            table = tasks_csv if by_task else environments_csv
            _write(self._csv, table(reports, clean=_clean), runs)

    def end(self, reports: Sequence[RunReport]) -> None:
        """End with the exit code of the gates."""
        # What could not be judged ends with 2, whatever the other verdicts are.
        num_problems = sum(len(report.problems) for report in reports)
        if num_problems:
            raise UsageError(
                f"{num_problems} of the gates and comparisons could not be judged; see the warnings"
            )
        verdicts = {gate.verdict for report in reports for gate in report.gates}
        if "FAIL" in verdicts:
            raise typer.Exit(3)
        if "INCONCLUSIVE" in verdicts:
            raise typer.Exit(5)


def _ks_of(text: str | None) -> list[int]:
    """Return the numbers of --k."""
    if text is None:
        return []
    if not re.fullmatch(r"[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*", text):
        raise UsageError(f"--k {text}: is not a list of numbers of attempts, such as 3,5,10")
    return sorted({int(k) for k in text.split(",")})


def write_comparisons(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write comparisons of runs with one baseline in Markdown."""
    from gymcli.reporting.markdown import comparison_markdown, comparisons_markdown

    runs = [comparisons[0].a.run, *(comparison.b.run for comparison in comparisons)]
    if len(comparisons) == 1:
        text = comparison_markdown(comparisons[0], clean=_clean)
    else:
        text = comparisons_markdown(comparisons, clean=_clean)
    _write(path, text, runs)


def _write_junit(
    path: Path, reports: Sequence[RunReport], env: str | None, tasks: TaskPasses | None
) -> None:
    from gymcli.metrics.measure import index_run
    from gymcli.reporting.junit import IndexedReport, write_junit
    from gymcli.store.output import whole_file

    with ExitStack() as stack:
        runs = [IndexedReport(report) for report in reports]
        if tasks is not None:
            runs = [
                IndexedReport(report, stack.enter_context(index_run(Path(report.run), env=env)))
                for report in reports
            ]
        write = partial(write_junit, runs, clean=_clean, passes=tasks or "all")
        if path == STDOUT:
            file = io.BytesIO()
            write(file)
            result(file.getvalue().decode().rstrip("\n"))
            return
        inputs = (file for report in reports for file in _files_of(Path(report.run)))
        write(stack.enter_context(whole_file(path, inputs=inputs)))


def _write(path: Path, text: str, runs: Sequence[str]) -> None:
    from gymcli.store.output import whole_file

    if path == STDOUT:
        result(text.rstrip("\n"))
        return
    inputs = (file for run in runs for file in _files_of(Path(run)))
    with whole_file(path, inputs=inputs) as file:
        file.write(text.encode())


def _files_of(run: Path) -> list[Path]:
    """Return the files of a run that must not be overwritten."""
    from gymcli.store.manifest import MANIFEST
    from gymcli.store.rollout_files import (
        FAILURES,
        GENERATIONS,
        METRICS_FILE,
        ROLLOUTS,
        TOKENS,
        VERDICTS,
    )

    if not run.is_dir():
        return [run]
    names = (MANIFEST, ROLLOUTS, FAILURES, GENERATIONS, VERDICTS, METRICS_FILE, TOKENS)
    return [run / name for name in names]


def _check_target(option: str, path: Path, run_files: Iterable[Path]) -> None:
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"{option} {path}: is not a regular file; choose another")
    if any(path.samefile(file) for file in run_files):
        raise UsageError(f"{option} {path}: is an input of this command; choose another file")


def _clean(text: str) -> str:
    return harmless(scrubbed(text, results()))


def _gate_text(gate: GateVerdict) -> str:
    value = number(gate.value, ".6g" if gate.judged_on == "number" else ".3f")
    text = f"{'gate':14}{' '.join(gate.gate.split())}: {gate.verdict}, {value}"
    if gate.interval is not None:
        text += f" ({between(gate.interval)})"
    return f"{text}; {gate.way_out}" if gate.way_out else text


def _difference_text(comparison: Comparison) -> str:
    text = f"{'baseline':14}{comparison.a.run}: {comparison.verdict}"
    difference = comparison.difference
    if difference is not None:
        text += f", {signed(difference.value)}"
        if difference.interval is not None:
            text += f" ({between(difference.interval, '+.3f')})"
        text += f" over {comparison.num_tasks:,} tasks"
    if comparison.is_same_run:
        return f"{text}; it is the same run"
    return f"{text}; the runs differ: {comparison.drift[0]}" if comparison.drift else text
