"""What would decide a gate: how many tasks, or attempts of each, if the number stays what it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gymcli.metrics.distributions import normal_quantile
from gymcli.metrics.estimates import interval_of
from gymcli.metrics.results import Estimate, Interval, Metrics, Variance
from gymcli.metrics.thresholds import Threshold

__all__ = ["CHANCE", "Needed", "needed"]

CHANCE = 0.8
"""That the number of tasks or attempts that is said to decide does so."""
_MAX_TASKS = 10_000_000
_MAX_ATTEMPTS = 10_000


class Needed(NamedTuple):
    """What would decide with a chance of 80 %."""

    num_tasks: int | None
    num_attempts: int | None
    """Of each task."""
    way_out: str


def needed(number: Estimate, thresholds: Sequence[Threshold], part: Metrics) -> Needed:
    """Give what would decide a gate that an interval leaves open.

    Another run of n tasks has the standard error s/sqrt(n), s being that of one task here, and a
    number that is less favourable by 0.84 of it (the quantile of the chance); attempts shrink but
    the part of the variance that lies within tasks (Miller 2024, arXiv 2411.00640, section 5).

    Args:
        number: The number, with an interval.
        thresholds: Those of the gate.
        part: The numbers of the same part, for the variance within tasks.

    """
    assert number.interval is not None
    level, method = number.interval.level, number.interval.method
    error, num_tasks = number.standard_error or 0.0, number.num_clusters
    attempts = number.num_values / num_tasks
    best = 1.0 if method == "wilson-neff" and number.interval.high <= 1.0 else None

    def is_decided(tasks: int, attempts: float, error: float) -> bool:
        def at(value: float) -> Interval | None:
            return interval_of(
                value if best is None else min(best, max(0.0, value)),
                error,
                best=best,
                num_values=math.ceil(tasks * attempts),
                num_clusters=tasks,
                level=level,
            )

        return _decides(number.value, normal_quantile(CHANCE) * error, thresholds, at)

    tasks = _fewest(
        lambda n: is_decided(n, attempts, error * math.sqrt(num_tasks / n)),
        num_tasks + 1,
        _MAX_TASKS,
    )
    if tasks is None:
        return Needed(None, None, "the number is so near that no number of tasks would decide")
    more = _parts_of(number, part)
    most = None
    if more is not None:
        parts = more
        most = _fewest(
            lambda k: is_decided(
                num_tasks, k, math.sqrt((parts.between + parts.within / k) / num_tasks)
            ),
            max(2, math.ceil(attempts) + 1),
            _MAX_ATTEMPTS,
        )
    text = f"about {tasks:,} tasks such as these"
    if most is not None:
        text += f", or {most:,} attempts a task,"
    return Needed(tasks, most, f"{text} would decide")


def _decides(
    value: float,
    shift: float,
    thresholds: Sequence[Threshold],
    at: Callable[[float], Interval | None],
) -> bool:
    """Say whether intervals around a number, moved by chance, leave nothing open.

    Where the number reaches every threshold, each has to hold, with the number moved towards it;
    else one that it does not reach has to fail.
    """
    lacking = [threshold for threshold in thresholds if not threshold.holds(value)]
    for threshold in lacking or thresholds:
        is_away = threshold.is_lower == (threshold in lacking)
        interval = at(value + shift if is_away else value - shift)
        is_decided = interval is not None and threshold.holds_within(interval) == (not lacking)
        if lacking and is_decided:
            return True
        if not lacking and not is_decided:
            return False
    return not lacking


def _parts_of(number: Estimate, part: Metrics) -> Variance | None:
    """Give how the variance of the mean reward is split, where the number is just that mean."""
    is_mean = (number.value, number.standard_error) == (part.mean_reward, part.standard_error)
    return part.variance if is_mean else None


def _fewest(is_enough: Callable[[int], bool], least: int, most: int) -> int | None:
    """Give the smallest number from which on it is enough; None where even the largest is not."""
    high = least
    while not is_enough(high):
        if high >= most:
            return None
        least, high = high + 1, min(2 * high, most)
    while least < high:
        middle = (least + high) // 2
        if is_enough(middle):
            high = middle
        else:
            least = middle + 1
    return high
