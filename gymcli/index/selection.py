"""The names of a filter, for one row after another; those not in memory are read from the file."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gymcli.errors import FilterError
from gymcli.filters import Filter
from gymcli.index.columns import Columns
from gymcli.index.conversation import LazyText, text_of_messages
from gymcli.index.groups import Groups
from gymcli.index.records import Fields, RecordReader
from gymcli.index.rows import MAX_ANSWER_CHARACTERS, OPEN_NAMES, Place
from gymcli.types import JSON

__all__ = ["RowNames", "matching", "ordered"]


class _Read(NamedTuple):
    row: int
    fields: Fields


class RowNames(Mapping[str, object]):
    """The values of one row by name: set `row`, then ask."""

    def __init__(
        self,
        columns: Columns,
        groups: Groups,
        reader: RecordReader,
        place_of: Callable[[int], Place],
    ) -> None:
        self.row = 0
        self._columns = columns
        self._reader = reader
        self._place_of = place_of
        self._getters = _getters(columns, groups)
        self._getters["answer"] = self._answer
        self._getters["text"] = self._text
        self._last: _Read | None = None

    def __getitem__(self, name: str) -> object:
        """Give a value; None where the row lacks it."""
        getter = self._getters.get(name)
        if getter is not None:
            return getter(self.row)
        first, _, rest = name.partition(".")
        if not rest or first not in OPEN_NAMES:
            raise KeyError(name)
        return _inner(getattr(self._fields(), first), rest)

    def __iter__(self) -> Iterator[str]:
        """Give the names that there are, but those of fields."""
        return iter(self._getters)

    def __len__(self) -> int:
        """Give how many these are."""
        return len(self._getters)

    def _fields(self) -> Fields:
        if self._last is None or self._last.row != self.row:
            self._last = _Read(self.row, self._reader.fields(self._place_of(self.row)))
        return self._last.fields

    def _answer(self, row: int) -> str | None:
        answer = self._columns.text("answer", row)
        is_cut = answer is not None and len(answer) > MAX_ANSWER_CHARACTERS
        return self._fields().answer if is_cut else answer

    def _text(self, row: int) -> LazyText:
        reader, place = self._reader, self._place_of(row)
        line = reader.line(place) if self._columns.counts["is_ours"][row] else b""
        return LazyText(line, lambda: text_of_messages(reader.messages(place)))


def matching(wanted: Filter | None, names: RowNames, num_rows: int) -> Iterator[int]:
    """Give the rows that a filter holds of.

    Raises:
        FilterError: The values of a row do not fit; the message names it.

    """
    for row in range(num_rows):
        names.row = row
        try:
            if wanted is None or wanted.matches(names):
                yield row
        except FilterError as error:
            attempt = f"task {names['task_id']}, attempt {names['attempt']}"
            raise FilterError(f"{error} ({attempt})") from error


def ordered(rows: Sequence[int], sort: str, names: RowNames, known: Collection[str]) -> list[int]:
    """Give rows in the order of a name, those that lack it last; `-` is the largest first.

    Raises:
        FilterError: There is no such name.

    """
    name, is_descending = sort.removeprefix("-"), sort.startswith("-")
    if name not in known or name == "text":
        listed = ", ".join(name for name in known if name != "text")
        raise FilterError(f'rows cannot be sorted by "{name}"; there are {listed}')
    with_value, without = [], []
    for row in rows:
        names.row = row
        value = names[name]
        if value is None:
            without.append(row)
        else:
            with_value.append((value, row))
    with_value.sort(key=operator.itemgetter(0), reverse=is_descending)
    return [row for _, row in with_value] + without


def _getters(columns: Columns, groups: Groups) -> dict[str, Callable[[int], object]]:
    """Give what gives the value of a name for a row."""
    counts = columns.counts
    group_of = counts["group"].__getitem__
    getters: dict[str, Callable[[int], object]] = {
        "env": columns.environment,
        "task_id": columns.task_id,
        "attempt": counts["attempt"].__getitem__,
        "status": columns.status,
        "passed": columns.passed,
    }
    for name in ("reward", "cost", "seconds", *columns.named):
        getters[name] = _measure_getter(columns, name)
    for name in ("stop_reason", "error", "phase", "model"):
        getters[name] = _text_getter(columns, name)
    for name in (
        *("num_turns", "num_tool_calls"),
        *("prompt_tokens", "completion_tokens", "reasoning_tokens"),
    ):
        getters[name] = counts[name].__getitem__
    for name in ("avg", "best", "worst", "num_attempts", "num_passed"):
        getters[name] = _group_getter(group_of, getattr(groups, name))
    return getters


def _measure_getter(columns: Columns, name: str) -> Callable[[int], object]:
    return lambda row: columns.measure(name, row)


def _text_getter(columns: Columns, name: str) -> Callable[[int], object]:
    return lambda row: columns.text(name, row)


def _group_getter(
    group_of: Callable[[int], int], value_of: Callable[[int], object]
) -> Callable[[int], object]:
    return lambda row: value_of(group_of(row))


def _inner(value: JSON, name: str) -> JSON:
    """Give what is at a dotted name; a key may have dots itself, and the longest counts."""
    while name:
        if isinstance(value, list):
            first, _, name = name.partition(".")
            is_there = first.isdecimal() and int(first) < len(value)
            value = value[int(first)] if is_there else None
        elif isinstance(value, dict):
            keys = [key for key in value if f"{name}.".startswith(f"{key}.")]
            key = max(keys, key=len, default=name)
            value, name = value.get(key), name[len(key) + 1 :]
        else:
            return None
    return value
