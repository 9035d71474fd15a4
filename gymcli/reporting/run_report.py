"""The report of a run, and CSV files of its numbers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gymcli.comparison.comparison_results import Comparison
from gymcli.comparison.gates import GateProblem, GateVerdict
from gymcli.comparison.reproduction import BenchmarkScore
from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.formatting import Clean, plain
from gymcli.types import AttemptKey


class RunReport(NamedTuple):
    """One run, as Markdown, tables and JUnit files show it."""

    run: str
    """Its path, as given."""
    metrics: RunMetrics
    tasks: Sequence[TaskMetrics] = ()
    gates: Sequence[GateVerdict] = ()
    problems: Sequence[GateProblem] = ()
    """Gates that could not be judged: a number is missing, or the baseline shares no task."""
    comparison: Comparison | None = None
    """The baseline is run A; None without a baseline."""
    model: str = ""
    started_at: float = 0.0
    """Seconds since 1970; for a single file, when it was written."""
    incomplete: str = ""
    """What stopped the run, or that too little is scored; the gates judge the recorded part."""
    attempts: frozenset[AttemptKey] | None = None
    """The attempts that it covers; None: all of the run."""
    score: BenchmarkScore | None = None
    """None unless the run is one of a benchmark."""


_MAX_TEXT = 1000
_FORMULA = re.compile(r"\s*[=+\-@\t\r]")
"""The start of a text that a spreadsheet would run as a formula (OWASP, "CSV Injection")."""
_COUNTS = (
    *("num_expected", "num_present", "num_scored", "num_unscored", "coverage"),
    *("num_tasks", "num_flaky_tasks", "cost"),
)
_TASK_NUMBERS = (
    *("num_scored", "num_unscored", "num_passes", "mean_reward", "min_reward", "max_reward"),
    "majority_answer",
)


def environments_csv(runs: Sequence[RunReport], *, clean: Clean) -> str:
    """Return a line for each environment, for all together if there are several, and each slice.

    Every number has a column, followed by those of its error and its interval.
    """
    parts = [(run.run, *part) for run in runs for part in _parts(run)]
    names = list(dict.fromkeys(name for *_, metrics in parts for name in metrics.estimates))
    columns = [c for name in names for c in (name, f"{name} error", f"{name} low", f"{name} high")]
    rows: list[Sequence[object]] = [("run", "environment", "field", "value", *_COUNTS, *columns)]
    for run, env, field, value, metrics in parts:
        counts = [getattr(metrics, name) for name in _COUNTS]
        cells: list[object] = []
        for name in names:
            estimate = metrics.estimates.get(name)
            ends = (
                (estimate.interval.low, estimate.interval.high)
                if estimate and estimate.interval
                else (None, None)
            )
            cells += (estimate.value, estimate.standard_error, *ends) if estimate else [None] * 4
        rows.append((run, env, field, value, *counts, *cells))
    return _csv(rows, clean)


def tasks_csv(runs: Sequence[RunReport], *, clean: Clean) -> str:
    """Return a line for each task; the arguments are those of `environments_csv`."""
    rows: list[Sequence[object]] = [("run", "environment", "task", *_TASK_NUMBERS)]
    for run in runs:
        for task in run.tasks:
            numbers = (getattr(task, name) for name in _TASK_NUMBERS)
            rows.append((run.run, task.env, task.task_id, *numbers))
    return _csv(rows, clean)


def _parts(run: RunReport) -> Iterator[tuple[str, str, str, Metrics]]:
    """Yield environment, field and value of each part, with its numbers; empty means all."""
    parts: list[tuple[str, Metrics]] = list(run.metrics.environments.items())
    if len(parts) != 1:  # of a single environment, the numbers of all would be the same
        parts.append(("", run.metrics))
    for env, metrics in parts:
        yield env, "", "", metrics
        for field, slices in metrics.slices.items():
            for value, slice_metrics in slices.items():
                yield env, field, value, slice_metrics


def _csv(rows: Sequence[Sequence[object]], clean: Clean) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(
        [_cell(value, clean) for value in row] for row in rows
    )
    return text.getvalue()


def _cell(value: object, clean: Clean) -> object:
    """Return a cell; a `'` is put before a text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return "" if value is None else value
    fit = plain(clean(value), _MAX_TEXT)
    return f"'{fit}" if _FORMULA.match(fit) else fit
