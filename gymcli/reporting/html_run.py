"""A run on the page: its numbers and their uncertainty, charts, failures and tasks."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from gymcli.comparison.gates import GateVerdict
from gymcli.comparison.reproduction import BenchmarkScore
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.at_k import METRICS
from gymcli.metrics.estimators import mean, percentile
from gymcli.metrics.measure import index_run, measure
from gymcli.metrics.results import Estimate, Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.formatting import (
    at_n,
    cost,
    have_flaky,
    number,
    reference_source,
    reference_text,
    settings_text,
    share,
)
from gymcli.reporting.html_parts import (
    ESTIMATE_HEAD,
    MAX_DRAWN,
    Card,
    Cell,
    Chart,
    Curve,
    Shown,
    Table,
    amount_cell,
    bars,
    count_cell,
    distinct_labels,
    estimate_cells,
    interval_cell,
    lines,
    method_cell,
    number_cell,
    points,
    ranges,
    sample_of,
    share_cell,
    total_cell,
)
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.types import JSONObject

MAX_TASKS = 20_000
"""The most tasks of a run on a page; of more, those with the lowest mean rewards."""
MAX_ATTEMPTS = 64
"""The most attempts of a task in the heat map."""
MAX_FLAKY = 50
_MAX_ANSWER = 80
_MAX_ID = 200
_LOW_COVERAGE = 0.95
_YEAR_10_000 = 253_402_300_800.0
"""Seconds since 1970; `datetime` cannot hold a later time."""

_NUM_BINS = 20
_NUM_GROUPS = 10
_FEW = 12
"""Up to this number of distinct values, each gets its own bin, group or tick."""
_FRACTIONS = tuple(step / 50 for step in range(51))
_MAX_LINES = 5
"""The most environments with a line each in a chart of percentiles; more share one line."""


def _numbers() -> array[float]:
    return array("d")


@dataclass
class AttemptColumns:
    """The attempts of one environment."""

    by_task: dict[str, dict[int, float | None]] = field(default_factory=dict)
    """The reward of each recorded attempt, by task; None if it has none."""
    rewards: array[float] = field(default_factory=_numbers)
    """Of the scored attempts, as are the columns below; 0 if not recorded."""
    num_turns: array[float] = field(default_factory=_numbers)
    seconds: array[float] = field(default_factory=_numbers)
    prompt_tokens: array[float] = field(default_factory=_numbers)
    completion_tokens: array[float] = field(default_factory=_numbers)


@dataclass(frozen=True)
class ReportedRun:
    """One run, as read from its files."""

    name: str
    """The path as the user typed it."""
    manifest: Manifest | None
    models: Sequence[str]
    metrics: RunMetrics
    warnings: Sequence[str]
    """Reasons to doubt the numbers."""
    tasks: Sequence[TaskMetrics]
    attempts: Mapping[str, AttemptColumns]
    """By environment."""
    best_rewards: Mapping[str, float | None]
    """The best possible reward, by environment; None if unbounded or unknown."""
    aggregator: Aggregator = field(default_factory=Aggregator)
    """Counted all lines."""


def read_run(
    path: Path, *, env: str | None = None, by: Sequence[str] = (), ks: Sequence[int] = ()
) -> ReportedRun:
    """Read a run directory, or a rollout file of ours or of NeMo Gym.

    Args:
        path: The directory or the file.
        env: The environment of lines that name none.
        by: Fields of the task rows to slice the numbers by.
        ks: Further k of metrics of k attempts.

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
            own.by_task.setdefault(row.task_id, {})[row.attempt] = row.reward
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
        metrics=aggregator.metrics(ks=ks),
        warnings=aggregator.warnings,
        tasks=aggregator.task_rows(),
        attempts=dict(sorted(attempts.items())),
        best_rewards={name: record.max_reward for name, record in known.items()},
        aggregator=aggregator,
    )


class EnvironmentSection(NamedTuple):
    """The charts of one environment's rewards."""

    name: str
    words: str
    charts: Sequence[Chart]
    flaky: Table | None
    numbers: Table | None


class RunSection(NamedTuple):
    """Everything that the page shows about one run."""

    anchor: str
    name: str
    facts: Sequence[tuple[str, str]]
    verdicts: Sequence[tuple[str, str, str]]
    """For each gate and each published score: the look, `pass`, `fail` or `inconclusive`, the
    verdict, and the reason."""
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
    run: ReportedRun,
    anchor: str,
    *,
    verdicts: Sequence[GateVerdict] = (),
    score: BenchmarkScore | None = None,
) -> RunSection:
    """Return a run's section of the page; `anchor` identifies it on the page."""
    metrics = run.metrics
    environments = [
        (f"{anchor}-{place}", env, found)
        for place, (env, found) in enumerate(metrics.environments.items())
    ]
    several = len(environments) > 1
    return RunSection(
        anchor=anchor,
        name=run.name,
        facts=_facts(run),
        verdicts=[
            *((one.verdict.lower(), one.verdict, _judged(one)) for one in verdicts),
            *(_reproductions(score) if score is not None else ()),
        ],
        cards=_cards(metrics),
        doubts=_doubts(run),
        advice=[
            f"{env}: {sentence}" if several else sentence
            for _, env, found in environments
            for sentence in found.advice
        ],
        environments=environments_table(metrics),
        by_environment=[_environment_section(run, env, found, a) for a, env, found in environments],
        effort=effort_charts(anchor, metrics, run.attempts),
        failures=failure_chart(anchor, metrics),
        counts=counts_tables(metrics),
        slices=[
            chart
            for name, env, found in environments
            for chart in slice_charts(name, found, env if several else "")
        ],
        tasks=task_data(run.tasks, run.attempts, run.best_rewards),
        method=_method(metrics),
    )


def _environment_section(
    run: ReportedRun, env: str, found: Metrics, anchor: str
) -> EnvironmentSection:
    own = run.attempts.get(env, AttemptColumns())
    best = run.best_rewards.get(env)
    # Axes that end at the best reward would hide rewards outside of that range.
    if min(own.rewards, default=0.0) < 0.0 or max(own.rewards, default=0.0) > (best or 0.0):
        best = None
    tokens = list(zip(own.completion_tokens, own.rewards, strict=True))
    turns = list(zip(own.num_turns, own.rewards, strict=True))
    charts = (
        reward_chart(f"{anchor}-rewards", own.rewards, best=best),
        curve_chart(f"{anchor}-k", found, best=best),
        _spread_chart(f"{anchor}-tokens", "completion tokens", tokens, seed=env, best=best),
        _spread_chart(f"{anchor}-turns", "turns", turns, seed=env, best=best),
        component_chart(anchor, found),
    )
    mean_reward = number_cell(found.mean_reward)
    words = "nothing is scored" if mean_reward is None else f"mean reward {mean_reward.text}"
    if found.interval is not None:
        words += f" ({interval_cell(found.interval)})"
    numbers = [(name, *estimate_cells(one)) for name, one in found.distinct.items()]
    head = ("number", *ESTIMATE_HEAD)
    return EnvironmentSection(
        name=env,
        words=words,
        charts=[chart for chart in charts if chart is not None],
        flaky=flaky_table([task for task in run.tasks if task.env == env]),
        numbers=Table("All numbers", head, numbers) if numbers else None,
    )


def _facts(run: ReportedRun) -> list[tuple[str, str]]:
    found = [
        ("Model", ", ".join(run.models)),
        ("Environments", ", ".join(run.metrics.environments)),
    ]
    manifest = run.manifest
    if manifest is not None and manifest.benchmark is not None:
        found.append(
            ("Benchmark", f"{manifest.benchmark.name}, version {manifest.benchmark.version}")
        )
    if manifest is not None:
        params = manifest.identity.get("params")
        if isinstance(params, dict):
            said = ", ".join(f"{name} {value}" for name, value in params.items())
            found.append(("Sampling", said))
        if 0.0 < manifest.started_at < _YEAR_10_000:
            start = datetime.fromtimestamp(manifest.started_at, UTC)
            found.append(("Started", f"{start:%Y-%m-%d %H:%M} UTC"))
        found += [
            ("Took", f"{manifest.seconds:,.0f} s" if manifest.seconds else ""),
            ("Shard", manifest.shard or ""),
            ("gymcli", manifest.gymcli_version),
            ("Commit", (manifest.git_commit or "")[:12]),
        ]
    return [fact for fact in found if fact[1]]


def _cards(metrics: Metrics) -> list[Card]:
    interval = metrics.interval
    sure = f"{interval_cell(interval)} ({method_cell(interval)})" if interval else "no interval"
    if metrics.mean_reward is None and metrics.num_scored:
        sure = "best rewards differ or are unknown: see each environment"
    expected = number(metrics.num_expected, ",", unknown="unknown")
    bounds = f"; bounds {interval_cell(metrics.bounds)}" if metrics.bounds else ""
    found = [Card("Mean reward", number_cell(metrics.mean_reward), sure)]
    k = metrics.usual_num_attempts
    for name, (value,) in at_n([metrics]).items():
        passing = (
            f"all {k} attempts pass" if "^" in name else f"at least one of {k} attempts passes"
        )
        note = f"the chance that {passing if k > 1 else 'an attempt passes'}"
        found.append(Card(name, number_cell(value), note))
    if have_flaky([metrics]):
        num_tasks = f"of {metrics.num_clusters:,} tasks with a score"
        found.append(Card("Flaky tasks", count_cell(metrics.num_flaky_tasks), num_tasks))
    if metrics.coverage != 1.0:
        scored = f"{metrics.num_scored:,} scored of {expected} expected"
        failed = f", {metrics.num_unscored:,} failed" if metrics.num_unscored else ""
        found += [
            Card("Coverage", share_cell(metrics.coverage), scored + failed),
            Card(
                "Strict mean",
                number_cell(metrics.strict_mean_reward),
                f"missing attempts as 0{bounds}",
            ),
        ]
    tokens = metrics.usage.get("prompt_tokens", 0) + metrics.usage.get("completion_tokens", 0)
    if tokens:
        price = "" if metrics.cost is None else f"cost {cost(metrics.cost)}"
        found.append(Card("Tokens", total_cell(tokens), price))
    return found


def _doubts(run: ReportedRun) -> list[str]:
    """Return the reasons to doubt the numbers."""
    metrics = run.metrics
    found = [f"{warning}." for warning in run.warnings]
    if not metrics.num_scored:
        found.append("Nothing is scored, so there are no numbers about rewards.")
    if metrics.num_expected is None:
        found.append("A rollout file does not record how many attempts were expected.")
    elif metrics.coverage is not None and metrics.coverage < _LOW_COVERAGE:
        missing = metrics.num_expected - metrics.num_scored
        found.append(
            f"{missing:,} of {metrics.num_expected:,} expected attempts have no score; "
            "run the same gym collect again to resume."
        )
    return found


def _judged(found: GateVerdict) -> str:
    interval = f", {interval_cell(found.interval)} ({method_cell(found.interval)})"
    way_out = f"; {found.way_out}" if found.way_out else ""
    return f"{found.gate}: it is {found.value:,.4g}{interval if found.interval else ''}{way_out}"


_LOOKS = {"reproduced": "pass", "not_reproduced": "fail"}


def _reproductions(score: BenchmarkScore) -> Iterator[tuple[str, str, str]]:
    if differing := settings_text(score.benchmark, score.other_settings):
        yield "inconclusive", "BENCHMARK", differing
    for one in score.references:
        text = f"{one.model} {one.score:g} ({reference_source(one)}): {reference_text(one, score)}"
        yield _LOOKS.get(one.verdict, "inconclusive"), one.verdict_text.upper(), text


def _method(metrics: RunMetrics) -> list[str]:
    """Return how the numbers were computed."""
    said = [
        "Mean reward: the mean over tasks of the mean reward of their scored attempts; every task "
        "has the same weight. Attempts of one task are not independent, so errors and intervals "
        "are over tasks.",
        "Strict mean: the same, with a reward of 0 for every expected attempt that has no score. "
        "Bounds: with a reward of 0 for all of these, and with the best reward for all.",
        "pass@k and the like: unbiased, per task, then the mean over the tasks with at least k "
        "scored attempts; never for more attempts than were made.",
    ]
    estimates = [one for found in metrics.environments.values() for one in found.estimates.values()]
    methods = {one.interval.method for one in estimates if one.interval}
    if "wilson-neff" in methods:
        said.append(
            "wilson-neff: Wilson's interval on the effective number of attempts, adjusted for the "
            "number of tasks; for rewards between 0 and a known best reward."
        )
    if "t" in methods:
        said.append("t: Student's t interval over task means; for numbers without known bounds.")
    said.append(
        "Percentiles are interpolated between neighbouring values; times and tokens are those of "
        "scored attempts that recorded them."
    )
    return said


def runs_table(runs: Sequence[ReportedRun]) -> Table:
    """Return a row for each run."""
    every = [run.metrics for run in runs]
    columns: dict[str, list[Cell]] = {
        "run": [run.name for run in runs],
        "model": [", ".join(run.models) for run in runs],
        "environments": [", ".join(found.environments) for found in every],
        "scored": [count_cell(found.num_scored) for found in every],
        "mean reward": [number_cell(found.mean_reward) for found in every],
        "interval": [interval_cell(found.interval) for found in every],
    }
    if any(found.coverage != 1.0 for found in every):
        columns |= {
            "coverage": [share_cell(found.coverage) for found in every],
            "unscored": [count_cell(found.num_unscored) for found in every],
            "strict mean": [number_cell(found.strict_mean_reward) for found in every],
        }
    if have_flaky(every):
        columns["flaky tasks"] = [count_cell(found.num_flaky_tasks) for found in every]
    times = [found.latency for found in every]
    columns["p50 seconds"] = [amount_cell(t.total_seconds.p50 if t else None) for t in times]
    if any(found.cost is not None for found in every):
        columns["cost"] = [amount_cell(found.cost) for found in every]
    return Table("Runs", tuple(columns), list(zip(*columns.values(), strict=True)))


def environments_table(metrics: RunMetrics) -> Table:
    """Return a row for each environment, and one for all where there are several."""
    named: list[tuple[str, Metrics]] = list(metrics.environments.items())
    note = ""
    if len(named) > 1:
        named.append(("all", metrics))
        if metrics.num_scored and metrics.mean_reward is None:
            note = "Their best rewards differ or are unknown, so there is no mean over all of them."
    parts = [found for _, found in named]
    columns: dict[str, list[Cell]] = {
        "environment": [name for name, _ in named],
        "tasks": [count_cell(found.num_tasks) for found in parts],
        "scored": [count_cell(found.num_scored) for found in parts],
        "mean reward": [number_cell(found.mean_reward) for found in parts],
        "interval": [interval_cell(found.interval) for found in parts],
        "method": [method_cell(found.interval) for found in parts],
    }
    if any(found.coverage != 1.0 for found in parts):
        columns |= {
            "expected": [count_cell(found.num_expected) for found in parts],
            "present": [count_cell(found.num_present) for found in parts],
            "coverage": [share_cell(found.coverage) for found in parts],
            "strict mean": [number_cell(found.strict_mean_reward) for found in parts],
            "bounds": [interval_cell(found.bounds) for found in parts],
        }
    columns |= {name: [*map(number_cell, values)] for name, values in at_n(parts).items()}
    if have_flaky(parts):
        columns["flaky tasks"] = [count_cell(found.num_flaky_tasks) for found in parts]
    rows = list(zip(*columns.values(), strict=True))
    return Table("Environments", tuple(columns), rows, note)


class Bin(NamedTuple):
    """The number of values from `low` to below `high`; the last bin includes its `high`.

    Where `low` equals `high`, the number of values equal to it.
    """

    low: float
    high: float
    num_values: int


def bins_of(values: Sequence[float], *, most: float | None = None) -> list[Bin]:
    """Count finite values: each value if few are distinct, else in bins of equal width.

    Bins go from 0 to `most` if all values lie in between, else from the lowest to the highest.
    """
    if not values:
        return []
    distinct = Counter(values)
    if len(distinct) <= _FEW:
        return [Bin(value, value, distinct[value]) for value in sorted(distinct)]
    low, high = min(distinct), max(distinct)
    if most is not None and low >= 0.0 and high <= most:
        low, high = 0.0, most
    # Interpolated from both ends, since `high - low` can overflow.
    between = (low * (1.0 - i / _NUM_BINS) + high * (i / _NUM_BINS) for i in range(_NUM_BINS))
    edges = [*accumulate(between, max)]  # rounding may put an edge below the one before it
    counts = [0] * _NUM_BINS
    for value, times in distinct.items():
        counts[max(0, bisect_right(edges, value) - 1)] += times
    return [*map(Bin, edges, [*edges[1:], high], counts)]


def reward_chart(name: str, rewards: Sequence[float], *, best: float | None) -> Chart | None:
    """Show how the rewards of scored attempts are spread; None without rewards."""
    bins = bins_of(rewards, most=best)
    if not bins:
        return None
    for digits in range(4, 18):  # as many as make the labels distinct; 17 do for any floats
        labels = [
            f"{one.low:,.{digits}g}"
            + ("" if one.low == one.high else f" to {one.high:,.{digits}g}")
            for one in bins
        ]
        if len(set(labels)) == len(labels):
            break
    num = len(rewards)
    most = max(range(len(bins)), key=lambda place: bins[place].num_values)
    part = share(bins[most].num_values / num).replace("%", " %")
    words = (
        f"{num:,} scored attempts, rewards from {min(rewards):,.3f} to {max(rewards):,.3f}; "
        f"most often {labels[most]}, {part} of them."
    )
    table = Table(
        "Scored attempts by reward",
        ("reward", "attempts", "share"),
        [
            (label, count_cell(one.num_values), share_cell(one.num_values / num))
            for label, one in zip(labels, bins, strict=True)
        ],
    )
    figure = bars(labels, [one.num_values for one in bins], x_title="reward", y_title="attempts")
    return Chart(name, "Rewards", words, figure, table)


def curve_chart(name: str, metrics: Metrics, *, best: float | None) -> Chart | None:
    """Show the metrics of k attempts at a task, with bands; None if nothing is scored."""
    rows: list[tuple[Cell, ...]] = []
    curves: list[Curve] = []
    distinct = metrics.distinct
    for metric in METRICS.values():
        curve: dict[str, float] = getattr(metrics, metric.key) or {}
        # One attempt is no curve, and another name of a metric before it has none of its own.
        is_other_name = not any(f"{metric.name}{k}" in distinct for k in curve)
        if len(curve) < 2 or metric.takes_first or is_other_name:
            continue
        found = [metrics.estimates[f"{metric.name}{k}"] for k in curve]
        rows += (
            (f"{metric.name}{k}", *estimate_cells(one)) for k, one in zip(curve, found, strict=True)
        )
        bands = [one.interval for one in found]
        curves.append(
            Curve(
                f"{metric.name}k",
                [int(k) for k in curve],
                list(curve.values()),
                [None if band is None else band.low for band in bands],
                [None if band is None else band.high for band in bands],
            )
        )
    if not rows:
        return None
    table = Table("Metrics of k attempts at a task", ("number", *ESTIMATE_HEAD), rows)
    ks = curves[0].x
    ends = ", ".join(f"{one.name} {one.y[0]:.3f} to {one.y[-1]:.3f}" for one in curves)
    words = f"From k = {ks[0]:g} to {ks[-1]:g}: {ends}."
    drawn: list[Curve] = []
    for line in curves:  # a line hidden behind an earlier one is named together with it
        for place, one in enumerate(drawn):
            # Sums in a different order differ by rounding errors.
            if one.x == line.x and all(
                math.isclose(*pair, abs_tol=1e-12) for pair in zip(one.y, line.y, strict=True)
            ):
                drawn[place] = one._replace(name=f"{one.name} = {line.name}")
                break
        else:
            drawn.append(line)
    figure = lines(
        drawn, x_title="k, attempts at a task", y_title="", ticks=ks, is_log=True, best=best
    )
    return Chart(name, "k attempts", words, figure, table)


class PointGroup(NamedTuple):
    """The means of x and y over pairs with x from `low` to `high`, both included."""

    low: float
    high: float
    num_values: int
    mean_x: float
    mean_y: float

    @property
    def span(self) -> str:
        """Both ends in words, or the one value."""
        return " to ".join(f"{end:,.0f}" for end in dict.fromkeys((self.low, self.high)))


def groups_of(pairs: Sequence[tuple[float, float]]) -> list[PointGroup]:
    """Group pairs by x: each x if they are few, else in tenths; equal x stay together."""
    ordered = sorted(pairs)
    num = len(ordered)
    num_groups = num if len({x for x, _ in ordered}) <= _FEW else _NUM_GROUPS
    groups = []
    start = 0
    for place in range(1, num_groups + 1):
        end = place * num // num_groups
        if end <= start:
            continue
        while end < num and ordered[end][0] == ordered[end - 1][0]:
            end += 1
        own = ordered[start:end]
        mean_x, mean_y = mean([x for x, _ in own]), mean([y for _, y in own])
        groups.append(PointGroup(own[0][0], own[-1][0], len(own), mean_x, mean_y))
        start = end
    return groups


def _spread_chart(
    name: str,
    what: str,
    pairs: Sequence[tuple[float, float]],
    *,
    seed: str,
    best: float | None,
) -> Chart | None:
    """Show rewards, second in `pairs`, against `what`; None if `what` was not recorded."""
    groups = groups_of(pairs)
    if not groups or groups[-1].high <= 0:
        return None
    first, last = groups[0], groups[-1]
    words = (
        f"Mean reward {first.mean_y:,.3f} where {what} are {first.span}, "
        f"{last.mean_y:,.3f} where they are {last.span}."
    )
    if len(groups) == 1:
        words = f"The same in every attempt: {first.span}; mean reward {first.mean_y:,.3f}."
    drawn = sample_of(pairs, seed=f"{seed}:{what}")
    if len(drawn) < len(pairs):
        words += (
            f" {len(drawn):,} points drawn at random of {len(pairs):,}; the means are over all."
        )
    table = Table(
        f"Mean reward by {what}",
        (what, "attempts", f"mean {what}", "mean reward"),
        [
            (one.span, count_cell(one.num_values), number_cell(one.mean_x), number_cell(one.mean_y))
            for one in groups
        ],
    )
    figure = points(
        [x for x, _ in drawn],
        [y for _, y in drawn],
        x_title=what,
        y_title="reward",
        mean=Curve("mean", [one.mean_x for one in groups], [one.mean_y for one in groups]),
        best=best,
        step=1.0 if last.high <= _FEW else None,
    )
    has_picture = len(groups) > 1
    return Chart(name, f"Reward against {what}", words, figure if has_picture else None, table)


def component_chart(name: str, metrics: Metrics) -> Chart | None:
    """Show components, other numbers of verifiers, and those that environments compute."""
    named: list[tuple[str, Estimate]] = []
    for kind in ("components", "metrics"):
        values: Mapping[str, float] = getattr(metrics, kind) or {}
        named += ((key, metrics.estimates[f"{kind}.{key}"]) for key in values)
    rows: list[tuple[Cell, ...]] = [(key, *estimate_cells(found)) for key, found in named]
    rows += [
        (key, amount_cell(value), *[None] * 5, "the environment's own")
        for key, value in metrics.environment_metrics.items()
    ]
    if not rows:
        return None
    table = Table("Components and other numbers", ("name", *ESTIMATE_HEAD), rows)
    words = "Further numbers that verifiers returned, as means over tasks."
    if not named:
        words = "Numbers that the environment computes itself."
    drawn = named[:MAX_DRAWN]
    intervals = [found.interval for _, found in drawn]
    labels = distinct_labels(key for key, _ in drawn)
    figure = ranges(labels, [found.value for _, found in drawn], intervals, x_title="mean")
    is_worth_it = len(drawn) > 1 or any(intervals)
    return Chart(f"{name}-components", "Components", words, figure if is_worth_it else None, table)


def flaky_table(tasks: Sequence[TaskMetrics]) -> Table | None:
    """Return the tasks that pass sometimes, those closest to one half first; None without any."""
    flaky = [
        (task.num_passes / task.num_scored, task)
        for task in tasks
        if task.num_passes and task.num_passes < task.num_scored
    ]
    if not flaky:
        return None
    flaky.sort(key=lambda found: abs(found[0] - 0.5))
    note = ""
    if len(flaky) > MAX_FLAKY:
        note = f"{MAX_FLAKY} of {len(flaky):,}; the table of tasks below has a filter for all."
    return Table(
        "Tasks with both passed and failed attempts",
        ("task", "environment", "passed", "scored", "share", "mean reward"),
        [
            (
                task.task_id,
                task.env,
                count_cell(task.num_passes),
                count_cell(task.num_scored),
                share_cell(passed),
                number_cell(task.mean_reward),
            )
            for passed, task in flaky[:MAX_FLAKY]
        ],
        note,
    )


def effort_charts(
    name: str, metrics: Metrics, attempts: Mapping[str, AttemptColumns]
) -> list[Chart]:
    """Show percentiles of seconds and of tokens, overall and for each environment."""
    charts = []
    if metrics.latency is not None:
        rows: list[tuple[Cell, ...]] = []
        for title, found in (
            ("whole attempt", metrics.latency.total_seconds),
            ("in the model", metrics.latency.model_seconds),
        ):
            cells = map(amount_cell, (found.p50, found.p90, found.p95, found.p99))
            rows.append((title, *cells, None))
        seconds = {env: _recorded([own.seconds]) for env, own in attempts.items()}
        if len(seconds) > 1:
            rows += _percentile_rows(seconds)
        charts.append(_effort_chart(f"{name}-seconds", "seconds", "", rows, seconds))
    completion = {env: _recorded([own.completion_tokens]) for env, own in attempts.items()}
    totals = {
        "completion": _recorded(own.completion_tokens for own in attempts.values()),
        "prompt": _recorded(own.prompt_tokens for own in attempts.values()),
    }
    rows = _percentile_rows(totals)
    if rows:
        if len(attempts) > 1:
            rows += _percentile_rows({f"completion, {env}": c for env, c in completion.items()})
        kind = f"{rows[0][0]} "  # "prompt" if no completion tokens were recorded
        charts.append(_effort_chart(f"{name}-tokens", "tokens", kind, rows, completion))
    return charts


def _recorded(columns: Iterable[Iterable[float]]) -> list[float]:
    return sorted(value for column in columns for value in column if value > 0.0)


def _percentile_rows(values: Mapping[str, Sequence[float]]) -> list[tuple[Cell, ...]]:
    return [
        (
            title,
            *(amount_cell(percentile(own, fraction)) for fraction in (0.50, 0.90, 0.95, 0.99)),
            count_cell(len(own)),
        )
        for title, own in values.items()
        if own
    ]


def _effort_chart(
    name: str,
    unit: str,
    kind: str,
    rows: Sequence[tuple[Cell, ...]],
    values: Mapping[str, Sequence[float]],
) -> Chart:
    """Draw the percentiles of each environment's values, if any were recorded."""
    half = rows[0][1]
    words = f"Half of the attempts took up to {half.text if isinstance(half, Shown) else '-'} "
    head = (unit, "p50", "p90", "p95", "p99", "attempts")
    table = Table(f"{unit.capitalize()} an attempt took", head, rows)
    known = {env: own for env, own in values.items() if own}
    if len(known) > _MAX_LINES:
        known = {"all environments": _recorded(known.values())}
    percents = [100 * fraction for fraction in _FRACTIONS]
    drawn = [
        Curve(env, percents, [percentile(own, fraction) for fraction in _FRACTIONS])
        for env, own in known.items()
    ]
    y_title = unit if unit == "seconds" else f"completion {unit}"
    figure = lines(drawn, x_title="percentile of attempts", y_title=y_title) if drawn else None
    return Chart(name, unit.capitalize(), f"{words}{kind}{unit}.", figure, table)


def failure_chart(name: str, metrics: Metrics) -> Chart | None:
    """Show the unscored attempts by error class, most frequent first; None without any."""
    if not metrics.failures:
        return None
    ordered = sorted(metrics.failures.items(), key=lambda item: (-item[1], item[0]))
    num = sum(metrics.failures.values())
    table = Table(
        "Unscored attempts by class of their last error",
        ("class", "attempts", "share"),
        [(cls, count_cell(times), share_cell(times / num)) for cls, times in ordered],
    )
    drawn = ordered[:MAX_DRAWN]
    figure = bars(
        distinct_labels(cls for cls, _ in drawn),
        [times for _, times in drawn],
        x_title="unscored attempts",
        y_title="",
        flat=True,
    )
    words = f"{num:,} attempts have no score; the most frequent reason: {ordered[0][0]}."
    return Chart(f"{name}-classes", "Failures by class", words, figure, table)


def counts_tables(metrics: Metrics) -> list[Table]:
    """Return why attempts ended, which tool calls failed, and which requests were retried."""
    counted = (
        ("Stop reasons of scored attempts", "reason", metrics.stop_reasons),
        ("Failed tool calls", "reason", metrics.tool_errors),
        ("Retried requests", "error class", metrics.retries),
    )
    return [
        Table(caption, (head, "count"), [(key, count_cell(num)) for key, num in found.items()])
        for caption, head, found in counted
        if found
    ]


def slice_charts(name: str, metrics: Metrics, env: str = "") -> list[Chart]:
    """Show mean rewards by each requested field of the tasks.

    Args:
        name: The prefix of the charts' names.
        metrics: The numbers.
        env: Their environment, if the run has several.
    """
    of = f" of {env}" if env else ""
    charts = []
    for place, (field_name, slices) in enumerate(metrics.slices.items()):
        if not slices:
            continue
        ordered = sorted(
            ((found.mean_reward, value, found) for value, found in slices.items()),
            key=lambda item: (-math.inf if item[0] is None else item[0], item[1]),
        )
        table = Table(
            f"Mean reward{of} by {field_name}",
            (
                *(field_name, "mean reward", "interval", "method", "standard error"),
                *("scored", "unscored", "tasks", "flaky tasks"),
            ),
            [
                (
                    value,
                    number_cell(found.mean_reward),
                    interval_cell(found.interval),
                    method_cell(found.interval),
                    number_cell(found.standard_error),
                    count_cell(found.num_scored),
                    count_cell(found.num_unscored),
                    count_cell(found.num_clusters),
                    count_cell(found.num_flaky_tasks),
                )
                for _, value, found in ordered
            ],
        )
        scored = [(reward, value, found) for reward, value, found in ordered if reward is not None]
        words = "Nothing is scored."
        figure = None
        if scored:
            (low, worst, _), (high, best, _) = scored[0], scored[-1]
            words = f"{worst}: {low:.3f}."
            if len(scored) > 1:
                words = (
                    f"From {low:.3f} ({worst}) to {high:.3f} ({best}), "
                    f"over {len(slices):,} values of {field_name}."
                )
            if len(scored) > MAX_DRAWN:
                words += f" Drawn: the {MAX_DRAWN} lowest."
            drawn = scored[:MAX_DRAWN]
            figure = ranges(
                distinct_labels(value for _, value, _ in drawn),
                [reward for reward, _, _ in drawn],
                [found.interval for _, _, found in drawn],
                x_title="mean reward",
                mark=metrics.mean_reward,
            )
        title = f"By {field_name}{of}"
        charts.append(Chart(f"{name}-slice-{place}", title, words, figure, table))
    return charts


class TaskData(NamedTuple):
    """The tasks of one run that are on the page."""

    data: JSONObject
    note: str
    """Which tasks are left out; empty if none are."""
    attempts_note: str
    """How to read the heat map, and what it leaves out."""


def task_data(
    tasks: Sequence[TaskMetrics],
    attempts: Mapping[str, AttemptColumns],
    best_rewards: Mapping[str, float | None],
) -> TaskData:
    """Return the tasks, worst first: those without a score, then by mean reward.

    Args:
        tasks: All tasks of the run.
        attempts: Their attempts, by environment.
        best_rewards: The best possible reward, by environment, if known.
    """
    ordered = sorted(
        tasks,
        key=lambda task: (
            -math.inf if task.mean_reward is None else task.mean_reward,
            task.env,
            task.task_id,
        ),
    )[:MAX_TASKS]
    environments = sorted({task.env for task in ordered})
    place = {env: at for at, env in enumerate(environments)}
    most = 0
    strips: list[list[float | str | None]] = []
    for task in ordered:
        columns = attempts.get(task.env)
        rewards = columns.by_task.get(task.task_id, {}) if columns else {}
        num = max(rewards, default=-1) + 1
        most = max(most, num)
        # "x" is an attempt without a reward, None one without a record.
        held = range(min(num, MAX_ATTEMPTS))
        strips.append(["x" if rewards.get(a, 0.0) is None else rewards.get(a) for a in held])
    # By column, since 20,000 tasks would repeat the names of their fields.
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
    note = ""
    if len(ordered) < len(tasks):
        note = (
            f"This page holds the {len(ordered):,} tasks with the lowest mean rewards of "
            f"{len(tasks):,}; gym metrics --by-task prints all."
        )
    heat = (
        "One row for each task, worst first; one column for each attempt; a cross is an "
        "attempt without a score. Dark orange is 0 or the lowest reward of the environment, "
        "dark blue the best possible reward or, if that is unknown, the highest."
    )
    shown = f"Shown: the first {MAX_ATTEMPTS} of up to {most:,} attempts."
    parts = (heat, shown if most > MAX_ATTEMPTS else "", note)
    return TaskData(data, note, " ".join(filter(None, parts)))


def _range(tasks: Sequence[TaskMetrics], env: str, best: float | None) -> list[float]:
    """Return the rewards of an environment at both ends of the colour scale."""
    ends = [end for task in tasks if task.env == env for end in (task.min_reward, task.max_reward)]
    rewards = [end for end in ends if end is not None]
    high = max(rewards, default=0.0)
    return [min([0.0, *rewards]), high if best is None else max(high, best)]


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
