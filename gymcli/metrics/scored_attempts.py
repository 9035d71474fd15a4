"""The scored attempts of an environment in columns, and their rows by task."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gymcli.errors import RunFileError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Numbers: TypeAlias = "NDArray[np.int32] | NDArray[np.int64] | NDArray[np.intp]"


class SameSize(NamedTuple):
    """Tasks that have equally many attempts."""

    tasks: Numbers
    lines: Numbers
    """A row for each task: the lines of its attempts, in order of attempt."""


class Texts:
    """The text of each line, stored as a number, since few texts are different."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        """The texts, numbered from 1 on."""
        self.numbers = array("i")
        """The number of each line's text; 0 for none."""

    def extend(self, texts: Iterable[str | None]) -> None:
        """Add lines."""
        known = self.texts
        self.numbers.extend(
            [0 if text is None else known.setdefault(text, len(known) + 1) for text in texts]
        )

    def known(self) -> list[str | None]:
        """Return the texts, indexed by their numbers."""
        return [None, *self.texts]


class Attempts:
    """The scored attempts of one environment in columns, called lines, in order of arrival.

    Two compared runs share `task_numbers`.
    """

    def __init__(self, env: str, task_numbers: dict[str, int] | None = None) -> None:
        self.env = env
        self.task_numbers: dict[str, int] = {} if task_numbers is None else task_numbers
        """The number of each task id, from 0 on, in order of arrival."""
        self.tasks = array("i")
        """The task number of each line."""
        self.attempts = array("q")
        """The attempt number of each line within its task."""
        self.rewards = array("d")
        """The reward of each line, or another number; nan if it has none."""

    def __len__(self) -> int:
        return len(self.rewards)

    def extend(
        self, task_ids: Iterable[str], attempts: Iterable[int], rewards: Iterable[float | None]
    ) -> None:
        """Add attempts."""
        known = self.task_numbers
        self.tasks.extend([known.setdefault(task_id, len(known)) for task_id in task_ids])
        self.attempts.extend(attempts)
        self.rewards.extend([math.nan if reward is None else reward for reward in rewards])

    def by_task(self) -> list[SameSize]:
        """Return the attempts by task; raise RunFileError if one appears twice."""
        import numpy as np  # late: heavy

        attempts = np.asarray(self.attempts)
        groups = rows_by_task(np.asarray(self.tasks), attempts)
        twice: list[tuple[int, int]] = []
        for tasks, lines in groups:
            numbers = attempts[lines]
            # Attempts are in order, so equal ones are neighbours.
            rows, columns = np.nonzero(numbers[:, 1:] == numbers[:, :-1])
            twice += zip(tasks[rows].tolist(), numbers[rows, columns].tolist(), strict=True)
        if twice:
            task_ids = list(self.task_numbers)
            task_id, attempt = min((task_ids[task], attempt) for task, attempt in twice)
            raise RunFileError(
                f"task {task_id!r} of environment {self.env!r}, attempt {attempt}, is scored "
                "by two lines; delete one of them"
            )
        return groups


def rows_by_task(tasks: Numbers, attempts: Numbers) -> list[SameSize]:
    """Group lines by task, and tasks by their number of lines.

    `tasks` has the task number of each line, `attempts` the order of lines within a task.
    """
    import numpy as np  # late: heavy

    # The last key of lexsort counts first: by task, then by attempt.
    order = np.lexsort((attempts, tasks)).astype(np.int32)
    ordered = tasks[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(starts, append=len(ordered))
    groups = []
    for size in np.unique(sizes):
        own = starts[sizes == size]
        groups.append(SameSize(ordered[own], order[own[:, None] + np.arange(size)]))
    return groups
