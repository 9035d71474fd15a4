"""Lines sorted into their tasks by counting, so that each costs a few bytes and no object."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Values", "add_named", "line_order", "starts_of"]


def starts_of(task_of: array[int], num_tasks: int) -> array[int]:
    """Give where the lines of each task start once they are in order, and where the last end.

    Args:
        task_of: Of each line, the number of its task.
        num_tasks: How many tasks there are; some may have no line.

    """
    starts = array("I", bytes(task_of.itemsize * (num_tasks + 1)))
    for task in task_of:
        starts[task + 1] += 1
    return array("I", itertools.accumulate(starts))


def line_order(task_of: array[int], starts: array[int]) -> array[int]:
    """Give the lines task by task, those of one in the order they came."""
    order = array("I", bytes(task_of.itemsize * len(task_of)))
    free = starts[:]
    for line, task in enumerate(task_of):
        place = free[task]
        order[place] = line
        free[task] = place + 1
    return order


class Values:
    """Numbers of which each belongs to an attempt; not every attempt need have one."""

    def __init__(self) -> None:
        self._lines = array("I")
        self._values = array("d")

    def add(self, line: int, value: float) -> None:
        """Add a number of an attempt, which is named by its place among all of them."""
        self._lines.append(line)
        self._values.append(value)

    def of_line(self, line: int) -> float | None:
        """Give the number of an attempt, if it has one."""
        place = bisect_left(self._lines, line)  # they were added in order
        is_there = place < len(self._lines) and self._lines[place] == line
        return self._values[place] if is_there else None

    def by_task(self, task_of: array[int], num_tasks: int) -> Iterator[array[float]]:
        """Give the numbers of each task that has any.

        Args:
            task_of: Of each attempt, the number of its task.
            num_tasks: How many tasks there are.

        """
        tasks = array("I", map(task_of.__getitem__, self._lines))
        starts = starts_of(tasks, num_tasks)
        order = line_order(tasks, starts)
        values = array("d", map(self._values.__getitem__, order))
        start = 0
        for end in starts[1:]:
            if end > start:
                yield values[start:end]
            start = end


def add_named(
    named: dict[str, Values], first: int, of_lines: Sequence[Mapping[str, float] | None]
) -> None:
    """Add the named numbers of attempts from the place `first` on; most runs have none."""
    if not any(of_lines):
        return
    for line, values in enumerate(of_lines, first):
        for name, value in (values or {}).items():
            if name not in named:
                named[name] = Values()
            named[name].add(line, value)
