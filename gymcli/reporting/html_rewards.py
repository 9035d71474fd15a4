"""Charts of rewards: how they are spread, what k attempts give, what goes with tokens and turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gymcli.metrics import Metrics
from gymcli.reporting.html_bins import Bin, Group, bins_of, groups_of, sample_of
from gymcli.reporting.html_figures import Line, bars, lines, points
from gymcli.reporting.html_parts import (
    ESTIMATE_HEAD,
    Cell,
    Chart,
    Table,
    count,
    estimate_cells,
    number,
    share,
)

__all__ = ["curve_chart", "reward_chart", "spread_chart"]

_FEW_STEPS = 12
"""Whole numbers that each have their tick."""

_CURVES = {
    "pass_at_k": "pass@",
    "pass_hat_k": "pass^",
    "avg_at_k": "avg@",
    "majority_at_k": "majority@",
    "best_of_k": "best@",
}
"""By the key of the result: what its estimates are called, before k."""


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
    for key, prefix in _CURVES.items():
        curve: dict[str, float] | None = getattr(metrics, key)
        if not curve:
            continue
        found = [metrics.estimates[f"{prefix}{k}"] for k in curve]
        rows += (
            (f"{prefix}{k}", *estimate_cells(one)) for k, one in zip(curve, found, strict=True)
        )
        bands = [one.interval for one in found]
        drawn.append(
            Line(
                f"{prefix}k",
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
