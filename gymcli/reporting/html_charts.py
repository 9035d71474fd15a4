"""Charts of rewards: how they are spread, what k attempts give, what goes with tokens and turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gymcli.metrics import METRICS, Estimate, Metrics, RunMetrics, TaskMetrics
from gymcli.reporting.html_figures import (
    Bin,
    Group,
    Line,
    bars,
    bins_of,
    groups_of,
    lines,
    points,
    ranges,
    sample_of,
)
from gymcli.reporting.html_parts import (
    ESTIMATE_HEAD,
    Cell,
    Chart,
    Table,
    amount,
    between,
    count,
    estimate_cells,
    method_of,
    number,
    share,
)

__all__ = [
    "MAX_DRAWN",
    "MAX_FLAKY",
    "component_chart",
    "counts_tables",
    "curve_chart",
    "environments_table",
    "estimates_table",
    "failure_chart",
    "flaky_table",
    "reward_chart",
    "slice_charts",
    "spread_chart",
]


_FEW_STEPS = 12
"""Whole numbers that each have their tick."""


def reward_chart(name: str, rewards: Sequence[float], *, best: float | None) -> Chart | None:
    """Show how the rewards of scored attempts are spread; None where there are none."""
    bins = bins_of(rewards, most=best)
    if not bins:
        return None
    num = len(rewards)
    labels = _bin_labels(bins)
    most = max(range(len(bins)), key=lambda place: bins[place].num_values)
    part = f"{bins[most].num_values / num:.1%}".replace("%", " %")
    words = (
        f"{num:,} scored attempts, rewards from {min(rewards):,.3f} to {max(rewards):,.3f}; "
        f"the commonest: {labels[most]}, {part} of them."
    )
    table = Table(
        "Scored attempts by reward",
        ("reward", "attempts", "share"),
        [
            (label, count(one.num_values), share(one.num_values / num))
            for label, one in zip(labels, bins, strict=True)
        ],
    )
    figure = bars(labels, [one.num_values for one in bins], x_title="reward", y_title="attempts")
    return Chart(name, "Rewards", words, figure, table)


def _bin_labels(bins: Sequence[Bin]) -> list[str]:
    """Name bins with as many digits as tell them apart; 17 tell all numbers apart."""
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
    drawn: list[Line] = []
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
            Line(
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


_ONE_ATTEMPT = (
    "No task has more than one scored attempt, so there is no curve; --repeats gives one."
)


def _told_apart(drawn: Sequence[Line]) -> list[Line]:
    """Leave out what would hide behind an earlier line; its numbers are those of that line."""
    kept: list[Line] = []
    for line in drawn:
        same = next((place for place, one in enumerate(kept) if _is_same(one, line)), None)
        if same is None:
            kept.append(line)
        else:
            kept[same] = kept[same]._replace(name=f"{kept[same].name} = {line.name}")
    return kept


def _is_same(one: Line, other: Line) -> bool:
    """Say whether lines cannot be told apart: several sums lead to one number."""
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
                count(one.num_values),
                number(one.mean_x),
                number(one.mean_y),
            )
            for one in groups
        ],
    )
    figure = points(
        [x for x, _ in drawn],
        [y for _, y in drawn],
        x_title=what,
        y_title="reward",
        mean=Line("mean", [one.mean_x for one in groups], [one.mean_y for one in groups]),
        best=best,
        step=1.0 if groups[-1].high <= _FEW_STEPS else None,
    )
    has_picture = len(groups) > 1
    return Chart(name, f"Reward against {what}", words, figure if has_picture else None, table)


def _trend(what: str, groups: Sequence[Group]) -> str:
    first, last = groups[0], groups[-1]
    if len(groups) == 1:
        return f"The same in every attempt: {_span(first)}; mean reward {first.mean_y:,.3f}."
    return (
        f"Mean reward {first.mean_y:,.3f} where {what} are {_span(first)}, "
        f"{last.mean_y:,.3f} where they are {_span(last)}."
    )


def _span(group: Group) -> str:
    ends: Iterator[str] = (f"{end:,.0f}" for end in dict.fromkeys((group.low, group.high)))
    return " to ".join(ends)


MAX_DRAWN = 40
"""Rows of a table that its chart shows too."""
MAX_FLAKY = 50
_MAX_LABEL = 40


def environments_table(metrics: RunMetrics) -> Table:
    """Give a row for each environment, and one for all where there are several."""
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
    bounds = found.bounds
    return (
        count(found.num_expected),
        count(found.num_present),
        count(found.num_scored),
        share(found.coverage),
        number(found.mean_reward),
        between(found.interval),
        method_of(found.interval),
        number(found.strict_mean_reward),
        None if bounds is None else f"{bounds.low:,.3f} .. {bounds.high:,.3f}",
        count(found.num_tasks),
        count(found.num_flaky_tasks),
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
        [(cls, count(times), share(times / num)) for cls, times in ordered],
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
    """Give why attempts ended, which tool calls went wrong, and what was tried again."""
    counted = (
        ("Stop reasons of scored attempts", "reason", metrics.stop_reasons),
        ("Tool calls that could not be carried out", "what was wrong", metrics.tool_errors),
        ("Requests that were tried again", "error class", metrics.retries),
    )
    return [
        Table(caption, (head, "count"), [(key, count(num)) for key, num in found.items()])
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
        number(found.mean_reward),
        between(found.interval),
        method_of(found.interval),
        number(found.standard_error),
        count(found.num_scored),
        count(found.num_unscored),
        count(found.num_clusters),
        count(found.num_flaky_tasks),
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
        (key, amount(value), *[None] * 5, "the environment's own") for key, value in own.items()
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
    """Give the tasks that pass sometimes, those nearest to one half first; None without any."""
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
                count(task.num_passes),
                count(task.num_scored),
                share(_passed(task)),
                number(task.mean_reward),
            )
            for task in flaky[:MAX_FLAKY]
        ],
        note,
    )


def _passed(task: TaskMetrics) -> float:
    return (task.num_passes or 0) / task.num_scored


def estimates_table(metrics: Metrics) -> Table | None:
    """Give every number about rewards with its estimator, size, error and interval."""
    if not metrics.estimates:
        return None
    return Table(
        "How sure each number is",
        ("number", *ESTIMATE_HEAD),
        [(name, *estimate_cells(found)) for name, found in metrics.estimates.items()],
    )


def distinct_labels(texts: Iterable[str]) -> list[str]:
    """Cut texts to what fits beside a chart; those that become equal get a number."""
    labels: list[str] = []
    for text in texts:
        short = text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"
        label, times = short, 1
        while label in labels:
            times += 1
            label = f"{short} ({times})"
        labels.append(label)
    return labels
