"""Prints the sheets of a workbook, a line of JSON each: the names of those with cells, then rows.

This is a process of its own: a workbook of a few kB may describe billions of cells, for which the
reader would take all memory, and it ends its process when it gets none.
"""

import json
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, time

from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum

_MAX_EXACT = 10**15
"""Excel keeps 15 digits of a number."""


def _texts(cells: Iterable[object]) -> Iterator[str]:
    for cell in cells:
        if isinstance(cell, bool):
            yield str(cell).upper()
        elif isinstance(cell, float) and cell.is_integer() and abs(cell) < _MAX_EXACT:
            yield str(int(cell))  # a sheet has no integers: 18 is stored as 18.0
        else:
            yield cell.isoformat() if isinstance(cell, date | time) else str(cell)


def _sheets(path: str) -> Iterator[object]:
    """Yield the names, then each row with its number; only a text if there are none."""
    first, names = None, []
    try:
        with CalamineWorkbook.from_path(path) as workbook:
            for metadata in workbook.sheets_metadata:
                if metadata.visible == SheetVisibleEnum.Visible:
                    sheet = workbook.get_sheet_by_name(metadata.name)
                    # A workbook begins with three sheets in some programs, of which two are empty.
                    if first is None or (sheet.height and not names):
                        first = sheet
                    if sheet.height:
                        names.append(metadata.name)
    except (OSError, CalamineError) as error:
        yield f'cannot be read: {error}; save the table as "CSV UTF-8"'
        return
    if first is None:
        yield "has no visible sheet"
        return
    yield names
    # With the empty area, since the numbers of rows and columns are those of the sheet.
    before = [""] * first.start[1] if first.start else []
    for number, cells in enumerate(first.iter_rows(), 1):
        texts = [*before, *_texts(cells)]
        if any(map(str.strip, texts)):
            yield number, texts


if __name__ == "__main__":
    for limit, size in ((resource.RLIMIT_AS, int(sys.argv[2])), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a lower limit stays
            resource.setrlimit(limit, (size, size))
    sys.stdout.writelines(f"{json.dumps(value)}\n" for value in _sheets(sys.argv[1]))
