"""What the tables hold before anything happens: their columns, and CSV files read into them."""

import csv
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["COLUMNS", "Labelled", "Row", "Source", "labelled", "read_csv"]

Row = dict[str, str]
"""One row by column. Rows are shared between episodes: a change makes a new one."""
Labelled = tuple[int, Row]
"""A row with the label that its place gave it."""

COLUMNS = {
    "emails": (
        "email_id",
        "inbox/outbox",
        "sender/recipient",
        "subject",
        "sent_datetime",
        "body",
    ),
    "calendar_events": (
        "event_id",
        "event_name",
        "participant_email",
        "event_start",
        "duration",
    ),
    "analytics_data": (
        "date_of_visit",
        "visitor_id",
        "page_views",
        "session_duration_seconds",
        "traffic_source",
        "user_engaged",
    ),
    "customer_relationship_manager_data": (
        "customer_id",
        "assigned_to_email",
        "customer_name",
        "customer_email",
        "customer_phone",
        "last_contact_date",
        "product_interest",
        "status",
        "notes",
        "follow_up_by",
    ),
    "project_tasks": (
        "task_id",
        "task_name",
        "assigned_to_email",
        "list_name",
        "due_date",
        "board",
    ),
}
"""The tables with their columns; each is a file of that name."""


class Source(NamedTuple):
    """The tables as every episode finds them."""

    addresses: tuple[str, ...]
    """The company directory."""
    tables: Mapping[str, tuple[Labelled, ...]]

    def rows(self, table: str) -> list[Row]:
        """Give the rows of a table in their order."""
        return [row for _, row in self.tables[table]]


def labelled(rows: Iterable[Row]) -> tuple[Labelled, ...]:
    """Label rows by their place."""
    return tuple(enumerate(rows))


@functools.cache
def read_csv(folder: Path) -> Source:
    """Read the tables of others from a folder, once in a process.

    Files are looked for in the folder itself, then in `processed` and `raw`, in it or beside it:
    the reference has its addresses in the one and all other tables in the other.

    Raises:
        ValueError: A file is missing or cannot be read, lacks a column, or its ids are no ids.

    """
    tables = {name: labelled(_read_table(folder, name)) for name in COLUMNS}
    path = _found(folder, "email_addresses")
    addresses = (line[0].strip() for line in _read_lines(path) if line)
    return Source(tuple(address for address in addresses if "@" in address), tables)


def _found(folder: Path, name: str) -> Path:
    layout = ("processed", "raw")
    base = folder.absolute()
    above = base.parent if base.name in layout else base
    for place in (folder, *(above / part for part in layout)):
        path = place / f"{name}.csv"
        if path.is_file():
            return path
    needed = ", ".join(f"{known}.csv" for known in (*COLUMNS, "email_addresses"))
    raise ValueError(f"{folder / name}.csv: no such file; data_dir must hold {needed}")


def _read_lines(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.reader(file))
    except (OSError, UnicodeError, csv.Error) as error:
        raise ValueError(f"{path}: not readable as CSV in UTF-8 ({error})") from error


def _read_table(folder: Path, name: str) -> list[Row]:
    path = _found(folder, name)
    header, *lines = _read_lines(path) or [[]]
    columns = COLUMNS[name]
    for column in columns:
        if column not in header:
            named = ", ".join(columns)
            raise ValueError(f'{path}: no column "{column}"; its first line must name {named}')
    # Some programs leave empty cells out at the end of a line, and some end with an empty line.
    cells = (dict(zip(header, line, strict=False)) for line in lines if line)
    rows = [{column: row.get(column, "") for column in columns} for row in cells]
    key = columns[0]
    if key.endswith("_id"):
        ids = {row[key] for row in rows}
        if len(ids) < len(rows) or not all(identity.isdecimal() for identity in ids):
            raise ValueError(f'{path}: "{key}" must be a whole number in every line, each once')
    return rows
