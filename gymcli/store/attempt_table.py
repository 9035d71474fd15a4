"""Attempts in columns, for metrics, comparisons, rescoring and the index of a run."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gymcli.errors import RunFileError


class SameSize(NamedTuple):
    """Tasks that have equally many attempts."""

    tasks: NDArray[np.int32]
    rows: NDArray[np.int32]
    """For each task, the rows of its attempts, in order of attempt."""


class NamedNumbers:
    """A component or another number of a score, for the rows that have it."""

    def __init__(self) -> None:
        self.rows = array("i")
        """In ascending order."""
        self.values = array("d")

    def at(self, row: int) -> float | None:
        place = bisect_left(self.rows, row)
        has_number = place < len(self.rows) and self.rows[place] == row
        return self.values[place] if has_number else None

    def put(self, row: int, value: float) -> None:
        if not self.rows or row > self.rows[-1]:
            self.rows.append(row)
            self.values.append(value)
            return
        place = bisect_left(self.rows, row)
        if self.rows[place] == row:
            self.values[place] = value
        else:
            self.rows.insert(place, row)
            self.values.insert(place, value)

    def remove(self, row: int) -> None:
        place = bisect_left(self.rows, row)
        if place < len(self.rows) and self.rows[place] == row:
            del self.rows[place], self.values[place]


class AttemptTable:
    """Attempts in columns, a row each, in order of arrival.

    Columns are of type `array`, which numpy reads without a copy. Texts are stored as numbers, as
    few of them differ.

    Args:
        env: The environment of all attempts.
        columns: The typecodes of columns besides `task` and `attempt`.
        task_numbers: Shared by the tables of two compared runs.
    """

    def __init__(
        self,
        env: str,
        columns: Mapping[str, str],
        task_numbers: dict[str, int] | None = None,
    ) -> None:
        self.env = env
        self.task_numbers: dict[str, int] = {} if task_numbers is None else task_numbers
        """The number of each task id, from 0 on, in order of arrival."""
        self.named: defaultdict[str, NamedNumbers] = defaultdict(NamedNumbers)
        """By `components.NAME` and `metrics.NAME`."""
        self._columns: dict[str, array[Any]] = {
            name: array(typecode)
            for name, typecode in {"task": "i", "attempt": "q", **columns}.items()
        }
        self._text_numbers: dict[str | None, int] = {None: 0}

    def __len__(self) -> int:
        return len(self._columns["task"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column; no row can be added as long as it is in use."""
        return np.asarray(self._columns[name])

    def texts(self) -> list[str | None]:
        return list(self._text_numbers)

    def text_number(self, text: str) -> int:
        return self._text_numbers.setdefault(text, len(self._text_numbers))

    def text_numbers(self, texts: Iterable[str | None]) -> list[int]:
        """Return the numbers of texts for a column; 0 for None."""
        numbers = self._text_numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    def extend(
        self, task_ids: Iterable[str], attempts: Iterable[int], **columns: Iterable[float]
    ) -> None:
        numbers = self.task_numbers
        self._columns["task"].extend([numbers.setdefault(task, len(numbers)) for task in task_ids])
        self._columns["attempt"].extend(attempts)
        for name, values in columns.items():
            self._columns[name].extend(values)

    def extend_named(
        self, kind: str, first_row: int, numbers: Sequence[Mapping[str, float] | None]
    ) -> None:
        for row, named in enumerate(numbers, first_row):
            for name, value in named.items() if named else ():
                column = self.named[f"{kind}.{name}"]
                column.rows.append(row)
                column.values.append(value)

    def append(self, task_id: str, attempt: int, values: Mapping[str, float]) -> int:
        task = self.task_numbers.setdefault(task_id, len(self.task_numbers))
        self._columns["task"].append(task)
        self._columns["attempt"].append(attempt)
        for name, value in values.items():
            self._columns[name].append(value)
        return task

    def put(self, row: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._columns[name][row] = value

    def item(self, row: int, name: str) -> float:
        value: float = self._columns[name][row]
        return value

    def row(self, row: int) -> dict[str, float]:
        return {name: column[row] for name, column in self._columns.items()}

    def values(self, name: str) -> NDArray[np.float64]:
        """Return the reward or a named number of each row; nan if a row lacks it."""
        if name == "reward":
            return self["reward"]
        column = np.full(len(self), math.nan)
        if name in self.named:
            column[np.asarray(self.named[name].rows)] = self.named[name].values
        return column

    def by_task(self, rows: NDArray[np.intp] | None = None) -> list[SameSize]:
        """Group rows by task, and tasks by their number of rows; None: all rows.

        Raise RunFileError if an attempt appears twice.
        """
        tasks, attempts = self["task"], self["attempt"]
        if rows is not None:
            tasks, attempts = tasks[rows], attempts[rows]
        # The last key of lexsort counts first: by task, then by attempt.
        order = np.lexsort((attempts, tasks)).astype(np.int32)
        tasks, attempts = tasks[order], attempts[order]
        # In this order, equal attempts are neighbours.
        is_repeated = (tasks[1:] == tasks[:-1]) & (attempts[1:] == attempts[:-1])
        if is_repeated.any():
            task_ids, places = list(self.task_numbers), np.flatnonzero(is_repeated)
            task_id, attempt = min((task_ids[tasks[i]], attempts[i]) for i in places)
            raise RunFileError(
                f"task {task_id!r} of environment {self.env!r}, attempt {attempt}, is scored "
                "by two lines; delete one of them"
            )
        if rows is not None:
            order = rows[order].astype(np.int32)
        starts = np.flatnonzero(np.diff(tasks, prepend=-1))
        sizes = np.diff(starts, append=len(tasks))
        groups = []
        for size in np.unique(sizes):
            starts_of_size = starts[sizes == size]
            members = order[starts_of_size[:, None] + np.arange(size)]
            groups.append(SameSize(tasks[starts_of_size], members))
        return groups
