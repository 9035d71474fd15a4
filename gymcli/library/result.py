"""The results of calls: a data frame of their rows, and a table of these in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from gymcli.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound="Result")

_MAX_ROWS = 60
"""Rows that a notebook shows."""
_MAX_TEXT = 200
_MAX_COLUMNS = 16
_HEADLINE = (
    *("run", "model", "environment", "field", "value", "num_scored", "num_tasks"),
    *("mean_reward", "interval.low", "interval.high", "mean_a", "mean_b"),
    *("difference.value", "difference.interval.low", "difference.interval.high"),
    *("p_value", "verdict"),
)
"""The columns of rows with more than `_MAX_COLUMNS` that a notebook shows."""


class Result:
    """The result of a call: the fields are those that `--json` of the command prints."""

    __slots__ = ()
    table: ClassVar[str]
    """The field whose items are the rows."""

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each item of the table, which begins with the texts of the result.

        An environment is followed by its slices, whose `field` and `value` are set.
        A column is a value's path in the JSON, such as `interval.low`.
        """
        items = getattr(self, self.table)
        if items and isinstance(items, list) and isinstance(items[0], Result):
            return Results(items).rows()
        fields = msgspec.to_builtins(self)
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        rows = fields.get(self.table, [])
        if isinstance(rows, dict):
            if not any(part.get("slices") for part in rows.values()):  # they are of all tasks
                rows[""] = {"slices": fields.get("slices")}
            rows = [row for name, part in rows.items() for row in _with_slices(part, name)]
        return [{**texts, **dict(_columns(row))} for row in rows]

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
        columns = list(dict.fromkeys(name for row in rows for name in row))
        if len(columns) > _MAX_COLUMNS:
            columns = [name for name in _HEADLINE if name in columns]
        cells = [[_text(row.get(name)) for name in columns] for row in rows[:_MAX_ROWS]]
        lines = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
            for tag, line in [("th", columns), *(("td", line) for line in cells)]
        ]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        numbers = ", ".join(
            f"{name} {_text(value)}"
            for name in getattr(self, "__struct_fields__", ())
            if isinstance(value := getattr(self, name), int | float)
        )
        caption = f"{type(self).__name__} {numbers}".strip()
        num_more = len(rows) - len(cells)
        more = f"<p>and {num_more:,} more rows</p>" if num_more else ""
        return f"<table><caption>{html.escape(caption)}</caption>{body}</table>{more}"


class Results(list[R], Result):
    """Several results, whose rows are those of all."""

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of all results."""
        return [row for result in self for row in result.rows()]


def _with_slices(part: dict[str, object], env: str) -> Iterator[dict[str, object]]:
    fields = part.pop("slices", None)
    if part:
        yield {"environment": env, **part}
    for field, slices in fields.items() if isinstance(fields, dict) else ():
        for value, numbers in slices.items():
            yield {"environment": env, "field": field, "value": value, **numbers}


def _columns(item: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in item.items():
        if isinstance(value, dict):
            yield from _columns(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _text(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
