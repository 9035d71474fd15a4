"""The metrics that are given for every k: what k attempts at a task are worth.

A new one is a function in estimators.py, a line in `METRICS`, and the field of results.py that
says what its key means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gymcli.metrics.estimators import (
    avg_at_k,
    best_of_k,
    majority_at_k,
    mean,
    pass_at_k,
    pass_hat_k,
)
from gymcli.metrics.tally import TaskScores

__all__ = ["METRICS", "Curve", "curve", "num_tasks_at_k", "values_of_k"]

Curve: TypeAlias = dict[str, float]
"""A value for each k; the keys are text, as in JSON."""


def _pass_at_k(task: TaskScores, k: int) -> float | None:
    if task.num_passes is None:
        return None
    return pass_at_k(len(task.rewards), task.num_passes, k)


def _pass_hat_k(task: TaskScores, k: int) -> float | None:
    if task.num_passes is None:
        return None
    return pass_hat_k(len(task.rewards), task.num_passes, k)


def _avg_at_k(task: TaskScores, k: int) -> float | None:
    return avg_at_k(task.rewards, k)


def _majority_at_k(task: TaskScores, k: int) -> float | None:
    if task.answers is None:
        return None
    seed = f"{task.env}/{task.task_id}"
    return majority_at_k(task.rewards, task.answers, k, seed=seed)


def _best_of_k(task: TaskScores, k: int) -> float | None:
    return best_of_k(task.rewards, k)


METRICS: dict[str, Callable[[TaskScores, int], float | None]] = {
    "pass_at_k": _pass_at_k,
    "pass_hat_k": _pass_hat_k,
    "avg_at_k": _avg_at_k,
    "majority_at_k": _majority_at_k,
    "best_of_k": _best_of_k,
}
"""By the key of the result; None where the task has no value, for one too few attempts."""


def values_of_k(tasks: Sequence[TaskScores]) -> list[int]:
    """Give 1, 2, 4, 8 and so on up to the most attempts that a task has, and that number."""
    most = max((len(task.rewards) for task in tasks), default=0)
    powers = [1 << exponent for exponent in range(most.bit_length())]
    return sorted({*powers, most} - {0})


def num_tasks_at_k(tasks: Sequence[TaskScores]) -> dict[str, int]:
    """Give for each k how many tasks have k scored attempts."""
    return {str(k): sum(len(t.rewards) >= k for t in tasks) for k in values_of_k(tasks)}


def curve(name: str, tasks: Sequence[TaskScores]) -> Curve | None:
    """Give a metric for each k: its mean over the tasks with k scored attempts, none extrapolated.

    None where no task has a value: no threshold of success, or no answers to vote with.
    """
    metric = METRICS[name]
    points: Curve = {}
    for k in values_of_k(tasks):
        values = [value for task in tasks if (value := metric(task, k)) is not None]
        if values:
            points[str(k)] = mean(values)
    return points or None
