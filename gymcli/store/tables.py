"""Reads the rows of tables: JSON Lines, JSON arrays, CSV, TSV and Parquet files."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO, cast

import msgspec

from gymcli.errors import MissingPackageError, UsageError
from gymcli.store.lines import (
    MAX_LINE_BYTES,
    TOO_DEEP,
    TOO_LONG,
    Line,
    decoded_lines,
    iterate_lines,
    open_bytes,
    read_errors,
    refuse_utf16,
)
from gymcli.types import JSON_ERRORS, JSONObject

if TYPE_CHECKING:
    from gymcli.store.maps import RowMap

__all__ = ["SourceRow", "is_table", "local_rows", "mapped_rows", "needs_pyarrow", "table_columns"]

_BATCH_ROWS = 1000
"""Rows of a Parquet file that are converted to Python values at a time."""
_MAX_ARRAY_BYTES = 1 << 28
"""The longest JSON array that is read, uncompressed."""
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class SourceRow(NamedTuple):
    """A row of a table, or the reason why it cannot be read."""

    number: int
    """The line in a text file, else the row's position, counted from 1."""
    row: dict[str, object] | str


def is_table(path: Path) -> bool:
    """Return whether a file's name says that it is a table, which has columns."""
    return _format(path) in (".csv", ".tsv", ".parquet")


def _format(path: Path) -> str:
    """Return the suffix before any `.gz` or `.zst`, in lower case."""
    return (Path(path.stem) if path.suffix in (".gz", ".zst") else path).suffix.lower()


def table_columns(path: Path) -> list[str]:
    """Return the names of a table's columns; raise UsageError if it has none."""
    if _format(path) in _DELIMITERS:
        return next(_csv_records(path)).cells
    first = next(local_rows(path), None)
    if first is None or isinstance(first.row, str):
        raise UsageError(f"{path}: has no rows")
    return list(first.row)


def mapped_rows(
    rows: Iterable[SourceRow], row_map: RowMap
) -> Iterator[tuple[int, JSONObject | str]]:
    """Yield the rows that a map takes, each as a task row, or the reason why it cannot be one."""
    for number, row in rows:
        if isinstance(row, str):
            yield number, row
            continue
        try:
            if not row_map.takes(row):
                continue
            # Through JSON, so that the row is the same as one that is read from a JSONL file.
            mapped: JSONObject | str = msgspec.json.decode(msgspec.json.encode(row_map.apply(row)))
        except RecursionError:
            mapped = TOO_DEEP
        except ValueError as error:
            mapped = str(error)
        yield number, mapped


def local_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[SourceRow]:
    """Yield the rows of a file; its suffix, before any `.gz` or `.zst`, tells the format.

    `columns` names the columns of a CSV or TSV file without a header; a file of another suffix
    then is one.

    Raise UsageError if it cannot be read, MissingPackageError for Parquet without pyarrow.
    """
    suffix = _format(path)
    reader = _READERS.get(suffix, _csv_rows if columns else None)
    if reader is _parquet_rows and path.suffix.lower() != suffix:
        raise UsageError(f"{path}: Parquet files are compressed internally; unpack it first")
    if reader is None:
        known = ", ".join(_READERS)
        raise UsageError(f"{path}: unknown format; expected hf:ORG/NAME or a file ({known})")
    return _csv_rows(path, columns) if reader is _csv_rows else reader(path)


def _json_lines(path: Path) -> Iterator[SourceRow]:
    return map(SourceRow._make, decoded_lines(iterate_lines(path)))


def _json_array(path: Path) -> Iterator[SourceRow]:
    with open_bytes(path) as file, read_errors(path):
        data = file.read(_MAX_ARRAY_BYTES + 1).removeprefix(codecs.BOM_UTF8)
    refuse_utf16(data, path)
    if len(data) > _MAX_ARRAY_BYTES:
        raise UsageError(
            f"{path}: is longer than the limit of {_MAX_ARRAY_BYTES >> 20} MB for an array; "
            "convert it to .jsonl, which is read line by line"
        )
    try:
        rows = msgspec.json.decode(data, type=list[msgspec.Raw])
    except JSON_ERRORS as error:
        hint = (
            "; name it .jsonl if each line is an object" if data.lstrip().startswith(b"{") else ""
        )
        raise UsageError(f"{path}: is not a JSON array of objects: {error}{hint}") from error
    lines = (Line(number, bytes(row), True) for number, row in enumerate(rows, 1))
    yield from map(SourceRow._make, decoded_lines(lines))


def _csv_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[SourceRow]:
    records = _csv_records(path, has_header=not columns)
    names = columns or next(records).cells
    for line, cells in records:
        if len(cells) == len(names):
            yield SourceRow(line, dict(zip(names, cells, strict=True)))
        else:
            header = "columns name" if columns else "header has"
            yield SourceRow(line, f"has {len(cells)} cells, but the {header} {len(names)}")


class _Record(NamedTuple):
    line: int
    """The record's first line."""
    cells: list[str]


def _csv_records(path: Path, *, has_header: bool = True) -> Iterator[_Record]:
    """Yield the header, if there is one, then every record with a cell that is not blank."""
    num_characters = 0

    def lines(text: TextIO) -> Iterator[str]:
        # Rows are limited, since an unclosed quote would swallow the rest of the file.
        nonlocal num_characters
        for number in itertools.count(1):
            if not (line := text.readline(MAX_LINE_BYTES + 1)):
                return
            num_characters += len(line)
            if num_characters > MAX_LINE_BYTES:
                raise UsageError(f"{path}:{number}: the row {TOO_LONG}")
            yield line

    with (
        open_bytes(path) as file,
        read_errors(path),
        io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
    ):
        refuse_utf16(cast("io.BufferedReader", file).peek(2), path)
        delimiter = _DELIMITERS.get(_format(path), ",")
        reader = csv.reader(lines(text), strict=True, delimiter=delimiter)
        needs_header, first = has_header, 1
        try:
            # Not around the loop: two files may be read at a time, and the limit is the process's.
            while (cells := _next_cells(reader)) is not None:
                num_characters = 0
                if any(cell and not cell.isspace() for cell in cells):
                    if needs_header:
                        _check_header(f"{path}:{first}", cells, delimiter)
                        needs_header = False
                    yield _Record(first, cells)
                first = reader.line_num + 1
        except csv.Error as error:
            is_open = str(error) == "unexpected end of data"
            reason = "a quotation mark is not closed" if is_open else error
            raise UsageError(f"{path}:{first}: is not CSV: {reason}") from error
        except UnicodeError as error:
            place = f"{path}:{_first_undecodable(path)}"
            raise UsageError(f"{place}: is not UTF-8 text: save the file as UTF-8") from error
    if needs_header:
        raise UsageError(f"{path}: is empty; the first line of a table names its columns")


def _first_undecodable(path: Path) -> int:
    """Return the number of the first line that is not UTF-8: text is decoded in larger parts."""
    with open_bytes(path) as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _next_cells(reader: Iterator[list[str]]) -> list[str] | None:
    limit = csv.field_size_limit(sys.maxsize)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def _check_header(place: str, names: Sequence[str], delimiter: str) -> None:
    _check_columns(place, names)
    others, separators = (";,", "tabs") if delimiter == "\t" else (";\t", "commas")
    if len(names) == 1 and {*others} & {*names[0]}:
        raise UsageError(
            f"{place}: has one column, {names[0]!r:.80}: separate the cells by {separators}"
        )


def _check_columns(place: str, names: Sequence[str]) -> None:
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise UsageError(f"{place}: column {number} has no name; name it, or remove it")
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise UsageError(f'{place}: has the column "{name}" {count} times; rename them')


@contextmanager
def needs_pyarrow(what: str) -> Iterator[None]:
    """Turn a failed import of pyarrow into a MissingPackageError, which names what needs it."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs the package pyarrow: pip install 'gymcli[parquet]'"
        ) from error


def _parquet_rows(path: Path) -> Iterator[SourceRow]:
    with needs_pyarrow(str(path)):
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import ParquetFile
    number = 0
    try:
        with ParquetFile(path) as table:
            _check_columns(str(path), table.schema_arrow.names)
            for batch in table.iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield SourceRow(number, row)
    # Times after the year 9999 overflow; an unknown time zone raises KeyError.
    except (OSError, ValueError, OverflowError, KeyError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path}: cannot be read after row {number}: {reason}") from error


_READERS: dict[str, Callable[[Path], Iterator[SourceRow]]] = {
    ".jsonl": _json_lines,
    ".json": _json_array,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".parquet": _parquet_rows,
}
