"""What the page says of each run, in order: first how it went and how sure that is."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from gymcli.metrics import Metrics, RunMetrics, TaskMetrics
from gymcli.metrics.estimators import percentile
from gymcli.metrics.gates import GateVerdict
from gymcli.metrics.results import Percentiles
from gymcli.reporting.html_charts import (
    component_chart,
    counts_tables,
    curve_chart,
    environments_table,
    estimates_table,
    failure_chart,
    flaky_table,
    reward_chart,
    slice_charts,
    spread_chart,
)
from gymcli.reporting.html_figures import Line, lines
from gymcli.reporting.html_parts import (
    Attempts,
    Card,
    Cell,
    Chart,
    RunReading,
    Table,
    amount,
    between,
    count,
    method_of,
    number,
    share,
    total,
)
from gymcli.types import JSONObject

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_TASKS",
    "EnvironmentSection",
    "RunSection",
    "TaskData",
    "advice",
    "cards",
    "doubts",
    "effort_charts",
    "facts",
    "judged",
    "run_section",
    "runs_table",
    "task_data",
]


_LOW_COVERAGE = 0.95
_YEAR_10_000 = 253_402_300_800.0
"""In seconds since 1970: what no date can be given of."""


def facts(reading: RunReading) -> list[tuple[str, str]]:
    """Say what was run, from the run's own record."""
    found = [("Model", ", ".join(reading.models))]
    manifest = reading.manifest
    found.append(("Environments", ", ".join(reading.metrics.environments)))
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


def cards(metrics: Metrics) -> list[Card]:
    """Give the numbers that matter first."""
    interval = metrics.interval
    sure = f"{between(interval)} ({method_of(interval)})" if interval else "no interval"
    if metrics.mean_reward is None and metrics.num_scored:
        sure = "environments with different best rewards, or unknown ones: see each"
    expected = "unknown" if metrics.num_expected is None else f"{metrics.num_expected:,}"
    bounds = metrics.bounds
    found = [
        Card("Mean reward", number(metrics.mean_reward), sure),
        Card(
            "Coverage",
            share(metrics.coverage),
            f"{metrics.num_scored:,} scored of {expected} expected",
        ),
        Card(
            "Strict mean",
            number(metrics.strict_mean_reward),
            f"absent attempts as 0; bounds {bounds.low:,.3f} .. {bounds.high:,.3f}"
            if bounds
            else "absent attempts as 0",
        ),
        Card("Unscored", count(metrics.num_unscored), "attempts that failed and have no score"),
        Card(
            "Flaky tasks",
            count(metrics.num_flaky_tasks),
            f"of {metrics.num_clusters:,} tasks with a score",
        ),
    ]
    tokens = metrics.usage.get("prompt_tokens", 0) + metrics.usage.get("completion_tokens", 0)
    if tokens:
        cost = "unknown" if metrics.cost is None else f"{metrics.cost:,.4f}"
        found.append(Card("Tokens", total(tokens), f"cost {cost}"))
    return found


def doubts(reading: RunReading) -> list[str]:
    """Say what leaves the numbers open."""
    metrics = reading.metrics
    found = [f"{warning}." for warning in reading.warnings]
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


def advice(metrics: RunMetrics) -> list[str]:
    """Give what follows from the numbers of each environment."""
    several = len(metrics.environments) > 1
    return [
        f"{env}: {sentence}" if several else sentence
        for env, found in metrics.environments.items()
        for sentence in found.advice
    ]


def judged(found: GateVerdict) -> str:
    """Say of a gate what it was judged by."""
    interval = f", {between(found.interval)} ({method_of(found.interval)})"
    way_out = f"; {found.way_out}" if found.way_out else ""
    return f"{found.gate}: it is {found.value:,.4g}{interval if found.interval else ''}{way_out}"


MAX_TASKS = 20_000
"""Tasks of one run that a page holds; of more, those with the lowest mean rewards."""
MAX_ATTEMPTS = 64
"""Attempts of one task that the heat map shows."""
_MAX_ANSWER = 80
_MAX_ID = 200


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
    attempts: Mapping[str, Attempts],
    best_rewards: Mapping[str, float | None],
) -> TaskData:
    """Give the tasks, worst first: those without a score, then by mean reward.

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
    """Give the reward of attempts 0, 1, 2, ...: "x" where there is none, None without a record."""
    num = max(attempts, default=-1) + 1
    strip: list[float | str | None] = []
    for attempt in range(min(num, MAX_ATTEMPTS)):
        reward = attempts.get(attempt)
        strip.append("x" if reward is None and attempt in attempts else reward)
    return strip, num


def _range(tasks: Sequence[TaskMetrics], env: str, best: float | None) -> list[float]:
    """Give the rewards of an environment between which colours are shared out."""
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


_FRACTIONS = (0.50, 0.90, 0.95, 0.99)
_CURVE = tuple(step / 50 for step in range(51))
_MAX_LINES = 5
"""Environments that have a line of their own."""


def effort_charts(name: str, metrics: Metrics, attempts: Mapping[str, Attempts]) -> list[Chart]:
    """Show percentiles of seconds and of tokens, over all environments and for each."""
    rows: list[tuple[Cell, ...]] = []
    if metrics.latency is not None:
        rows.append(("whole attempt", *_four(metrics.latency.total_seconds)))
        rows.append(("in the model", *_four(metrics.latency.model_seconds)))
    seconds = {env: _recorded(own.seconds) for env, own in attempts.items()}
    charts = []
    if rows:
        rows += _rows_of(seconds) if len(seconds) > 1 else ()
        words = f"Half of the attempts took up to {_half(rows[0])} seconds."
        table = Table("Seconds an attempt took", ("seconds", *_HEAD), rows)
        charts.append(
            Chart(f"{name}-seconds", "Seconds", words, _curves(seconds, "seconds"), table)
        )
    prompt = {env: _recorded(own.prompt_tokens) for env, own in attempts.items()}
    completion = {env: _recorded(own.completion_tokens) for env, own in attempts.items()}
    rows = [*_rows_of({"completion": _joined(completion), "prompt": _joined(prompt)})]
    if rows:
        if len(attempts) > 1:
            rows += _rows_of({f"completion, {env}": own for env, own in completion.items()})
        words = f"Half of the attempts took up to {_half(rows[0])} {_first(rows)} tokens."
        table = Table("Tokens an attempt took", ("tokens", *_HEAD), rows)
        figure = _curves(completion, "completion tokens")
        charts.append(Chart(f"{name}-tokens", "Tokens", words, figure, table))
    return charts


_HEAD = ("p50", "p90", "p95", "p99", "attempts")


def _four(found: Percentiles) -> tuple[Cell, ...]:
    return (amount(found.p50), amount(found.p90), amount(found.p95), amount(found.p99), None)


def _recorded(values: array[float]) -> list[float]:
    return sorted(value for value in values if value > 0.0)


def _joined(values: Mapping[str, Sequence[float]]) -> list[float]:
    return sorted(value for own in values.values() for value in own)


def _rows_of(values: Mapping[str, Sequence[float]]) -> list[tuple[Cell, ...]]:
    return [
        (title, *(amount(percentile(own, fraction)) for fraction in _FRACTIONS), count(len(own)))
        for title, own in values.items()
        if own
    ]


def _half(row: Sequence[Cell]) -> str:
    half = row[1]
    return half.text if isinstance(half, tuple) else "-"


def _first(rows: Sequence[Sequence[Cell]]) -> str:
    return str(rows[0][0])


def _curves(values: Mapping[str, Sequence[float]], what: str) -> dict[str, object] | None:
    """Draw how much the slowest so many per cent took; None where nothing was recorded."""
    known = {env: own for env, own in values.items() if own}
    if len(known) > _MAX_LINES:
        known = {"all environments": _joined(known)}
    if not known:
        return None
    percents = [100 * fraction for fraction in _CURVE]
    drawn = [
        Line(env, percents, [percentile(own, fraction) for fraction in _CURVE])
        for env, own in known.items()
    ]
    return lines(drawn, x_title="percentile of attempts", y_title=what)


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
