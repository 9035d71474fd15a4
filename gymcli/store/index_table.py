"""The table of an index: values of each attempt of a run, read from its line."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, KeysView, Sequence

import numpy as np
from numpy.typing import NDArray

from gymcli.store.attempt_table import AttemptTable
from gymcli.store.record_reader import STATUSES, Entry, Status
from gymcli.types import ErrorRecord

_TEXTS = ("env", "stop_reason", "error", "phase", "model", "answer")
_COLUMNS = {
    **dict.fromkeys((*_TEXTS, "num_turns", "num_tool_calls"), "i"),
    **dict.fromkeys(("status", "passed", "file", "is_ours"), "b"),
    **dict.fromkeys(("offset", "prompt_tokens", "completion_tokens", "reasoning_tokens"), "q"),
    "size": "I",
    **dict.fromkeys(("reward", "cost", "seconds"), "d"),
}
"""104 bytes an attempt, with its task and number."""
_TASK_COUNTS = ("num_attempts", "num_passed")
_TASK_REWARDS = ("avg", "best", "worst")
_MAX_NAMES = 64
"""The most named numbers in the table; others are read from the file."""
_MAX_COUNT = (1 << 63) - 1
MAX_ANSWER_CHARACTERS = 200


class IndexTable:
    """The attempts of a run, of all environments, in the order of their lines, and their tasks."""

    def __init__(self) -> None:
        self.has_more_names = False
        """Whether more named numbers are only in the file."""
        self._table = AttemptTable("", _COLUMNS)
        """A task is named by the number of its environment, a space and its id."""
        self._tasks: list[str] = []
        """The names of tasks by their number."""
        self._rows: list[array[int]] = []
        """The rows of each task by its number, in order of attempt."""
        self._numbers_of_tasks: dict[str, NDArray[np.float64]] = {}
        """Columns with a number for each task; empty until computed."""
        self._texts: list[str | None] = []
        """Of all columns, by their numbers; empty until they are needed."""
        self._decoders: dict[str, Callable[..., object]] = {
            **dict.fromkeys(_TEXTS, self._text),
            **dict.fromkeys(("reward", "cost", "seconds", *_TASK_REWARDS), _none_for_nan),
            **dict.fromkeys(_TASK_COUNTS, lambda value: None if math.isnan(value) else int(value)),
            "status": STATUSES.__getitem__,
            "passed": (False, True, None).__getitem__,  # -1 is the last item: None
        }

    def __len__(self) -> int:
        return len(self._table)

    @property
    def names(self) -> KeysView[str]:
        return self._table.named.keys()

    def find(self, env: str, task_id: str, attempt: int) -> int | None:
        rows = self.rows_of(env, task_id)
        place = bisect_left(rows, attempt, key=self._attempt)
        is_recorded = place < len(rows) and self._attempt(rows[place]) == attempt
        return rows[place] if is_recorded else None

    def rows_of(self, env: str, task_id: str) -> Sequence[int]:
        task = self._table.task_numbers.get(f"{self._table.text_number(env)} {task_id}")
        return () if task is None else self._rows[task]

    def put(
        self, row: int | None, entry: Entry, passed: bool | None, place: tuple[int, int, int]
    ) -> int:
        """Store a line in the row of its attempt, or in a new one for None; return the row.

        `place` is the number of the line's file, the offset of its first byte and its size.
        """
        self._numbers_of_tasks.clear()  # computed again when they are needed
        self._texts.clear()
        table, values = self._table, self._values_of(entry, passed, place)
        if row is None:
            row, task_name = len(table), f"{values['env']} {entry.task_id}"
            task = table.append(task_name, entry.attempt, values)
            if task == len(self._tasks):
                self._tasks.append(task_name)
                self._rows.append(array("i"))
            rows = self._rows[task]
            rows.insert(bisect_left(rows, entry.attempt, key=self._attempt), row)
        else:
            table.put(row, values)
            for column in table.named.values():
                column.remove(row)
        for kind, numbers in (("components", entry.components), ("metrics", entry.metrics)):
            for key, number in numbers.items() if numbers else ():
                name = f"{kind}.{key}"
                if name in table.named or len(table.named) < _MAX_NAMES:
                    table.named[name].put(row, number)
                else:
                    self.has_more_names = True
        return row

    def _values_of(
        self, entry: Entry, passed: bool | None, place: tuple[int, int, int]
    ) -> dict[str, float]:
        answer, error, usage = entry.answer, entry.error, entry.usage
        if answer is not None and len(answer) > MAX_ANSWER_CHARACTERS:
            answer = f"{answer[:MAX_ANSWER_CHARACTERS]}…"
        responses = entry.messages[entry.num_prompt_messages :]
        texts = (
            *(entry.env, entry.stop_reason),
            *((None, None) if error is None else (error.error_class, error.phase)),
            *(entry.model or None, answer),
        )
        env, stop_reason, error_class, phase, model, answer_number = self._table.text_numbers(texts)
        file, offset, size = place
        return {
            "env": env,
            "stop_reason": stop_reason,
            "error": error_class,
            "phase": phase,
            "model": model,
            "answer": answer_number,
            "file": file,
            "offset": offset,
            "size": size,
            "is_ours": entry.schema_version > 0,
            "status": STATUSES.index(entry.status),
            "passed": -1 if passed is None else passed,
            "num_turns": sum([message.role == "assistant" for message in responses]),
            "num_tool_calls": sum([len(message.tool_calls) for message in responses]),
            # A count outside the range of the column is damaged.
            "prompt_tokens": min(max(usage.prompt_tokens, 0), _MAX_COUNT),
            "completion_tokens": min(max(usage.completion_tokens, 0), _MAX_COUNT),
            "reasoning_tokens": min(max(usage.reasoning_tokens, 0), _MAX_COUNT),
            "reward": math.nan if entry.reward is None else entry.reward,
            "cost": math.nan if entry.cost is None else entry.cost,
            "seconds": entry.timing.total_seconds or math.nan,
        }

    def set_error(self, row: int, error: ErrorRecord) -> None:
        self._texts.clear()
        error_class, phase = self._table.text_numbers((error.error_class, error.phase))
        self._table.put(row, {"error": error_class, "phase": phase})

    def status(self, row: int) -> Status:
        return STATUSES[int(self._table.item(row, "status"))]

    def place(self, row: int) -> tuple[int, int, int, bool]:
        """Return file number, offset and size of a row's line, and whether gymcli wrote it."""
        item = self._table.item
        is_ours = bool(item(row, "is_ours"))
        return int(item(row, "file")), int(item(row, "offset")), int(item(row, "size")), is_ours

    def column(self, name: str) -> list[object]:
        if name == "task_id":
            task_ids = [_task_id(task_name) for task_name in self._tasks]
            return [task_ids[task] for task in self._table["task"].tolist()]
        if name in (*_TASK_COUNTS, *_TASK_REWARDS):
            values = self._task_numbers()[name][self._table["task"]]
        elif name in self._table.named:
            return [_none_for_nan(number) for number in self._table.values(name).tolist()]
        else:
            values = self._table[name]
        decode, numbers = self._decoders.get(name), values.tolist()
        if name in _TEXTS:
            decode = self._table.texts().__getitem__  # faster than to look for new texts each time
        return numbers if decode is None else [decode(number) for number in numbers]

    def row_values(self, row: int) -> dict[str, object]:
        numbers = self._table.row(row)
        task = int(numbers["task"])
        numbers |= {name: column.item(task) for name, column in self._task_numbers().items()}
        values = {
            name: decode(numbers[name])
            for name, decode in self._decoders.items()
            if name in numbers
        }
        named: dict[str, dict[str, float]] = {"components": {}, "metrics": {}}
        for name, column_of_name in self._table.named.items():
            if (number := column_of_name.at(row)) is not None:
                kind, _, key = name.partition(".")
                named[kind][key] = number
        return {**numbers, **values, **named, "task_id": _task_id(self._tasks[task])}

    def _task_numbers(self) -> dict[str, NDArray[np.float64]]:
        if self._numbers_of_tasks:
            return self._numbers_of_tasks
        num_tasks, tasks, passed = len(self._tasks), self._table["task"], self._table["passed"]
        is_scored = self._table["status"] == STATUSES.index("scored")
        tasks_of_scored = tasks[is_scored]
        # Sorted by task, so that the rewards of each task are one slice.
        order = np.argsort(tasks_of_scored, kind="stable")
        rewards = self._table["reward"][is_scored][order].tolist()
        averages, bests, worsts = (np.full(num_tasks, math.nan) for _ in _TASK_REWARDS)
        end = 0
        for task, count in enumerate(np.bincount(tasks_of_scored, minlength=num_tasks).tolist()):
            if count:
                start, end = end, end + count
                scores = rewards[start:end]
                averages[task], bests[task], worsts[task] = _mean(scores), max(scores), min(scores)
        is_judged = passed >= 0
        num_judged = np.bincount(tasks[is_judged], minlength=num_tasks)
        num_passed = np.bincount(tasks[is_judged], passed[is_judged], minlength=num_tasks)
        self._numbers_of_tasks = {
            "num_attempts": np.bincount(tasks, minlength=num_tasks).astype("f8"),
            "num_passed": np.where(num_judged > 0, num_passed, math.nan),
            "avg": averages,
            "best": bests,
            "worst": worsts,
        }
        return self._numbers_of_tasks

    def _attempt(self, row: int) -> int:
        return int(self._table.item(row, "attempt"))

    def _text(self, number: int) -> str | None:
        if not self._texts:
            self._texts = self._table.texts()
        return self._texts[number]


def _task_id(task_name: str) -> str:
    return task_name.partition(" ")[2]


def _none_for_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum exceeds the largest float
        return math.fsum(value / len(values) for value in values)
