"""The results of calls: a data frame of their rows, and a table of these in a notebook."""

from __future__ import annotations

import html
import itertools
from typing import TYPE_CHECKING, ClassVar, TypeVar

from gymcli.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound="Result")

_MAX_ROWS = 60
"""Rows that a notebook shows."""
_MAX_TEXT = 200


class Result:
    """The result of a call: the fields are those that `--json` of the command prints."""

    __slots__ = ()
    shown_columns: ClassVar[tuple[str, ...]] = ()
    """The columns that a notebook shows; empty for all."""

    @property
    def title(self) -> str:
        """The line above the table in a notebook."""
        return type(self).__name__

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the table, with a value for each column."""
        raise NotImplementedError

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a data frame of pandas, or of polars if only that is installed.

        Raises:
            MissingPackageError: Neither is installed.
        """
        try:
            import pandas as pd
        except ImportError:
            pass
        else:
            return pd.DataFrame(self.rows())
        try:
            import polars as pl
        except ImportError as error:
            raise MissingPackageError("to_dataframe: pip install pandas, or polars") from error
        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Return the table for a notebook; everything in it is escaped, since models wrote it."""
        rows = self.rows()
        columns = list(rows[0]) if rows else []
        if self.shown_columns:
            columns = [name for name in self.shown_columns if name in columns]
        lines = [[row.get(name) for name in columns] for row in rows[:_MAX_ROWS]]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_text(value))}</td>' for value in line)}</tr>"
            for line in lines
        )
        num_more = len(rows) - len(lines)
        more = f"<p>and {num_more:,} more rows</p>" if num_more else ""
        title = html.escape(self.title)
        return f"<table><caption>{title}</caption><tr>{head}</tr>{body}</table>{more}"


class Results(list[R], Result):
    """Several results, whose rows are those of all."""

    @property
    def title(self) -> str:
        """The line above the table in a notebook."""
        return ", ".join(dict.fromkeys(result.title for result in self))

    @property
    def shown_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # those of its results
        """The columns that a notebook shows."""
        return self[0].shown_columns if self else ()

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of all results."""
        return list(itertools.chain.from_iterable(result.rows() for result in self))


def _text(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
