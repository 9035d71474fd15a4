"""The attempts of one environment in both runs, by task: a few bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gymcli.metrics.comparison.values import PairedTask
from gymcli.metrics.grouping import line_order, starts_of
from gymcli.metrics.small_ints import SmallInts
from gymcli.numbering import Numbering

__all__ = ["EnvironmentScores", "Scores"]

_NOT_THERE = float("nan")


class Scores:
    """The scored attempts of one run, as they come."""

    def __init__(self) -> None:
        self._tasks = array("I")
        self._attempts = SmallInts()
        self._values = array("d")

    def __len__(self) -> int:
        """Give how many attempts there are."""
        return len(self._values)

    def extend(
        self, tasks: Iterable[int], attempts: Iterable[int], values: Iterable[float | None]
    ) -> None:
        """Add attempts, each with the number of its task; None where it lacks what is compared."""
        self._tasks.extend(tasks)
        self._attempts.extend(attempts)
        self._values.extend([_NOT_THERE if value is None else value for value in values])

    def by_task(self, num_tasks: int) -> Iterator[_OfTask]:
        """Give the attempts of each task, in order of their numbers."""
        starts = starts_of(self._tasks, num_tasks)
        order = line_order(self._tasks, starts)
        values, attempts = self._values, self._attempts
        start = 0
        for end in starts[1:]:
            lines: Sequence[int] = order[start:end]
            start = end
            if len(lines) > 1:
                lines = [line for _, line in sorted((attempts[line], line) for line in lines)]
            found = [values[line] for line in lines]
            yield _OfTask([value for value in found if value == value], bool(found))


class _OfTask(NamedTuple):
    values: list[float]
    is_there: bool


class EnvironmentScores:
    """The attempts of one environment in both runs; a task has one number in both.

    Args:
        env: Its name.
        num_fields: How many fields the tasks are sliced by.

    """

    def __init__(self, env: str, num_fields: int) -> None:
        self.env = env
        self.tasks = Numbering()
        """The ids of the tasks."""
        self.a = Scores()
        self.b = Scores()
        self._slices = [_Names() for _ in range(num_fields)]

    def add_slices(self, slices: Sequence[str]) -> None:
        """Add the values that the newest task has of each field."""
        for names, value in zip(self._slices, slices, strict=True):
            names.add(value)

    def paired(self) -> Iterator[PairedTask]:
        """Give every task that either run has.

        No attempt may be there twice: `Aggregator` refuses a run where one is.
        """
        num_tasks = len(self.tasks)
        sides = zip(self.a.by_task(num_tasks), self.b.by_task(num_tasks), strict=True)
        for number, (a, b) in enumerate(sides):
            yield PairedTask(
                self.env,
                self.tasks[number].decode(),
                a.values,
                b.values,
                is_in_a=a.is_there,
                is_in_b=b.is_there,
                slices=[names[number] for names in self._slices],
            )


class _Names:
    """The value that each task has of a field; few are different."""

    def __init__(self) -> None:
        self._names = Numbering()
        self._numbers = SmallInts()

    def __getitem__(self, task: int) -> str:
        return self._names[self._numbers[task]].decode()

    def add(self, name: str) -> None:
        self._numbers.extend([self._names.number_of(name.encode())])
