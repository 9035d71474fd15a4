"""The rows of local tables: JSON lines, JSON, CSV and Parquet, read as a stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import MissingPackageError, UsageError
from gymcli.store.lines import iterate_lines, open_bytes, read_errors
from gymcli.types import JSON_ERRORS

__all__ = ["SourceRow", "local_rows"]

_BATCH_ROWS = 1000
"""Rows of a Parquet file that are turned into Python values at a time."""


class SourceRow(NamedTuple):
    """A row of a table, or why it cannot be read."""

    number: int
    """Its line in a text file; else rows are counted, from 1."""
    row: Mapping[str, object] | str


def local_rows(path: Path) -> Iterator[SourceRow]:
    """Give the rows of a file by its suffix, before a `.gz` or `.zst`.

    Raises:
        UsageError: The file cannot be read, or is of a kind that nobody reads here.
        MissingPackageError: It is a Parquet file, and pyarrow is not installed.

    """
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
    reader = _READERS.get(suffixes[-1] if suffixes else "")
    if reader is None:
        known = ", ".join(_READERS)
        raise UsageError(
            f"{path}: cannot tell what it is; expected hf:ORG/NAME or a file ({known})"
        )
    return reader(path)


def _json_lines(path: Path) -> Iterator[SourceRow]:
    for line in iterate_lines(path):
        yield SourceRow(line.number, _json_object(line.data))


def _json_object(data: bytes) -> Mapping[str, object] | str:
    try:
        value = msgspec.json.decode(data)
    except JSON_ERRORS as error:
        return f"is not JSON: {error}"
    return value if isinstance(value, dict) else "must be a JSON object"


def _json_array(path: Path) -> Iterator[SourceRow]:
    """Read one array of objects, which is held in memory."""
    with open_bytes(path) as file, read_errors(path):
        data = file.read()
    try:
        rows = msgspec.json.decode(data, type=list[msgspec.Raw])
    except JSON_ERRORS as error:
        raise UsageError(f"{path}: is no JSON array of objects: {error}") from error
    for number, row in enumerate(rows, 1):
        yield SourceRow(number, _json_object(bytes(row)))


def _csv_rows(path: Path) -> Iterator[SourceRow]:
    """Read a table with a line of names on top; every value is text."""
    with (
        open_bytes(path) as file,
        read_errors(path),
        io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
    ):
        reader = csv.DictReader(text, strict=True)
        try:
            for row in reader:
                is_whole = None not in row and None not in row.values()
                reason = "has not as many cells as the line of names"
                yield SourceRow(reader.line_num, row if is_whole else reason)
        except (csv.Error, UnicodeError) as error:
            place = f"{path}: cannot be read after line {reader.line_num}"
            raise UsageError(f"{place}: {error}") from error


def _parquet_rows(path: Path) -> Iterator[SourceRow]:
    try:
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingPackageError(
            f"{path} needs the package pyarrow: pip install 'gymcli[parquet]'"
        ) from error
    number = 0
    try:
        with ParquetFile(path) as table:
            for batch in table.iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield SourceRow(number, row)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path}: cannot be read after row {number}: {reason}") from error


_READERS: dict[str, Callable[[Path], Iterator[SourceRow]]] = {
    ".jsonl": _json_lines,
    ".json": _json_array,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
