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

    `ks` are further k of metrics of k attempts.

    Raises:
        UsageError: The path or one of its lines is wrong, or a field has too many values.
    """
    manifest = read_manifest(path) if path.is_dir() else None
    aggregator = measure(path, env=env, by=by)
    attempts: dict[str, AttemptColumns] = {}
    models: dict[str, None] = {}
    with index_run(path, env=env) as index:
        for row in index.rows:
            columns = attempts.setdefault(row.env, AttemptColumns())
            columns.by_task.setdefault(row.task_id, {})[row.attempt] = row.reward
            if row.model is not None:
                models[row.model] = None
            if row.reward is None:
                continue
            columns.rewards.append(row.reward)
            columns.num_turns.append(row.num_turns)
            columns.seconds.append(row.seconds or 0.0)
            columns.prompt_tokens.append(row.prompt_tokens)
            columns.completion_tokens.append(row.completion_tokens)
    environments = manifest.environments if manifest else {}
    return ReportedRun(
        name=str(path),
        manifest=manifest,
        models=[manifest.model] if manifest and manifest.model else list(models),
        metrics=aggregator.metrics(ks=ks),
        warnings=aggregator.warnings,
        tasks=aggregator.task_rows(),
        attempts=dict(sorted(attempts.items())),
        best_rewards={name: record.max_reward for name, record in environments.items()},
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
    metrics = run.metrics
    environments = [
        (f"{anchor}-{place}", env, part)
        for place, (env, part) in enumerate(metrics.environments.items())
    ]
    has_several = len(environments) > 1
    return RunSection(
        anchor=anchor,
        name=run.name,
        facts=_facts(run),
        verdicts=[
            *((gate.verdict.lower(), gate.verdict, _gate_text(gate)) for gate in verdicts),
            *(_reproductions(score) if score is not None else ()),
        ],
        cards=_cards(metrics),
        doubts=_doubts(run),
        advice=[
            f"{env}: {sentence}" if has_several else sentence
            for _, env, part in environments
            for sentence in part.advice
        ],
        environments=environments_table(metrics),
        by_environment=[_environment_section(run, env, part, a) for a, env, part in environments],
        effort=effort_charts(anchor, metrics, run.attempts),
        failures=failure_chart(anchor, metrics),
        counts=counts_tables(metrics),
        slices=[
            chart
            for name, env, part in environments
            for chart in slice_charts(name, part, env if has_several else "")
        ],
        tasks=task_data(run.tasks, run.attempts, run.best_rewards),
        method=_method(metrics),
    )


def _environment_section(
    run: ReportedRun, env: str, part: Metrics, anchor: str
) -> EnvironmentSection:
    columns = run.attempts.get(env, AttemptColumns())
    best = run.best_rewards.get(env)
    # Axes that end at the best reward would hide rewards outside of that range.
    if min(columns.rewards, default=0.0) < 0.0 or max(columns.rewards, default=0.0) > (best or 0.0):
        best = None
    tokens = list(zip(columns.completion_tokens, columns.rewards, strict=True))
    turns = list(zip(columns.num_turns, columns.rewards, strict=True))
    charts = (
        reward_chart(f"{anchor}-rewards", columns.rewards, best=best),
        curve_chart(f"{anchor}-k", part, best=best),
        _spread_chart(f"{anchor}-tokens", "completion tokens", tokens, seed=env, best=best),
        _spread_chart(f"{anchor}-turns", "turns", turns, seed=env, best=best),
        component_chart(anchor, part),
    )
    mean_reward = number_cell(part.mean_reward)
    words = "nothing is scored" if mean_reward is None else f"mean reward {mean_reward.text}"
    if part.interval is not None:
        words += f" ({interval_cell(part.interval)})"
    numbers = [(name, *estimate_cells(estimate)) for name, estimate in part.distinct.items()]
    head = ("number", *ESTIMATE_HEAD)
    return EnvironmentSection(
        name=env,
        words=words,
        charts=[chart for chart in charts if chart is not None],
        flaky=flaky_table([task for task in run.tasks if task.env == env]),
        numbers=Table("All numbers", head, numbers) if numbers else None,
    )


def _facts(run: ReportedRun) -> list[tuple[str, str]]:
    facts = [
        ("Model", ", ".join(run.models)),
        ("Environments", ", ".join(run.metrics.environments)),
    ]
    manifest = run.manifest
    if manifest is not None and manifest.benchmark is not None:
        facts.append(
            ("Benchmark", f"{manifest.benchmark.name}, version {manifest.benchmark.version}")
        )
    if manifest is not None:
        params = manifest.identity.get("params")
        if isinstance(params, dict):
            params_text = ", ".join(f"{name} {value}" for name, value in params.items())
            facts.append(("Sampling", params_text))
        if 0.0 < manifest.started_at < _YEAR_10_000:
            start = datetime.fromtimestamp(manifest.started_at, UTC)
            facts.append(("Started", f"{start:%Y-%m-%d %H:%M} UTC"))
        facts += [
            ("Took", f"{manifest.seconds:,.0f} s" if manifest.seconds else ""),
            ("Shard", manifest.shard or ""),
            ("gymcli", manifest.gymcli_version),
            ("Commit", (manifest.git_commit or "")[:12]),
        ]
    return [fact for fact in facts if fact[1]]


def _cards(metrics: Metrics) -> list[Card]:
    interval = metrics.interval
    interval_text = (
        f"{interval_cell(interval)} ({method_cell(interval)})" if interval else "no interval"
    )
    if metrics.mean_reward is None and metrics.num_scored:
        interval_text = "best rewards differ or are unknown: see each environment"
    expected = number(metrics.num_expected, ",", unknown="unknown")
    bounds = f"; bounds {interval_cell(metrics.bounds)}" if metrics.bounds else ""
    cards = [Card("Mean reward", number_cell(metrics.mean_reward), interval_text)]
    k = metrics.usual_num_attempts
    for name, (value,) in at_n([metrics]).items():
        passing = (
            f"all {k} attempts pass" if "^" in name else f"at least one of {k} attempts passes"
        )
        note = f"the chance that {passing if k > 1 else 'an attempt passes'}"
        cards.append(Card(name, number_cell(value), note))
    if have_flaky([metrics]):
        num_tasks = f"of {metrics.num_clusters:,} tasks with a score"
        cards.append(Card("Flaky tasks", count_cell(metrics.num_flaky_tasks), num_tasks))
    if metrics.coverage != 1.0:
        scored = f"{metrics.num_scored:,} scored of {expected} expected"
        failed = f", {metrics.num_unscored:,} failed" if metrics.num_unscored else ""
        cards += [
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
        cards.append(Card("Tokens", total_cell(tokens), price))
    return cards


def _doubts(run: ReportedRun) -> list[str]:
    metrics = run.metrics
    doubts = [f"{warning}." for warning in run.warnings]
    if not metrics.num_scored:
        doubts.append("Nothing is scored, so there are no numbers about rewards.")
    if metrics.num_expected is None:
        doubts.append("A rollout file does not record how many attempts were expected.")
    elif metrics.coverage is not None and metrics.coverage < _LOW_COVERAGE:
        missing = metrics.num_expected - metrics.num_scored
        doubts.append(
            f"{missing:,} of {metrics.num_expected:,} expected attempts have no score; "
            "run the same gym collect again to resume."
        )
    return doubts


def _gate_text(gate: GateVerdict) -> str:
    text = f"{gate.gate}: it is {gate.value:,.4g}"
    if gate.interval:
        text += f", {interval_cell(gate.interval)} ({method_cell(gate.interval)})"
    return f"{text}; {gate.way_out}" if gate.way_out else text


_LOOKS = {"reproduced": "pass", "not_reproduced": "fail"}


def _reproductions(score: BenchmarkScore) -> Iterator[tuple[str, str, str]]:
    if settings := settings_text(score.benchmark, score.other_settings):
        yield "inconclusive", "BENCHMARK", settings
    for reference in score.references:
        source, text = reference_source(reference), reference_text(reference, score)
        text = f"{reference.model} {reference.score:g} ({source}): {text}"
        yield _LOOKS.get(reference.verdict, "inconclusive"), reference.verdict_text.upper(), text


def _method(metrics: RunMetrics) -> list[str]:
    sentences = [
        "Mean reward: the mean over tasks of the mean reward of their scored attempts; every task "
        "has the same weight. Attempts of one task are not independent, so errors and intervals "
        "are over tasks.",
        "Strict mean: the same, with a reward of 0 for every expected attempt that has no score. "
        "Bounds: with a reward of 0 for all of these, and with the best reward for all.",
        "pass@k and the like: unbiased, per task, then the mean over the tasks with at least k "
        "scored attempts; never for more attempts than were made.",
    ]
    estimates = [
        estimate for part in metrics.environments.values() for estimate in part.estimates.values()
    ]
    methods = {estimate.interval.method for estimate in estimates if estimate.interval}
    if "wilson-neff" in methods:
        sentences.append(
            "wilson-neff: Wilson's interval on the effective number of attempts, adjusted for the "
            "number of tasks; for rewards between 0 and a known best reward."
        )
    if "t" in methods:
        sentences.append(
            "t: Student's t interval over task means; for numbers without known bounds."
        )
    sentences.append(
        "Percentiles are interpolated between neighbouring values; times and tokens are those of "
        "scored attempts that recorded them."
    )
    return sentences


def runs_table(runs: Sequence[ReportedRun]) -> Table:
    all_metrics = [run.metrics for run in runs]
    columns: dict[str, list[Cell]] = {
        "run": [run.name for run in runs],
        "model": [", ".join(run.models) for run in runs],
        "environments": [", ".join(metrics.environments) for metrics in all_metrics],
        "scored": [count_cell(metrics.num_scored) for metrics in all_metrics],
        "mean reward": [number_cell(metrics.mean_reward) for metrics in all_metrics],
        "interval": [interval_cell(metrics.interval) for metrics in all_metrics],
    }
    if any(metrics.coverage != 1.0 for metrics in all_metrics):
        columns |= {
            "coverage": [share_cell(metrics.coverage) for metrics in all_metrics],
            "unscored": [count_cell(metrics.num_unscored) for metrics in all_metrics],
            "strict mean": [number_cell(metrics.strict_mean_reward) for metrics in all_metrics],
        }
    if have_flaky(all_metrics):
        columns["flaky tasks"] = [count_cell(metrics.num_flaky_tasks) for metrics in all_metrics]
    times = [metrics.latency for metrics in all_metrics]
    columns["p50 seconds"] = [amount_cell(t.total_seconds.p50 if t else None) for t in times]
    if any(metrics.cost is not None for metrics in all_metrics):
        columns["cost"] = [amount_cell(metrics.cost) for metrics in all_metrics]
    return Table("Runs", tuple(columns), list(zip(*columns.values(), strict=True)))


def environments_table(metrics: RunMetrics) -> Table:
    """Return a row for each environment, and one for all where there are several."""
    named_parts: list[tuple[str, Metrics]] = list(metrics.environments.items())
    note = ""
    if len(named_parts) > 1:
        named_parts.append(("all", metrics))
        if metrics.num_scored and metrics.mean_reward is None:
            note = "Their best rewards differ or are unknown, so there is no mean over all of them."
    parts = [part for _, part in named_parts]
    columns: dict[str, list[Cell]] = {
        "environment": [name for name, _ in named_parts],
        "tasks": [count_cell(part.num_tasks) for part in parts],
        "scored": [count_cell(part.num_scored) for part in parts],
        "mean reward": [number_cell(part.mean_reward) for part in parts],
        "interval": [interval_cell(part.interval) for part in parts],
        "method": [method_cell(part.interval) for part in parts],
    }
    if any(part.coverage != 1.0 for part in parts):
        columns |= {
            "expected": [count_cell(part.num_expected) for part in parts],
            "present": [count_cell(part.num_present) for part in parts],
            "coverage": [share_cell(part.coverage) for part in parts],
            "strict mean": [number_cell(part.strict_mean_reward) for part in parts],
            "bounds": [interval_cell(part.bounds) for part in parts],
        }
    columns |= {name: [*map(number_cell, values)] for name, values in at_n(parts).items()}
    if have_flaky(parts):
        columns["flaky tasks"] = [count_cell(part.num_flaky_tasks) for part in parts]
    rows = list(zip(*columns.values(), strict=True))
    return Table("Environments", tuple(columns), rows, note)


class Bin(NamedTuple):
    """The number of values from `low` to below `high`; the last bin includes its `high`.

    Where `low` equals `high`, the number of values equal to it.
    """

    low: float
    high: float
    num_values: int


def bins_of(values: Sequence[float], *, largest: float | None = None) -> list[Bin]:
    """Count finite values: each value if few are distinct, else in bins of equal width.

    Bins go from 0 to `largest` if all values lie in between, else from the lowest to the highest.
    """
    if not values:
        return []
    distinct = Counter(values)
    if len(distinct) <= _FEW:
        return [Bin(value, value, distinct[value]) for value in sorted(distinct)]
    low, high = min(distinct), max(distinct)
    if largest is not None and low >= 0.0 and high <= largest:
        low, high = 0.0, largest
    # Interpolated from both ends, since `high - low` can overflow.
    between = (low * (1.0 - i / _NUM_BINS) + high * (i / _NUM_BINS) for i in range(_NUM_BINS))
    edges = [*accumulate(between, max)]  # rounding may put an edge below the one before it
    counts = [0] * _NUM_BINS
    for value, times in distinct.items():
        counts[max(0, bisect_right(edges, value) - 1)] += times
    return [*map(Bin, edges, [*edges[1:], high], counts)]


def reward_chart(name: str, rewards: Sequence[float], *, best: float | None) -> Chart | None:
    """Show how the rewards of scored attempts are spread; None without rewards."""
    bins = bins_of(rewards, largest=best)
    if not bins:
        return None
    for digits in range(4, 18):  # as many as make the labels distinct; 17 do for any floats
        labels = [
            f"{reward_bin.low:,.{digits}g}"
            + ("" if reward_bin.low == reward_bin.high else f" to {reward_bin.high:,.{digits}g}")
            for reward_bin in bins
        ]
        if len(set(labels)) == len(labels):
            break
    num = len(rewards)
    fullest = max(range(len(bins)), key=lambda place: bins[place].num_values)
    part = share(bins[fullest].num_values / num).replace("%", " %")
    words = (
        f"{num:,} scored attempts, rewards from {min(rewards):,.3f} to {max(rewards):,.3f}; "
        f"most often {labels[fullest]}, {part} of them."
    )
    table = Table(
        "Scored attempts by reward",
        ("reward", "attempts", "share"),
        [
            (label, count_cell(reward_bin.num_values), share_cell(reward_bin.num_values / num))
            for label, reward_bin in zip(labels, bins, strict=True)
        ],
    )
    figure = bars(
        labels, [reward_bin.num_values for reward_bin in bins], x_title="reward", y_title="attempts"
    )
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
        estimates = [metrics.estimates[f"{metric.name}{k}"] for k in curve]
        rows += (
            (f"{metric.name}{k}", *estimate_cells(estimate))
            for k, estimate in zip(curve, estimates, strict=True)
        )
        bands = [estimate.interval for estimate in estimates]
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
    ends = ", ".join(f"{curve.name} {curve.y[0]:.3f} to {curve.y[-1]:.3f}" for curve in curves)
    words = f"From k = {ks[0]:g} to {ks[-1]:g}: {ends}."
    drawn: list[Curve] = []
    for line in curves:  # a line hidden behind an earlier one is named together with it
        for place, earlier in enumerate(drawn):
            # Sums in a different order differ by rounding errors.
            if earlier.x == line.x and all(
                math.isclose(*pair, abs_tol=1e-12) for pair in zip(earlier.y, line.y, strict=True)
            ):
                drawn[place] = earlier._replace(name=f"{earlier.name} = {line.name}")
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
    sorted_pairs = sorted(pairs)
    num = len(sorted_pairs)
    num_groups = num if len({x for x, _ in sorted_pairs}) <= _FEW else _NUM_GROUPS
    groups = []
    start = 0
    for place in range(1, num_groups + 1):
        end = place * num // num_groups
        if end <= start:
            continue
        while end < num and sorted_pairs[end][0] == sorted_pairs[end - 1][0]:
            end += 1
        group_pairs = sorted_pairs[start:end]
        mean_x, mean_y = mean([x for x, _ in group_pairs]), mean([y for _, y in group_pairs])
        groups.append(
            PointGroup(group_pairs[0][0], group_pairs[-1][0], len(group_pairs), mean_x, mean_y)
        )
        start = end
    return groups


def _spread_chart(
    name: str,
    quantity: str,
    pairs: Sequence[tuple[float, float]],
    *,
    seed: str,
    best: float | None,
) -> Chart | None:
    """Show rewards, second in `pairs`, against a quantity; None if it was not recorded."""
    groups = groups_of(pairs)
    if not groups or groups[-1].high <= 0:
        return None
    first, last = groups[0], groups[-1]
    words = (
        f"Mean reward {first.mean_y:,.3f} where {quantity} are {first.span}, "
        f"{last.mean_y:,.3f} where they are {last.span}."
    )
    if len(groups) == 1:
        words = f"The same in every attempt: {first.span}; mean reward {first.mean_y:,.3f}."
    drawn = sample_of(pairs, seed=f"{seed}:{quantity}")
    if len(drawn) < len(pairs):
        words += (
            f" {len(drawn):,} points drawn at random of {len(pairs):,}; the means are over all."
        )
    table = Table(
        f"Mean reward by {quantity}",
        (quantity, "attempts", f"mean {quantity}", "mean reward"),
        [
            (
                group.span,
                count_cell(group.num_values),
                number_cell(group.mean_x),
                number_cell(group.mean_y),
            )
            for group in groups
        ],
    )
    figure = points(
        [x for x, _ in drawn],
        [y for _, y in drawn],
        x_title=quantity,
        y_title="reward",
        mean=Curve("mean", [group.mean_x for group in groups], [group.mean_y for group in groups]),
        best=best,
        step=1.0 if last.high <= _FEW else None,
    )
    has_picture = len(groups) > 1
    return Chart(name, f"Reward against {quantity}", words, figure if has_picture else None, table)


def component_chart(name: str, metrics: Metrics) -> Chart | None:
    named_estimates: list[tuple[str, Estimate]] = []
    for kind in ("components", "metrics"):
        values: Mapping[str, float] = getattr(metrics, kind) or {}
        named_estimates += ((key, metrics.estimates[f"{kind}.{key}"]) for key in values)
    rows: list[tuple[Cell, ...]] = [(key, *estimate_cells(value)) for key, value in named_estimates]
    rows += [
        (key, amount_cell(value), *[None] * 5, "the environment's own")
        for key, value in metrics.environment_metrics.items()
    ]
    if not rows:
        return None
    table = Table("Components and other numbers", ("name", *ESTIMATE_HEAD), rows)
    words = "Further numbers that verifiers returned, as means over tasks."
    if not named_estimates:
        words = "Numbers that the environment computes itself."
    drawn = named_estimates[:MAX_DRAWN]
    intervals = [estimate.interval for _, estimate in drawn]
    labels = distinct_labels(key for key, _ in drawn)
    figure = ranges(labels, [estimate.value for _, estimate in drawn], intervals, x_title="mean")
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
    flaky.sort(key=lambda flaky_task: abs(flaky_task[0] - 0.5))
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
    charts = []
    if metrics.latency is not None:
        rows: list[tuple[Cell, ...]] = []
        for title, percentiles in (
            ("whole attempt", metrics.latency.total_seconds),
            ("in the model", metrics.latency.model_seconds),
        ):
            cells = map(
                amount_cell, (percentiles.p50, percentiles.p90, percentiles.p95, percentiles.p99)
            )
            rows.append((title, *cells, None))
        seconds = {env: _recorded([columns.seconds]) for env, columns in attempts.items()}
        if len(seconds) > 1:
            rows += _percentile_rows(seconds)
        charts.append(_effort_chart(f"{name}-seconds", "seconds", "", rows, seconds))
    completion = {env: _recorded([columns.completion_tokens]) for env, columns in attempts.items()}
    totals = {
        "completion": _recorded(columns.completion_tokens for columns in attempts.values()),
        "prompt": _recorded(columns.prompt_tokens for columns in attempts.values()),
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
            *(amount_cell(percentile(numbers, fraction)) for fraction in (0.50, 0.90, 0.95, 0.99)),
            count_cell(len(numbers)),
        )
        for title, numbers in values.items()
        if numbers
    ]


def _effort_chart(
    name: str,
    unit: str,
    kind: str,
    rows: Sequence[tuple[Cell, ...]],
    values: Mapping[str, Sequence[float]],
) -> Chart:
    half = rows[0][1]
    words = f"Half of the attempts took up to {half.text if isinstance(half, Shown) else '-'} "
    head = (unit, "p50", "p90", "p95", "p99", "attempts")
    table = Table(f"{unit.capitalize()} an attempt took", head, rows)
    recorded_values = {env: numbers for env, numbers in values.items() if numbers}
    if len(recorded_values) > _MAX_LINES:
        recorded_values = {"all environments": _recorded(recorded_values.values())}
    percents = [100 * fraction for fraction in _FRACTIONS]
    drawn = [
        Curve(env, percents, [percentile(numbers, fraction) for fraction in _FRACTIONS])
        for env, numbers in recorded_values.items()
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
    captions = (
        ("Stop reasons of scored attempts", "reason", metrics.stop_reasons),
        ("Failed tool calls", "reason", metrics.tool_errors),
        ("Retried requests", "error class", metrics.retries),
    )
    return [
        Table(caption, (head, "count"), [(key, count_cell(num)) for key, num in counts.items()])
        for caption, head, counts in captions
        if counts
    ]


def slice_charts(name: str, metrics: Metrics, env: str = "") -> list[Chart]:
    """Show mean rewards by each requested field of the tasks.

    `env` is their environment, if the run has several.
    """
    suffix = f" of {env}" if env else ""
    charts = []
    for place, (field_name, slices) in enumerate(metrics.slices.items()):
        if not slices:
            continue
        sorted_parts = sorted(
            ((part.mean_reward, value, part) for value, part in slices.items()),
            key=lambda item: (-math.inf if item[0] is None else item[0], item[1]),
        )
        table = Table(
            f"Mean reward{suffix} by {field_name}",
            (field_name, *_SLICE_HEAD),
            [(value, *_slice_cells(part)) for _, value, part in sorted_parts],
        )
        scored = [
            (reward, value, part) for reward, value, part in sorted_parts if reward is not None
        ]
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
                [part.interval for _, _, part in drawn],
                x_title="mean reward",
                mark=metrics.mean_reward,
            )
        title = f"By {field_name}{suffix}"
        charts.append(Chart(f"{name}-slice-{place}", title, words, figure, table))
    return charts


_SLICE_HEAD = (
    *("mean reward", "interval", "method", "standard error"),
    *("scored", "unscored", "tasks", "flaky tasks"),
)


def _slice_cells(part: Metrics) -> tuple[Cell, ...]:
    return (
        number_cell(part.mean_reward),
        interval_cell(part.interval),
        method_cell(part.interval),
        number_cell(part.standard_error),
        *map(count_cell, (part.num_scored, part.num_unscored)),
        *map(count_cell, (part.num_clusters, part.num_flaky_tasks)),
    )


class TaskData(NamedTuple):
    """The tasks of one run that are on the page."""

    data: JSONObject
    note: str
    """Which tasks are left out; empty if none are."""
    attempts_note: str
    """How to read the heat map, and what it leaves out."""


_HEAT_MAP = (
    "One row for each task, worst first; one column for each attempt; a cross is an attempt "
    "without a score. Dark orange is 0 or the lowest reward of the environment, dark blue the best "
    "possible reward or, if that is unknown, the highest."
)


def task_data(
    tasks: Sequence[TaskMetrics],
    attempts: Mapping[str, AttemptColumns],
    best_rewards: Mapping[str, float | None],
) -> TaskData:
    """Return the tasks, worst first: those without a score, then by mean reward."""
    sorted_tasks = sorted(
        tasks,
        key=lambda task: (
            -math.inf if task.mean_reward is None else task.mean_reward,
            task.env,
            task.task_id,
        ),
    )[:MAX_TASKS]
    environments = sorted({task.env for task in sorted_tasks})
    max_attempts = 0
    strips: list[list[float | str | None]] = []
    for task in sorted_tasks:
        columns = attempts.get(task.env)
        rewards = columns.by_task.get(task.task_id, {}) if columns else {}
        num = max(rewards, default=-1) + 1
        max_attempts = max(max_attempts, num)
        # "x" is an attempt without a reward, None one without a record.
        numbers = range(min(num, MAX_ATTEMPTS))
        strips.append(["x" if rewards.get(a, 0.0) is None else rewards.get(a) for a in numbers])
    # By column, since 20,000 tasks would repeat the names of their fields.
    data: JSONObject = {
        "environments": environments,
        "env": [environments.index(task.env) for task in sorted_tasks],
        "id": [_cut(task.task_id, _MAX_ID) for task in sorted_tasks],
        "scored": [task.num_scored for task in sorted_tasks],
        "unscored": [task.num_unscored for task in sorted_tasks],
        "passed": [task.num_passes for task in sorted_tasks],
        "mean": [task.mean_reward for task in sorted_tasks],
        "min": [task.min_reward for task in sorted_tasks],
        "max": [task.max_reward for task in sorted_tasks],
        "answer": [_cut(task.majority_answer or "", _MAX_ANSWER) for task in sorted_tasks],
        "attempts": strips,
        "ranges": [_range(tasks, env, best_rewards.get(env)) for env in environments],
    }
    note, attempts_note = "", _HEAT_MAP
    if max_attempts > MAX_ATTEMPTS:
        attempts_note += f" Shown: the first {MAX_ATTEMPTS} of up to {max_attempts:,} attempts."
    if len(sorted_tasks) < len(tasks):
        note = (
            f"This page holds the {len(sorted_tasks):,} tasks with the lowest mean rewards of "
            f"{len(tasks):,}; gym metrics --by-task prints all."
        )
        attempts_note += f" {note}"
    return TaskData(data, note, attempts_note)


def _range(tasks: Sequence[TaskMetrics], env: str, best: float | None) -> list[float]:
    ends = [end for task in tasks if task.env == env for end in (task.min_reward, task.max_reward)]
    rewards = [end for end in ends if end is not None]
    high = max(rewards, default=0.0)
    return [min([0.0, *rewards]), high if best is None else max(high, best)]


def _cut(text: str, max_characters: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
