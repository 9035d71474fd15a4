"""Means over tasks by two verifiers, and what they differ by, of values that are not kept."""

from __future__ import annotations

import math
from collections import defaultdict

from gymcli.metrics.comparison.paired import PAIRED_DIFFERENCES, difference_interval, is_sure
from gymcli.metrics.moments import Moments
from gymcli.metrics.results import Effect, Estimate
from gymcli.metrics.weighted import Weighted

__all__ = ["MeansBySize", "PairedMoments"]

_ROUNDING = 1e-12
"""Of the largest value: as much as equal means may differ by, or equal differences."""
_MICRO_DIFFERENCES = "mean of paired attempt differences, errors clustered by task"


class PairedMoments:
    """Takes the values of tasks by both verifiers and gives their effect; none is kept."""

    def __init__(self) -> None:
        self.before = Moments()
        self.after = Moments()
        self.differences = Moments()

    def add(self, before: float, after: float, *, num_attempts: int, times: int = 1) -> None:
        """Add a task's two values, as if it came so many times.

        Args:
            before: By the old scores.
            after: By the new ones.
            num_attempts: The scores that the two were made of.
            times: How many tasks have these values.

        """
        self.before.add(before, times)
        self.after.add(after, times)
        self.differences.add(after - before, times, num_attempts=num_attempts)

    def add_all(self, other: PairedMoments) -> None:
        """Add the tasks of another one."""
        self.before.add_all(other.before)
        self.after.add_all(other.after)
        self.differences.add_all(other.differences)

    @property
    def num_tasks(self) -> int:
        """How many tasks there are."""
        return self.differences.num_values

    @property
    def largest(self) -> float:
        """The largest value of at least one task, whatever its sign."""
        return max(max(-one.lowest, one.highest) for one in (self.before, self.after))

    def lie_within(self, best: float) -> bool:
        """Say whether no value is below 0 or above that."""
        both = (self.before, self.after)
        return all(one.lowest >= 0.0 and one.highest <= best for one in both)

    def squares_around(self, centre: float) -> float:
        """Give the sum of the squared distances of the differences from that."""
        error = self.differences.standard_error or 0.0  # None of a single task
        own = (self.num_tasks - 1) * error**2
        return self.num_tasks * (own + (self.differences.mean - centre) ** 2)

    def effect(
        self, *, best: float | None, level: float, weight: float | None = None
    ) -> Effect | None:
        """Give the means over tasks and what they differ by; None of no task.

        Args:
            best: The top of the values' range, which begins at 0; None where they have none.
            level: The share of such intervals that contain the true difference.
            weight: What is summed over tasks with this weight, where that is wanted.

        """
        if not self.num_tasks:
            return None
        scale = 1.0 if weight is None else weight * self.num_tasks
        error = self.differences.standard_error
        found = Estimate(
            value=scale * self.differences.mean,
            estimator=PAIRED_DIFFERENCES,
            num_values=self.differences.num_attempts,
            num_clusters=self.num_tasks,
            standard_error=None if error is None else scale * error,
        )
        _settle(found, noise=scale * _ROUNDING * self.largest, best=best, level=level)
        return Effect(
            before=scale * self.before.mean, after=scale * self.after.mean, difference=found
        )


class MeansBySize:
    """The mean rewards of tasks, those with equally many attempts together."""

    def __init__(self) -> None:
        self._by_size: defaultdict[int, PairedMoments] = defaultdict(PairedMoments)

    @property
    def most(self) -> int:
        """The most attempts that a task has; 0 without tasks."""
        return max(self._by_size, default=0)

    def add(self, before: float, after: float, *, size: int, times: int) -> None:
        """Add the two means of so many tasks, each of `size` attempts."""
        self._by_size[size].add(before, after, num_attempts=2 * size, times=times)

    def effect(self, *, best: float | None, level: float) -> Effect | None:
        """Give that of the mean over tasks; the arguments are those of `PairedMoments.effect`."""
        return self._pooled().effect(best=best, level=level)

    def micro_effect(self, *, best: float | None, level: float) -> Effect | None:
        """Give that of the mean over attempts, with the error of a ratio, clustered by task.

        It is that of `estimators.clustered_standard_error` (Miller 2024, arXiv 2411.00640) of the
        attempts' differences, of one pass: squares around the mean are what tasks of one size vary
        by, and how far all of them lie from it.
        """
        pooled = self._pooled()
        if not pooled.num_tasks:
            return None
        parts = [(one, size * one.num_tasks) for size, one in self._by_size.items()]
        centre = Weighted((one.differences.mean, num) for one, num in parts).mean
        found = Estimate(
            value=centre,
            estimator=_MICRO_DIFFERENCES,
            num_values=pooled.differences.num_attempts,
            num_clusters=pooled.num_tasks,
        )
        if pooled.differences.standard_error is not None:
            squares = math.fsum(
                size**2 * one.squares_around(centre) for size, one in self._by_size.items()
            )
            correction = pooled.num_tasks / (pooled.num_tasks - 1)
            num_attempts = sum(num for _, num in parts)
            found.standard_error = math.sqrt(squares * correction) / num_attempts
        _settle(found, noise=_ROUNDING * pooled.largest, best=best, level=level)
        return Effect(
            before=Weighted((one.before.mean, num) for one, num in parts).mean,
            after=Weighted((one.after.mean, num) for one, num in parts).mean,
            difference=found,
        )

    def _pooled(self) -> PairedMoments:
        pooled = PairedMoments()
        for moments in self._by_size.values():
            pooled.add_all(moments)
        return pooled


def _settle(found: Estimate, *, noise: float, best: float | None, level: float) -> None:
    """Take what rounding may leave for 0, and add the interval where there is one.

    Args:
        found: A difference with its error.
        noise: As much as rounding may leave of none.
        best: The top of the values' range, which begins at 0; None where they have none.
        level: The share of such intervals that contain the true difference.

    """
    num_tasks, error = found.num_clusters, found.standard_error
    found.value = 0.0 if abs(found.value) <= noise else found.value
    if error is None:
        return
    found.standard_error = error = 0.0 if error * math.sqrt(num_tasks) <= noise else error
    if error or is_sure(found.value, num_tasks, level):
        found.interval = difference_interval(
            found.value, error, num_tasks=num_tasks, largest=best, level=level
        )
