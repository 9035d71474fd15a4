"""Rows, put together from the columns when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from gymcli.index.columns import Columns
from gymcli.index.groups import Groups
from gymcli.index.rows import Place, Row

__all__ = ["Rows", "made_row"]


class Rows(Sequence[Row]):
    """Rows that are made when they are asked for."""

    def __init__(self, size: int, make: Callable[[int], Row]) -> None:
        self._numbers = range(size)
        self._make = make

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> Row: ...

    @overload
    def __getitem__(self, number: slice) -> list[Row]: ...

    def __getitem__(self, number: int | slice) -> Row | list[Row]:
        found = self._numbers[number]
        return self._make(found) if isinstance(found, int) else [self._make(one) for one in found]


def made_row(columns: Columns, groups: Groups, number: int, place: Place) -> Row:
    """Give the row of a number."""
    counts, group = columns.counts, columns.counts["group"][number]
    return Row(
        number=number,
        place=place,
        env=columns.environment(number),
        task_id=columns.task_id(number),
        attempt=counts["attempt"][number],
        status=columns.status(number),
        reward=columns.measure("reward", number),
        passed=columns.passed(number),
        stop_reason=columns.text("stop_reason", number),
        error=columns.text("error", number),
        phase=columns.text("phase", number),
        model=columns.text("model", number),
        num_turns=counts["num_turns"][number],
        num_tool_calls=counts["num_tool_calls"][number],
        prompt_tokens=counts["prompt_tokens"][number],
        completion_tokens=counts["completion_tokens"][number],
        reasoning_tokens=counts["reasoning_tokens"][number],
        cost=columns.measure("cost", number),
        seconds=columns.measure("seconds", number),
        answer=columns.text("answer", number),
        components=columns.named_of("components", number),
        metrics=columns.named_of("metrics", number),
        avg=groups.avg(group),
        best=groups.best(group),
        worst=groups.worst(group),
        num_attempts=groups.num_attempts(group),
        num_passed=groups.num_passed(group),
    )
