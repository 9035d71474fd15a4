"""A table of columns: what every attempt has, flat, and conversation and task as JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from gymcli.data.columns import JSON_COLUMNS, Kind, columns_of, json_values_of, values_of
from gymcli.data.source import Source
from gymcli.errors import MissingPackageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_parquet"]

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
