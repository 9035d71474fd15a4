"""What the attempts of each task come to."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict

from gymcli.index.columns import STATUSES, Columns

__all__ = ["Groups"]

_SCORED = STATUSES.index("scored")


class Groups:
    """Mean, best and worst reward of each task, and how many of its attempts there are.

    Args:
        columns: The attempts; what is added to them later is not counted.

    """

    def __init__(self, columns: Columns) -> None:
        size = columns.num_groups
        self._averages, self._bests, self._worsts = (
            array("d", [math.nan]) * size for _ in range(3)
        )
        self._num_attempts, self._num_passed = (array("I", [0]) * size for _ in range(2))
        self._is_judged = bytearray(size)
        """Whether it is known of some attempt whether it passed."""
        rewards: defaultdict[int, list[float]] = defaultdict(list)
        counts, all_rewards = columns.counts, columns.measures["reward"]
        for group, status, reward, passed in zip(
            counts["group"], counts["status"], all_rewards, counts["passed"], strict=True
        ):
            self._num_attempts[group] += 1
            if status == _SCORED:
                rewards[group].append(reward)
            if passed >= 0:
                self._is_judged[group] = True
                self._num_passed[group] += passed
        for group, values in rewards.items():
            self._averages[group] = _mean(values)
            self._bests[group], self._worsts[group] = max(values), min(values)

    def avg(self, group: int) -> float | None:
        """Give the mean reward of a task's scored attempts."""
        return _known(self._averages[group])

    def best(self, group: int) -> float | None:
        """Give the best reward of a task."""
        return _known(self._bests[group])

    def worst(self, group: int) -> float | None:
        """Give the worst reward of a task."""
        return _known(self._worsts[group])

    def num_attempts(self, group: int) -> int:
        """Give how many attempts of a task are on record."""
        return self._num_attempts[group]

    def num_passed(self, group: int) -> int | None:
        """Give how many attempts of a task passed; None where that cannot be said."""
        return self._num_passed[group] if self._is_judged[group] else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _mean(values: list[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum of the largest numbers there are
        return math.fsum(value / len(values) for value in values)
