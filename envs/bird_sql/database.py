"""Runs queries on a database in memory: reading only, never the clock or chance, and not for ever.

How much a query may do is counted in steps of SQLite's virtual machine and in bytes, so that the
same query comes to the same end, however busy the processor is, save for what few steps are counted
for.
"""

import sqlite3
from contextlib import closing
from typing import Literal, NamedTuple

from gymcli import VerifierError

from .functions import FUNCTIONS, FUNCTIONS_OF_CONTEXT, Calendar, Cell

__all__ = ["MAX_STEPS", "Comparison", "Database", "QueryError", "Reason", "compare"]

Reason = Literal[
    "correct", "wrong_result", "no_sql", "sql_error", "not_allowed", "too_slow", "too_large"
]

MAX_STEPS = 200_000_000
"""Steps of the virtual machine that a query may take: two to a dozen seconds."""
STEPS_AT_ONCE = 1000
STEPS_OF_TIMES = 100
"""Steps that a call of a function of dates and times counts as; it takes about as long."""
MAX_QUERY = 100_000
"""Bytes of a query."""
MAX_VALUE = 1_000_000
"""Bytes of one text or blob."""
MAX_RESULT = 8_000_000
"""Bytes of a result, where a number is `BYTES_OF_CELL`, and so much is added to every text."""
BYTES_OF_CELL = 16
MAX_HEAP = 256_000_000
"""Bytes that SQLite may take, temporary tables and the context included.

Where SQLite is built without statistics of memory (macOS), only the worker's own limit holds.
"""

READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


class QueryError(Exception):
    """A query has no result, for the reason given."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Comparison(NamedTuple):
    """What came of a query, and how many different rows there were."""

    reason: Reason
    message: str = ""
    num_rows: int = 0
    num_expected_rows: int = 0


def compare(context: str, gold: str, query: str | None, max_steps: int) -> Comparison:
    """Compare the results of two queries as sets of rows; None is a query that was not given.

    To be called in a worker, since the limit on memory holds for the whole process and for good.

    Raises:
        VerifierError: The context or the gold query fails.

    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP}")
    try:
        database = Database(context, max_steps)
    except QueryError as error:
        raise VerifierError(f'"sql_context" fails: {error}') from error
    with closing(database):
        try:
            expected = database.read(gold)
        except QueryError as error:
            raise VerifierError(f'"gt_sql" fails ({error.reason}): {error}') from error
        if query is None:
            return Comparison("no_sql", num_expected_rows=len(expected))
        try:
            rows = database.read(query)
        except QueryError as error:
            return Comparison(error.reason, str(error), num_expected_rows=len(expected))
    reason: Reason = "correct" if rows == expected else "wrong_result"
    return Comparison(reason, "", len(rows), len(expected))


class Database:
    """A database in memory that is built from statements and can then be read.

    Raises:
        QueryError: A statement fails.

    """

    def __init__(self, context: str, max_steps: int = MAX_STEPS) -> None:
        self._max_steps = max_steps
        self._num_steps = 0
        self._is_filled = False
        self._refused = ""
        self._calendar = Calendar(self._count_call)
        self._connection = connection = sqlite3.connect(":memory:", isolation_level=None)
        # What is no UTF-8 stays different from all else.
        connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        # Once reading begins, no other table that is part of SQLite can be opened.
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        self._calendar.install(connection)
        connection.set_authorizer(self._authorized)
        try:
            connection.executescript(context)
        except FAILURES as error:
            self.close()
            raise self._described(error) from error
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_QUERY)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        connection.set_progress_handler(self._is_over, STEPS_AT_ONCE)
        self._is_filled = True

    def read(self, query: str) -> set[tuple[Cell, ...]]:
        """Give the different rows that a query has for a result.

        Raises:
            QueryError: It is no single query that only reads, fails, or goes beyond a limit.

        """
        self._num_steps, self._refused = 0, ""
        rows: set[tuple[Cell, ...]] = set()
        num_bytes = 0
        try:
            cursor = self._connection.execute(query)
            if cursor.description is None:
                raise QueryError("sql_error", "there is no statement in it")
            for row in cursor:
                rows.add(row)
                num_bytes += sum(_size(cell) for cell in row)
                if num_bytes > MAX_RESULT:
                    raise QueryError("too_large", f"the result has over {MAX_RESULT} bytes")
        except FAILURES as error:
            raise self._described(error) from error
        return rows

    def close(self) -> None:
        """Forget all tables."""
        self._connection.close()
        self._calendar.close()

    def _described(self, error: Exception) -> QueryError:
        """Say which limit or rule a failure comes from."""
        if self._refused:
            return QueryError("not_allowed", f"{self._refused} is not allowed")
        if isinstance(error, MemoryError | sqlite3.DataError):
            return QueryError("too_large", str(error) or "it takes too much memory")
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return QueryError("too_slow", f"it takes over {self._max_steps} steps")
        return QueryError("sql_error", str(error))

    def _is_over(self) -> bool:
        """Count steps, and say whether these were too many."""
        self._num_steps += STEPS_AT_ONCE
        return self._num_steps > self._max_steps

    def _count_call(self) -> None:
        self._num_steps += STEPS_OF_TIMES

    def _authorized(self, action: int, _: str | None, function: str | None, *__: str | None) -> int:
        known = FUNCTIONS if self._is_filled else FUNCTIONS_OF_CONTEXT
        if action == sqlite3.SQLITE_FUNCTION and function not in known:
            self._refused = f"{function}()"
        elif self._is_filled and action not in READING:
            self._refused = "all but reading"
        else:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY


FAILURES = (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError)
"""Two statements are a Warning in Python 3.11, and what is no UTF-8 is a ValueError."""


def _size(cell: Cell) -> int:
    return BYTES_OF_CELL + (len(cell) if isinstance(cell, str | bytes) else 0)
