"""Runs queries on a database in memory: read-only, without clock or chance, and within limits.

The limits count steps of SQLite's virtual machine and bytes, not seconds, so that a query has the
same result on a busy machine. The exception is slow work inside one step, such as matching a
pattern.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Literal, NamedTuple

from gymcli import VerifierError

__all__ = [
    "FUNCTIONS",
    "FUNCTIONS_OF_CONTEXT",
    "MAX_STEPS",
    "NOW",
    "Calendar",
    "Cell",
    "Comparison",
    "Database",
    "QueryError",
    "Reason",
    "compare",
]

Cell = str | int | float | bytes | None

NOW = "2025-06-15 12:30:45"
"""The present, in UTC: not at midnight nor on a first of the month, so that truncating it shows."""
PRESENT = dict.fromkeys(("now", "subsec", "subsecond"), NOW)
"""The words that SQLite reads as the present; the last two since version 3.42."""
ZONES = dict.fromkeys(("localtime", "utc"), "+0 days")
"""The modifiers that depend on the machine's time zone; in UTC they change nothing."""
TIMES = {
    "date": (0, 1),
    "time": (0, 1),
    "datetime": (0, 1),
    "julianday": (0, 1),
    "unixepoch": (0, 1),
    "strftime": (1, 2),
    "timediff": (0, 2),
}
"""The positions of each function's times, as a range; modifiers follow. A missing time is now."""
CURRENT = {
    "current_date": NOW.split()[0],
    "current_time": NOW.split()[1],
    "current_timestamp": NOW,
}

# Left out are functions whose value depends on the process or the build (`sqlite_version`,
# `fts3_tokenizer`), on chance (`random`), or on changes, which a query cannot make.
NAMES = """
abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood
likely lower ltrim max min nullif octet_length printf quote replace round rtrim sign soundex
substr substring trim typeof unhex unicode unistr unistr_quote unlikely upper zeroblob
avg count group_concat median percentile percentile_cont percentile_disc string_agg sum total
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
row_number
acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10
log2 mod pi pow power radians sin sinh sqrt tan tanh trunc
json json_array json_array_insert json_array_length json_error_position json_extract
json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_array_insert
jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch
jsonb_remove jsonb_replace jsonb_set -> ->>
bm25 highlight match snippet
sqlite_drop_column sqlite_fail sqlite_rename_column sqlite_rename_quotefix
sqlite_rename_table sqlite_rename_test
"""
"""The names that SQLite passes to an authorizer. The last two lines are for ALTER TABLE in a
context; no query can call them."""
FUNCTIONS = frozenset(NAMES.split()).union(TIMES, CURRENT)
FUNCTIONS_OF_CONTEXT = FUNCTIONS | {"last_insert_rowid"}
"""A context inserts rows, and may ask for the last one."""


class Calendar:
    """SQLite's date and time functions with a fixed present.

    Args:
        tick: Called at each call of a function, because SQLite counts no steps for Python's work.

    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._connection = sqlite3.connect(":memory:")

    def install(self, connection: sqlite3.Connection) -> None:
        """Replace the functions that read the clock."""
        for name, text in CURRENT.items():
            connection.create_function(name, 0, lambda text=text: text, deterministic=True)
        for name in TIMES:
            connection.create_function(name, -1, self._standing(name), deterministic=True)

    def close(self) -> None:
        """Close the connection that computes the functions."""
        self._connection.close()

    def _standing(self, name: str) -> Callable[..., Cell]:
        start, end = TIMES[name]

        def call(*arguments: Cell) -> Cell:
            self._tick()
            # `date()` is `date('now')`.
            given = arguments if len(arguments) != start else (*arguments, NOW)
            times = [PRESENT.get(_word(one), one) for one in given[start:end]]
            modifiers = [ZONES.get(_word(one), one) for one in given[end:]]
            told = [*given[:start], *times, *modifiers]
            marks = ", ".join("?" * len(told))
            # On another connection, where the functions are still SQLite's own.
            found = self._connection.execute(f"SELECT {name}({marks})", told).fetchone()
            return found[0]  # type: ignore[no-any-return]  # sqlite3 knows no types of columns

        return call


def _word(argument: Cell) -> str:
    """Return an argument as SQLite compares it: lower-cased, and up to the first null character."""
    text = argument.decode(errors="replace") if isinstance(argument, bytes) else str(argument)
    return text.partition("\0")[0].lower()


Reason = Literal[
    "correct", "wrong_result", "no_answer", "sql_error", "not_allowed", "too_slow", "too_large"
]

MAX_STEPS = 200_000_000
"""Steps of the virtual machine that a query may take: 2 to 12 seconds."""
STEPS_AT_ONCE = 1000
"""Steps between two looks at the limit."""
STEPS_OF_TIMES = 100
"""Steps that a call of a date or time function counts as; it takes about as long."""
MAX_QUERY = 100_000
"""The most bytes of a query."""
MAX_VALUE = 1_000_000
"""The most bytes of one text or blob."""
MAX_RESULT = 8_000_000
"""The most bytes of a result."""
BYTES_OF_CELL = 16
"""What each value of a result counts as; a text or blob counts its length too."""
MAX_HEAP = 256_000_000
"""The most bytes that SQLite may allocate, including temporary tables and the context.

If SQLite is built without memory statistics, as on macOS, only the worker's own limit applies.
"""

READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


class QueryError(Exception):
    """A query has no result; `reason` says why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Comparison(NamedTuple):
    """How a query did, and the numbers of distinct rows."""

    reason: Reason
    message: str = ""
    num_rows: int = 0
    num_expected_rows: int = 0


def compare(context: str, gold: str, query: str | None, max_steps: int) -> Comparison:
    """Compare the results of two queries as sets of rows; None stands for a missing query.

    Raises:
        VerifierError: The context or the gold query fails.

    """
    # Call this in a worker only: the limit is the whole process's, and cannot be raised again.
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
            return Comparison("no_answer", num_expected_rows=len(expected))
        try:
            rows = database.read(query)
        except QueryError as error:
            return Comparison(error.reason, str(error), num_expected_rows=len(expected))
    reason: Reason = "correct" if rows == expected else "wrong_result"
    return Comparison(reason, "", len(rows), len(expected))


class Database:
    """A database in memory that is built from statements and can then only be read.

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
        # Different bytes that are not UTF-8 must stay different values.
        connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
        # No files: temporary tables stay in memory, and ATTACH is refused.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        # SQLite sets its built-in tables up on first use, which the authorizer refuses once reading
        # begins. So these two are the only ones that a query can read.
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        self._calendar.install(connection)
        connection.set_authorizer(self._authorized)
        try:
            connection.executescript(context)
        except FAILURES as error:
            self.close()
            raise self._described(error) from error
        # Only from here on: a context may be longer than a query.
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_QUERY)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        connection.set_progress_handler(self._is_over, STEPS_AT_ONCE)
        self._is_filled = True

    def read(self, query: str) -> set[tuple[Cell, ...]]:
        """Return the distinct rows of a query's result.

        Raises:
            QueryError: The query is not a single one that only reads, fails, or exceeds a limit.

        """
        self._num_steps, self._refused = 0, ""
        rows: set[tuple[Cell, ...]] = set()
        num_bytes = 0
        try:
            cursor = self._connection.execute(query)
            # An empty text or a comment runs without an error.
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
        """Close the connections, which drops all tables."""
        self._connection.close()
        self._calendar.close()

    def _described(self, error: Exception) -> QueryError:
        """Return the limit or rule that a failure is due to."""
        if self._refused:
            return QueryError("not_allowed", f"{self._refused} is not allowed")
        # DataError: a value exceeds SQLITE_LIMIT_LENGTH.
        if isinstance(error, MemoryError | sqlite3.DataError):
            return QueryError("too_large", str(error) or "it takes too much memory")
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return QueryError("too_slow", f"it takes over {self._max_steps} steps")
        return QueryError("sql_error", str(error))

    def _is_over(self) -> bool:
        """Count steps and return whether they exceed the limit, which interrupts the query."""
        self._num_steps += STEPS_AT_ONCE
        return self._num_steps > self._max_steps

    def _count_call(self) -> None:
        self._num_steps += STEPS_OF_TIMES

    # For a function, SQLite passes its name as the second argument of the action.
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
"""Two statements raise a Warning in Python 3.11; a lone surrogate in a query is a ValueError."""


def _size(cell: Cell) -> int:
    return BYTES_OF_CELL + (len(cell) if isinstance(cell, str | bytes) else 0)
