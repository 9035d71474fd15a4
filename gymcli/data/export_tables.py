"""The formats to look through, csv and parquet: a table with a row for every attempt."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from typing import BinaryIO, Literal

import msgspec

from gymcli.data.export_source import ExportedAttempt, ExportSource
from gymcli.errors import MissingPackageError
from gymcli.store.run_index import ROW_NAMES
from gymcli.types import Rollout

__all__ = ["COLUMNS", "JSON_COLUMNS", "write_csv", "write_parquet"]

_Kind = Literal["text", "count", "number", "truth"]

_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("num_turns", "num_tool_calls", "num_attempts", "num_passed"), "count"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "attempt"), "count"),
    **dict.fromkeys(("reward", "cost", "seconds", "avg", "best", "worst"), "number"),
    "passed": "truth",
}

COLUMNS: Mapping[str, _Kind] = {
    "run": "text",
    **{name: _KINDS.get(name, "text") for name in ROW_NAMES},
    "last_text": "text",
}
"""The columns of every table; then come `components.NAME` and `metrics.NAME`."""

JSON_COLUMNS = ("messages", "tools", "task", "details")
"""The further columns of a Parquet file, as JSON text: its readers skip those not asked for."""

# The wide forms as well, and after signs that cannot be seen.
_FORMULA = re.compile(r"[\s\x00-\x1f\u200b\ufeff]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 4096
"""A row group of a Parquet file ends with so many rows, or so many bytes of conversations."""


def write_csv(source: ExportSource, file: BinaryIO) -> int:
    """Write a line of names, then one of values for each attempt; return how many.

    A text that a spreadsheet would take for a formula gets a `'` before it, as spreadsheets
    themselves mark text: a model must not be able to write one.

    Raises:
        UsageError: A line of the source cannot be read.

    """
    columns = _columns(source)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        # Before Python 3.13 a cell with \r gets its quotes only where lines end with it too.
        table = csv.writer(text, lineterminator="\r\n")
        table.writerow([_cell(name) for name in columns])
        num_rows = 0
        for attempt in source.attempts():
            table.writerow([_cell(value) for value in _values(attempt, columns).values()])
            num_rows += 1
    finally:
        text.detach()  # or closing it would close the file
    return num_rows


def _cell(value: object) -> object:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return "" if value is None else value


def write_parquet(source: ExportSource, file: BinaryIO) -> int:
    """Write a row for each attempt; return how many.

    Raises:
        MissingPackageError: pyarrow is not installed.
        UsageError: A line of the source cannot be read.

    """
    try:
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise MissingPackageError(
            "a Parquet file needs the package pyarrow: pip install 'gymcli[parquet]'"
        ) from error
    columns = _columns(source)
    types = {
        "text": pa.string(),
        "count": pa.int64(),
        "number": pa.float64(),
        "truth": pa.bool_(),
    }
    fields = [(name, types[kind]) for name, kind in columns.items()]
    schema = pa.schema([*fields, *((name, pa.string()) for name in JSON_COLUMNS)])
    num_rows = num_bytes = 0
    batch: list[dict[str, object]] = []
    with ParquetWriter(file, schema) as writer:
        for attempt in source.attempts():
            batch.append({**_values(attempt, columns), **_json_values(attempt)})
            num_bytes += len(attempt.line)
            num_rows += 1
            if num_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch, num_bytes = [], 0
        writer.write_table(pa.Table.from_pylist(batch, schema))
    return num_rows


def _columns(source: ExportSource) -> dict[str, _Kind]:
    for run, _ in source.runs:
        if run.has_more_names:
            source.warnings.append(
                f"{run.path}: has more components and metrics than columns are made of; "
                f"those of {len(run.named_numbers)} names are in the table"
            )
    named = {name: None for run, _ in source.runs for name in run.named_numbers}
    return {**COLUMNS, **dict.fromkeys(sorted(named), "number")}


def _values(attempt: ExportedAttempt, columns: Mapping[str, _Kind]) -> dict[str, object]:
    """Return the values of an attempt by column; None for what it lacks."""
    record = attempt.record
    values: dict[str, object] = {name: getattr(attempt.row, name) for name in ROW_NAMES}
    values["run"] = str(attempt.run.path)
    texts = (message.text for message in reversed(record.messages) if message.role == "assistant")
    values["last_text"] = next(texts, None)
    if isinstance(record, Rollout):
        values["answer"] = record.answer
        values |= {f"components.{name}": number for name, number in record.components.items()}
        values |= {f"metrics.{name}": number for name, number in record.metrics.items()}
    return {name: values.get(name) for name in columns}


def _json_values(attempt: ExportedAttempt) -> dict[str, object]:
    """Return the values of `JSON_COLUMNS`."""
    record = attempt.record
    found: dict[str, object] = {"messages": record.messages}
    if isinstance(record, Rollout):
        found |= {"tools": record.tools, "task": record.task, "details": record.details}
    return {
        name: msgspec.json.encode(found[name]).decode() if found.get(name) else None
        for name in JSON_COLUMNS
    }
