"""The value of a task in both runs, and the sums over tasks that a difference is made of."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gymcli.metrics.comparison.measures import Measure
from gymcli.metrics.comparison.results import Change
from gymcli.metrics.estimators import variance
from gymcli.metrics.sums import RunningMean

__all__ = [
    "PairedTask",
    "PairedValues",
    "TaskValue",
    "TaskValues",
    "Within",
    "change_of",
    "keep_first",
]

_MAX_NAMED = 20
"""Tasks of each kind of change that are named."""
_MAX_REMEMBERED = 1 << 14


class PairedTask(NamedTuple):
    """A task with its attempts in both runs."""

    env: str
    task_id: str
    values_a: Sequence[float]
    """In order of attempt, of those that have what is compared."""
    values_b: Sequence[float]
    is_in_a: bool = True
    """Whether run A has a scored attempt of it."""
    is_in_b: bool = True
    slices: Sequence[str] = ()
    """Its value of each field that the tasks are sliced by."""


class TaskValue(NamedTuple):
    """What one run gives of a task."""

    value: float
    num_attempts: int
    num_passes: int | None
    """None without a threshold of success, or where no reward is compared."""
    variance: float | None
    """Of one attempt around the task's mean; None for a single one."""


class TaskValues:
    """Gives the value of a task; of few kinds of tasks each is reckoned once.

    Args:
        measure: What is compared.
        threshold: The reward from which an attempt counts as a success, if there is one.

    """

    def __init__(self, measure: Measure, threshold: float | None) -> None:
        self._measure = measure
        self._threshold = threshold if measure.source == "reward" else None
        self._remembered: Callable[[tuple[float, ...]], TaskValue | None] = lru_cache(
            maxsize=_MAX_REMEMBERED
        )(self._reckoned)

    def of(self, values: Sequence[float]) -> TaskValue | None:
        """Give the value of a task from those of its attempts; None where these are too few."""
        return self._remembered(tuple(values))

    def _reckoned(self, values: tuple[float, ...]) -> TaskValue | None:
        value = self._measure.value(values, self._threshold)
        if value is None:
            return None
        threshold = self._threshold
        passes = None if threshold is None else [one >= threshold for one in values]
        # What pass@1 is the mean of is whether an attempt passes, not its reward.
        means = [float(one) for one in passes or ()] if self._measure.needs_threshold else values
        return TaskValue(
            value,
            len(values),
            None if passes is None else sum(passes),
            variance(means) if len(means) > 1 else None,
        )


def change_of(a: TaskValue, b: TaskValue) -> Change | None:
    """Say what became of a task; None without a threshold of success."""
    if a.num_passes is None or b.num_passes is None:
        return None
    if 0 < a.num_passes < a.num_attempts or 0 < b.num_passes < b.num_attempts:
        return "flaky"
    if a.num_passes:
        return "passed" if b.num_passes else "broken"
    return "fixed" if b.num_passes else "failed"


class Within:
    """How much the attempts of a task vary, over the tasks of one run."""

    def __init__(self) -> None:
        self._variances = RunningMean()
        self._inverses = RunningMean()

    def add(self, task: TaskValue) -> None:
        """Take a task."""
        self._inverses.add(1.0 / task.num_attempts)
        if task.variance is not None:
            self._variances.add(task.variance)

    @property
    def variance(self) -> float | None:
        """Of one attempt around its task's mean; None where no task has two."""
        return self._variances.mean if self._variances.num_values else None

    @property
    def mean_inverse(self) -> float:
        """The mean of 1 / K over tasks of K attempts."""
        return self._inverses.mean


class PairedValues:
    """The values of tasks in both runs: 16 bytes a task, and what else a difference takes."""

    def __init__(self) -> None:
        self.values_a = array("d")
        self.values_b = array("d")
        self.within_a = Within()
        self.within_b = Within()
        self.environments: set[str] = set()
        self.num_attempts_a = 0
        self.num_attempts_b = 0
        self.num_changed: dict[Change, int] | None = dict.fromkeys(
            ("fixed", "broken", "flaky", "passed", "failed"), 0
        )
        """None where some task has no threshold of success."""
        self.named: dict[Change, list[str]] = {"fixed": [], "broken": [], "flaky": []}
        """The first tasks of some changes, in order."""
        self._kinds: set[float] = set()
        self._has_single_attempts = True

    def __len__(self) -> int:
        """Give how many tasks there are."""
        return len(self.values_a)

    @property
    def is_binary(self) -> bool:
        """Whether every task has one attempt in either run, and values are no more than two."""
        return self._has_single_attempts and len(self._kinds) <= 2

    def lie_within(self, largest: float) -> bool:
        """Say whether no value of either run is below 0 or above that."""
        both = (self.values_a, self.values_b)
        return all(
            min(own, default=0.0) >= 0.0 and max(own, default=0.0) <= largest for own in both
        )

    def add(self, name: str, a: TaskValue, b: TaskValue, change: Change | None) -> None:
        """Take a task that both runs have a value of."""
        self.values_a.append(a.value)
        self.values_b.append(b.value)
        self.within_a.add(a)
        self.within_b.add(b)
        self.num_attempts_a += a.num_attempts
        self.num_attempts_b += b.num_attempts
        if a.num_attempts > 1 or b.num_attempts > 1:
            self._has_single_attempts = False
        elif len(self._kinds) <= 2:
            self._kinds.update((a.value, b.value))
        if change is None:
            self.num_changed = None
        elif self.num_changed is not None:
            self.num_changed[change] += 1
            if change in self.named:
                keep_first(self.named[change], name)


def keep_first(names: list[str], name: str) -> None:
    """Put a name into a short list in order, which the last one leaves where it is full."""
    if len(names) < _MAX_NAMED or name < names[-1]:
        insort(names, name)
        del names[_MAX_NAMED:]
