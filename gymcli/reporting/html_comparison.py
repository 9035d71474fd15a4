"""The comparison of two runs on the page: how much they differ, and in which tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gymcli.comparison.comparison_results import Comparison, Difference, TaskDifference
from gymcli.comparison.paired_runs import compare_runs
from gymcli.errors import RunError, UsageError
from gymcli.metrics.results import Estimate
from gymcli.reporting.formatting import p_value, passes_with
from gymcli.reporting.html_parts import (
    MAX_DRAWN,
    Card,
    Chart,
    Shown,
    Table,
    count_cell,
    distinct_labels,
    interval_cell,
    method_cell,
    number_cell,
    points,
    ranges,
    sample_of,
)

MAX_TASKS = 50
"""The most rows of each table of tasks."""

_BROKEN = "passed in all attempts of A and in none of B"
_FIXED = "passed in no attempt of A and in all of B"
_FLAKY = "passed in some attempts of a run and not in others"


class ComparisonSection(NamedTuple):
    """Everything that the page shows about the comparison of two runs."""

    word: str
    """`PASS`, `FAIL`, `INCONCLUSIVE`, or `NOT COMPARED`."""
    words: str
    sides: Sequence[tuple[str, str]] = ()
    cards: Sequence[Card] = ()
    doubts: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    changes: Sequence[tuple[str, Table | None]] = ()
    """The title and the tasks of each kind of change."""
    settings: Table | None = None
    method: Sequence[str] = ()
    """How the verdict was reached."""
    comparison: Comparison | None = None
    """None if the runs cannot be compared."""


def read_comparison(
    a: Path, b: Path, *, env: str | None = None, by: Sequence[str] = ()
) -> ComparisonSection:
    """Compare run B with run A; different settings are listed, not refused.

    If they cannot be compared, for example because they share no task, the section says why.

    Args:
        a: The baseline.
        b: The run to judge.
        env: The environment of lines that name none.
        by: Fields of the task rows to slice by.
    """
    try:
        found = compare_runs(a, b, env=env, by=by, allow_drift=True, with_tasks=True)
    except (RunError, UsageError) as error:
        return ComparisonSection(word="NOT COMPARED", words=f"{error}.")
    fields = [("environment", found.environments), *found.slices.items()]
    charts = [
        _part_chart(f"comparison-{place}", field, parts, found.metric)
        for place, (field, parts) in enumerate(fields)
    ]
    return ComparisonSection(
        word=found.verdict,
        words=_words(found),
        sides=[
            (name, f"{run.run} ({run.model})" if run.model else run.run)
            for name, run in (("A", found.a), ("B", found.b))
        ],
        cards=_cards(found),
        doubts=_doubts(found),
        charts=[chart for chart in (_scatter(found), *charts) if chart is not None],
        changes=_changes(found),
        settings=_settings(found),
        method=_method(found),
        comparison=found,
    )


def _words(found: Comparison) -> str:
    margin = "" if found.margin is None else f" of {found.margin:.4g}"
    by_verdict = {
        "PASS": f"B is not worse than A by the margin{margin} or more.",
        "FAIL": "B is worse than A.",
        "INCONCLUSIVE": f"These tasks cannot show whether B is worse than A by the margin{margin}.",
    }
    if found.is_same_run:
        return f"{_capitalized(found.way_out)}."
    way_out = f" {_capitalized(found.way_out)}." if found.way_out else ""
    passes = passes_with(found.smallest_margin)
    return f"{by_verdict[found.verdict]}{way_out}{f' B {passes}.' if passes else ''}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]  # str.capitalize would lower-case the rest, names included


def _cards(found: Comparison) -> list[Card]:
    difference = found.difference
    sure = "no interval"
    if difference is not None and difference.interval is not None:
        interval = difference.interval
        sure = f"B - A; {interval_cell(interval)} ({method_cell(interval)})"
    gained = "compared task by task"
    if found.variance_reduction is not None and found.correlation is not None:
        part = f"{abs(found.variance_reduction):.0%}".replace("%", " %")
        change = f"took {part} off" if found.variance_reduction >= 0.0 else f"added {part} to"
        gained = f"correlation {found.correlation:.2f}; pairing {change} the variance"
    return [
        Card(f"Difference in {found.metric}", _signed(difference), sure),
        Card("A", number_cell(found.mean_a), f"{found.num_attempts_a:,} attempts"),
        Card("B", number_cell(found.mean_b), f"{found.num_attempts_b:,} attempts"),
        Card("p-value", _p_cell(found.p_value), found.test or "no test"),
        Card("Tasks in both", count_cell(found.num_tasks), gained),
        Card("Regressed", count_cell(found.num_regressed), _strict(found.num_broken, _BROKEN)),
        Card("Improved", count_cell(found.num_improved), _strict(found.num_fixed, _FIXED)),
        Card("Flaky", count_cell(found.num_flaky), _FLAKY),
    ]


def _p_cell(value: float | None) -> Shown | None:
    return None if value is None else Shown(value, p_value(value))


def _strict(count: int | None, what: str) -> str:
    return "no threshold of success" if count is None else f"{count:,} of them {what}"


def _doubts(found: Comparison) -> list[str]:
    """Return the reasons for doubt, and the tasks that are left out."""
    doubts = [f"The runs differ in more than the model: {drift}." for drift in found.drift]
    doubts += [f"Not checked, since a run does not record it: {name}." for name in found.unknown]
    doubts += [f"{_capitalized(warning)}." for warning in found.warnings]
    unmatched = found.unmatched
    counted = (
        (unmatched.num_only_a, "are scored only in A"),
        (unmatched.num_only_b, "are scored only in B"),
        (unmatched.num_too_few_attempts, "have too few attempts to compare"),
    )
    doubts += [f"Left out: {num:,} tasks that {what}." for num, what in counted if num]
    return doubts


def _settings(found: Comparison) -> Table | None:
    if not found.compared:
        return None
    rows = [(setting.name, setting.a, setting.b) for setting in found.compared]
    return Table("What is compared", ("setting", "A", "B"), rows)


def _method(found: Comparison) -> list[str]:
    estimate = found.difference
    lines = []
    if estimate is not None:
        error = estimate.standard_error
        said = "" if error is None else f", standard error {error:.4f}"
        lines.append(
            f"Difference: {estimate.estimator}; {estimate.num_values:,} attempts of "
            f"{estimate.num_clusters:,} tasks{said}."
        )
    lines.append(
        "Verdict by non-inferiority: PASS if B is not worse by the margin or more, FAIL if it "
        "is worse, else INCONCLUSIVE. Finding no difference is not a verdict."
    )
    return lines


def _scatter(found: Comparison) -> Chart | None:
    if not found.tasks:
        return None
    drawn = sample_of(found.tasks, seed="comparison")
    better = sum(task.difference > 0.0 for task in found.tasks)
    worse = sum(task.difference < 0.0 for task in found.tasks)
    equal = len(found.tasks) - better - worse
    places: dict[tuple[float, float], list[str]] = {}  # tasks at one place share a larger point
    for task in drawn:
        places.setdefault((task.value_a, task.value_b), []).append(task.task_id)
    table = Table(
        "Tasks by the sign of their difference",
        ("tasks", "count"),
        [
            ("better in B", count_cell(better)),
            ("worse in B", count_cell(worse)),
            ("equal", count_cell(equal)),
        ],
    )
    figure = points(
        [value_a for value_a, _ in places],
        [value_b for _, value_b in places],
        x_title=f"{found.metric} in A",
        y_title=f"{found.metric} in B",
        labels=[
            distinct_labels(ids)[0] if len(ids) == 1 else f"{len(ids):,} tasks"
            for ids in places.values()
        ],
        sizes=[len(ids) for ids in places.values()],
        diagonal=(min(0.0, *map(min, places)), max(map(max, places))),
    )
    words = f"{better:,} tasks are better in B, {worse:,} worse, {equal:,} equal."
    if len(drawn) < len(found.tasks):
        words += f" {len(drawn):,} of {len(found.tasks):,} tasks, drawn at random."
    return Chart("comparison-tasks", "Each task in A and in B", words, figure, table)


def _part_chart(
    name: str, field: str, parts: Mapping[str, Difference], metric: str
) -> Chart | None:
    """Show the difference for each slice of the tasks; None if there is only one."""
    if len(parts) < 2:
        return None
    known = [(value, d.difference) for value, d in parts.items() if d.difference is not None]
    table = Table(
        f"Difference by {field}",
        (field, "difference", "interval", "method", "p", "p (Holm)", "tasks", "A", "B", "verdict"),
        [
            (
                value,
                _signed(part.difference),
                interval_cell(part.difference.interval) if part.difference else None,
                method_cell(part.difference.interval) if part.difference else None,
                _p_cell(part.p_value),
                _p_cell(part.p_adjusted),
                count_cell(part.num_tasks),
                number_cell(part.mean_a),
                number_cell(part.mean_b),
                part.verdict,
            )
            for value, part in parts.items()
        ],
    )
    figure = None
    words = f"{len(parts):,} slices; their p-values are adjusted by Holm's method."
    if len(known) > MAX_DRAWN:
        words += f" Drawn: the first {MAX_DRAWN}."
    if known:
        drawn = known[:MAX_DRAWN]
        figure = ranges(
            distinct_labels(value for value, _ in drawn),
            [one.value for _, one in drawn],
            [one.interval for _, one in drawn],
            x_title=f"difference in {metric}, B - A",
            mark=0.0,
        )
    return Chart(name, f"Difference by {field}", words, figure, table)


def _changes(found: Comparison) -> list[tuple[str, Table | None]]:
    """Return the largest regressions, and the tasks with a mark, largest differences first."""
    lost = found.regressions
    title = f"Largest regressions: {len(lost)} of {found.num_regressed:,}"
    tables = [(title, _task_table("Tasks that lost most in B", lost) if lost else None)]
    for mark, what, is_marked in (
        ("Broken", _BROKEN, lambda task: task.change == "broken"),
        ("Fixed", _FIXED, lambda task: task.change == "fixed"),
        ("Flaky", _FLAKY, lambda task: bool(task.flaky_in)),
    ):
        own = [task for task in found.tasks if is_marked(task)]
        own.sort(key=lambda task: -abs(task.difference))
        table = _task_table(f"Tasks that {what}", own) if own else None
        tables.append((f"{mark} tasks: {len(own):,}", table))
    return tables


def _task_table(caption: str, tasks: Sequence[TaskDifference]) -> Table:
    note = f"{MAX_TASKS} of {len(tasks):,}." if len(tasks) > MAX_TASKS else ""
    head = ("passed in A", "of", "passed in B", "of", "A", "B", "difference", "flaky in")
    return Table(
        caption,
        ("task", "environment", *head),
        [
            (
                task.task_id,
                task.env,
                count_cell(task.num_passes_a),
                count_cell(task.num_attempts_a),
                count_cell(task.num_passes_b),
                count_cell(task.num_attempts_b),
                number_cell(task.value_a),
                number_cell(task.value_b),
                number_cell(task.difference),
                task.flaky_in,
            )
            for task in tasks[:MAX_TASKS]
        ],
        note,
    )


def _signed(found: Estimate | None) -> Shown | None:
    """Show a difference with its sign."""
    shown = number_cell(found.value if found else None)
    return shown if shown is None or shown.value <= 0.0 else shown._replace(text=f"+{shown.text}")
