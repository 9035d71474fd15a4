"""`gym data pull`: write the rows of a table as tasks, through a map."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.data.maps import RowMap, read_map
from gymcli.data.output import compressing, replacing
from gymcli.data.tables import HUB_PREFIX, SourceRow, local_rows, open_dataset
from gymcli.errors import TasksError, UsageError
from gymcli.runner.task_source import Problems
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import MAX_LINE_BYTES, TOO_DEEP, TOO_LONG, file_sha256
from gymcli.store.task_row import Hints, PromptTemplate, TaskReading
from gymcli.store.tasks import RowProblem, TaskReader
from gymcli.types import JSONObject

__all__ = ["Provenance", "Pulled", "pull"]

_HINTS = Hints(
    prompt='rows of fields alone need "user" in a map',
    own_prompt='the first row has none; take rows of one kind, with "where" in a map',
    same_id='map "id" to a column of its own',
    same_id_in_files="",
)


class Provenance(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Where the rows of a pulled file come from: the content of OUT.source.json."""

    source: str
    """`hf:ORG/NAME`, or the name of a file."""
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    """The commit of a data set on the hub."""
    license: str | None = None
    """The licence that the card of that data set names."""
    source_sha256: str | None = None
    """The hash of a local file."""
    map_sha256: str | None = None
    limit: int | None = None
    num_rows: int = 0
    num_skipped: int = 0
    """Wrong rows that were left out on request."""
    sha256: str = ""
    """The hash of the file that was written."""


class Pulled(NamedTuple):
    """The result of a pull."""

    provenance: Provenance
    problems: list[str]
    """What is wrong with the first rows that were left out."""
    num_redacted: int = 0
    """Rows that held a secret, and were written without it."""


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
    scrubber: Scrubber = NOTHING_SECRET,
) -> Pulled:
    """Write rows of a table as tasks, and their provenance beside them; no secrets in either.

    Raises:
        UsageError: Source, map or `out` cannot be used.
        TasksError: Rows cannot become tasks (the first 20 are listed), or there is none; nothing
            is written. With `skip_bad` such rows are left out.
        RunError: The hub cannot be reached.

    """
    row_map = read_map(map_file) if map_file else RowMap()
    record_path = Path(f"{out}.source.json")
    inputs = [Path(source)] if map_file is None else [Path(source), map_file]
    # Both are opened before anything is read, and replace old ones when all else is done.
    with (
        replacing(out, inputs=inputs) as raw,
        replacing(record_path, inputs=[*inputs, out]) as record_file,
    ):
        rows, record = _opened(source, config=config, split=split, revision=revision)
        record.map_sha256 = file_sha256(map_file) if map_file else None
        record.limit = limit
        problems, num_redacted = Problems(), 0
        tasks = islice(_mapped(rows, row_map), limit)
        with compressing(raw, out.suffix) as file:
            for line in _good_lines(source, tasks, problems):
                scrubbed = scrubber.line(line)
                file.write(scrubbed + b"\n")
                record.num_rows += 1
                num_redacted += scrubbed is not line
        if not skip_bad:
            problems.check()
        if not record.num_rows:
            raise TasksError("\n".join([*problems.lines(), f"{source}: no rows to write"]))
        record.num_skipped = problems.num_rows
        raw.seek(0)
        record.sha256 = hashlib.file_digest(raw, "sha256").hexdigest()
        described = scrubber.line(msgspec.json.encode(record))
        record_file.write(msgspec.json.format(described) + b"\n")
    return Pulled(record, problems.lines(), num_redacted)


def _opened(
    source: str, *, config: str | None, split: str | None, revision: str | None
) -> tuple[Iterator[SourceRow], Provenance]:
    if source.startswith(HUB_PREFIX):
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
    return local_rows(path), Provenance(source=path.name, source_sha256=file_sha256(path))


def _mapped(rows: Iterator[SourceRow], row_map: RowMap) -> Iterator[SourceRow]:
    """Yield the rows that the map makes, decoded from JSON as a collection would read them."""
    for number, row in rows:
        if isinstance(row, str):
            yield SourceRow(number, row)
            continue
        try:
            if not row_map.takes(row):
                continue
            mapped: JSONObject | str = msgspec.json.decode(msgspec.json.encode(row_map.apply(row)))
        except RecursionError:
            mapped = TOO_DEEP
        except ValueError as error:
            mapped = str(error)
        yield SourceRow(number, mapped)


def _good_lines(source: str, rows: Iterator[SourceRow], problems: Problems) -> Iterator[bytes]:
    """Yield the rows that can be collected, as lines, and add the problems of the others."""
    reader = TaskReader()
    reading: TaskReading | None = None
    for number, row in rows:
        place = f"{source}:{number}"
        if isinstance(row, str):
            problems.add(RowProblem(place, row))
            continue
        if reading is None:  # a collection needs a template if the first row does
            prompts = (row.get("responses_create_params"), row.get("messages"))
            has_prompt = row.get("prompt") or any(prompt is not None for prompt in prompts)
            template = None if has_prompt else PromptTemplate("")
            reading = TaskReading(default_env="", template=template, hints=_HINTS)
        items = reader.read(row, reading, source=source, line=number)
        wrong = [item for item in items if isinstance(item, RowProblem)]
        for problem in wrong:
            problems.add(problem)
        if wrong:
            continue
        line = msgspec.json.encode(row)
        if len(line) > MAX_LINE_BYTES:
            problems.add(RowProblem(place, TOO_LONG))
            continue
        yield line
