"""The index of a run of any size: a few numbers of each attempt in memory, all else in its files.

A run directory or a rollout file is read once, and what is written to it later is added. Every
attempt is a row; its record is read from its line when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, overload

import msgspec

from gymcli.errors import FilterError, RunFileError, UsageError
from gymcli.metrics.scored_lines import EnvironmentFacts
from gymcli.store.attempt_table import (
    MAX_ANSWER_CHARACTERS,
    STATUSES,
    AttemptTable,
    Entry,
    Status,
    read_entry,
)
from gymcli.store.lines import is_plain
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.record_reader import (
    GrowingFile,
    LazyText,
    LineFields,
    Place,
    RecordReader,
    text_of_messages,
)
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    ROLLOUTS,
    RolloutReading,
    rollouts_file,
)
from gymcli.types import JSON, Failure, Rollout

if TYPE_CHECKING:
    from gymcli.metrics.filters import Filter

__all__ = ["OPEN_NAMES", "ROW_NAMES", "FactsOf", "Refreshed", "Row", "RunIndex"]

OPEN_NAMES = ("components", "metrics", "task", "details")
"""First parts of the dotted names of a filter."""

FactsOf: TypeAlias = Callable[[str], tuple[str, EnvironmentFacts]]
"""Returns the name that an environment has here, and what is known of it."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as far as lists show it; what it lacks is None."""

    number: int
    """Its place among the rows, from 0; the same until the index is rebuilt."""
    place: Place
    env: str
    task_id: str
    attempt: int
    status: Status
    reward: float | None
    passed: bool | None
    """None without a reward, or where nothing says from which reward an attempt passes."""
    stop_reason: str | None
    error: str | None
    """The class of the error that left it without a score."""
    phase: str | None
    model: str | None
    num_turns: int
    """Messages of the model after the prompt."""
    num_tool_calls: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost: float | None
    seconds: float | None
    answer: str | None
    """Of a long one the beginning, and `…`."""
    components: dict[str, float]
    metrics: dict[str, float]
    avg: float | None
    """The mean reward of the scored attempts of its task; `best` and `worst` likewise."""
    best: float | None
    worst: float | None
    num_attempts: int
    """Attempts of its task that are on record."""
    num_passed: int | None
    """Those that passed; None where nothing says from which reward an attempt passes."""


ROW_NAMES = tuple(
    name
    for name in Row.__struct_fields__
    if name not in ("number", "place", "components", "metrics")
)
"""The names of a row that a filter knows and rows can be sorted by."""


class Refreshed(NamedTuple):
    """What a run has more than before."""

    num_new: int = 0
    """Rows that were added after the others."""
    num_changed: int = 0
    """Rows that became something else: an attempt that failed was scored, say."""
    is_rebuilt: bool = False
    """A file was replaced: all rows are new, and so are their numbers."""


class RunIndex:
    """The attempts of a run, each a row; for one thread at a time.

    `path` is a run directory or an uncompressed rollout file of ours or of NeMo Gym, `env` the
    environment of lines that name none. `facts_of` is called for environments without a manifest.
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
        """Close the files."""
        self._contents.reader.close()

    @property
    def manifest(self) -> Manifest | None:
        """What the run says of itself; None for a bare file."""
        return self._contents.manifest

    @property
    def rows(self) -> Sequence[Row]:
        """The rows, each made when it is read."""
        return _Rows(range(len(self._contents.table)), self._row)

    @property
    def names(self) -> list[str]:
        """The names that a filter knows: those of all rows, then named numbers."""
        return [*ROW_NAMES, "text", *self.named_numbers]

    @property
    def named_numbers(self) -> list[str]:
        """The numbers in memory, as `components.NAME` and `metrics.NAME`."""
        return list(self._contents.table.named)

    @property
    def has_more_names(self) -> bool:
        """Whether other named numbers are only in the file."""
        return self._contents.table.has_more_names

    def refresh(self) -> Refreshed:
        """Add what was written since.

        Raises:
            UsageError: The run is gone, or a line is wrong. The lines before it are added; where a
                file was replaced, the rows stay as they were.
        """
        files = self._contents.files
        if any(file.is_replaced() for file in files):
            contents = self._read()
            self.close()
            self._contents = contents
            return Refreshed(len(contents.table), 0, is_rebuilt=True)
        if not any(file.has_grown() for file in files):
            return Refreshed()
        return self._read_new(self._contents)

    def _read(self) -> _Contents:
        manifest = read_manifest(self.path) if self.path.is_dir() else None
        files = [GrowingFile(file) for file in _files(self.path, manifest)]
        contents = _Contents(manifest, files, RecordReader(self._env), AttemptTable(), {})
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
        self, contents: _Contents, entry: Entry, place: tuple[int, int, int], shown: str
    ) -> int | None:
        """Add a line; None where what is known of its attempt replaces what it says."""
        entry.env, facts = self._environment(contents, entry.env)
        table = contents.table
        row = table.find(entry.env, entry.task_id, entry.attempt)
        if row is not None:
            before, now = table.status(row), entry.status
            if before == now == "scored":
                raise RunFileError(
                    f"{shown}: attempt {entry.attempt} of task {entry.task_id} ({entry.env}) "
                    "is there twice; delete one of the lines"
                )
            if before == "waiting" and entry.error and entry.error.phase in ("verify", "role"):
                table.set_error(row, entry.error)
                return row
            if STATUSES.index(now) < STATUSES.index(before):
                return None
        threshold, passed = facts.success_threshold, None
        if threshold is not None and entry.reward is not None and entry.error is None:
            passed = entry.reward >= threshold
        return table.put(row, entry, passed, place)

    def _environment(self, contents: _Contents, name: str) -> tuple[str, EnvironmentFacts]:
        if name not in contents.environments:
            recorded = {} if contents.manifest is None else contents.manifest.environments
            found = (name, EnvironmentFacts())
            if name in recorded:
                best, threshold = recorded[name].max_reward, recorded[name].pass_threshold
                found = (name, EnvironmentFacts(max_reward=best, pass_threshold=threshold))
            elif self._facts_of is not None:
                found = self._facts_of(name)
            contents.environments[name] = found
        return contents.environments[name]

    def facts(self, env: str) -> EnvironmentFacts:
        """Return what the manifest or the environment itself says of an environment."""
        known = self._contents.environments.values()
        return next((facts for name, facts in known if name == env), EnvironmentFacts())

    def is_ours(self, row: Row) -> bool:
        """Return whether gymcli wrote the line of a row, not NeMo Gym."""
        return self._contents.place(row.number)[1]

    def find(self, env: str, task_id: str, attempt: int) -> Row | None:
        """Return the row of an attempt; None where it is not on record."""
        row = self._contents.table.find(env, task_id, attempt)
        return None if row is None else self._row(row)

    def attempts_of(self, env: str, task_id: str) -> list[int]:
        """Return the rows of all attempts of a task, in the order of the attempts."""
        return self._contents.table.rows_of(env, task_id)

    def values(self, name: str) -> Sequence[object]:
        """Return the value of a name of `ROW_NAMES` for each row; None where a row lacks it."""
        return self._contents.table.column(name)

    def read(self, row: Row) -> Rollout | Failure:
        """Read the record of a row: a rollout, without a reward where it waits, or a failure."""
        return self.decoded(row, self.line(row))

    def decoded(self, row: Row, line: bytes) -> Rollout | Failure:
        """Return the record of a row from its line, out of which secrets may have been taken."""
        record = self._contents.reader.decoded(row.place, line)
        if (record.task_id, record.attempt) != (row.task_id, row.attempt):
            place = f"{row.place.file}: was changed, and another line is at byte {row.place.offset}"
            raise RunFileError(f"{place}; open it again")
        return record

    def line(self, row: Row) -> bytes:
        """Return the line of a row as it is on disk; RunFileError where it was changed."""
        return self._contents.reader.line(row.place)

    def select(self, filter: Filter | None = None, *, sort: str = "") -> list[int]:  # noqa: A002  # the word for it
        """Return the rows that match a filter, in the order of a name.

        Args:
            filter: Which rows; None: all.
            sort: A name of `names`, with `-` before it for the largest first; rows that lack it
                come last. Empty: the order of the run.

        Raises:
            FilterError: A name is unknown, or values do not fit.
        """
        names = _RowNames(self._contents)
        rows = range(len(self._contents.table))
        if filter is not None:
            # A named number that no row has is a typing error, once there are rows.
            is_complete = len(rows) > 0 and not self.has_more_names
            filter.check(self.names, OPEN_NAMES[2:] if is_complete else OPEN_NAMES)
        found = [row for row in rows if filter is None or names.match(filter, row)]
        if not sort:
            return found
        name, is_descending = sort.removeprefix("-"), sort.startswith("-")
        if name not in self.names or name == "text":
            listed = ", ".join(name for name in self.names if name != "text")
            raise FilterError(f'rows cannot be sorted by "{name}"; there are {listed}')
        values: dict[int, Any] = {}
        for row in found:
            names.row = row
            values[row] = names[name]
        known = [row for row in found if values[row] is not None]
        known.sort(key=values.__getitem__, reverse=is_descending)
        return known + [row for row in found if values[row] is None]

    def _row(self, number: int) -> Row:
        place, _ = self._contents.place(number)
        values = self._contents.table.row_values(number)
        return msgspec.convert({**values, "number": number, "place": place}, Row)


class _Contents(NamedTuple):
    """What was read of the files of a run; another one once a file was replaced."""

    manifest: Manifest | None
    files: list[GrowingFile]
    reader: RecordReader
    table: AttemptTable
    environments: dict[str, tuple[str, EnvironmentFacts]]
    """By the names on the lines, the names here and what is known."""

    def place(self, row: int) -> tuple[Place, bool]:
        """Return where the line of a row is, and whether gymcli wrote it."""
        file, offset, size, is_ours = self.table.place(row)
        return Place(str(self.files[file].path), offset, size), bool(is_ours)


class _Rows(Sequence[Row]):
    """Rows that are made when they are asked for."""

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
        found = self._numbers[number]
        return self._make(found) if isinstance(found, int) else [self._make(one) for one in found]


def _files(path: Path, manifest: Manifest | None) -> list[Path]:
    """Return the files that hold the attempts of a run."""
    files = [path / name for name in (ROLLOUTS, GENERATIONS, FAILURES)]
    if path.is_dir() and (manifest is not None or any(file.is_file() for file in files)):
        return files
    file = rollouts_file(path)
    if file.suffix in (".gz", ".zst"):
        raise UsageError(
            f"{file}: is compressed, so that no line of it can be read by its place; unpack it "
            f"first ({'zstd -d' if file.suffix == '.zst' else 'gunzip -k'} {file})"
        )
    if not is_plain(file):
        raise UsageError(f"{file}: is no regular file; write what it gives to one, and give that")
    return [file]


class _RowNames(Mapping[str, object]):
    """The values of one row, of number `row`, by the names of a filter.

    Columns are decoded at their first use; what is not in memory is read from the row's line.
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
            if name not in ROW_NAMES and name not in self._table.named:
                first, _, rest = name.partition(".")
                if not rest or first not in OPEN_NAMES:
                    raise KeyError(name)
                return _inner(getattr(self._fields(), first, None), rest)
            values = self._columns[name] = self._table.column(name)
        value = values[self.row]
        if name == "answer" and isinstance(value, str) and len(value) > MAX_ANSWER_CHARACTERS:
            return getattr(self._fields(), "answer", None)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter((*ROW_NAMES, "text", *self._table.named))

    def __len__(self) -> int:
        return len(ROW_NAMES) + 1 + len(self._table.named)

    def match(self, wanted: Filter, row: int) -> bool:
        self.row = row
        try:
            return wanted.matches(self)
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
    """Return what is at a dotted name; a key may have dots itself, and the longest counts."""
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
