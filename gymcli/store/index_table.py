"""The columns of an index: values of each attempt, read from its line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
import numpy as np

from gymcli.errors import RunFileError
from gymcli.store.record_reader import PlacedLine
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    MAX_ATTEMPT,
    WAYS_OUT,
    RolloutReading,
    decode_rollout,
)
from gymcli.types import JSON_ERRORS, ErrorRecord, RecordNumbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Status = Literal["failed", "waiting", "scored"]
"""The status of an attempt; `waiting`: its conversation is complete but has no score yet."""
STATUSES: tuple[Status, ...] = get_args(Status)
"""In ascending precedence: a score replaces failures."""


class _ToolCall(msgspec.Struct, gc=False):
    """A tool call, which is only counted."""


class _Message(msgspec.Struct, gc=False):
    role: str
    tool_calls: list[_ToolCall] = []


class Entry(RecordNumbers, kw_only=True):
    """The fields of a line of any file that a row needs."""

    attempt: Annotated[int, msgspec.Meta(ge=-1, le=MAX_ATTEMPT)] = -1
    messages: list[_Message] = []
    num_prompt_messages: int = 0
    model: str = ""

    @property
    def status(self) -> Status:
        """The status of the attempt according to this line."""
        if self.error is not None:
            return "failed"
        return "waiting" if self.reward is None else "scored"


_ENTRY = msgspec.json.Decoder(Entry)


def read_entry(line: PlacedLine, reading: RolloutReading) -> Entry:
    """Read a line of gymcli or a rollout of NeMo Gym; RunFileError if it is neither."""
    place, name = f"{reading.path}:{line.number}", Path(reading.path).name
    try:
        entry = _ENTRY.decode(line.data)
    except JSON_ERRORS as error:
        if name in (FAILURES, GENERATIONS):  # no other program writes these
            raise RunFileError(f"{place}: is damaged: {error}; {WAYS_OUT[name]}") from error
        entry = Entry()
    if entry.schema_version and entry.env and entry.task_id and entry.attempt >= 0:
        return entry
    if entry.error is not None and entry.task_id and name == FAILURES:
        entry.attempt = max(entry.attempt, 0)
        return entry
    # Another program wrote the line, and its fields have other names.
    rollout = decode_rollout(line.number, line.data, reading)
    if rollout.attempt > MAX_ATTEMPT:
        raise RunFileError(f"{place}: attempt {rollout.attempt} exceeds {MAX_ATTEMPT}")
    entry = _ENTRY.decode(msgspec.json.encode(rollout))
    entry.schema_version = 0
    reason = rollout.details.get("reason")
    if rollout.reward is None and isinstance(reason, str):  # NeMo Gym's verifier failed
        entry.error = ErrorRecord(error_class=reason, phase="verify")
    return entry


_COLUMNS = np.dtype(
    [
        *[(name, "u4") for name in ("task", "attempt", "size", "num_turns", "num_tool_calls")],
        *[(name, "u4") for name in ("env", "stop_reason", "error", "phase", "model", "answer")],
        *[(name, "i1") for name in ("status", "passed", "file", "is_ours")],
        *[(name, "i8") for name in ("offset", "prompt_tokens", "completion_tokens")],
        ("reasoning_tokens", "i8"),
        *[(name, "f8") for name in ("reward", "cost", "seconds")],
    ]
)
"""104 bytes an attempt. Texts are stored as numbers, and missing values as NaN."""
_COLUMN_NAMES = _COLUMNS.names or ()
_TEXTS = ("env", "stop_reason", "error", "phase", "model", "answer")
_PLACE = ["file", "offset", "size", "is_ours"]
_TASK_COUNTS = ("num_attempts", "num_passed")
_TASK_REWARDS = ("avg", "best", "worst")
_MAX_NAMES = 64
"""The most named numbers with a column; others are read from the file."""
_MAX_COUNT = (1 << 63) - 1
MAX_ANSWER_CHARACTERS = 200


class IndexTable:
    """The attempts of a run as columns, in the order of their lines, and their tasks."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, int]] = {}
        """The number of each task, by environment and task id."""
        self.named: dict[str, NDArray[np.float64]] = {}
        """Columns by `components.NAME` or `metrics.NAME`; NaN if a row lacks the number."""
        self.has_more_names = False
        """Whether more named numbers are only in the file."""
        self._task_ids: list[str] = []
        self._rows: dict[int, int] = {}
        """The row of each attempt, by `_key`."""
        self._columns = np.zeros(1024, _COLUMNS)
        """Allocated for more rows than there are."""
        self._texts: list[str | None] = [None]
        self._text_numbers: dict[str | None, int] = {None: 0}
        self._of_tasks: dict[str, NDArray[np.float64]] = {}
        """Columns with a number for each task; empty until computed."""
        self._decoders: dict[str, Callable[..., object]] = {
            **dict.fromkeys(_TEXTS, self._texts.__getitem__),
            **dict.fromkeys(("reward", "cost", "seconds", *_TASK_REWARDS), _known),
            **dict.fromkeys(_TASK_COUNTS, lambda value: None if math.isnan(value) else int(value)),
            "status": STATUSES.__getitem__,
            "passed": (False, True, None).__getitem__,  # -1 is the last item: None
        }

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, env: str, task_id: str, attempt: int) -> int | None:
        """Return the row of an attempt; None if it is not recorded."""
        task = self.tasks.get(env, {}).get(task_id)
        return None if task is None else self._rows.get(_key(task, attempt))

    def rows_of(self, env: str, task_id: str) -> list[int]:
        """Return the rows of a task in order of attempt."""
        columns = self._columns[: len(self)]
        task = self.tasks.get(env, {}).get(task_id, len(self._task_ids))
        rows = np.flatnonzero(columns["task"] == task)
        found: list[int] = rows[np.argsort(columns["attempt"][rows])].tolist()
        return found

    def put(
        self, row: int | None, entry: Entry, passed: bool | None, place: tuple[int, int, int]
    ) -> int:
        """Store a line in the row of its attempt, or in a new one for None; return the row.

        `place` is the number of the line's file, the offset of its first byte and its size.
        """
        self._of_tasks.clear()  # computed again when they are needed
        task = self.tasks.setdefault(entry.env, {}).setdefault(entry.task_id, len(self._task_ids))
        if task == len(self._task_ids):
            self._task_ids.append(entry.task_id)
        if row is None:
            row = self._rows[_key(task, entry.attempt)] = len(self)
            if row == len(self._columns):
                columns = np.zeros(2 * row, _COLUMNS)  # takes no memory until written to
                columns[:row] = self._columns
                self._columns, lacking = columns, np.full(row, math.nan)
                self.named = {n: np.concatenate([v, lacking]) for n, v in self.named.items()}
        file, offset, size = place
        answer, error, usage = entry.answer, entry.error, entry.usage
        if answer is not None and len(answer) > MAX_ANSWER_CHARACTERS:
            answer = f"{answer[:MAX_ANSWER_CHARACTERS]}…"
        responses = entry.messages[entry.num_prompt_messages :]
        values = {
            "task": task,
            "attempt": entry.attempt,
            "is_ours": entry.schema_version > 0,
            "file": file,
            "offset": offset,
            "size": size,
            "env": self._text_number(entry.env),
            "status": STATUSES.index(entry.status),
            "passed": -1 if passed is None else passed,
            "num_turns": sum([message.role == "assistant" for message in responses]),
            "num_tool_calls": sum([len(message.tool_calls) for message in responses]),
            "stop_reason": self._text_number(entry.stop_reason),
            "error": self._text_number(None if error is None else error.error_class),
            "phase": self._text_number(None if error is None else error.phase),
            "model": self._text_number(entry.model or None),
            "answer": self._text_number(answer),
            # A count outside the range of the column is damaged.
            "prompt_tokens": min(max(usage.prompt_tokens, 0), _MAX_COUNT),
            "completion_tokens": min(max(usage.completion_tokens, 0), _MAX_COUNT),
            "reasoning_tokens": min(max(usage.reasoning_tokens, 0), _MAX_COUNT),
            "reward": math.nan if entry.reward is None else entry.reward,
            "cost": math.nan if entry.cost is None else entry.cost,
            "seconds": entry.timing.total_seconds or math.nan,
        }
        self._columns[row] = tuple([values[name] for name in _COLUMN_NAMES])
        self._put_named(row, entry)
        return row

    def _put_named(self, row: int, entry: Entry) -> None:
        for column in self.named.values():
            column[row] = math.nan
        for kind, numbers in (("components", entry.components), ("metrics", entry.metrics)):
            for key, number in (numbers or {}).items():
                name = f"{kind}.{key}"
                if name not in self.named:
                    if len(self.named) == _MAX_NAMES:
                        self.has_more_names = True
                        continue
                    self.named[name] = np.full(len(self._columns), math.nan)
                    self._decoders[name] = _known
                self.named[name][row] = number

    def set_error(self, row: int, error: ErrorRecord) -> None:
        """Record why an attempt has no score yet."""
        self._columns["error"][row] = self._text_number(error.error_class)
        self._columns["phase"][row] = self._text_number(error.phase)

    def status(self, row: int) -> Status:
        """Return the status of a row's attempt."""
        return STATUSES[int(self._columns["status"][row])]

    def place(self, row: int) -> tuple[int, int, int, int]:
        """Return file number, offset and size of a row's line, and whether gymcli wrote it."""
        found: tuple[int, int, int, int] = self._columns[_PLACE][row].item()
        return found

    def column(self, name: str) -> list[object]:
        """Return a column's value for each row; None if a row lacks it."""
        tasks = self._columns["task"][: len(self)]
        if name == "task_id":
            return [self._task_ids[task] for task in tasks.tolist()]
        if name in (*_TASK_COUNTS, *_TASK_REWARDS):
            values = self._task_numbers()[name][tasks]
        else:
            values = (self.named[name] if name in self.named else self._columns[name])[: len(self)]
        decode, found = self._decoders.get(name), values.tolist()
        return found if decode is None else [decode(value) for value in found]

    def row_values(self, row: int) -> dict[str, object]:
        """Return the values of a row by `ROW_NAMES`, with its components and metrics."""
        raw = dict(zip(_COLUMN_NAMES, self._columns[row].item(), strict=True))
        raw |= {name: values.item(raw["task"]) for name, values in self._task_numbers().items()}
        found = {name: decode(raw[name]) for name, decode in self._decoders.items() if name in raw}
        named: dict[str, dict[str, float]] = {"components": {}, "metrics": {}}
        for name, values in self.named.items():
            if not math.isnan(number := values.item(row)):
                kind, _, key = name.partition(".")
                named[kind][key] = number
        return {**raw, **found, **named, "task_id": self._task_ids[raw["task"]]}

    def _task_numbers(self) -> dict[str, NDArray[np.float64]]:
        if self._of_tasks:
            return self._of_tasks
        num_tasks, columns = len(self._task_ids), self._columns[: len(self)]
        scored = columns[columns["status"] == STATUSES.index("scored")]
        # Sorted by task, so that the rewards of each task are one slice.
        rewards = scored["reward"][np.argsort(scored["task"], kind="stable")].tolist()
        averages, bests, worsts = (np.full(num_tasks, math.nan) for _ in _TASK_REWARDS)
        end = 0
        for task, count in enumerate(np.bincount(scored["task"], minlength=num_tasks).tolist()):
            if count:
                start, end = end, end + count
                own = rewards[start:end]
                averages[task], bests[task], worsts[task] = _mean(own), max(own), min(own)
        judged = columns[columns["passed"] >= 0]
        num_judged = np.bincount(judged["task"], minlength=num_tasks)
        num_passed = np.bincount(judged["task"], weights=judged["passed"], minlength=num_tasks)
        self._of_tasks = {
            "num_attempts": np.bincount(columns["task"], minlength=num_tasks).astype("f8"),
            "num_passed": np.where(num_judged > 0, num_passed, math.nan),
            "avg": averages,
            "best": bests,
            "worst": worsts,
        }
        return self._of_tasks

    def _text_number(self, text: str | None) -> int:
        number = self._text_numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number


def _key(task: int, attempt: int) -> int:
    # One number takes a third of the memory of a tuple.
    return task * (MAX_ATTEMPT + 1) + attempt


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum exceeds the largest float
        return math.fsum(value / len(values) for value in values)
