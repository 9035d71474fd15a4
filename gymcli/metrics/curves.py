"""The metrics that are given for every k: what k attempts at a task are worth.

A new one is a function in at_k.py, a line in `METRICS`, and the field of results.py that
says what its key means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from gymcli.metrics.at_k import (
    avg_at_k,
    best_of_k,
    majority_at_k,
    pass_at_k,
    pass_hat_k,
)
from gymcli.metrics.moments import Moments
from gymcli.metrics.task_scores import TaskScores

__all__ = ["METRICS", "Curve", "Curves", "num_tasks_at_k", "values_of_k"]

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


class Curves:
    """Every metric for each k: its mean over the tasks with k scored attempts, none extrapolated.

    Args:
        most: The most scored attempts that a task has.

    """

    def __init__(self, most: int) -> None:
        self._moments = {name: [(k, Moments()) for k in values_of_k(most)] for name in METRICS}

    def add(self, task: TaskScores, num_tasks: int = 1) -> None:
        """Take the values of one task, with as many attempts as it has, for all that are alike."""
        num_attempts = len(task.rewards)
        for name, metric in METRICS.items():
            for k, moments in self._moments[name]:
                if (value := metric(task, k)) is not None:
                    taken = k if name == "avg_at_k" else num_attempts
                    moments.add(value, num_tasks, num_attempts=taken)

    def moments(self, name: str) -> Sequence[tuple[int, Moments]]:
        """Give one of `METRICS` for each k, as the tasks' values; of some k there may be none."""
        return self._moments[name]

    def curve(self, name: str) -> Curve | None:
        """Give one of `METRICS`.

        None where no task has a value: no threshold of success, or no answers to vote with.
        """
        known = [(k, moments) for k, moments in self._moments[name] if moments.num_values]
        return {str(k): moments.mean for k, moments in known} or None


def values_of_k(most: int) -> list[int]:
    """Give 1, 2, 4, 8 and so on up to the most attempts that a task has, and that number."""
    powers = [1 << exponent for exponent in range(most.bit_length())]
    return sorted({*powers, most} - {0})


def num_tasks_at_k(num_scored: Mapping[int, int]) -> dict[str, int]:
    """Give for each k how many tasks have k scored attempts, from how many have just so many."""
    return {
        str(k): sum(count for number, count in num_scored.items() if number >= k)
        for k in values_of_k(max(num_scored, default=0))
    }
