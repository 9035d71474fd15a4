"""The index of a run directory or a rollout file, and of what is written to it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from gymcli.errors import RunFileError, UsageError
from gymcli.filters import Filter
from gymcli.index.columns import STATUSES, Columns
from gymcli.index.entries import Entry, read_entry
from gymcli.index.facts import Facts, FactsOf
from gymcli.index.following import Followed, PlacedLine
from gymcli.index.groups import Groups
from gymcli.index.made_rows import Rows, made_row
from gymcli.index.records import RecordReader
from gymcli.index.rows import OPEN_NAMES, ROW_NAMES, Place, Row
from gymcli.index.selection import RowNames, matching, ordered
from gymcli.metrics import EnvironmentFacts
from gymcli.store.lines import is_plain
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    ROLLOUTS,
    RolloutReading,
    rollouts_file,
)
from gymcli.types import Failure, Rollout

__all__ = ["Refreshed", "RunIndex", "open_index"]

_RUN_FILES = (ROLLOUTS, GENERATIONS, FAILURES)


class Refreshed(NamedTuple):
    """What a run has more than before."""

    num_new: int = 0
    """Rows that were added after the others."""
    num_changed: int = 0
    """Rows that became something else: an attempt that failed was scored, say."""
    is_rebuilt: bool = False
    """A file was replaced: all rows are new, and so are their numbers."""


def open_index(path: Path, env: str | None = None, *, facts_of: FactsOf | None = None) -> RunIndex:
    """Read a run directory, or a rollout file of ours or of NeMo Gym, once.

    Close it, or use it as a context manager. It is for one thread at a time.

    Args:
        path: The directory or file.
        env: The environment of lines that name none.
        facts_of: What is known of an environment that no manifest tells of; without it nothing is.

    Raises:
        UsageError: There is no such run, it is compressed, or a line of it is wrong.

    """
    return RunIndex(path, env, facts_of=facts_of)


class RunIndex:
    """The attempts of a run, each a row; see `open_index`."""

    def __init__(
        self, path: Path, env: str | None = None, *, facts_of: FactsOf | None = None
    ) -> None:
        self.path = path
        self._env = env
        self._facts_of = facts_of
        self.manifest = read_manifest(path) if path.is_dir() else None
        """What the run says of itself; None for a bare file."""
        self._files = [Followed(file) for file in _files(path, self.manifest)]
        self._reader = RecordReader(env)
        self._columns = Columns()
        self._facts = Facts(self.manifest, facts_of)
        self._groups: Groups | None = None
        self._read_new()

    def __enter__(self) -> Self:
        """Begin the block at whose end it is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    @property
    def rows(self) -> Sequence[Row]:
        """The rows, made when they are asked for."""
        return Rows(len(self._columns), self._row)

    @property
    def environments(self) -> list[str]:
        """The environments that there are."""
        return self._columns.environments

    @property
    def names(self) -> list[str]:
        """The names of a filter that are known: those of all rows, then named numbers."""
        return [*ROW_NAMES, "text", *self._columns.named]

    @property
    def named_numbers(self) -> list[str]:
        """The names of named numbers that are in memory: `components.NAME`, `metrics.NAME`."""
        return list(self._columns.named)

    @property
    def has_more_names(self) -> bool:
        """Whether there are other named numbers, which are looked up in the file."""
        return self._columns.has_more_names

    def refresh(self) -> Refreshed:
        """Take what was written since.

        Raises:
            UsageError: The run is gone, or a line is wrong; those before it are taken, but of a
                file that was replaced none: the rows stay what they were.

        """
        if any(file.is_replaced() for file in self._files):
            anew = RunIndex(self.path, self._env, facts_of=self._facts_of)
            self._reader.close()
            vars(self).update(vars(anew))
            return Refreshed(len(self._columns), 0, is_rebuilt=True)
        if not any(file.has_grown() for file in self._files):
            return Refreshed()
        return self._read_new()

    def _read_new(self) -> Refreshed:
        num_before, changed = len(self._columns), set[int]()
        for number, file in enumerate(self._files):
            reading = RolloutReading(str(file.path), self._env)
            for line in file.new_lines():
                row = self._take(number, line, read_entry(line, reading), reading)
                if row is not None and row < num_before:
                    changed.add(row)
        return Refreshed(len(self._columns) - num_before, len(changed))

    def _take(
        self, file: int, line: PlacedLine, entry: Entry, reading: RolloutReading
    ) -> int | None:
        """Take a line; None where what is known of its attempt is more than what it says."""
        columns, self._groups = self._columns, None
        entry.env, facts = self._facts.named(entry.env)
        num_before, row = len(columns), columns.row_of(entry)
        is_new = row == num_before
        if not is_new:
            before, now = columns.status(row), entry.status
            if before == now == "scored":
                raise RunFileError(
                    f"{reading.path}:{line.number}: attempt {entry.attempt} of task "
                    f"{entry.task_id} ({entry.env}) is there twice; delete one of the lines"
                )
            if before == "waiting" and now == "failed" and _is_of_verifier(entry):
                columns.set_error(row, entry)
                return row
            if STATUSES.index(now) < STATUSES.index(before):
                return None
        columns.set_entry(row, entry, passed=_passed(entry, facts))
        columns.set_place(row, file, line.offset, len(line.data))
        return row

    def facts(self, env: str) -> EnvironmentFacts:
        """Give what is known of an environment, beside its lines."""
        return self._facts.of(env)

    def is_ours(self, row: Row) -> bool:
        """Say whether gymcli wrote the line of a row, not NeMo Gym."""
        return bool(self._columns.counts["is_ours"][row.number])

    def find(self, env: str, task_id: str, attempt: int) -> Row | None:
        """Give the row of an attempt; None where it is not on record."""
        row = self._columns.find(env, task_id, attempt)
        return None if row is None else self.rows[row]

    def attempts(self, row: Row) -> list[int]:
        """Give the rows of all attempts of a row's task, in the order of the attempts."""
        return self.attempts_of(row.env, row.task_id)

    def attempts_of(self, env: str, task_id: str) -> list[int]:
        """Give the rows of all attempts of a task, in their order; none where it is not there."""
        counts, group = self._columns.counts, self._columns.group_of(env, task_id)
        found = [number for number, other in enumerate(counts["group"]) if other == group]
        return sorted(found, key=counts["attempt"].__getitem__)

    def values(self, name: str) -> Iterator[object]:
        """Give the value of a name for one row after another; None where a row lacks it."""
        names = self._names()
        for row in range(len(self._columns)):
            names.row = row
            yield names[name]

    def read(self, row: Row) -> Rollout | Failure:
        """Read the record of a row: a rollout, without a reward where it waits, or a failure.

        Raises:
            RunFileError: Its line was changed meanwhile.
            UsageError: The file cannot be read.

        """
        return self.decoded(row, self.line(row))

    def decoded(self, row: Row, line: bytes) -> Rollout | Failure:
        """Give the record of a row from its line, out of which secrets may have been taken.

        Raises:
            RunFileError: It is the line of something else.

        """
        record = self._reader.decoded(row.place, line)
        if (record.task_id, record.attempt) != (row.task_id, row.attempt):
            place = f"{row.place.file}: was changed, and another line is at byte {row.place.offset}"
            raise RunFileError(f"{place}; open it again")
        return record

    def line(self, row: Row) -> bytes:
        """Give the line of a row as it is on disk, without its newline.

        Raises:
            RunFileError: It is no longer there.
            UsageError: The file cannot be read.

        """
        return self._reader.line(row.place)

    def select(self, filter: Filter | None = None, *, sort: str = "") -> list[int]:  # noqa: A002  # the word for it
        """Give the rows that a filter holds of, in the order of a name.

        Args:
            filter: Which rows; None: all.
            sort: A name of `names`, with `-` before it for the largest first; rows that lack it
                come last. Without one they stay as they are.

        Raises:
            FilterError: There is no such name, or values do not fit.
            UsageError: A line cannot be read.

        """
        names = self._names()
        if filter is not None:
            # Of named numbers those that no row has are mistyped, once there are rows.
            is_complete = len(self._columns) > 0 and not self.has_more_names
            filter.check(self.names, OPEN_NAMES[2:] if is_complete else OPEN_NAMES)
        found = list(matching(filter, names, len(self._columns)))
        return ordered(found, sort, names, self.names) if sort else found

    def _stand(self) -> Groups:
        """Give what the attempts of each task come to by now."""
        if self._groups is None:
            self._groups = Groups(self._columns)
        return self._groups

    def _place(self, row: int) -> Place:
        counts = self._columns.counts
        file = str(self._files[counts["file"][row]].path)
        return Place(file, counts["offset"][row], counts["size"][row])

    def _row(self, number: int) -> Row:
        return made_row(self._columns, self._stand(), number, self._place(number))

    def _names(self) -> RowNames:
        return RowNames(self._columns, self._stand(), self._reader, self._place)


def _files(path: Path, manifest: Manifest | None) -> list[Path]:
    """Give the files that the attempts of a run are in."""
    files = [path / name for name in _RUN_FILES]
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


def _passed(entry: Entry, facts: EnvironmentFacts) -> bool | None:
    threshold = facts.success_threshold
    if threshold is None or entry.reward is None or entry.error is not None:
        return None
    return entry.reward >= threshold


def _is_of_verifier(entry: Entry) -> bool:
    """Say whether an attempt failed after its conversation was whole."""
    return entry.error is not None and entry.error.phase in ("verify", "role")
