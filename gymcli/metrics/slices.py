"""The numbers of a run for each value of a field of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gymcli.errors import UsageError
from gymcli.metrics.records import FailureLine, ScoredLine
from gymcli.metrics.slicing import MAX_SLICES, slice_name, slice_order

if TYPE_CHECKING:
    from gymcli.metrics.aggregate import Aggregator
    from gymcli.metrics.results import RunMetrics

__all__ = ["FieldValues", "Slices"]

FieldValues = Sequence[str | None]
"""What a task row says of each field, as `slicing.field_of` gives it."""

_LINES_AT_A_TIME = 1 << 14
"""Lines that are sorted into slices together: few at a time would leave one line to a slice."""


class Slices:
    """Takes lines with their fields, and gives each to the slice that it belongs to.

    Args:
        fields: The fields, as the user named them.
        new: Makes what counts the lines of one slice.

    """

    def __init__(self, fields: Sequence[str], new: Callable[[], Aggregator]) -> None:
        self._new = new
        self._by_name: dict[str, dict[str, Aggregator]] = {field: {} for field in fields}
        self._names: dict[str | None, str] = {}
        """Of the values that were seen, as JSON texts."""
        self._waiting: list[tuple[ScoredLine, FieldValues]] = []

    def __bool__(self) -> bool:
        """Say whether there is a field to slice by."""
        return bool(self._by_name)

    def add_scored_lines(self, lines: Sequence[ScoredLine], values: Sequence[FieldValues]) -> None:
        """Count scored attempts.

        Raises:
            UsageError: A field has too many values.

        """
        self._waiting += zip(lines, values, strict=True)
        if len(self._waiting) >= _LINES_AT_A_TIME:
            self._sort()

    def add_failure(self, line: FailureLine, values: FieldValues) -> None:
        """Count an attempt that could not be scored, unless it is or will be.

        Raises:
            UsageError: A field has too many values.

        """
        for place, field in enumerate(self._by_name):
            self._slice(field, values[place]).add_failure(line)

    def metrics(self, *, level: float) -> dict[str, dict[str, RunMetrics]]:
        """Give the numbers by field and value, sorted by value.

        Raises:
            UsageError: A field has too many values.
            RunFileError: An attempt was scored by two lines.

        """
        self._sort()
        return {
            field: {
                name: aggregators[name].metrics(level=level)
                for name in sorted(aggregators, key=slice_order)
            }
            for field, aggregators in self._by_name.items()
        }

    def _sort(self) -> None:
        waiting, self._waiting = self._waiting, []
        for place, field in enumerate(self._by_name):
            lines_of: dict[str | None, list[ScoredLine]] = {}
            for line, values in waiting:
                lines_of.setdefault(values[place], []).append(line)
            for value, lines in lines_of.items():
                self._slice(field, value).add_scored_lines(lines)

    def _slice(self, field: str, value: str | None) -> Aggregator:
        slices = self._by_name[field]
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = slice_name(value)
        if name not in slices:
            if len(slices) >= MAX_SLICES:
                raise UsageError(
                    f"--by {field}: has more than {MAX_SLICES:,} values; give a field that tasks "
                    "have in common, such as a category"
                )
            slices[name] = self._new()
        return slices[name]
