"""What an index holds of each attempt, each thing in a column: about a hundred bytes in all."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

from gymcli.index.entries import Entry
from gymcli.index.rows import MAX_ANSWER_CHARACTERS, Status
from gymcli.numbering import Numbering

__all__ = ["STATUSES", "Columns"]

STATUSES: tuple[Status, ...] = ("failed", "waiting", "scored")
"""Each is more than those before it: a score makes up for failures."""

_MAX_NAMES = 64
"""Named numbers that get a column; others are looked up in the file."""
_MAX_COUNT = (1 << 63) - 1
_MAX_RECENT = 1 << 10

_COUNTS = {
    **dict.fromkeys(("group", "attempt", "size", "num_turns", "num_tool_calls"), "I"),
    **dict.fromkeys(("status", "file", "passed", "is_ours"), "b"),
    **dict.fromkeys(("offset", "prompt_tokens", "completion_tokens", "reasoning_tokens"), "q"),
}
"""Type codes of `array` by column."""
_MEASURES = ("reward", "cost", "seconds")
_TEXTS = ("stop_reason", "error", "phase", "model", "answer")


class Columns:
    """The attempts of a run, numbered as they came; and the tasks that they are of ("groups")."""

    def __init__(self) -> None:
        self.counts: dict[str, array[int]] = {name: array(code) for name, code in _COUNTS.items()}
        self.measures = {name: array("d") for name in _MEASURES}
        """NaN where a row lacks one."""
        self.named: dict[str, array[float]] = {}
        """By `components.NAME` or `metrics.NAME`; NaN where a row lacks it."""
        self.has_more_names = False
        """Whether some of those are in the file alone."""
        self._environments: dict[str, int] = {}
        self._texts = Numbering()
        self._recent: dict[str, int] = {}
        """Codes of texts that came of late: there are few stop reasons, models and answers."""
        self._codes = {name: array("I") for name in _TEXTS}
        """The number of each text, plus 1; 0: there is none."""
        self._groups = Numbering()
        self._group_tasks = array("I")
        self._group_environments = array("I")
        self._keys = Numbering()
        """Gives an attempt the number of its row."""

    def __len__(self) -> int:
        """Give how many rows there are."""
        return len(self.counts["status"])

    @property
    def num_groups(self) -> int:
        """How many tasks there are."""
        return len(self._groups)

    def row_of(self, entry: Entry) -> int:
        """Give the row of an entry's attempt, which is the next one where the attempt is new."""
        environment = self._environments.setdefault(entry.env, len(self._environments))
        group = self._groups.number_of(f"{environment}/{entry.task_id}".encode())
        if group == len(self._group_tasks):
            self._group_tasks.append(self._texts.number_of(entry.task_id.encode()))
            self._group_environments.append(environment)
        row = self._keys.number_of(f"{group}/{entry.attempt}".encode())
        if row == len(self):
            for counts in (*self.counts.values(), *self._codes.values()):
                counts.append(0)
            for measures in (*self.measures.values(), *self.named.values()):
                measures.append(math.nan)
            self.counts["group"][row] = group
            self.counts["attempt"][row] = entry.attempt
        return row

    def find(self, env: str, task_id: str, attempt: int) -> int | None:
        """Give the row of an attempt; None where it is not on record."""
        group = self.group_of(env, task_id)
        return None if group is None else self._keys.find(f"{group}/{attempt}".encode())

    def group_of(self, env: str, task_id: str) -> int | None:
        """Give the number of a task; None where it is not on record."""
        return self._groups.find(f"{self._environments.get(env)}/{task_id}".encode())

    def set_place(self, row: int, file: int, offset: int, size: int) -> None:
        """Say where the line of a row is."""
        for name, value in (("file", file), ("offset", offset), ("size", size)):
            self.counts[name][row] = value

    def set_error(self, row: int, entry: Entry) -> None:
        """Take why an attempt has no score."""
        error = entry.error
        self._codes["error"][row] = self._code(None if error is None else error.error_class)
        self._codes["phase"][row] = self._code(None if error is None else error.phase)

    def set_entry(self, row: int, entry: Entry, *, passed: bool | None) -> None:
        """Take what a line says of its attempt, and forget what an earlier one said."""
        usage, seconds = entry.usage, entry.timing.total_seconds
        counts = {
            "status": STATUSES.index(entry.status),
            "is_ours": entry.schema_version > 0,
            "passed": -1 if passed is None else passed,
            "num_turns": entry.num_turns,
            "num_tool_calls": entry.num_tool_calls,
            "prompt_tokens": _counted(usage.prompt_tokens),
            "completion_tokens": _counted(usage.completion_tokens),
            "reasoning_tokens": _counted(usage.reasoning_tokens),
        }
        for name, count in counts.items():
            self.counts[name][row] = count
        measures = {
            "reward": math.nan if entry.reward is None else entry.reward,
            "cost": math.nan if entry.cost is None else entry.cost,
            "seconds": seconds or math.nan,
        }
        for name, value in measures.items():
            self.measures[name][row] = value
        codes = self._codes
        codes["stop_reason"][row] = self._code(entry.stop_reason)
        codes["model"][row] = self._code(entry.model or None)
        codes["answer"][row] = self._code(_shortened(entry.answer))
        self.set_error(row, entry)
        for kind, named in (("components", entry.components), ("metrics", entry.metrics)):
            self._set_named(row, kind, named)

    def _set_named(self, row: int, kind: str, named: Mapping[str, float]) -> None:
        for name in self.named:
            if name.startswith(kind):
                self.named[name][row] = math.nan
        for key, value in named.items():
            name = f"{kind}.{key}"
            column = self.named.get(name)
            if column is None and len(self.named) < _MAX_NAMES:
                column = self.named[name] = array("d", [math.nan]) * len(self)
            if column is None:
                self.has_more_names = True
            else:
                column[row] = value

    def _code(self, text: str | None) -> int:
        if text is None:
            return 0
        code = self._recent.get(text)
        if code is None:
            if len(self._recent) >= _MAX_RECENT:
                self._recent.clear()
            code = self._recent[text] = self._texts.number_of(text.encode()) + 1
        return code

    def text(self, name: str, row: int) -> str | None:
        """Give a text of a row: `stop_reason`, `error`, `phase`, `model` or `answer`."""
        code = self._codes[name][row]
        return self._texts[code - 1].decode() if code else None

    def environment(self, row: int) -> str:
        """Give the environment of a row."""
        return self.environments[self._group_environments[self.counts["group"][row]]]

    @property
    def environments(self) -> list[str]:
        """The environments, in the order they came."""
        return list(self._environments)

    def task_id(self, row: int) -> str:
        """Give the task of a row."""
        return self._texts[self._group_tasks[self.counts["group"][row]]].decode()

    def measure(self, name: str, row: int) -> float | None:
        """Give a number that a row may lack: `reward`, `cost`, `seconds`, or a named one."""
        column = self.measures.get(name)
        value = self.named[name][row] if column is None else column[row]
        return None if math.isnan(value) else value

    def passed(self, row: int) -> bool | None:
        """Say whether a row passed; None where that cannot be said."""
        code = self.counts["passed"][row]
        return None if code < 0 else bool(code)

    def status(self, row: int) -> Status:
        """Give the status of a row."""
        return STATUSES[self.counts["status"][row]]

    def named_of(self, kind: str, row: int) -> dict[str, float]:
        """Give the components or metrics of a row that have a column."""
        start = f"{kind}."
        found = {name: self.measure(name, row) for name in self.named if name.startswith(start)}
        return {n.removeprefix(start): value for n, value in found.items() if value is not None}


def _shortened(answer: str | None) -> str | None:
    if answer is None or len(answer) <= MAX_ANSWER_CHARACTERS:
        return answer
    return f"{answer[:MAX_ANSWER_CHARACTERS]}…"


def _counted(number: int) -> int:
    """Give a count as a column holds it: what is beyond is damage."""
    return min(max(number, 0), _MAX_COUNT)
