"""What the page says of each run, in order: first how it went and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gymcli.metrics.gates import GateVerdict
from gymcli.metrics.results import Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.formatting import cost, number
from gymcli.reporting.html_charts import (
    AttemptColumns,
    component_chart,
    counts_tables,
    curve_chart,
    effort_charts,
    environments_table,
    estimates_table,
    failure_chart,
    flaky_table,
    reward_chart,
    slice_charts,
    spread_chart,
)
from gymcli.reporting.html_parts import (
    Card,
    Cell,
    Chart,
    Table,
    amount_cell,
    count_cell,
    interval_cell,
    method_cell,
    number_cell,
    share_cell,
    total_cell,
)
from gymcli.runner.measure import index_run, measure
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.types import JSONObject

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_TASKS",
    "EnvironmentSection",
    "ReportedRun",
    "RunSection",
    "TaskData",
    "read_run",
    "run_section",
    "runs_table",
    "task_data",
]

MAX_TASKS = 20_000
"""Tasks of one run that a page holds; of more, those with the lowest mean rewards."""
MAX_ATTEMPTS = 64
"""Attempts of one task that the heat map shows."""
_MAX_ANSWER = 80
_MAX_ID = 200
_LOW_COVERAGE = 0.95
_YEAR_10_000 = 253_402_300_800.0
"""In seconds since 1970: what no date can be given of."""


@dataclass(frozen=True)
class ReportedRun:
    """One run as it was read."""

    name: str
    """As it was given."""
    manifest: Manifest | None
    models: Sequence[str]
    metrics: RunMetrics
    warnings: Sequence[str]
    """What is wrong with the numbers."""
    tasks: Sequence[TaskMetrics]
    attempts: Mapping[str, AttemptColumns]
    """By environment."""
    best_rewards: Mapping[str, float | None]
    """The best reward that there can be, by environment; None: unbounded, or not known."""


def read_run(path: Path, *, env: str | None = None, by: Sequence[str] = ()) -> ReportedRun:
    """Read a run directory, or a rollout file of ours or of NeMo Gym.

    Args:
        path: The directory or the file.
        env: The environment of lines that name none.
        by: Fields of the task rows to slice the numbers by.

    Raises:
        UsageError: The path or one of its lines is wrong, or a field has too many values.

    """
    manifest = read_manifest(path) if path.is_dir() else None
    aggregator = measure(path, env=env, by=by)
    attempts: dict[str, AttemptColumns] = {}
    models: dict[str, None] = {}
    with index_run(path, env=env) as index:
        for row in index.rows:
            own = attempts.setdefault(row.env, AttemptColumns())
            own.add(row.task_id, row.attempt, row.reward)
            if row.model is not None:
                models[row.model] = None
            if row.reward is None:
                continue
            own.rewards.append(row.reward)
            own.num_turns.append(row.num_turns)
            own.seconds.append(row.seconds or 0.0)
            own.prompt_tokens.append(row.prompt_tokens)
            own.completion_tokens.append(row.completion_tokens)
    known = manifest.environments if manifest else {}
    return ReportedRun(
        name=str(path),
        manifest=manifest,
        models=[manifest.model] if manifest and manifest.model else list(models),
        metrics=aggregator.metrics(),
        warnings=aggregator.warnings,
        tasks=aggregator.task_rows(),
        attempts=dict(sorted(attempts.items())),
        best_rewards={name: record.max_reward for name, record in known.items()},
    )


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
    run: ReportedRun, anchor: str, *, verdicts: Sequence[GateVerdict] = ()
) -> RunSection:
    """Put together what the page shows of a run.

    Args:
        run: The run.
        anchor: What names it within the page.
        verdicts: What gates say of it.

    """
    metrics = run.metrics
    several = len(metrics.environments) > 1
    tasks = task_data(run.tasks, run.attempts, run.best_rewards)
    sections = []
    for place, (env, found) in enumerate(metrics.environments.items()):
        sections.append(_environment_section(run, env, found, f"{anchor}-{place}"))
    return RunSection(
        anchor=anchor,
        name=run.name,
        facts=_facts(run),
        verdicts=[(found.verdict, _judged(found)) for found in verdicts],
        cards=_cards(metrics),
        doubts=_doubts(run),
        advice=_advice(metrics),
        environments=environments_table(metrics),
        by_environment=sections,
        effort=effort_charts(anchor, metrics, run.attempts),
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
    run: ReportedRun, env: str, found: Metrics, anchor: str
) -> EnvironmentSection:
    own = run.attempts.get(env, AttemptColumns())
    tokens = list(zip(own.completion_tokens, own.rewards, strict=True))
    turns = list(zip(own.num_turns, own.rewards, strict=True))
    best = run.best_rewards.get(env)
    if min(own.rewards, default=0.0) < 0.0 or max(own.rewards, default=0.0) > (best or 0.0):
        best = None
    charts = (
        reward_chart(f"{anchor}-rewards", own.rewards, best=best),
        curve_chart(f"{anchor}-k", found, best=best),
        spread_chart(f"{anchor}-tokens", "completion tokens", tokens, seed=env, best=best),
        spread_chart(f"{anchor}-turns", "turns", turns, seed=env, best=best),
        component_chart(anchor, found),
    )
    mean = number_cell(found.mean_reward)
    words = "nothing is scored" if mean is None else f"mean reward {mean.text}"
    if found.interval is not None:
        words += f" ({interval_cell(found.interval)})"
    return EnvironmentSection(
        name=env,
        words=words,
        charts=[chart for chart in charts if chart is not None],
        flaky=flaky_table([task for task in run.tasks if task.env == env]),
        numbers=estimates_table(found),
    )


def _facts(run: ReportedRun) -> list[tuple[str, str]]:
    """Return what was run, from the run's own record."""
    found = [("Model", ", ".join(run.models))]
    manifest = run.manifest
    found.append(("Environments", ", ".join(run.metrics.environments)))
    if manifest is None:
        return [fact for fact in found if fact[1]]
    params = manifest.identity.get("params")
    if isinstance(params, dict):
        found.append(("Sampling", ", ".join(f"{name} {value}" for name, value in params.items())))
    if 0.0 < manifest.started_at < _YEAR_10_000:
        start = datetime.fromtimestamp(manifest.started_at, UTC)
        found.append(("Started", f"{start:%Y-%m-%d %H:%M} UTC"))
    if manifest.seconds:
        found.append(("Took", f"{manifest.seconds:,.0f} s"))
    if manifest.shard:
        found.append(("Shard", manifest.shard))
    found.append(("gymcli", manifest.gymcli_version))
    found.append(("Commit", (manifest.git_commit or "")[:12]))
    return [fact for fact in found if fact[1]]


def _cards(metrics: Metrics) -> list[Card]:
    """Return the numbers that matter most."""
    interval = metrics.interval
    sure = f"{interval_cell(interval)} ({method_cell(interval)})" if interval else "no interval"
    if metrics.mean_reward is None and metrics.num_scored:
        sure = "environments with different best rewards, or unknown ones: see each"
    expected = number(metrics.num_expected, ",", unknown="unknown")
    found = [
        Card("Mean reward", number_cell(metrics.mean_reward), sure),
        Card(
            "Coverage",
            share_cell(metrics.coverage),
            f"{metrics.num_scored:,} scored of {expected} expected",
        ),
        Card(
            "Strict mean",
            number_cell(metrics.strict_mean_reward),
            f"absent attempts as 0; bounds {interval_cell(metrics.bounds)}"
            if metrics.bounds
            else "absent attempts as 0",
        ),
        Card(
            "Unscored", count_cell(metrics.num_unscored), "attempts that failed and have no score"
        ),
        Card(
            "Flaky tasks",
            count_cell(metrics.num_flaky_tasks),
            f"of {metrics.num_clusters:,} tasks with a score",
        ),
    ]
    tokens = metrics.usage.get("prompt_tokens", 0) + metrics.usage.get("completion_tokens", 0)
    if tokens:
        found.append(Card("Tokens", total_cell(tokens), f"cost {cost(metrics.cost)}"))
    return found


def _doubts(run: ReportedRun) -> list[str]:
    """Return what makes the numbers doubtful."""
    metrics = run.metrics
    found = [f"{warning}." for warning in run.warnings]
    if not metrics.num_scored:
        found.append("Nothing is scored, so there is no number about rewards.")
    if metrics.num_expected is None:
        found.append("A rollout file alone does not say how many attempts were expected.")
    elif metrics.coverage is not None and metrics.coverage < _LOW_COVERAGE:
        missing = metrics.num_expected - metrics.num_scored
        found.append(
            f"{missing:,} of {metrics.num_expected:,} expected attempts have no score; "
            "the same gym collect goes on with them."
        )
    return found


def _advice(metrics: RunMetrics) -> list[str]:
    """Return the advice that follows from the numbers of each environment."""
    several = len(metrics.environments) > 1
    return [
        f"{env}: {sentence}" if several else sentence
        for env, found in metrics.environments.items()
        for sentence in found.advice
    ]


def _judged(found: GateVerdict) -> str:
    """Return what a gate was judged by."""
    interval = f", {interval_cell(found.interval)} ({method_cell(found.interval)})"
    way_out = f"; {found.way_out}" if found.way_out else ""
    return f"{found.gate}: it is {found.value:,.4g}{interval if found.interval else ''}{way_out}"


class TaskData(NamedTuple):
    """The tasks of one run, as far as the page holds them."""

    data: JSONObject
    num_tasks: int
    """Of the run."""
    num_held: int
    num_attempts: int
    """The most that a task has."""

    @property
    def note(self) -> str:
        """What of the run is left out; empty: nothing."""
        if self.num_held == self.num_tasks:
            return ""
        return (
            f"This page holds the {self.num_held:,} tasks with the lowest mean rewards of "
            f"{self.num_tasks:,}; gym metrics --by-task prints all."
        )

    @property
    def attempts_note(self) -> str:
        """What the heat map shows, and what it leaves out."""
        notes = [
            "A row for each task, the worst first; a column for each attempt; a cross is an "
            "attempt without a score. Dark orange is 0 or the lowest reward of the environment, "
            "dark blue the best that there can be or, where that is not known, the highest."
        ]
        if self.num_attempts > MAX_ATTEMPTS:
            notes.append(
                f"Shown: the first {MAX_ATTEMPTS} of up to {self.num_attempts:,} attempts."
            )
        return " ".join([*notes, self.note]).rstrip()


def task_data(
    tasks: Sequence[TaskMetrics],
    attempts: Mapping[str, AttemptColumns],
    best_rewards: Mapping[str, float | None],
) -> TaskData:
    """Return the tasks, worst first: those without a score, then by mean reward.

    Args:
        tasks: All tasks of the run.
        attempts: Their attempts, by environment.
        best_rewards: The best reward that there can be, by environment, where it is known.

    """
    ordered = sorted(tasks, key=_worst_first)[:MAX_TASKS]
    environments = sorted({task.env for task in ordered})
    place = {env: number for number, env in enumerate(environments)}
    most = 0
    strips: list[list[float | str | None]] = []
    of_tasks = {
        env: own.of_tasks(task.task_id for task in ordered if task.env == env)
        for env, own in attempts.items()
    }
    for task in ordered:
        strip, num = _strip(of_tasks.get(task.env, {}).get(task.task_id, {}))
        strips.append(strip)
        most = max(most, num)
    data: JSONObject = {
        "environments": environments,
        "env": [place[task.env] for task in ordered],
        "id": [_cut(task.task_id, _MAX_ID) for task in ordered],
        "scored": [task.num_scored for task in ordered],
        "unscored": [task.num_unscored for task in ordered],
        "passed": [task.num_passes for task in ordered],
        "mean": [task.mean_reward for task in ordered],
        "min": [task.min_reward for task in ordered],
        "max": [task.max_reward for task in ordered],
        "answer": [_cut(task.majority_answer or "", _MAX_ANSWER) for task in ordered],
        "attempts": strips,
        "ranges": [_range(tasks, env, best_rewards.get(env)) for env in environments],
    }
    return TaskData(data, len(tasks), len(ordered), most)


def _strip(attempts: Mapping[int, float | None]) -> tuple[list[float | str | None], int]:
    """Return the rewards of attempts 0, 1, 2, ... and their number.

    "x" stands for an attempt without a reward, None for one without a record.
    """
    num = max(attempts, default=-1) + 1
    strip: list[float | str | None] = []
    for attempt in range(min(num, MAX_ATTEMPTS)):
        reward = attempts.get(attempt)
        strip.append("x" if reward is None and attempt in attempts else reward)
    return strip, num


def _range(tasks: Sequence[TaskMetrics], env: str, best: float | None) -> list[float]:
    """Return the rewards of an environment between which its colours range."""
    ends = [end for task in tasks if task.env == env for end in (task.min_reward, task.max_reward)]
    rewards = [end for end in ends if end is not None]
    high = max(rewards, default=0.0)
    return [min([0.0, *rewards]), high if best is None else max(high, best)]


def _worst_first(task: TaskMetrics) -> tuple[float, str, str]:
    mean = float("-inf") if task.mean_reward is None else task.mean_reward
    return (mean, task.env, task.task_id)


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _method(metrics: RunMetrics) -> list[str]:
    """Return how the numbers were computed."""
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


def runs_table(runs: Sequence[ReportedRun]) -> Table:
    """Return a row for each run."""
    return Table(
        "Runs",
        (
            *("run", "model", "environments", "scored", "coverage", "mean reward"),
            *("interval", "strict mean", "unscored", "flaky tasks", "p50 seconds", "cost"),
        ),
        [(run.name, ", ".join(run.models), *_run_cells(run)) for run in runs],
    )


def _run_cells(run: ReportedRun) -> tuple[Cell, ...]:
    found = run.metrics
    return (
        ", ".join(found.environments),
        count_cell(found.num_scored),
        share_cell(found.coverage),
        number_cell(found.mean_reward),
        interval_cell(found.interval),
        number_cell(found.strict_mean_reward),
        count_cell(found.num_unscored),
        count_cell(found.num_flaky_tasks),
        amount_cell(found.latency.total_seconds.p50 if found.latency else None),
        amount_cell(found.cost),
    )
