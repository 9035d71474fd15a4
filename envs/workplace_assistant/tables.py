"""The tables of one episode: how they are read, searched, changed and compared."""

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple

from gymcli import JSONObject

__all__ = [
    "COLUMNS",
    "NOW",
    "Labelled",
    "Office",
    "Row",
    "Source",
    "Table",
    "day_fault",
    "duration_fault",
    "labelled",
    "page_of",
    "read_csv",
    "time_fault",
]

# Days, times and lengths have only one form in the tables. Another form of the same value would be
# stored as it is and never equal the gold table's.


def time_fault(text: str) -> str:
    """Return what is wrong with a time, if anything."""
    try:
        is_time = f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S}" == text
    except ValueError:
        is_time = False
    return "" if is_time else f"{text!r} is no time; write it as YYYY-MM-DD HH:MM:SS."


def day_fault(text: str) -> str:
    """Return what is wrong with a day, if anything."""
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    return "" if is_day else f"{text!r} is no day; write it as YYYY-MM-DD."


def duration_fault(text: str) -> str:
    """Return what is wrong with a length, if anything."""
    try:
        is_length = int(text) > 0 and str(int(text)) == text
    except ValueError:
        is_length = False
    return "" if is_length else f"{text!r} is no length; give whole minutes in digits, such as 45."


Row = dict[str, str]
"""One row by column. Episodes share rows, so a change makes a new one."""
Labelled = tuple[int, Row]
"""A row with its label, which is its place when it was read."""

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
"""The columns of the tables; each table is a CSV file of that name."""


class Source(NamedTuple):
    """The tables at the start of every episode."""

    addresses: tuple[str, ...]
    """The company directory."""
    tables: Mapping[str, tuple[Labelled, ...]]

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table in their order."""
        return [row for _, row in self.tables[table]]


def labelled(rows: Iterable[Row]) -> tuple[Labelled, ...]:
    """Label rows by their place."""
    return tuple(enumerate(rows))


@functools.cache
def read_csv(folder: Path) -> Source:
    """Read tables from a folder of CSV files, once per process.

    Files are looked for in the folder, then in `processed` and `raw`, inside or next to it: the
    reference has its addresses in one of the two and all other tables in the other.

    Raises:
        ValueError: A file is missing, cannot be read, lacks a column, or has invalid ids.

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
        # Some spreadsheet programs begin a CSV file with a byte order mark.
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
    # Some programs omit empty cells at the end of a line, and some write an empty last line.
    cells = (dict(zip(header, line, strict=False)) for line in lines if line)
    rows = [{column: row.get(column, "") for column in columns} for row in cells]
    key = columns[0]
    if key.endswith("_id"):
        ids = {row[key] for row in rows}
        if len(ids) < len(rows) or not all(identity.isdecimal() for identity in ids):
            raise ValueError(f'{path}: "{key}" must be a whole number, different in every line')
    return rows


NOW = "2023-11-30 23:59:00"
"""The current time in every episode."""

CASE_COUNTS = ("status", "list_name", "board")
"""Columns in which case counts; all others are compared without it."""


class Table:
    """The rows of one table in order, each with a label that counts in comparisons.

    Labels follow the reference, which compares data frames with their index: a row is labelled by
    its place when it is read, and a deletion leaves a gap. Adding a row renumbers all of them, or,
    if `relabels` is False, labels the new row 0.
    """

    def __init__(
        self, rows: Iterable[Labelled], key: str, *, noun: str, relabels: bool = True
    ) -> None:
        self.labelled_rows = list(rows)
        """The rows in order, each with its label."""
        self.num_changes = 0
        """The number of rows that were added, updated or deleted; a refused call does not count."""
        self._key = key
        self._noun = noun
        self._relabels = relabels
        self._has_gaps = False
        """Whether a label may be missing below the last one."""
        self._highest: int | None = None
        """The highest id; None if it must be looked up."""

    @property
    def rows(self) -> list[Row]:
        """The rows in order."""
        return [row for _, row in self.labelled_rows]

    def find(self, identity: str) -> Row | None:
        """Return the row with an id, if there is one."""
        return next((row for _, row in self.labelled_rows if row[self._key] == identity), None)

    def missing(self, identity: str) -> str:
        """Return the sentence for an id that no row has."""
        return f"There is no {self._noun} with the id {identity!r}."

    def read(self, identity: str, field: str) -> JSONObject | str:
        """Return a field of a row, null if empty, or a sentence about what is wrong."""
        row = self.find(identity)
        if row is None:
            return self.missing(identity)
        if field not in row:
            return f"{self._noun.capitalize()}s have no field {field!r}, only {_listed(row)}."
        return {field: row[field] or None}

    def add(self, row: Row) -> str:
        """Append a row under the next id, and return that; the key column comes first."""
        if self._highest is None:
            self._highest = max((int(known[self._key]) for known in self.rows), default=0)
        self._highest += 1
        identity = f"{self._highest:08}"
        self.append({self._key: identity, **row})
        return identity

    def append(self, row: Row) -> None:
        """Append a row as it is."""
        # Without gaps, the labels are 0, 1, 2 and so on already.
        if self._relabels and self._has_gaps:
            self.labelled_rows = list(labelled(self.rows))
            self._has_gaps = False
        self.labelled_rows.append((len(self.labelled_rows) if self._relabels else 0, row))
        self.num_changes += 1

    def update(self, identity: str, field: str, value: str) -> str:
        """Change one field of a row; return a sentence about the result."""
        row = self.find(identity)
        if row is None:
            return self.missing(identity)
        fields = [name for name in row if name != self._key]
        if field not in fields:
            return f"The field {field!r} cannot be changed, only {_listed(fields)}."
        changed = {**row, field: value}
        self.labelled_rows = [
            (label, changed if known is row else known) for label, known in self.labelled_rows
        ]
        self.num_changes += 1
        return f"The {self._noun} {identity} has been updated."

    def delete(self, identity: str) -> str:
        """Delete a row; return a sentence about the result."""
        left = [entry for entry in self.labelled_rows if entry[1][self._key] != identity]
        if len(left) == len(self.labelled_rows):
            return self.missing(identity)
        self.labelled_rows = left
        self._has_gaps, self._highest = True, None
        self.num_changes += 1
        return f"The {self._noun} {identity} has been deleted."

    def equals(self, other: "Table") -> bool:
        """Return whether both have the same rows in the same order under the same labels."""
        # Identity first: episodes share the rows that neither has changed.
        return len(self.labelled_rows) == len(other.labelled_rows) and all(
            mine is theirs
            or (mine[0] == theirs[0] and (mine[1] is theirs[1] or _folded(mine) == _folded(theirs)))
            for mine, theirs in zip(self.labelled_rows, other.labelled_rows, strict=True)
        )


class Office:
    """The current tables of one episode."""

    def __init__(self, source: Source) -> None:
        tables = source.tables
        self.addresses = source.addresses
        self.visits = Table(tables["analytics_data"], "visitor_id", noun="visitor")
        self.emails = Table(tables["emails"], "email_id", noun="e-mail")
        # The only table that the reference does not renumber when a row is added.
        self.events = Table(tables["calendar_events"], "event_id", noun="event", relabels=False)
        self.plots = Table((), "file_path", noun="plot")
        self.tasks = Table(tables["project_tasks"], "task_id", noun="task")
        customers = tables["customer_relationship_manager_data"]
        self.customers = Table(customers, "customer_id", noun="customer")

    @property
    def num_changes(self) -> int:
        """The number of changes to the tables."""
        changing = (self.events, self.emails, self.plots, self.tasks, self.customers)
        return sum(table.num_changes for table in changing)

    def differences(self, other: "Office") -> list[str]:
        """Return the names of the tables that differ from those of another office."""
        pairs = {
            "calendar_events": (self.events, other.events),
            "emails": (self.emails, other.emails),
            "plots": (self.plots, other.plots),
            "project_tasks": (self.tasks, other.tasks),
            "customer_relationship_manager_data": (self.customers, other.customers),
        }
        return [name for name, (mine, theirs) in pairs.items() if not mine.equals(theirs)]


def page_of(rows: Sequence[Row], noun: str, page: int, page_size: int) -> JSONObject | str:
    """Return one page of the results of a search, or the nearest page if there is no such one.

    Empty cells are null.
    """
    if not rows:
        return f"No {noun} found."
    if page_size < 1:
        return "page_size must be at least 1."
    num_pages = -(-len(rows) // page_size)
    page = max(1, min(page, num_pages))
    return {
        noun: [
            {column: text or None for column, text in row.items()}
            for row in rows[(page - 1) * page_size : page * page_size]
        ],
        "pagination": {
            f"total_{noun}": len(rows),
            "page": page,
            "page_size": page_size,
            "total_pages": num_pages,
        },
    }


def _folded(entry: Labelled) -> Row:
    return {
        column: text if column in CASE_COUNTS else text.lower() for column, text in entry[1].items()
    }


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(fields)
