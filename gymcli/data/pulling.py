"""Tasks from tables of others: a data set of the hub, or a local file, through a map."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from gymcli.data.hub import PREFIX, open_dataset
from gymcli.data.mapping import RowMap, read_map
from gymcli.data.output import whole_file
from gymcli.data.sources import SourceRow, local_rows
from gymcli.errors import TasksError, UsageError
from gymcli.runner.survey import Problems
from gymcli.store.lines import iterate_lines
from gymcli.store.prompt import PromptTemplate
from gymcli.store.tasks import RowProblem, TaskReading, read_tasks

__all__ = ["Provenance", "Pulled", "pull"]

_SAME_ID = "; give --id-field"
"""Begins the way out that a reader of tasks names, which is none here."""


class Provenance(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Where the rows of a pulled file come from: the content of OUT.source.json."""

    source: str
    """`hf:ORG/NAME`, or the name of a file."""
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    """The commit of a data set on the hub."""
    license: str | None = None
    """What the card of that data set says."""
    source_sha256: str | None = None
    """Of a local file."""
    map_sha256: str | None = None
    limit: int | None = None
    num_rows: int = 0
    num_skipped: int = 0
    """Rows that were wrong, and left out because that was asked for."""
    sha256: str = ""
    """Of the file that was written."""


class Pulled(NamedTuple):
    """What became of a pull."""

    provenance: Provenance
    problems: list[str]
    """What is wrong with the first of the rows that were left out."""


def pull(
    source: str,
    out: Path,
    *,
    config: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    map_file: Path | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
) -> Pulled:
    """Write rows of a table as tasks, and beside them where they come from.

    Raises:
        UsageError: Source, map or `out` cannot be used.
        TasksError: Rows cannot become tasks (the first 20 are listed), or there is none; nothing
            is written. With `skip_bad` such rows are left out.
        RunError: The hub cannot be reached.

    """
    row_map = read_map(map_file) if map_file else RowMap()
    rows, record = _opened(source, config=config, split=split, revision=revision)
    record.map_sha256 = _sha256(map_file) if map_file else None
    record.limit = limit
    with TemporaryDirectory() as folder:
        draft = _Draft(source, Path(folder, "rows.jsonl"))
        draft.write(islice(_wanted(rows, row_map), limit))
        draft.check()
        if not skip_bad:
            draft.problems.check()
        if not draft.num_good:
            raise TasksError("\n".join([*draft.problems.lines(), f"{source}: no rows to write"]))
        with whole_file(out) as file:
            file.writelines(draft.good_lines())
    record.num_rows, record.num_skipped = draft.num_good, draft.problems.num_rows
    record.sha256 = _sha256(out)
    with whole_file(out.with_name(f"{out.name}.source.json")) as file:
        file.write(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
    return Pulled(record, draft.problems.lines())


def _opened(
    source: str, *, config: str | None, split: str | None, revision: str | None
) -> tuple[Iterator[SourceRow], Provenance]:
    if source.startswith(PREFIX):
        found = open_dataset(source, config=config, split=split, revision=revision)
        return found.rows, Provenance(
            source=source,
            config=config,
            split=found.split,
            revision=found.revision,
            license=found.license,
        )
    if config or split or revision:
        raise UsageError(f"{source}: --config, --split and --revision are for hf:ORG/NAME")
    path = Path(source)
    return local_rows(path), Provenance(source=path.name, source_sha256=_sha256(path))


class _Task(NamedTuple):
    """A row of the source as the line of a task, or why it cannot be one."""

    number: int
    line: bytes
    reason: str = ""


class _Draft:
    """Rows as they would be written, until all of them are known to be good."""

    def __init__(self, source: str, path: Path) -> None:
        self.problems = Problems()
        self._source = source
        self._path = path
        self._numbers = array("q")
        """The row of the source that each line comes from."""
        self._bad: set[int] = set()
        """Lines that the reader of tasks refuses."""

    @property
    def num_good(self) -> int:
        return len(self._numbers) - len(self._bad)

    def write(self, tasks: Iterator[_Task]) -> None:
        """Take the rows down, and what is wrong with them."""
        with self._path.open("wb") as file:
            for task in tasks:
                if task.reason:
                    self.problems.add(RowProblem(f"{self._source}:{task.number}", task.reason))
                else:
                    self._numbers.append(task.number)
                    file.write(task.line)

    def check(self) -> None:
        """Read the rows as a collection would: with a template, if the first row needs one."""
        reading = TaskReading(default_env="", template=self._template())
        for item in read_tasks([self._path], reading):
            if isinstance(item, RowProblem):
                self._bad.add(self._line(item.place))
                self.problems.add(RowProblem(self._place(item.place), self._reason(item.reason)))

    def good_lines(self) -> Iterator[bytes]:
        """Give the lines that are to be written."""
        for line in iterate_lines(self._path):
            if line.number not in self._bad:
                yield line.data + b"\n"

    def _template(self) -> PromptTemplate | None:
        first = next(iterate_lines(self._path), None)
        row = msgspec.json.decode(first.data) if first else {}
        is_raw = all(row.get(name) is None for name in ("responses_create_params", "messages"))
        return PromptTemplate("") if is_raw and not row.get("prompt") else None

    def _line(self, place: str) -> int:
        return int(place.rpartition(":")[2])

    def _place(self, place: str) -> str:
        return f"{self._source}:{self._numbers[self._line(place) - 1]}"

    def _reason(self, reason: str) -> str:
        """Give the reader's words without the draft, which nobody else will see."""
        shown = re.sub(rf"{re.escape(str(self._path))}:\d+", lambda m: self._place(m[0]), reason)
        told, is_same_id, _ = shown.partition(_SAME_ID)
        return f'{told}; map "id" to a column of its own' if is_same_id else shown


def _wanted(rows: Iterator[SourceRow], row_map: RowMap) -> Iterator[_Task]:
    """Give the rows that the map takes, as tasks."""
    for number, row in rows:
        if isinstance(row, str):
            yield _Task(number, b"", row)
            continue
        try:
            line = _line_of(row, row_map)
        except ValueError as error:
            yield _Task(number, b"", str(error))
            continue
        if line is not None:
            yield _Task(number, line)


def _line_of(row: Mapping[str, object], row_map: RowMap) -> bytes | None:
    return msgspec.json.encode(row_map.apply(row)) + b"\n" if row_map.takes(row) else None


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
