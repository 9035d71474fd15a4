"""The rows of local tables: JSON lines, JSON, CSV and Parquet, read as a stream."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from gymcli.errors import MissingPackageError, UsageError
from gymcli.store.lines import (
    MAX_LINE_BYTES,
    TOO_LONG,
    Line,
    decoded_lines,
    iterate_lines,
    open_bytes,
    read_errors,
)
from gymcli.types import JSON_ERRORS

__all__ = ["SourceRow", "local_rows"]

_BATCH_ROWS = 1000
"""Rows of a Parquet file that are turned into Python values at a time."""
_MAX_ARRAY_BYTES = 1 << 28
"""The longest JSON array that is read, decompressed."""


class SourceRow(NamedTuple):
    """A row of a table, or why it cannot be read."""

    number: int
    """Its line in a text file; else rows are counted, from 1."""
    row: dict[str, object] | str


def local_rows(path: Path) -> Iterator[SourceRow]:
    """Give the rows of a file by its suffix, before a `.gz` or `.zst`.

    Raises:
        UsageError: The file cannot be read, or is of a kind that nobody reads here.
        MissingPackageError: It is a Parquet file, and pyarrow is not installed.

    """
    unpacked = Path(path.stem) if path.suffix in (".gz", ".zst") else path
    reader = _READERS.get(unpacked.suffix.lower())
    if reader is _parquet_rows and unpacked is not path:
        raise UsageError(f"{path}: Parquet files are compressed within; unpack it first")
    if reader is None:
        known = ", ".join(_READERS)
        raise UsageError(
            f"{path}: cannot tell what it is; expected hf:ORG/NAME or a file ({known})"
        )
    return reader(path)


def _json_lines(path: Path) -> Iterator[SourceRow]:
    return map(SourceRow._make, decoded_lines(iterate_lines(path)))


def _json_array(path: Path) -> Iterator[SourceRow]:
    """Read one array of objects, which is held in memory."""
    with open_bytes(path) as file, read_errors(path):
        data = file.read(_MAX_ARRAY_BYTES + 1).removeprefix(codecs.BOM_UTF8)
    if len(data) > _MAX_ARRAY_BYTES:
        raise UsageError(
            f"{path}: is longer than {_MAX_ARRAY_BYTES >> 20} MB, the most that an array may be; "
            "make it .jsonl, which is read line by line"
        )
    try:
        rows = msgspec.json.decode(data, type=list[msgspec.Raw])
    except JSON_ERRORS as error:
        hint = "; name it .jsonl if each line is one" if data.lstrip().startswith(b"{") else ""
        raise UsageError(f"{path}: is no JSON array of objects: {error}{hint}") from error
    lines = (Line(number, bytes(row), True) for number, row in enumerate(rows, 1))
    yield from map(SourceRow._make, decoded_lines(lines))


def _csv_rows(path: Path) -> Iterator[SourceRow]:
    """Read a table with a line of names on top; every value is text."""
    with (
        open_bytes(path) as file,
        read_errors(path),
        io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
        _cells_of_any_length(),
    ):
        lines = _CsvLines(path, text)
        reader = csv.DictReader(lines, strict=True)
        try:
            _check_columns(path, reader.fieldnames or ())
            for row in reader:
                lines.num_characters = 0
                is_whole = None not in row and None not in row.values()
                reason = "has not as many cells as the line of names"
                yield SourceRow(reader.line_num, row if is_whole else reason)
        except (csv.Error, UnicodeError) as error:
            place = f"{path}: cannot be read after line {reader.line_num}"
            raise UsageError(f"{place}: {error}") from error


class _CsvLines:
    """The lines of a CSV file, as many as a row may have: an open quote takes in all that follows.

    Whoever takes a row sets `num_characters` to 0.
    """

    def __init__(self, path: Path, text: TextIO) -> None:
        self.num_characters = 0
        self._path = path
        self._text = text
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(MAX_LINE_BYTES + 1):
            self._number += 1
            self.num_characters += len(line)
            if self.num_characters > MAX_LINE_BYTES:
                raise UsageError(f"{self._path}:{self._number}: the row {TOO_LONG}")
            yield line


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    """Lift the limit of the csv module, which is one for the whole process."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _check_columns(path: Path, names: Sequence[str]) -> None:
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise UsageError(f'{path}: has the column "{name}" {count} times; rename them')


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
            _check_columns(path, table.schema_arrow.names)
            for batch in table.iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield SourceRow(number, row)
    # Times beyond the year 9999 overflow; a time zone that is not known is a key that is missing.
    except (OSError, ValueError, OverflowError, KeyError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path}: cannot be read after row {number}: {reason}") from error


_READERS: dict[str, Callable[[Path], Iterator[SourceRow]]] = {
    ".jsonl": _json_lines,
    ".json": _json_array,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
