"""The scored attempts of each task, as `Environment.metrics` gets them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gymcli.errors import VerifierError
from gymcli.metrics.answers import Answers
from gymcli.metrics.attempts import ScoredAttempts, Stretch
from gymcli.metrics.grouping import Values
from gymcli.types import JSON

__all__ = ["AttemptScore", "Group", "OwnMetrics", "groups_of"]


class AttemptScore(NamedTuple):
    """The score of one attempt."""

    attempt: int
    reward: float
    components: dict[str, float]
    metrics: dict[str, float]
    answer: str | None


class Group(NamedTuple):
    """All scored attempts of one task."""

    task_id: str
    fields: dict[str, JSON]
    """What the task row has of the class's `slice_fields`; None for what it lacks."""
    scores: list[AttemptScore]
    """In order of attempt; at least one."""


class OwnMetrics(NamedTuple):
    """What an environment computes over its groups itself."""

    compute: Callable[[Iterator[Group]], Mapping[str, float]]
    slice_fields: tuple[str, ...] = ()
    """Fields of the task rows that it wants."""

    def numbers(self, groups: Iterable[Group]) -> dict[str, float]:
        """Give its numbers by name.

        Raises:
            GymError: Its code raises, or gives what is no finite number.

        """
        from gymcli.errors import boundary  # late: heavy, and few environments get here

        wanted = self.slice_fields
        own = (g._replace(fields={name: g.fields[name] for name in wanted}) for g in groups)
        with boundary(VerifierError):
            found: dict[str, object] = dict(self.compute(own))
            numbers = {}
            for name in sorted(found):
                value = found[name]
                if not isinstance(value, int | float) or not math.isfinite(value):
                    raise ValueError(f"{name!r} is {value!r}, which is no finite number")
                numbers[name] = float(value)
        return numbers


def groups_of(
    attempts: ScoredAttempts,
    stretches: Iterable[Stretch],
    *,
    components: Mapping[str, Values],
    metrics: Mapping[str, Values],
) -> Iterator[Group]:
    """Give the groups one by one; none is kept."""
    for stretch in stretches:
        for start in range(0, len(stretch.lines), stretch.num_attempts):
            lines = stretch.lines[start : start + stretch.num_attempts]
            scores = _scores(attempts, lines, components, metrics)
            fields = {name: _decoded(column, lines[0]) for name, column in attempts.fields.items()}
            yield Group(attempts.task_id(lines[0]), fields, scores)


def _scores(
    attempts: ScoredAttempts,
    lines: array[int],
    components: Mapping[str, Values],
    metrics: Mapping[str, Values],
) -> list[AttemptScore]:
    numbers = attempts.attempts(lines)
    return [
        AttemptScore(
            number,
            attempts.rewards[line],
            _named(components, line),
            _named(metrics, line),
            attempts.answers.at(line),
        )
        for number, line in zip(numbers, lines, strict=True)
    ]


def _named(named: Mapping[str, Values], line: int) -> dict[str, float]:
    found = {name: values.of_line(line) for name, values in named.items()}
    return {name: value for name, value in found.items() if value is not None}


def _decoded(column: Answers, line: int) -> JSON:
    text = column.at(line)
    return None if text is None else msgspec.json.decode(text)
