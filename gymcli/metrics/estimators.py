"""Estimators over rewards: means, variances, standard errors, bounds.

A task is the sampling unit: attempts of one task are never taken for independent. Sums are
`math.fsum`, which rounds once, so no result depends on the order of its terms.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gymcli.metrics.alike import Alike
from gymcli.metrics.sums import RunningMean
from gymcli.metrics.weighted import Weighted, terms

__all__ = [
    "VarianceParts",
    "clustered_standard_error",
    "mean",
    "mean_of_means",
    "mean_with_absent",
    "standard_error",
    "task_means",
    "variance",
    "variance_parts",
    "with_absent",
]


class VarianceParts(NamedTuple):
    """Where the variance of rewards comes from: between tasks, or between attempts of a task."""

    between: float
    """Variance of the tasks' true means."""
    within: float
    """Variance of one attempt around the true mean of its task."""
    intraclass_correlation: float | None
    """`between / (between + within)`; None where both are 0."""
    design_effect: float | None
    """How many times the variance of as many independent attempts: 1 + (K - 1) * ICC."""


def mean(values: Sequence[float]) -> float:
    """Give the arithmetic mean of at least one value."""
    rounded = math.fsum(values) / len(values)
    # The mean of equal values is that value, also where the quotient is rounded beside it.
    return min(max(rounded, min(values)), max(values))


def mean_of_means(groups: Iterable[Sequence[float]]) -> float:
    """Give the mean of the groups' means, each group weighing the same (the macro mean)."""
    return mean(array("d", map(mean, groups)))


def variance(values: Sequence[float]) -> float:
    """Give the sample variance (n - 1 below the line) of at least two values."""
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def standard_error(task_means: Sequence[float]) -> float | None:
    """Give the standard error of the mean of task means; None for fewer than two tasks.

    sd(task means) / sqrt(G): Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640. With
    equally many attempts per task it is the clustered (CR1) standard error of all attempts.
    """
    return Weighted((value, 1) for value in task_means).standard_error


def task_means(tasks: Iterable[Alike]) -> Weighted:
    """Give the mean reward of each task."""
    return Weighted((mean(task.rewards), task.num_tasks) for task in tasks)


def clustered_standard_error(tasks: Collection[Alike]) -> float | None:
    """Give the standard error of the mean of all rewards, independent between tasks.

    SE^2 = G/(G - 1) / N^2 * sum over clusters of (sum of deviations)^2: Miller 2024,
    arXiv 2411.00640, with the CR1 factor of Liang and Zeger 1986. None for fewer than two
    tasks.
    """
    num_tasks = sum(task.num_tasks for task in tasks)
    if num_tasks < 2:
        return None
    values = RunningMean()
    for task in tasks:
        for reward in task.rewards:
            values.add(reward, task.num_tasks)
    centre = values.mean
    squares = terms(
        (math.fsum([reward - centre for reward in task.rewards]) ** 2, task.num_tasks)
        for task in tasks
    )
    return math.sqrt(math.fsum(squares) * num_tasks / (num_tasks - 1)) / values.num_values


def variance_parts(tasks: Collection[Alike]) -> VarianceParts | None:
    """Split the variance of rewards into tasks and attempts; None where it cannot be told.

    It takes two tasks, and a task of two attempts. Miller 2024, arXiv 2411.00640, section 3;
    K is the harmonic mean of the numbers of attempts, which is exact where they are equal.
    """
    num_tasks = sum(task.num_tasks for task in tasks)
    within_tasks = Weighted(
        (variance(task.rewards), task.num_tasks) for task in tasks if len(task.rewards) > 1
    )
    if num_tasks < 2 or not within_tasks:
        return None
    inverse = math.fsum(terms((1.0 / len(task.rewards), task.num_tasks) for task in tasks))
    attempts = num_tasks / inverse
    within = within_tasks.mean
    between = max(0.0, task_means(tasks).variance - within / attempts)
    total = between + within
    if total == 0.0:
        return VarianceParts(0.0, 0.0, None, None)
    correlation = between / total
    return VarianceParts(between, within, correlation, 1.0 + (attempts - 1.0) * correlation)


def mean_with_absent(tasks: Iterable[Alike], *, absent_reward: float) -> float | None:
    """Give the mean of task means if every absent attempt had got `absent_reward`.

    None without tasks. With the worst and the best reward these are the bounds of Manski 1989,
    "Anatomy of the selection problem": whatever became of the absent attempts, the mean lies
    between.
    """
    means = Weighted((with_absent(task, absent_reward), task.num_tasks) for task in tasks)
    return means.mean if means else None


def with_absent(task: Alike, absent_reward: float) -> float:
    """Give the mean reward of a task if its absent attempts had got `absent_reward`."""
    rewards = itertools.chain(task.rewards, (task.num_absent * absent_reward,))
    return math.fsum(rewards) / (len(task.rewards) + task.num_absent)
