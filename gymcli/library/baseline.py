"""Compares runs with a baseline, task by task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, overload

import msgspec

from gymcli.comparison.comparison_results import Comparison, Verdict, worst_verdict
from gymcli.comparison.difference_verdict import Rule
from gymcli.comparison.paired_runs import compare_runs
from gymcli.errors import UsageError
from gymcli.library.call_options import CompareOptions
from gymcli.library.calls import run_path
from gymcli.library.result import Result
from gymcli.store.rollout_files import torn_line_warning
from gymcli.suggestions import options_from

_LOGGER = logging.getLogger(__name__)


class ComparisonReport(Comparison, Result, kw_only=True):
    """Two runs compared, as `gym compare --json` prints it."""

    table: ClassVar[str] = "environments"

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each environment, and one for each slice of the tasks of all."""
        return [{"run": self.b.run, **row} for row in super().rows()]


class ComparisonReports(msgspec.Struct, Result, kw_only=True):
    """Several runs, each compared with the first, as `gym compare --json` prints them."""

    comparisons: list[ComparisonReport]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return worst_verdict(comparison.verdict for comparison in self.comparisons)

    table: ClassVar[str] = "comparisons"


@overload
def compare(a: str | Path, b: str | Path, /, **options: object) -> ComparisonReport: ...


@overload
def compare(
    a: str | Path, b: str | Path, second: str | Path, /, *more: str | Path, **options: object
) -> ComparisonReports: ...


def compare(*runs: str | Path, **options: object) -> ComparisonReport | ComparisonReports:
    """Compare runs with the first on the tasks that both have: is B worse than A?

    Args:
        runs: The baseline, then one run or more: run directories or rollout files.
        options: The fields of `gymcli.library.call_options.CompareOptions`, as those of
            `gym compare`: `metric`, `margin`, `strict`, `level`, `by`, `allow_drift` and so on.

    Raises:
        RunMismatchError: The runs were made differently, without `allow_drift`.
        RunError: One of the runs has no score.
        UsageError: A path, a line or an option is wrong, or the runs share no task.
    """
    if len(runs) < 2:
        raise UsageError("compare: name two runs or more")
    first, *judged = (run_path("compare", run) for run in runs)
    reports = compare_with(first, judged, options_from(CompareOptions, "compare", options))
    return reports.comparisons[0] if len(judged) == 1 else reports


def compare_with(
    baseline: Path,
    runs: Sequence[Path],
    options: CompareOptions,
    *,
    warn: Callable[[str], None] = _LOGGER.warning,
) -> ComparisonReports:
    """Compare each run with a baseline; `warn` is called with what is wrong with a comparison."""
    comparisons = [
        compare_runs(
            baseline,
            run,
            metric=options.metric,
            rule=Rule(options.margin, options.level, options.strict),
            by=options.by,
            env=options.env,
            allow_drift=options.allow_drift,
            with_tasks=options.by_task,
        )
        for run in runs
    ]
    for path in (baseline, *runs):
        if unfinished := torn_line_warning(path):
            warn(unfinished)
    for comparison in comparisons:
        place = f"{comparison.b.run}: " if len(comparisons) > 1 else ""
        for drift in comparison.drift:
            warn(f"{place}A and B differ: {drift}")
        for text in (*comparison.unknown, *comparison.warnings):
            warn(f"{place}{text}")
    reports = [ComparisonReport(**msgspec.structs.asdict(item)) for item in comparisons]
    return ComparisonReports(comparisons=reports)
