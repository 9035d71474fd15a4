"""The tables of one episode: searched, changed, and compared at its end."""

from collections.abc import Iterable, Sequence

from gymcli import JSONObject

from .source import Labelled, Row, Source, labelled

__all__ = ["NOW", "Office", "Table", "page_of"]

NOW = "2023-11-30 23:59:00"
"""The time that it is in every episode."""

CASE_COUNTS = ("status", "list_name", "board")
"""Columns that are compared as they are written; in all others case does not count."""


class Table:
    """The rows of one table in their order, each with a label that counts when tables are compared.

    Labels follow the reference, whose tables are data frames: a row is labelled by the place
    where it was read, a deletion leaves a gap, and adding a row numbers all of them again, or,
    where `relabels` is False, labels the new row 0.
    """

    def __init__(
        self, rows: Iterable[Labelled], key: str, *, noun: str, relabels: bool = True
    ) -> None:
        self.labelled_rows = list(rows)
        """The rows in their order, each with its label."""
        self.num_changes = 0
        """Rows that were added, updated or deleted; a call that was refused leaves it as it is."""
        self._key = key
        self._noun = noun
        self._relabels = relabels
        self._has_gaps = False
        """Whether a label may be missing among those up to the last."""
        self._highest: int | None = None
        """The highest id; None where it must be looked up."""

    @property
    def rows(self) -> list[Row]:
        """The rows in their order."""
        return [row for _, row in self.labelled_rows]

    def find(self, identity: str) -> Row | None:
        """Give the row of an id, if there is one."""
        return next((row for _, row in self.labelled_rows if row[self._key] == identity), None)

    def missing(self, identity: str) -> str:
        """Say that there is no row of an id."""
        return f"There is no {self._noun} with the id {identity!r}."

    def read(self, identity: str, field: str) -> JSONObject | str:
        """Return a field of a row, empty as null, or a sentence that says what is wrong."""
        row = self.find(identity)
        if row is None:
            return self.missing(identity)
        if field not in row:
            return f"{self._noun.capitalize()}s have no field {field!r}, only {_listed(row)}."
        return {field: row[field] or None}

    def add(self, row: Row) -> str:
        """Append a row under the next id, which is given; the key column comes first."""
        if self._highest is None:
            self._highest = max((int(known[self._key]) for known in self.rows), default=0)
        self._highest += 1
        identity = f"{self._highest:08}"
        self.append({self._key: identity, **row})
        return identity

    def append(self, row: Row) -> None:
        """Append a row as it is."""
        if self._relabels and self._has_gaps:
            self.labelled_rows = list(labelled(self.rows))
            self._has_gaps = False
        self.labelled_rows.append((len(self.labelled_rows) if self._relabels else 0, row))
        self.num_changes += 1

    def update(self, identity: str, field: str, value: str) -> str:
        """Change one field of a row; gives a sentence that says what came of it."""
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
        """Delete a row; gives a sentence that says what came of it."""
        left = [entry for entry in self.labelled_rows if entry[1][self._key] != identity]
        if len(left) == len(self.labelled_rows):
            return self.missing(identity)
        self.labelled_rows = left
        self._has_gaps, self._highest = True, None
        self.num_changes += 1
        return f"The {self._noun} {identity} has been deleted."

    def equals(self, other: "Table") -> bool:
        """Say whether both have the same rows in the same order under the same labels."""
        return len(self.labelled_rows) == len(other.labelled_rows) and all(
            mine is theirs
            or (mine[0] == theirs[0] and (mine[1] is theirs[1] or _folded(mine) == _folded(theirs)))
            for mine, theirs in zip(self.labelled_rows, other.labelled_rows, strict=True)
        )


class Office:
    """The tables of one episode, as they stand."""

    def __init__(self, source: Source) -> None:
        tables = source.tables
        self.addresses = source.addresses
        self.visits = Table(tables["analytics_data"], "visitor_id", noun="visitor")
        self.emails = Table(tables["emails"], "email_id", noun="e-mail")
        self.events = Table(tables["calendar_events"], "event_id", noun="event", relabels=False)
        self.plots = Table((), "file_path", noun="plot")
        self.tasks = Table(tables["project_tasks"], "task_id", noun="task")
        customers = tables["customer_relationship_manager_data"]
        self.customers = Table(customers, "customer_id", noun="customer")

    @property
    def num_changes(self) -> int:
        """How many changes the tables have taken."""
        changing = (self.events, self.emails, self.plots, self.tasks, self.customers)
        return sum(table.num_changes for table in changing)

    def differences(self, other: "Office") -> list[str]:
        """Name the tables in which this one is not equal to another."""
        pairs = {
            "calendar_events": (self.events, other.events),
            "emails": (self.emails, other.emails),
            "plots": (self.plots, other.plots),
            "project_tasks": (self.tasks, other.tasks),
            "customer_relationship_manager_data": (self.customers, other.customers),
        }
        return [name for name, (mine, theirs) in pairs.items() if not mine.equals(theirs)]


def page_of(rows: Sequence[Row], noun: str, page: int, page_size: int) -> JSONObject | str:
    """Return one page of what a search found, the nearest where there is none of that number.

    What is empty is null.
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
