"""A table of text: a line for every attempt, which spreadsheets read too."""

from __future__ import annotations

import csv
import io
import re
from typing import BinaryIO

from gymcli.data.columns import columns_of, values_of
from gymcli.data.source import Source

__all__ = ["write_csv"]

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
