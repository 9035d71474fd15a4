"""Lines sorted into their tasks by counting, so that each costs a few bytes and no object."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

__all__ = ["Values", "line_order", "starts_of"]


def starts_of(task_of: array[int], num_tasks: int) -> array[int]:
    """Give where the lines of each task start once they are in order, and where the last end.

    Args:
        task_of: Of each line, the number of its task.
        num_tasks: How many tasks there are; some may have no line.

    """
    starts = array("I", bytes(task_of.itemsize * (num_tasks + 1)))
    for task in task_of:
        starts[task + 1] += 1
    for task in range(num_tasks):
        starts[task + 1] += starts[task]
    return starts


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
    """Numbers of which each belongs to a task; not every task need have any."""

    def __init__(self) -> None:
        self._task_of = array("I")
        self._values = array("d")

    def add(self, task: int, value: float) -> None:
        """Add a number of a task."""
        self._task_of.append(task)
        self._values.append(value)

    def by_task(self, num_tasks: int) -> Iterator[array[float]]:
        """Give the numbers of each task that has any."""
        starts = starts_of(self._task_of, num_tasks)
        order = line_order(self._task_of, starts)
        values = array("d", map(self._values.__getitem__, order))
        start = 0
        for end in starts[1:]:
            if end > start:
                yield values[start:end]
            start = end
