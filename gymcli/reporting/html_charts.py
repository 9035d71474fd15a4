"""The charts and tables of a run's numbers: rewards, k attempts, failures, slices, time, tokens."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeVar

from gymcli.metrics.at_k import METRICS
from gymcli.metrics.estimators import mean, percentile
from gymcli.metrics.results import Estimate, Metrics, Percentiles, RunMetrics, TaskMetrics
from gymcli.reporting.formatting import share
from gymcli.reporting.html_parts import (
    ESTIMATE_HEAD,
    Cell,
    Chart,
    Curve,
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
    share_cell,
)

__all__ = [
    "MAX_DRAWN",
    "MAX_FLAKY",
    "MAX_POINTS",
    "AttemptColumns",
    "Bin",
    "bins_of",
    "component_chart",
    "counts_tables",
    "curve_chart",
    "effort_charts",
    "environments_table",
    "estimates_table",
    "failure_chart",
    "flaky_table",
    "groups_of",
    "reward_chart",
    "sample_of",
    "slice_charts",
    "spread_chart",
]

MAX_DRAWN = 40
"""Rows of a table that its chart shows too."""
MAX_FLAKY = 50
MAX_POINTS = 1500
"""Points of one chart; of more as many are drawn at random, the same ones every time."""

_NUM_BINS = 20
_NUM_GROUPS = 10
_FEW = 12
"""Values that are told apart one by one."""
_FEW_STEPS = 12
"""Whole numbers that each have their tick."""
_ONE_ATTEMPT = (
    "No task has more than one scored attempt, so there is no curve; --repeats gives one."
)
_FRACTIONS = (0.50, 0.90, 0.95, 0.99)
_CURVE = tuple(step / 50 for step in range(51))
_MAX_LINES = 5
"""Environments that have a line of their own."""
_HEAD = ("p50", "p90", "p95", "p99", "attempts")

_Value = TypeVar("_Value")


class AttemptColumns:
    """The attempts of one environment, a few numbers of each in arrays: some hundred bytes."""

    def __init__(self) -> None:
        self.rewards = array("d")
        """Of the scored attempts; the next four are of the same ones, 0 where not recorded."""
        self.num_turns = array("d")
        self.seconds = array("d")
        self.prompt_tokens = array("d")
        self.completion_tokens = array("d")
        self._task_numbers: dict[str, int] = {}
        self._tasks = array("L")
        self._attempts = array("L")
        self._rewards = array("d")
        """Of all attempts with a record; NaN where it has no reward."""

    def add(self, task_id: str, attempt: int, reward: float | None) -> None:
        """Take an attempt that has a record."""
        self._tasks.append(self._task_numbers.setdefault(task_id, len(self._task_numbers)))
        self._attempts.append(attempt)
        self._rewards.append(math.nan if reward is None else reward)

    def of_tasks(self, task_ids: Iterable[str]) -> dict[str, dict[int, float | None]]:
        """Return the rewards of some tasks, by attempt; None where an attempt has no reward."""
        found: dict[str, dict[int, float | None]] = {task_id: {} for task_id in task_ids}
        numbers = self._task_numbers
        wanted = {numbers[task_id]: own for task_id, own in found.items() if task_id in numbers}
        for task, attempt, reward in zip(self._tasks, self._attempts, self._rewards, strict=True):
            if task in wanted:
                wanted[task][attempt] = None if math.isnan(reward) else reward
        return found


def reward_chart(name: str, rewards: Sequence[float], *, best: float | None) -> Chart | None:
    """Show how the rewards of scored attempts are spread; None where there are none."""
    bins = bins_of(rewards, most=best)
    if not bins:
        return None
    num = len(rewards)
    labels = _bin_labels(bins)
    most = max(range(len(bins)), key=lambda place: bins[place].num_values)
    part = share(bins[most].num_values / num).replace("%", " %")
    words = (
        f"{num:,} scored attempts, rewards from {min(rewards):,.3f} to {max(rewards):,.3f}; "
        f"the commonest: {labels[most]}, {part} of them."
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


def _bin_labels(bins: Sequence[Bin]) -> list[str]:
    """Return names of bins, with as many digits as tell them apart; 17 tell all numbers apart."""
    for digits in range(4, 18):
        labels = [_bin_label(one, digits) for one in bins]
        if len(set(labels)) == len(labels):
            break
    return labels


def _bin_label(one: Bin, digits: int) -> str:
    low, high = f"{one.low:,.{digits}g}", f"{one.high:,.{digits}g}"
    return low if one.low == one.high else f"{low} to {high}"


def curve_chart(name: str, metrics: Metrics, *, best: float | None) -> Chart | None:
    """Show what k attempts at a task give, with bands; None where nothing is scored."""
    rows: list[tuple[Cell, ...]] = []
    drawn: list[Curve] = []
    for metric in METRICS.values():
        curve: dict[str, float] | None = getattr(metrics, metric.key)
        if not curve:
            continue
        found = [metrics.estimates[f"{metric.name}{k}"] for k in curve]
        rows += (
            (f"{metric.name}{k}", *estimate_cells(one)) for k, one in zip(curve, found, strict=True)
        )
        bands = [one.interval for one in found]
        drawn.append(
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
    ks = drawn[0].x
    ends = ", ".join(f"{one.name} {one.y[0]:.3f} to {one.y[-1]:.3f}" for one in drawn)
    words = f"From k = {ks[0]:g} to {ks[-1]:g}: {ends}." if len(ks) > 1 else _ONE_ATTEMPT
    figure = lines(
        _told_apart(drawn),
        x_title="k, attempts at a task",
        y_title="",
        ticks=ks,
        is_log=True,
        best=best,
    )
    table = Table("What k attempts at a task give", ("number", *ESTIMATE_HEAD), rows)
    return Chart(name, "k attempts", words, figure if len(ks) > 1 else None, table)


def _told_apart(drawn: Sequence[Curve]) -> list[Curve]:
    """Leave out what would hide behind an earlier line; its numbers are those of that line."""
    kept: list[Curve] = []
    for line in drawn:
        same = next((place for place, one in enumerate(kept) if _is_same(one, line)), None)
        if same is None:
            kept.append(line)
        else:
            kept[same] = kept[same]._replace(name=f"{kept[same].name} = {line.name}")
    return kept


def _is_same(one: Curve, other: Curve) -> bool:
    """Return whether two lines look the same; sums in different orders differ by rounding."""
    return one.x == other.x and all(
        math.isclose(*pair, abs_tol=1e-12) for pair in zip(one.y, other.y, strict=True)
    )


def spread_chart(
    name: str,
    what: str,
    pairs: Sequence[tuple[float, float]],
    *,
    seed: str,
    best: float | None,
) -> Chart | None:
    """Show rewards against something else of the same attempts; None where it was not recorded.

    Args:
        name: The chart's.
        what: What stands to the right: `completion tokens`, `turns`.
        pairs: It and the reward, for each attempt.
        seed: Which points are drawn where they are too many.
        best: The best reward that there can be, where it is known.

    """
    groups = groups_of(pairs)
    if not groups or groups[-1].high <= 0:
        return None
    drawn = sample_of(pairs, seed=f"{seed}:{what}")
    words = _trend(what, groups)
    if len(drawn) < len(pairs):
        words += (
            f" {len(drawn):,} points drawn at random of {len(pairs):,}; the means are over all."
        )
    table = Table(
        f"Mean reward by {what}",
        (what, "attempts", f"mean {what}", "mean reward"),
        [
            (
                f"{one.low:,.0f}" if one.low == one.high else f"{one.low:,.0f} to {one.high:,.0f}",
                count_cell(one.num_values),
                number_cell(one.mean_x),
                number_cell(one.mean_y),
            )
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
        step=1.0 if groups[-1].high <= _FEW_STEPS else None,
    )
    has_picture = len(groups) > 1
    return Chart(name, f"Reward against {what}", words, figure if has_picture else None, table)


def _trend(what: str, groups: Sequence[PointGroup]) -> str:
    first, last = groups[0], groups[-1]
    if len(groups) == 1:
        return f"The same in every attempt: {_span(first)}; mean reward {first.mean_y:,.3f}."
    return (
        f"Mean reward {first.mean_y:,.3f} where {what} are {_span(first)}, "
        f"{last.mean_y:,.3f} where they are {_span(last)}."
    )


def _span(group: PointGroup) -> str:
    ends: Iterator[str] = (f"{end:,.0f}" for end in dict.fromkeys((group.low, group.high)))
    return " to ".join(ends)


class Bin(NamedTuple):
    """How many values lie from `low` on and below `high`; the last bin has its own end too.

    Where `low` and `high` are one value, those that are equal to it.
    """

    low: float
    high: float
    num_values: int


class PointGroup(NamedTuple):
    """What values of y go with values of x from `low` to `high`, both among them."""

    low: float
    high: float
    num_values: int
    mean_x: float
    mean_y: float


def bins_of(values: Sequence[float], *, most: float | None = None) -> list[Bin]:
    """Count values: each by itself where they are few, else in bins of equal width.

    Args:
        values: The values, all finite.
        most: Where the bins end if they begin at 0; None: from the least to the greatest value.

    """
    if not values:
        return []
    distinct = Counter(values)
    if len(distinct) <= _FEW:
        return [Bin(value, value, distinct[value]) for value in sorted(distinct)]
    low, high = min(distinct), max(distinct)
    if most is not None and low >= 0.0 and high <= most:
        low, high = 0.0, most
    # By shares of both ends, as the width of the widest range is no number.
    between = (low * (1.0 - i / _NUM_BINS) + high * (i / _NUM_BINS) for i in range(_NUM_BINS))
    edges = [*accumulate(between, max)]  # rounding may put one below the edge before it
    counts = [0] * _NUM_BINS
    for value, times in distinct.items():
        counts[max(0, bisect_right(edges, value) - 1)] += times
    return [*map(Bin, edges, [*edges[1:], high], counts)]


def groups_of(pairs: Sequence[tuple[float, float]]) -> list[PointGroup]:
    """Group pairs by x: each x by itself where they are few, else tenths; equal x stay together."""
    ordered = sorted(pairs)
    num = len(ordered)
    distinct = {x for x, _ in ordered}
    num_groups = num if len(distinct) <= _FEW else _NUM_GROUPS
    groups = []
    start = 0
    for number in range(1, num_groups + 1):
        end = number * num // num_groups
        if end <= start:
            continue
        while end < num and ordered[end][0] == ordered[end - 1][0]:
            end += 1
        own = ordered[start:end]
        mean_x, mean_y = mean([x for x, _ in own]), mean([y for _, y in own])
        groups.append(PointGroup(own[0][0], own[-1][0], len(own), mean_x, mean_y))
        start = end
    return groups


def sample_of(values: Sequence[_Value], *, seed: str) -> Sequence[_Value]:
    """Return at most as many values as a chart draws, in their order."""
    if len(values) <= MAX_POINTS:
        return values
    return [values[place] for place in sorted(Random(seed).sample(range(len(values)), MAX_POINTS))]


def environments_table(metrics: RunMetrics) -> Table:
    """Return a row for each environment, and one for all where there are several."""
    named: list[tuple[str, Metrics]] = list(metrics.environments.items())
    if len(named) > 1:
        named.append(("all", metrics))
    note = ""
    if len(named) > 1 and metrics.num_scored and metrics.mean_reward is None:
        note = "Their best rewards differ, or are not known, so no mean is taken over all of them."
    return Table(
        "Environments",
        (
            *("environment", "expected", "present", "scored", "coverage"),
            *("mean reward", "interval", "method"),
            *("strict mean", "bounds", "tasks", "flaky tasks"),
        ),
        [(name, *_environment_cells(found)) for name, found in named],
        note,
    )


def _environment_cells(found: Metrics) -> tuple[Cell, ...]:
    return (
        count_cell(found.num_expected),
        count_cell(found.num_present),
        count_cell(found.num_scored),
        share_cell(found.coverage),
        number_cell(found.mean_reward),
        interval_cell(found.interval),
        method_cell(found.interval),
        number_cell(found.strict_mean_reward),
        interval_cell(found.bounds),
        count_cell(found.num_tasks),
        count_cell(found.num_flaky_tasks),
    )


def failure_chart(name: str, metrics: Metrics) -> Chart | None:
    """Show the unscored attempts by error class, the commonest first; None without any."""
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
    words = f"{num:,} attempts have no score; the commonest reason: {ordered[0][0]}."
    return Chart(f"{name}-classes", "Failures by class", words, figure, table)


def counts_tables(metrics: Metrics) -> list[Table]:
    """Return why attempts ended, which tool calls failed, and which requests were tried again."""
    counted = (
        ("Stop reasons of scored attempts", "reason", metrics.stop_reasons),
        ("Tool calls that could not be carried out", "what was wrong", metrics.tool_errors),
        ("Requests that were tried again", "error class", metrics.retries),
    )
    return [
        Table(caption, (head, "count"), [(key, count_cell(num)) for key, num in found.items()])
        for caption, head, found in counted
        if found
    ]


def slice_charts(name: str, metrics: Metrics, env: str = "") -> list[Chart]:
    """Show mean rewards by each field of the tasks that was asked for.

    Args:
        name: What the names of the charts begin with.
        metrics: The numbers.
        env: The environment that they are of, where that has to be said.

    """
    of = f" of {env}" if env else ""
    charts = []
    for place, (field, slices) in enumerate(metrics.slices.items()):
        if not slices:
            continue
        ordered = sorted(slices.items(), key=_low_first)
        table = Table(
            f"Mean reward{of} by {field}",
            (
                *(field, "mean reward", "interval", "method", "standard error"),
                *("scored", "unscored", "tasks", "flaky tasks"),
            ),
            [(value, *_slice_cells(found)) for value, found in ordered],
        )
        scored = [(value, found) for value, found in ordered if found.mean_reward is not None]
        words = "Nothing is scored."
        figure = None
        if scored:
            (worst, low), (best, high) = scored[0], scored[-1]
            words = f"{worst}: {low.mean_reward:.3f}."
            if len(scored) > 1:
                words = (
                    f"From {low.mean_reward:.3f} ({worst}) to {high.mean_reward:.3f} ({best}), "
                    f"over {len(slices):,} values of {field}."
                )
            if len(scored) > MAX_DRAWN:
                words += f" Drawn: the {MAX_DRAWN} lowest."
            drawn = scored[:MAX_DRAWN]
            figure = ranges(
                distinct_labels(value for value, _ in drawn),
                [found.mean_reward for _, found in drawn if found.mean_reward is not None],
                [found.interval for _, found in drawn],
                x_title="mean reward",
                mark=metrics.mean_reward,
            )
        charts.append(Chart(f"{name}-slice-{place}", f"By {field}{of}", words, figure, table))
    return charts


def _slice_cells(found: Metrics) -> tuple[Cell, ...]:
    return (
        number_cell(found.mean_reward),
        interval_cell(found.interval),
        method_cell(found.interval),
        number_cell(found.standard_error),
        count_cell(found.num_scored),
        count_cell(found.num_unscored),
        count_cell(found.num_clusters),
        count_cell(found.num_flaky_tasks),
    )


def _low_first(item: tuple[str, Metrics]) -> tuple[float, str]:
    value, found = item
    return (float("-inf") if found.mean_reward is None else found.mean_reward, value)


def component_chart(name: str, metrics: Metrics) -> Chart | None:
    """Show components, what verifiers measured beside them, and the environment's own numbers."""
    named: list[tuple[str, Estimate]] = []
    for kind in ("components", "metrics"):
        values: Mapping[str, float] = getattr(metrics, kind) or {}
        named += ((key, metrics.estimates[f"{kind}.{key}"]) for key in values)
    rows: list[tuple[Cell, ...]] = [(key, *estimate_cells(found)) for key, found in named]
    own = metrics.environment_metrics
    rows += [
        (key, amount_cell(value), *[None] * 5, "the environment's own")
        for key, value in own.items()
    ]
    if not rows:
        return None
    table = Table("Components and other numbers", ("name", *ESTIMATE_HEAD), rows)
    words = "What verifiers gave beside the reward, as means over tasks."
    if not named:
        words = "Numbers that the environment computes itself."
    drawn = named[:MAX_DRAWN]
    intervals = [found.interval for _, found in drawn]
    labels = distinct_labels(key for key, _ in drawn)
    figure = ranges(labels, [found.value for _, found in drawn], intervals, x_title="mean")
    is_worth_it = len(drawn) > 1 or any(intervals)
    return Chart(f"{name}-components", "Components", words, figure if is_worth_it else None, table)


def flaky_table(tasks: Sequence[TaskMetrics]) -> Table | None:
    """Return the tasks that pass sometimes, those nearest to one half first; None without any."""
    flaky = [task for task in tasks if task.num_passes and task.num_passes < task.num_scored]
    if not flaky:
        return None
    flaky.sort(key=lambda task: abs(_passed(task) - 0.5))
    note = ""
    if len(flaky) > MAX_FLAKY:
        note = f"{MAX_FLAKY} of {len(flaky):,}; the table of tasks below has a filter for all."
    return Table(
        "Tasks of which some attempts pass and some do not",
        ("task", "environment", "passed", "scored", "share", "mean reward"),
        [
            (
                task.task_id,
                task.env,
                count_cell(task.num_passes),
                count_cell(task.num_scored),
                share_cell(_passed(task)),
                number_cell(task.mean_reward),
            )
            for task in flaky[:MAX_FLAKY]
        ],
        note,
    )


def _passed(task: TaskMetrics) -> float:
    return (task.num_passes or 0) / task.num_scored


def estimates_table(metrics: Metrics) -> Table | None:
    """Return every number about rewards with its estimator, size, error and interval."""
    if not metrics.estimates:
        return None
    return Table(
        "How sure each number is",
        ("number", *ESTIMATE_HEAD),
        [(name, *estimate_cells(found)) for name, found in metrics.estimates.items()],
    )


def effort_charts(
    name: str, metrics: Metrics, attempts: Mapping[str, AttemptColumns]
) -> list[Chart]:
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
        words = f"Half of the attempts took up to {_half(rows[0])} {rows[0][0]} tokens."
        table = Table("Tokens an attempt took", ("tokens", *_HEAD), rows)
        figure = _curves(completion, "completion tokens")
        charts.append(Chart(f"{name}-tokens", "Tokens", words, figure, table))
    return charts


def _four(found: Percentiles) -> tuple[Cell, ...]:
    return (
        amount_cell(found.p50),
        amount_cell(found.p90),
        amount_cell(found.p95),
        amount_cell(found.p99),
        None,
    )


def _recorded(values: array[float]) -> list[float]:
    return sorted(value for value in values if value > 0.0)


def _joined(values: Mapping[str, Sequence[float]]) -> list[float]:
    return sorted(value for own in values.values() for value in own)


def _rows_of(values: Mapping[str, Sequence[float]]) -> list[tuple[Cell, ...]]:
    return [
        (
            title,
            *(amount_cell(percentile(own, fraction)) for fraction in _FRACTIONS),
            count_cell(len(own)),
        )
        for title, own in values.items()
        if own
    ]


def _half(row: Sequence[Cell]) -> str:
    half = row[1]
    return half.text if isinstance(half, tuple) else "-"


def _curves(values: Mapping[str, Sequence[float]], what: str) -> dict[str, object] | None:
    """Draw each percentile of what attempts took; None where nothing was recorded."""
    known = {env: own for env, own in values.items() if own}
    if len(known) > _MAX_LINES:
        known = {"all environments": _joined(known)}
    if not known:
        return None
    percents = [100 * fraction for fraction in _CURVE]
    drawn = [
        Curve(env, percents, [percentile(own, fraction) for fraction in _CURVE])
        for env, own in known.items()
    ]
    return lines(drawn, x_title="percentile of attempts", y_title=what)
