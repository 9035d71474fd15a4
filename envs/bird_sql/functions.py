"""The functions that a query may call; those of dates and times know one present that stands still.

SQLite's others give values of the process or of the build (`sqlite_version`, `fts3_tokenizer`),
of chance (`random`), or of changes that a query cannot make.
"""

import sqlite3
from collections.abc import Callable

__all__ = ["FUNCTIONS", "FUNCTIONS_OF_CONTEXT", "NOW", "Calendar", "Cell"]

Cell = str | int | float | bytes | None

NOW = "2025-06-15 12:30:45"
"""The present, in UTC; no midnight and no first day, so that what is cut off is seen to be."""
PRESENT = dict.fromkeys(("now", "subsec", "subsecond"), NOW)
"""What SQLite takes for the present where a time stands; the last two only since 3.42."""
ZONES = dict.fromkeys(("localtime", "utc"), "+0 days")
"""The modifiers that depend on where the machine stands, here in UTC: they change nothing."""
TIMES = {
    "date": (0, 1),
    "time": (0, 1),
    "datetime": (0, 1),
    "julianday": (0, 1),
    "unixepoch": (0, 1),
    "strftime": (1, 2),
    "timediff": (0, 2),
}
"""Where the times of each function begin and end; modifiers follow. A time left out is now."""
CURRENT = {
    "current_date": NOW.split()[0],
    "current_time": NOW.split()[1],
    "current_timestamp": NOW,
}

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
"""As SQLite itself calls them; those of the last two lines are ALTER TABLE's, and no query's."""
FUNCTIONS = frozenset(NAMES.split()).union(TIMES, CURRENT)
FUNCTIONS_OF_CONTEXT = FUNCTIONS | {"last_insert_rowid"}
"""A context adds rows, and may ask for the last one."""


class Calendar:
    """SQLite's functions of dates and times, at the fixed present.

    Args:
        tick: Is called at each call, since SQLite counts no steps for what Python does.

    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._connection = sqlite3.connect(":memory:")

    def install(self, connection: sqlite3.Connection) -> None:
        """Put the functions in the place of those that read the clock."""
        for name, text in CURRENT.items():
            connection.create_function(name, 0, lambda text=text: text, deterministic=True)
        for name in TIMES:
            connection.create_function(name, -1, self._standing(name), deterministic=True)

    def close(self) -> None:
        """Give its memory back."""
        self._connection.close()

    def _standing(self, name: str) -> Callable[..., Cell]:
        start, end = TIMES[name]

        def call(*arguments: Cell) -> Cell:
            self._tick()
            given = arguments if len(arguments) != start else (*arguments, NOW)
            times = [PRESENT.get(_word(one), one) for one in given[start:end]]
            modifiers = [ZONES.get(_word(one), one) for one in given[end:]]
            told = [*given[:start], *times, *modifiers]
            marks = ", ".join("?" * len(told))
            found = self._connection.execute(f"SELECT {name}({marks})", told).fetchone()
            return found[0]  # type: ignore[no-any-return]  # sqlite3 knows no types of columns

        return call


def _word(argument: Cell) -> str:
    """Give an argument as SQLite compares it: in any case, and up to the first null character."""
    text = argument.decode(errors="replace") if isinstance(argument, bytes) else str(argument)
    return text.partition("\0")[0].lower()
