"""Files about runs that CI systems read: JUnit, Markdown, CSV; each whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gymcli.commands.console import result
from gymcli.commands.streams import harmless, results, scrubbed
from gymcli.errors import UsageError

if TYPE_CHECKING:
    from gymcli.metrics.comparison import Comparison
    from gymcli.reporting.run_report import RunReport

__all__ = [
    "STDOUT",
    "check_target",
    "files_of",
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
