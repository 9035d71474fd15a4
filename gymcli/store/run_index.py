"""The index of a run of any size: a few values of each attempt in memory, the rest in its files.

A run directory or a rollout file is read once; lines that are written later are added. Every
attempt is a row; its record is read from its line when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, overload

import msgspec

from gymcli.errors import FilterError, RunFileError, UsageError
from gymcli.store.index_table import MAX_ANSWER_CHARACTERS, IndexTable
from gymcli.store.lines import is_plain
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.record_reader import (
    STATUSES,
    Entry,
    GrowingFile,
    LazyText,
    LineFields,
    Place,
    RecordReader,
    Status,
    read_entry,
    text_of_messages,
)
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    ROLLOUTS,
    RolloutReading,
    rollouts_file,
)
from gymcli.store.scored_lines import EnvironmentFacts
from gymcli.types import JSON, Failure, Rollout

if TYPE_CHECKING:
    from gymcli.store.filters import Filter

OPEN_NAMES = ("components", "metrics", "task", "details")
"""The first parts of dotted names in a filter."""

FactsOf: TypeAlias = Callable[[str], tuple[str, EnvironmentFacts]]
"""Returns the local name of an environment and the facts that are known about it."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an attempt that lists show; missing values are None."""

    number: int
    """The row's position, counted from 0; it stays the same until the index is rebuilt."""
    place: Place
    env: str
    task_id: str
    attempt: int
    status: Status
    reward: float | None
    passed: bool | None
    """None without a reward or without a threshold of success."""
    stop_reason: str | None
    error: str | None
    """The class of the error that prevented a score."""
    phase: str | None
    model: str | None
    num_turns: int
    """The model's messages after the prompt."""
    num_tool_calls: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost: float | None
    seconds: float | None
    answer: str | None
    """Shortened with `…` if long."""
    components: dict[str, float]
    metrics: dict[str, float]
    avg: float | None
    """The mean reward of the task's scored attempts; `best` and `worst` likewise."""
    best: float | None
    worst: float | None
    num_attempts: int
    """Recorded attempts of the task."""
    num_passed: int | None
    """Attempts of the task that passed; None without a threshold of success."""


ROW_NAMES = tuple(
    name
    for name in Row.__struct_fields__
    if name not in ("number", "place", "components", "metrics")
)
"""The fields of a row that filters can use and rows can be sorted by."""


class Refreshed(NamedTuple):
    """The changes of an index since the last refresh."""

    num_new: int = 0
    """Rows that were added at the end."""
    num_changed: int = 0
    """Rows that changed, for example since a failed attempt was scored."""
    is_rebuilt: bool = False
    """Whether a file was replaced, so that all rows and their numbers are new."""


class RunIndex:
    """The attempts of a run, one per row; not safe for concurrent threads.

    `path` is a run directory or an uncompressed rollout file of gymcli or NeMo Gym, `env` the
    environment of lines that do not name one. `facts_of` is called for environments that no
    manifest describes.
    """

    def __init__(
        self, path: Path, env: str | None = None, *, facts_of: FactsOf | None = None
    ) -> None:
        self.path = path
        self._env = env
        self._facts_of = facts_of
        self._contents = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._contents.reader.close()

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the run; None for a bare file."""
        return self._contents.manifest

    @property
    def rows(self) -> Sequence[Row]:
        return _Rows(range(len(self._contents.table)), self._row)

    @property
    def names(self) -> list[str]:
        """The names that filters can use: those of all rows, then named numbers."""
        return [*ROW_NAMES, "text", *self.named_numbers]

    @property
    def named_numbers(self) -> list[str]:
        return list(self._contents.table.names)

    @property
    def has_more_names(self) -> bool:
        """Whether more named numbers are only in the file."""
        return self._contents.table.has_more_names

    def refresh(self) -> Refreshed:
        """Add the lines that were written since the last refresh.

        Raises:
            UsageError: The run is gone or a line is wrong. The lines before it are added; if a file
                was replaced, the rows are unchanged.
        """
        files = self._contents.files
        if any(file.is_replaced() for file in files):
            contents = self._read()  # if it fails, the old rows are still there
            self.close()
            self._contents = contents
            return Refreshed(len(contents.table), 0, is_rebuilt=True)
        if not any(file.has_grown() for file in files):
            return Refreshed()
        return self._read_new(self._contents)

    def _read(self) -> _Contents:
        manifest = read_manifest(self.path) if self.path.is_dir() else None
        files = [GrowingFile(file) for file in _files(self.path, manifest)]
        contents = _Contents(manifest, files, RecordReader(self._env), IndexTable(), {})
        self._read_new(contents)
        return contents

    def _read_new(self, contents: _Contents) -> Refreshed:
        num_before, changed = len(contents.table), set[int]()
        for number, file in enumerate(contents.files):
            reading = RolloutReading(str(file.path), self._env)
            for line in file.new_lines():
                entry = read_entry(line, reading)
                place = (number, line.offset, len(line.data))
                row = self._add(contents, entry, place, f"{file.path}:{line.number}")
                if row is not None and row < num_before:
                    changed.add(row)
        return Refreshed(len(contents.table) - num_before, len(changed))

    def _add(
        self, contents: _Contents, entry: Entry, place: tuple[int, int, int], line_name: str
    ) -> int | None:
        """Add a line and return its row; None if a line with precedence is already known."""
        entry.env, facts = self._environment(contents, entry.env)
        table = contents.table
        row = table.find(entry.env, entry.task_id, entry.attempt)
        if row is not None:
            before, now = table.status(row), entry.status
            if before == now == "scored":
                raise RunFileError(
                    f"{line_name}: attempt {entry.attempt} of task {entry.task_id} ({entry.env}) "
                    "appears twice; delete one of the lines"
                )
            # The conversation still waits for a score; the failure only adds the reason.
            if before == "waiting" and entry.error and entry.error.phase in ("verify", "role"):
                table.set_error(row, entry.error)
                return row
            # Of two failures the later one counts, and a score replaces any of them.
            if STATUSES.index(now) < STATUSES.index(before):
                return None
        threshold, passed = facts.success_threshold, None
        if threshold is not None and entry.reward is not None and entry.error is None:
            passed = entry.reward >= threshold
        return table.put(row, entry, passed, place)

    def _environment(self, contents: _Contents, name: str) -> tuple[str, EnvironmentFacts]:
        if name not in contents.environments:
            recorded = {} if contents.manifest is None else contents.manifest.environments
            name_and_facts = (name, EnvironmentFacts())
            # The manifest wins: the environment's code may have changed since the run.
            if name in recorded:
                best, threshold = recorded[name].max_reward, recorded[name].pass_threshold
                name_and_facts = (name, EnvironmentFacts(max_reward=best, pass_threshold=threshold))
            elif self._facts_of is not None:
                name_and_facts = self._facts_of(name)
            contents.environments[name] = name_and_facts
        return contents.environments[name]

    def facts(self, env: str) -> EnvironmentFacts:
        environments = self._contents.environments.values()
        return next((facts for name, facts in environments if name == env), EnvironmentFacts())

    def is_ours(self, row: Row) -> bool:
        """Return whether gymcli, not NeMo Gym, wrote a row's line."""
        return self._contents.place(row.number)[1]

    def find(self, env: str, task_id: str, attempt: int) -> Row | None:
        row = self._contents.table.find(env, task_id, attempt)
        return None if row is None else self._row(row)

    def attempts_of(self, env: str, task_id: str) -> list[int]:
        return list(self._contents.table.rows_of(env, task_id))

    def values(self, name: str) -> Sequence[object]:
        return self._contents.table.column(name)

    def read(self, row: Row) -> Rollout | Failure:
        """Read a row's record: a rollout (without a reward while waiting) or a failure."""
        return self.decoded(row, self.line(row))

    def decoded(self, row: Row, line: bytes) -> Rollout | Failure:
        """Return a row's record from its line, from which secrets may have been removed."""
        record = self._contents.reader.decoded(row.place, line)
        if (record.task_id, record.attempt) != (row.task_id, row.attempt):
            place = f"{row.place.file}: was changed, and byte {row.place.offset} has another line"
            raise RunFileError(f"{place}; open the run again")
        return record

    def line(self, row: Row) -> bytes:
        """Return a row's line as it is on disk; RunFileError if it is gone."""
        return self._contents.reader.line(row.place)

    def select(self, filter: Filter | None = None, *, sort: str = "") -> list[int]:  # noqa: A002  # the word for it
        """Return the rows that match a filter, sorted by a field.

        Args:
            filter: Selects the rows; None: all rows.
            sort: One of `names`, prefixed with `-` for descending order; rows that lack it come
                last. Empty: the order of the run.

        Raises:
            FilterError: A name is unknown or a value has the wrong type.
        """
        names = _RowNames(self._contents)
        rows = range(len(self._contents.table))
        if filter is not None:
            # Once there are rows, a named number that none of them has is a typo.
            is_complete = len(rows) > 0 and not self.has_more_names
            filter.check(self.names, OPEN_NAMES[2:] if is_complete else OPEN_NAMES)
        selected = [row for row in rows if filter is None or names.match(filter, row)]
        if not sort:
            return selected
        name, is_descending = sort.removeprefix("-"), sort.startswith("-")
        if name not in self.names or name == "text":
            listed = ", ".join(name for name in self.names if name != "text")
            raise FilterError(f'rows cannot be sorted by "{name}"; choose from {listed}')
        values: dict[int, Any] = {}
        for row in selected:
            names.row = row
            values[row] = names[name]
        # None cannot be compared, and comes last in either direction.
        rows_with_value = [row for row in selected if values[row] is not None]
        rows_with_value.sort(key=values.__getitem__, reverse=is_descending)
        return rows_with_value + [row for row in selected if values[row] is None]

    def _row(self, number: int) -> Row:
        place, _ = self._contents.place(number)
        values = self._contents.table.row_values(number)
        return msgspec.convert({**values, "number": number, "place": place}, Row)


class _Contents(NamedTuple):
    """The data read from the files of a run; recreated when a file is replaced."""

    manifest: Manifest | None
    files: list[GrowingFile]
    reader: RecordReader
    table: IndexTable
    environments: dict[str, tuple[str, EnvironmentFacts]]
    """By the name on the lines: the local name and the facts."""

    def place(self, row: int) -> tuple[Place, bool]:
        file, offset, size, is_ours = self.table.place(row)
        return Place(str(self.files[file].path), offset, size), bool(is_ours)


class _Rows(Sequence[Row]):
    """Rows that are created on access: all of a large run would take too much memory."""

    def __init__(self, numbers: range, make: Callable[[int], Row]) -> None:
        self._numbers = numbers
        self._make = make

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> Row: ...

    @overload
    def __getitem__(self, number: slice) -> list[Row]: ...

    def __getitem__(self, number: int | slice) -> Row | list[Row]:
        numbers = self._numbers[number]
        return (
            self._make(numbers)
            if isinstance(numbers, int)
            else [self._make(row_number) for row_number in numbers]
        )


def _files(path: Path, manifest: Manifest | None) -> list[Path]:
    # Conversations before failures: a failure adds its reason to the conversation that waits.
    files = [path / name for name in (ROLLOUTS, GENERATIONS, FAILURES)]
    if path.is_dir() and (manifest is not None or any(file.is_file() for file in files)):
        return files
    file = rollouts_file(path)
    if file.suffix in (".gz", ".zst"):
        raise UsageError(
            f"{file}: is compressed, so its lines cannot be read individually; unpack it "
            f"first ({'zstd -d' if file.suffix == '.zst' else 'gunzip -k'} {file})"
        )
    if not is_plain(file):
        raise UsageError(f"{file}: is not a regular file; save its content in one and pass that")
    return [file]


class _RowNames(Mapping[str, object]):
    """The values of row number `row` by the names of a filter.

    Columns are decoded at their first use; values not in memory are read from the row's line.
    """

    def __init__(self, contents: _Contents) -> None:
        self.row = 0
        self._contents = contents
        self._table = contents.table
        self._columns: dict[str, list[object]] = {}
        self._last_fields: tuple[int, LineFields | Rollout | Failure] | None = None

    def __getitem__(self, name: str) -> object:
        values = self._columns.get(name)
        if values is None:
            if name == "text":
                return self._text()
            if name not in ROW_NAMES and name not in self._table.names:
                first, _, inner_name = name.partition(".")
                if not inner_name or first not in OPEN_NAMES:
                    raise KeyError(name)
                return _inner(getattr(self._fields(), first, None), inner_name)
            values = self._columns[name] = self._table.column(name)
        value = values[self.row]
        # The column holds a long answer shortened.
        if name == "answer" and isinstance(value, str) and len(value) > MAX_ANSWER_CHARACTERS:
            return getattr(self._fields(), "answer", None)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter((*ROW_NAMES, "text", *self._table.names))

    def __len__(self) -> int:
        return len(ROW_NAMES) + 1 + len(self._table.names)

    def match(self, row_filter: Filter, row: int) -> bool:
        self.row = row
        try:
            return row_filter.matches(self)
        except FilterError as error:
            attempt = f"task {self['task_id']}, attempt {self['attempt']}"
            raise FilterError(f"{error} ({attempt})") from error

    def _fields(self) -> LineFields | Rollout | Failure:
        if self._last_fields is None or self._last_fields[0] != self.row:
            place, _ = self._contents.place(self.row)
            self._last_fields = (self.row, self._contents.reader.fields(place))
        return self._last_fields[1]

    def _text(self) -> LazyText:
        reader = self._contents.reader
        place, is_ours = self._contents.place(self.row)
        line = reader.line(place) if is_ours else b""
        return LazyText(line, lambda: text_of_messages(reader.messages(place)))


def _inner(value: JSON, name: str) -> JSON:
    """Return the value at a dotted name; keys may contain dots, and the longest match wins."""
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
