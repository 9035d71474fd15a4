"""The flat columns of tables: a row for every attempt, scored or not."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from gymcli.data.export_source import Attempt, Source
from gymcli.errors import MissingPackageError
from gymcli.store.run_index import ROW_NAMES
from gymcli.types import Failure, Message, Rollout

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COLUMNS",
    "JSON_COLUMNS",
    "Kind",
    "columns_of",
    "json_values_of",
    "values_of",
    "write_csv",
    "write_parquet",
]


Kind = Literal["text", "count", "number", "truth"]

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("num_turns", "num_tool_calls", "num_attempts", "num_passed"), "count"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "attempt"), "count"),
    **dict.fromkeys(("reward", "cost", "seconds", "avg", "best", "worst"), "number"),
    "passed": "truth",
}

COLUMNS: Mapping[str, Kind] = {
    "run": "text",
    **{name: _KINDS.get(name, "text") for name in ROW_NAMES},
    "last_text": "text",
}
"""What every table has; then come `components.NAME` and `metrics.NAME`."""

JSON_COLUMNS = ("messages", "tools", "task", "details")
"""What a Parquet file has besides, as JSON text: its readers skip what is not asked for."""


def columns_of(source: Source) -> dict[str, Kind]:
    """Give the columns of a table: of named numbers those that a run has."""
    for run, _ in source.runs:
        if run.has_more_names:
            source.warnings.append(
                f"{run.path}: has more components and metrics than columns are made of; "
                f"those of {len(run.named_numbers)} names are in the table"
            )
    named = {name: None for run, _ in source.runs for name in run.named_numbers}
    return {**COLUMNS, **dict.fromkeys(sorted(named), "number")}


def values_of(attempt: Attempt, columns: Mapping[str, Kind]) -> dict[str, object]:
    """Give the values of an attempt by column; None for what it lacks."""
    row, record = attempt.row, attempt.record
    values: dict[str, object] = {name: getattr(row, name) for name in ROW_NAMES}
    values["run"] = str(attempt.run.path)
    values["last_text"] = _last_text(record.messages)
    if isinstance(record, Rollout):
        values["answer"] = record.answer
    named = dict(_named(record))
    return {name: values[name] if name in values else named.get(name) for name in columns}


def json_values_of(attempt: Attempt) -> dict[str, object]:
    """Give the values of `JSON_COLUMNS`."""
    record = attempt.record
    found: dict[str, object] = {"messages": record.messages}
    if isinstance(record, Rollout):
        found |= {"tools": record.tools, "task": record.task, "details": record.details}
    return {
        name: msgspec.json.encode(found[name]).decode() if found.get(name) else None
        for name in JSON_COLUMNS
    }


def _named(record: Rollout | Failure) -> Iterator[tuple[str, float]]:
    if isinstance(record, Rollout):
        for kind, numbers in (("components", record.components), ("metrics", record.metrics)):
            for name, number in numbers.items():
                yield f"{kind}.{name}", number


def _last_text(messages: list[Message]) -> str | None:
    said = (message.text for message in reversed(messages) if message.role == "assistant")
    return next(said, None)


# The wide forms as well, and after signs that cannot be seen.
_FORMULA = re.compile(r"[\s\x00-\x1f\u200b\ufeff]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")


def write_csv(source: Source, file: BinaryIO) -> int:
    """Write a line of names, then one of values for each attempt; give how many.

    A text that a spreadsheet would take for a formula gets a `'` before it, as spreadsheets
    themselves mark text: a model must not be able to write one.

    Raises:
        UsageError: A line cannot be read.

    """
    columns = columns_of(source)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        # Before Python 3.13 a cell with \r gets its quotes only where lines end with it too.
        table = csv.writer(text, lineterminator="\r\n")
        table.writerow([_cell(name) for name in columns])
        num_rows = 0
        for attempt in source.attempts():
            table.writerow([_cell(value) for value in values_of(attempt, columns).values()])
            num_rows += 1
    finally:
        text.detach()  # or closing it would close the file
    return num_rows


def _cell(value: object) -> object:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return "" if value is None else value


_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 4096
"""A group of rows is written once it has so many, or so many bytes of conversations."""


def write_parquet(source: Source, file: BinaryIO) -> int:
    """Write a row for each attempt; give how many.

    Raises:
        MissingPackageError: pyarrow is not installed.
        UsageError: A line cannot be read.

    """
    try:
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise MissingPackageError(
            "a Parquet file needs the package pyarrow: pip install 'gymcli[parquet]'"
        ) from error
    columns = columns_of(source)
    schema = _schema(columns)
    num_rows = num_bytes = 0
    batch: list[dict[str, object]] = []
    with ParquetWriter(file, schema) as writer:
        for attempt in source.attempts():
            batch.append({**values_of(attempt, columns), **json_values_of(attempt)})
            num_bytes += len(attempt.line)
            num_rows += 1
            if num_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch, num_bytes = [], 0
        writer.write_table(pa.Table.from_pylist(batch, schema))
    return num_rows


def _schema(columns: Mapping[str, Kind]) -> pa.Schema:
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "count": pa.int64(),
        "number": pa.float64(),
        "truth": pa.bool_(),
    }
    fields = [(name, types[kind]) for name, kind in columns.items()]
    return pa.schema([*fields, *((name, pa.string()) for name in JSON_COLUMNS)])
