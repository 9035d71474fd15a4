"""What the page says of each run, in order: first how it went and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gymcli.metrics import Metrics, RunMetrics
from gymcli.metrics.gates import GateVerdict
from gymcli.reporting.html_breakdowns import (
    component_chart,
    counts_tables,
    environments_table,
    estimates_table,
    failure_chart,
    flaky_table,
    slice_charts,
)
from gymcli.reporting.html_effort import effort_charts
from gymcli.reporting.html_parts import (
    Card,
    Cell,
    Chart,
    Table,
    amount,
    between,
    count,
    number,
    share,
)
from gymcli.reporting.html_reading import Attempts, RunReading
from gymcli.reporting.html_rewards import curve_chart, reward_chart, spread_chart
from gymcli.reporting.html_tasks import TaskData, task_data
from gymcli.reporting.html_verdict import advice, cards, doubts, facts, judged

__all__ = ["EnvironmentSection", "RunSection", "run_section", "runs_table"]


class EnvironmentSection(NamedTuple):
    """The charts of one environment's rewards."""

    name: str
    words: str
    charts: Sequence[Chart]
    flaky: Table | None
    numbers: Table | None


class RunSection(NamedTuple):
    """Everything that the page shows of one run."""

    anchor: str
    name: str
    facts: Sequence[tuple[str, str]]
    verdicts: Sequence[tuple[str, str]]
    """Of each gate the word, `PASS`, `FAIL` or `INCONCLUSIVE`, and why."""
    cards: Sequence[Card]
    doubts: Sequence[str]
    advice: Sequence[str]
    environments: Table
    by_environment: Sequence[EnvironmentSection]
    effort: Sequence[Chart]
    failures: Chart | None
    counts: Sequence[Table]
    slices: Sequence[Chart]
    tasks: TaskData
    method: Sequence[str]


def run_section(
    reading: RunReading, anchor: str, *, verdicts: Sequence[GateVerdict] = ()
) -> RunSection:
    """Put together what the page shows of a run.

    Args:
        reading: The run.
        anchor: What names it within the page.
        verdicts: What gates say of it.

    """
    metrics = reading.metrics
    several = len(metrics.environments) > 1
    tasks = task_data(reading.tasks, reading.attempts, reading.best_rewards)
    sections = []
    for place, (env, found) in enumerate(metrics.environments.items()):
        sections.append(_environment_section(reading, env, found, f"{anchor}-{place}"))
    return RunSection(
        anchor=anchor,
        name=reading.name,
        facts=facts(reading),
        verdicts=[(found.verdict, judged(found)) for found in verdicts],
        cards=cards(metrics),
        doubts=doubts(reading),
        advice=advice(metrics),
        environments=environments_table(metrics),
        by_environment=sections,
        effort=effort_charts(anchor, metrics, reading.attempts),
        failures=failure_chart(anchor, metrics),
        counts=counts_tables(metrics),
        slices=[
            chart
            for place, (env, found) in enumerate(metrics.environments.items())
            for chart in slice_charts(f"{anchor}-{place}", found, env if several else "")
        ],
        tasks=tasks,
        method=_method(metrics),
    )


def _environment_section(
    reading: RunReading, env: str, found: Metrics, anchor: str
) -> EnvironmentSection:
    own = reading.attempts.get(env, Attempts())
    tokens = list(zip(own.completion_tokens, own.rewards, strict=True))
    turns = list(zip(own.num_turns, own.rewards, strict=True))
    best = reading.best_rewards.get(env)
    if min(own.rewards, default=0.0) < 0.0 or max(own.rewards, default=0.0) > (best or 0.0):
        best = None
    charts = (
        reward_chart(f"{anchor}-rewards", own.rewards, best=best),
        curve_chart(f"{anchor}-k", found, best=best),
        spread_chart(f"{anchor}-tokens", "completion tokens", tokens, seed=env, best=best),
        spread_chart(f"{anchor}-turns", "turns", turns, seed=env, best=best),
        component_chart(anchor, found),
    )
    mean = number(found.mean_reward)
    words = "nothing is scored" if mean is None else f"mean reward {mean.text}"
    if found.interval is not None:
        words += f" ({between(found.interval)})"
    return EnvironmentSection(
        name=env,
        words=words,
        charts=[chart for chart in charts if chart is not None],
        flaky=flaky_table([task for task in reading.tasks if task.env == env]),
        numbers=estimates_table(found),
    )


def runs_table(readings: Sequence[RunReading]) -> Table:
    """Give a row for each run."""
    return Table(
        "Runs",
        (
            *("run", "model", "environments", "scored", "coverage", "mean reward"),
            *("interval", "strict mean", "unscored", "flaky tasks", "p50 seconds", "cost"),
        ),
        [(reading.name, ", ".join(reading.models), *_run_cells(reading)) for reading in readings],
    )


def _run_cells(reading: RunReading) -> tuple[Cell, ...]:
    found = reading.metrics
    return (
        ", ".join(found.environments),
        count(found.num_scored),
        share(found.coverage),
        number(found.mean_reward),
        between(found.interval),
        number(found.strict_mean_reward),
        count(found.num_unscored),
        count(found.num_flaky_tasks),
        amount(found.latency.total_seconds.p50 if found.latency else None),
        amount(found.cost),
    )


def _method(metrics: RunMetrics) -> list[str]:
    """Say how the numbers were made."""
    lines = [
        "Mean reward: the mean over tasks of the mean reward of their scored attempts; every task "
        "weighs the same. Attempts of one task are not independent: errors and intervals are over "
        "tasks.",
        "Strict mean: the same with every expected attempt that has no score as 0. Bounds: with "
        "all of these as 0, and with all as the best reward.",
        "pass@k, pass^k, best@k: unbiased, per task, then the mean over the tasks with at least k "
        "scored attempts; a number for more attempts than were made is never given.",
    ]
    estimates = [one for found in metrics.environments.values() for one in found.estimates.values()]
    methods = {one.interval.method for one in estimates if one.interval}
    if "wilson-neff" in methods:
        lines.append(
            "wilson-neff: Wilson's interval on the effective number of attempts, adjusted for the "
            "number of tasks; for rewards between 0 and a known best one."
        )
    if "t" in methods:
        lines.append("t: Student's t interval over task means; for numbers without known ends.")
    lines.append(
        "Percentiles are interpolated between neighbours; times and tokens are those of scored "
        "attempts that recorded them."
    )
    return lines
