"""Reads the rows of tables: JSON Lines, JSON arrays, CSV, TSV, Parquet files and spreadsheets."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO, cast

import msgspec

from gymcli.errors import MissingPackageError, UsageError
from gymcli.store.lines import (
    MAX_LINE_BYTES,
    TOO_LONG,
    Line,
    begins_array,
    decoded_lines,
    iterate_lines,
    lines_of,
    open_bytes,
    read_errors,
    refuse_archive,
    refuse_utf16,
)
from gymcli.types import JSON_ERRORS

_BATCH_ROWS = 1000
"""Rows of a Parquet file that are converted to Python values at a time."""
_MAX_ARRAY_BYTES = 1 << 28
"""The longest JSON array that is read, uncompressed."""
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHER_DELIMITERS = ";\t|,"
"""A file may have these in spite of its name: Excel writes semicolons where commas are decimal."""
_SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_HEAD_CHARACTERS = 1 << 16
"""The part of a CSV file that shows its delimiter."""
_NUM_HEAD_RECORDS = 20
_SEPARATOR_LINE = re.compile(r'"?sep=(\t|[^\w\s"])"?[\r\n]')
"""The first line by which Excel names the delimiter."""
_BLOCK_BYTES = 1 << 16
_CHILD = Path(__file__).with_name("workbook_child.py")
_MAX_WORKBOOK_BYTES = 2 << 30
"""The most memory that a workbook may take."""


class SourceRow(NamedTuple):
    """A row of a table, or the reason why it cannot be read."""

    number: int
    """The line in a text file, else the row's position, counted from 1."""
    row: dict[str, object] | str


class SourceTable(NamedTuple):
    """The rows of one file, or of one configuration of a data set."""

    name: str
    rows: Iterator[SourceRow]


def is_table(path: Path) -> bool:
    """Return whether a file's name says that it is a table, which has columns."""
    return _format(path) in (*_DELIMITERS, ".parquet", *_SHEETS)


def _format(path: Path) -> str:
    """Return the suffix before any `.gz` or `.zst`, in lower case."""
    return (Path(path.stem) if path.suffix in (".gz", ".zst") else path).suffix.lower()


def table_columns(path: Path) -> list[str]:
    """Return the names of a table's columns; raise UsageError if it has none."""
    if _format(path) in (*_DELIMITERS, *_SHEETS):
        records = _csv_records(path) if _format(path) in _DELIMITERS else _sheet_records(path)
        return [name for name in _header(path, records) if name]
    first = next(local_rows(path), None)
    if first is None or isinstance(first.row, str):
        raise UsageError(f"{path}: has no rows")
    return [name for name in first.row if name.strip()]


def table_notes(path: Path) -> list[str]:
    """Return what a user should know about how a file is read, a sentence each."""
    if _format(path) in _DELIMITERS and _encoding(path) == "cp1252":
        return [
            f"{path}: is not UTF-8 and is read as Windows-1252; if letters are wrong, save it as "
            '"CSV UTF-8"'
        ]
    if _format(path) in _SHEETS and len(names := _sheet_names(path)) > 1:
        ignored_names = ", ".join(f'"{name}"' for name in names[1:])
        return [f'{path}: only the sheet "{names[0]}" is read, not {ignored_names}']
    return []


def local_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[SourceRow]:
    """Yield the rows of a file; its suffix, before any `.gz` or `.zst`, tells the format.

    `columns` names the columns of a CSV or TSV file without a header; a file of another suffix
    then is one.

    Raise UsageError if it cannot be read, MissingPackageError for Parquet without pyarrow and for a
    spreadsheet without python-calamine.
    """
    refuse_archive(path)
    suffix = _format(path)
    reader = _READERS.get(suffix, _csv_rows if columns else None)
    if reader in (_parquet_rows, _sheet_rows) and path.suffix.lower() != suffix:
        raise UsageError(f"{path}: {suffix} files are compressed internally; unpack it first")
    if reader is None:
        suffixes = ", ".join(_READERS)
        raise UsageError(f"{path}: unknown format; expected hf:ORG/NAME or a file ({suffixes})")
    return _csv_rows(path, columns) if reader is _csv_rows else reader(path)


def _json_lines(path: Path) -> Iterator[SourceRow]:
    with open_bytes(path) as file, read_errors(path):
        is_array = begins_array(file.read(_BLOCK_BYTES))
    if is_array:
        return _json_array(path)
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
    records = _csv_records(path, num_columns=len(columns))
    names = columns or _header(path, records)
    for line, cells in records:
        if len(cells) == len(names):
            yield _row(line, names, cells)
        else:
            header = "columns name" if columns else "header has"
            yield SourceRow(line, f"has {len(cells)} cells, but the {header} {len(names)}")


def _row(number: int, names: Sequence[str], cells: Sequence[str]) -> SourceRow:
    row: dict[str, object] = dict(zip(names, cells, strict=True))
    if "" in row:
        del row[""]
        for place, (name, cell) in enumerate(zip(names, cells, strict=True), 1):
            if not name and cell.strip():
                reason = f"column {place} has cells, but no name; name it, or remove it"
                return SourceRow(number, reason)
    return SourceRow(number, row)


class _Record(NamedTuple):
    line: int
    """The record's first line."""
    cells: list[str]


def _csv_records(path: Path, *, num_columns: int = 0) -> Iterator[_Record]:
    """Yield every record with a cell that is not blank; without a header, it has `num_columns`."""
    encoding = _encoding(path)
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

    dialect = _dialect(path, encoding, num_columns)
    first = dialect.num_lines + 1
    with _open_text(path, encoding) as text:
        reader = csv.reader(
            lines(text),
            strict=True,
            delimiter=dialect.delimiter,
            skipinitialspace=dialect.skips_blanks,
        )
        try:
            deque(itertools.islice(reader, dialect.num_lines), maxlen=0)
            # Not around the loop: two files may be read at a time, and the limit is the process's.
            while (cells := _next_cells(reader)) is not None:
                num_characters = 0
                if any(cell and not cell.isspace() for cell in cells):
                    yield _Record(first, cells)
                first = reader.line_num + 1
        except csv.Error as error:
            is_open = str(error) == "unexpected end of data"
            reason = "a quotation mark is not closed" if is_open else error
            raise UsageError(f"{path}:{first}: is not CSV: {reason}") from error
        except UnicodeError as error:
            raise _undecodable(path, encoding) from error


def _header(path: Path, records: Iterator[_Record]) -> list[str]:
    """Return the names of the columns, the first record; that of an empty column may be blank."""
    header = next(records, None)
    if header is None:
        raise UsageError(f"{path}: is empty; the first line of a table names its columns")
    _check_columns(f"{path}:{header.line}", [name for name in header.cells if name.strip()])
    return [name if name.strip() else "" for name in header.cells]


@contextmanager
def _open_text(path: Path, encoding: str) -> Iterator[io.TextIOWrapper]:
    with (
        open_bytes(path) as file,
        read_errors(path),
        io.TextIOWrapper(file, encoding=encoding, newline="") as text,
    ):
        yield text


def _encoding(path: Path) -> str:
    """Return the encoding of a text: that of its mark, else what its first special letters fit."""
    with open_bytes(path) as file, read_errors(path):
        block = file.read(_BLOCK_BYTES)
        if block.startswith(codecs.BOM_UTF8):
            return "utf-8-sig"
        if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if b"\0" in block:
            raise UsageError(
                f"{path}: holds binary data, not text; name a workbook .xlsx, or save it as "
                '"CSV UTF-8"'
            )
        decoder = codecs.getincrementaldecoder("utf-8")()
        while True:
            try:
                is_ascii = decoder.decode(block, final=not block).isascii()
            except UnicodeDecodeError as error:
                # Among letters that are UTF-8, a fault is damage. Pairs of other letters, such as
                # \xdf\x93 of Windows-1252, may look like one of these.
                valid = error.object.decode("utf-8", "ignore")
                num_faults = len(error.object) - len(valid.encode())
                num_letters = sum(not character.isascii() for character in valid)
                return "cp1252" if num_faults > num_letters else "utf-8"
            if not (block and is_ascii):
                return "utf-8"
            block = file.read(_BLOCK_BYTES)


def _undecodable(path: Path, encoding: str) -> UsageError:
    """Return the error with the first line that is not text: it is decoded in larger parts."""
    decoder = codecs.getincrementaldecoder(encoding)()
    number = 0
    with open_bytes(path) as file:
        try:
            for line in iter(partial(file.readline, MAX_LINE_BYTES), b""):
                number += 1
                decoder.decode(line)
        except UnicodeDecodeError:
            pass
    kinds = "neither UTF-8 nor Windows-1252" if encoding == "cp1252" else f"not {encoding.upper()}"
    return UsageError(f'{path}:{number}: is {kinds} text: save the file as "CSV UTF-8"')


class _Dialect(NamedTuple):
    delimiter: str
    skips_blanks: bool
    """Whether quotation marks follow a blank after the delimiter."""
    num_lines: int
    """Lines before the header."""


def _dialect(path: Path, encoding: str, num_columns: int) -> _Dialect:
    """Return how the cells of a CSV file are separated, from its first records.

    Unless Excel has named it, the delimiter splits the header, and more records into as many cells
    than it leaves whole; where several do, it is that of the file's name.
    """
    with _open_text(path, encoding) as text:
        # Bytes that are no text raise an error where they stand, in the reading of the rows.
        text.reconfigure(errors="replace")
        head = text.read(_HEAD_CHARACTERS)
    named = _SEPARATOR_LINE.match(head)
    usual = named[1] if named else _DELIMITERS.get(_format(path), ",")
    num_lines = 1 if named else 0
    num_fitting: dict[_Dialect, int] = {}
    for delimiter in usual if named else dict.fromkeys(usual + _OTHER_DELIMITERS):
        # In a quoted cell, a mark after a blank is doubled, or the last one.
        has_blanks = re.search(rf'{re.escape(delimiter)} +"[^"{re.escape(delimiter)}\r\n]', head)
        for skips_blanks in (True, False) if has_blanks else (False,):
            dialect = _Dialect(delimiter, skips_blanks, num_lines)
            widths = _widths(head, dialect)
            width = num_columns or next(iter(widths), 0)
            if width > 1 and widths.count(width) > widths.count(1):
                num_fitting[dialect] = widths.count(width)
    one_column = _Dialect(usual, False, num_lines)
    return max(num_fitting, key=num_fitting.__getitem__, default=one_column)


def _widths(head: str, dialect: _Dialect) -> list[int]:
    """Return the numbers of cells of the first records, as far as these can be read."""
    reader = csv.reader(
        io.StringIO(head, newline=""),
        strict=True,
        delimiter=dialect.delimiter,
        skipinitialspace=dialect.skips_blanks,
    )
    widths: list[int] = []
    with suppress(csv.Error):
        for cells in itertools.islice(reader, dialect.num_lines, None):
            if any(map(str.strip, cells)):
                widths.append(len(cells))
            if len(widths) == _NUM_HEAD_RECORDS:
                break
    return widths


def _next_cells(reader: Iterator[list[str]]) -> list[str] | None:
    limit = csv.field_size_limit(sys.maxsize)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def _check_columns(place: str, names: Sequence[str]) -> None:
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise UsageError(f"{place}: column {number} has no name; name it, or remove it")
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise UsageError(f'{place}: has the column "{name}" {count} times; rename them')


@contextmanager
def needs_pyarrow(purpose: str) -> Iterator[None]:
    """Turn a failed import of pyarrow into a MissingPackageError, which names what needs it."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs the package pyarrow: pip install 'gymcli[parquet]'"
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


def _sheet_rows(path: Path) -> Iterator[SourceRow]:
    records = _sheet_records(path)
    names = _header(path, records)
    for number, cells in records:
        yield _row(number, names, cells)


def _sheet_records(path: Path) -> Iterator[_Record]:
    lines = _sheet_lines(path)
    next(lines)
    for line in lines:
        yield _Record(*msgspec.json.decode(line, type=tuple[int, list[str]]))


def _sheet_names(path: Path) -> list[str]:
    """Return the names of the visible sheets of a workbook that have cells."""
    with closing(_sheet_lines(path)) as lines:
        return msgspec.json.decode(next(lines), type=list[str])


def _sheet_lines(path: Path) -> Generator[bytes]:
    """Yield the names of a workbook's sheets, then the rows of the first one, as JSON."""
    if find_spec("python_calamine") is None:
        raise MissingPackageError(
            f"{path} needs the package python-calamine: pip install 'gymcli[tables]'; "
            'or save the table as "CSV UTF-8"'
        )
    command = [sys.executable, "-P", str(_CHILD), str(path.absolute()), str(_MAX_WORKBOOK_BYTES)]
    with subprocess.Popen(  # noqa: S603  # this interpreter, our own module
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # after Ctrl-C a run still reads rows
    ) as child:
        try:
            for line in lines_of(cast("BinaryIO", child.stdout), path):
                if line.data.startswith(b'"'):
                    raise UsageError(f"{path}: {msgspec.json.decode(line.data)}")
                yield line.data
            if child.wait():
                raise UsageError(
                    f"{path}: cannot be read: it is damaged, or takes more than "
                    f'{_MAX_WORKBOOK_BYTES >> 30} GB of memory; save the table as "CSV UTF-8"'
                )
        finally:
            child.kill()


_READERS: dict[str, Callable[[Path], Iterator[SourceRow]]] = {
    ".jsonl": _json_lines,
    ".json": _json_array,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".parquet": _parquet_rows,
    **dict.fromkeys(_SHEETS, _sheet_rows),
}
