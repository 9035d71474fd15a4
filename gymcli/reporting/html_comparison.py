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

    `b` is judged against the baseline `a`; `by` names fields of the task rows to slice by.
    """
    try:
        comparison = compare_runs(a, b, env=env, by=by, allow_drift=True, with_tasks=True)
    except (RunError, UsageError) as error:
        return ComparisonSection(word="NOT COMPARED", words=f"{error}.")
    fields = [("environment", comparison.environments), *comparison.slices.items()]
    charts = [
        _part_chart(f"comparison-{place}", field, parts, comparison.metric)
        for place, (field, parts) in enumerate(fields)
    ]
    return ComparisonSection(
        word=comparison.verdict,
        words=_words(comparison),
        sides=[
            (name, f"{run.run} ({run.model})" if run.model else run.run)
            for name, run in (("A", comparison.a), ("B", comparison.b))
        ],
        cards=_cards(comparison),
        doubts=_doubts(comparison),
        charts=[chart for chart in (_scatter(comparison), *charts) if chart is not None],
        changes=_changes(comparison),
        settings=_settings(comparison),
        method=_method(comparison),
        comparison=comparison,
    )


def _words(comparison: Comparison) -> str:
    margin = "" if comparison.margin is None else f" of {comparison.margin:.4g}"
    by_verdict = {
        "PASS": f"B is not worse than A by the margin{margin} or more.",
        "FAIL": "B is worse than A.",
        "INCONCLUSIVE": f"These tasks cannot show whether B is worse than A by the margin{margin}.",
    }
    if comparison.is_same_run:
        return f"{_capitalized(comparison.way_out)}."
    advice = f" {_capitalized(comparison.way_out)}." if comparison.way_out else ""
    passes = passes_with(comparison.smallest_margin)
    return f"{by_verdict[comparison.verdict]}{advice}{f' B {passes}.' if passes else ''}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]  # str.capitalize would lower-case the rest, names included


def _cards(comparison: Comparison) -> list[Card]:
    difference = comparison.difference
    interval_text = "no interval"
    if difference is not None and difference.interval is not None:
        interval = difference.interval
        interval_text = f"B - A; {interval_cell(interval)} ({method_cell(interval)})"
    pairing_text = "compared task by task"
    if comparison.variance_reduction is not None and comparison.correlation is not None:
        part = f"{abs(comparison.variance_reduction):.0%}".replace("%", " %")
        change = f"took {part} off" if comparison.variance_reduction >= 0.0 else f"added {part} to"
        pairing_text = f"correlation {comparison.correlation:.2f}; pairing {change} the variance"
    return [
        Card(f"Difference in {comparison.metric}", _signed(difference), interval_text),
        Card("A", number_cell(comparison.mean_a), f"{comparison.num_attempts_a:,} attempts"),
        Card("B", number_cell(comparison.mean_b), f"{comparison.num_attempts_b:,} attempts"),
        Card("p-value", _p_cell(comparison.p_value), comparison.test or "no test"),
        Card("Tasks in both", count_cell(comparison.num_tasks), pairing_text),
        Card(
            "Regressed",
            count_cell(comparison.num_regressed),
            _strict(comparison.num_broken, _BROKEN),
        ),
        Card(
            "Improved", count_cell(comparison.num_improved), _strict(comparison.num_fixed, _FIXED)
        ),
        Card("Flaky", count_cell(comparison.num_flaky), _FLAKY),
    ]


def _p_cell(value: float | None) -> Shown | None:
    return None if value is None else Shown(value, p_value(value))


def _strict(count: int | None, description: str) -> str:
    return "no threshold of success" if count is None else f"{count:,} of them {description}"


def _doubts(comparison: Comparison) -> list[str]:
    doubts = [f"The runs differ in more than the model: {drift}." for drift in comparison.drift]
    doubts += [
        f"Not checked, since a run does not record it: {name}." for name in comparison.unknown
    ]
    doubts += [f"{_capitalized(warning)}." for warning in comparison.warnings]
    unmatched = comparison.unmatched
    counted = (
        (unmatched.num_only_a, "are scored only in A"),
        (unmatched.num_only_b, "are scored only in B"),
        (unmatched.num_too_few_attempts, "have too few attempts to compare"),
    )
    doubts += [f"Left out: {num:,} tasks that {words}." for num, words in counted if num]
    return doubts


def _settings(comparison: Comparison) -> Table | None:
    if not comparison.compared:
        return None
    rows = [(setting.name, setting.a, setting.b) for setting in comparison.compared]
    return Table("What is compared", ("setting", "A", "B"), rows)


def _method(comparison: Comparison) -> list[str]:
    estimate = comparison.difference
    lines = []
    if estimate is not None:
        error = estimate.standard_error
        error_text = "" if error is None else f", standard error {error:.4f}"
        lines.append(
            f"Difference: {estimate.estimator}; {estimate.num_values:,} attempts of "
            f"{estimate.num_clusters:,} tasks{error_text}."
        )
    lines.append(
        "Verdict by non-inferiority: PASS if B is not worse by the margin or more, FAIL if it "
        "is worse, else INCONCLUSIVE. Finding no difference is not a verdict."
    )
    return lines


def _scatter(comparison: Comparison) -> Chart | None:
    if not comparison.tasks:
        return None
    drawn = sample_of(comparison.tasks, seed="comparison")
    better = sum(task.difference > 0.0 for task in comparison.tasks)
    worse = sum(task.difference < 0.0 for task in comparison.tasks)
    equal = len(comparison.tasks) - better - worse
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
        x_title=f"{comparison.metric} in A",
        y_title=f"{comparison.metric} in B",
        labels=[
            distinct_labels(ids)[0] if len(ids) == 1 else f"{len(ids):,} tasks"
            for ids in places.values()
        ],
        sizes=[len(ids) for ids in places.values()],
        diagonal=(min(0.0, *map(min, places)), max(map(max, places))),
    )
    words = f"{better:,} tasks are better in B, {worse:,} worse, {equal:,} equal."
    if len(drawn) < len(comparison.tasks):
        words += f" {len(drawn):,} of {len(comparison.tasks):,} tasks, drawn at random."
    return Chart("comparison-tasks", "Each task in A and in B", words, figure, table)


def _part_chart(
    name: str, field: str, parts: Mapping[str, Difference], metric: str
) -> Chart | None:
    """Show the difference for each slice of the tasks; None if there is only one."""
    if len(parts) < 2:
        return None
    estimates = [(value, d.difference) for value, d in parts.items() if d.difference is not None]
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
    if len(estimates) > MAX_DRAWN:
        words += f" Drawn: the first {MAX_DRAWN}."
    if estimates:
        drawn = estimates[:MAX_DRAWN]
        figure = ranges(
            distinct_labels(value for value, _ in drawn),
            [estimate.value for _, estimate in drawn],
            [estimate.interval for _, estimate in drawn],
            x_title=f"difference in {metric}, B - A",
            mark=0.0,
        )
    return Chart(name, f"Difference by {field}", words, figure, table)


def _changes(comparison: Comparison) -> list[tuple[str, Table | None]]:
    """Return the largest regressions, and the tasks with a mark, largest differences first."""
    lost = comparison.regressions
    title = f"Largest regressions: {len(lost)} of {comparison.num_regressed:,}"
    tables = [(title, _task_table("Tasks that lost most in B", lost) if lost else None)]
    for mark, description, is_marked in (
        ("Broken", _BROKEN, lambda task: task.change == "broken"),
        ("Fixed", _FIXED, lambda task: task.change == "fixed"),
        ("Flaky", _FLAKY, lambda task: bool(task.flaky_in)),
    ):
        marked_tasks = [task for task in comparison.tasks if is_marked(task)]
        marked_tasks.sort(key=lambda task: -abs(task.difference))
        table = _task_table(f"Tasks that {description}", marked_tasks) if marked_tasks else None
        tables.append((f"{mark} tasks: {len(marked_tasks):,}", table))
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


def _signed(estimate: Estimate | None) -> Shown | None:
    cell = number_cell(estimate.value if estimate else None)
    return cell if cell is None or cell.value <= 0.0 else cell._replace(text=f"+{cell.text}")
