"""Tasks that two runs share, with their values in both, and how each of them changed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gymcli.comparison.comparison_results import Difference, TaskDifference, Unmatched
from gymcli.comparison.paired_differences import (
    Measure,
    PairedAttempts,
    TaskValues,
    task_differences,
)
from gymcli.errors import UsageError
from gymcli.metrics.slicing import check_num_slices, slice_order
from gymcli.store.scored_lines import EnvironmentFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MAX_REGRESSIONS = 10
"""The most tasks that are listed because they lost most."""
_MAX_NAMED = 20
"""The most tasks that are named for each kind of change."""


class PairedTasks(NamedTuple):
    """Tasks that two runs share, in columns."""

    env: NDArray[np.object_]
    task_id: NDArray[np.object_]
    name: NDArray[np.object_]
    """The id, with the environment before it if there are several."""
    a: TaskValues
    b: TaskValues
    difference: NDArray[np.float64]
    change: NDArray[np.object_]
    """A `Change`; None without a threshold of success."""
    slices: list[NDArray[np.object_]]
    """By field, the value of each task."""

    def at(self, places: NDArray[np.int64]) -> PairedTasks:
        return PairedTasks(
            self.env[places],
            self.task_id[places],
            self.name[places],
            self.a.at(places),
            self.b.at(places),
            self.difference[places],
            self.change[places],
            [values[places] for values in self.slices],
        )

    def lie_within(self, largest: float) -> bool:
        sides = (self.a.value, self.b.value)
        return all(bool(((values >= 0.0) & (values <= largest)).all()) for values in sides)

    def best_rewards(self, facts: Mapping[str, EnvironmentFacts]) -> dict[str, float | None]:
        return {env: facts[env].max_reward for env in set(self.env.tolist())}


def join(pairs: Sequence[PairedTasks]) -> PairedTasks:
    """Return the tasks of all environments."""
    columns = list(zip(*pairs, strict=True))
    env, task_id, name, difference, change = (
        np.concatenate(columns[place]) for place in (0, 1, 2, 5, 6)
    )
    a, b = (TaskValues(*map(np.concatenate, zip(*columns[place], strict=True))) for place in (3, 4))
    slices = [np.concatenate(values) for values in zip(*columns[7], strict=True)]
    return PairedTasks(env, task_id, name, a, b, difference, change, slices)


def pair_tasks(
    attempts: PairedAttempts,
    facts: Mapping[str, EnvironmentFacts],
    measure: Measure,
    unmatched: Unmatched,
) -> PairedTasks:
    """Pair the tasks of an environment; count those that are left out in `unmatched`."""
    env = attempts.env
    threshold = facts[env].success_threshold if measure.source == "reward" else None
    a, b = attempts.values(measure, threshold)
    ids = np.array(list(attempts.task_numbers), dtype=np.object_)
    names = ids
    if len(facts) > 1:
        names = np.array([f"{env}/{task_id}" for task_id in ids], dtype=np.object_)
    only_a, only_b = a.is_there > b.is_there, a.is_there < b.is_there
    is_in_both = a.is_there & b.is_there
    unmatched.num_only_a += int(only_a.sum())
    unmatched.num_only_b += int(only_b.sum())
    unmatched.only_a = heapq.nsmallest(_MAX_NAMED, [*unmatched.only_a, *names[only_a]])
    unmatched.only_b = heapq.nsmallest(_MAX_NAMED, [*unmatched.only_b, *names[only_b]])
    if measure.needs_threshold and threshold is None and is_in_both.any():
        raise UsageError(
            f"--metric {measure.name}: environment {env!r} has no threshold of success; compare "
            "mean_reward"
        )
    has_values = ~np.isnan(a.value) & ~np.isnan(b.value)
    unmatched.num_too_few_attempts += int((is_in_both & ~has_values).sum())
    places = np.flatnonzero(has_values)
    a, b = a.at(places), b.at(places)
    return PairedTasks(
        np.full(len(places), env, dtype=np.object_),
        ids[places],
        names[places],
        a,
        b,
        task_differences(a.value, b.value),
        np.full(len(places), None) if threshold is None else _changes(a, b),
        [np.array(values, dtype=np.object_)[places] for values in attempts.slices],
    )


def _are_flaky(side: TaskValues) -> NDArray[np.bool_]:
    return (side.num_passes > 0) & (side.num_passes < side.num_attempts)


def _changes(a: TaskValues, b: TaskValues) -> NDArray[np.object_]:
    some_pass_a, some_pass_b = a.num_passes > 0, b.num_passes > 0
    return np.select(  # takes the first condition that holds
        [_are_flaky(a) | _are_flaky(b), some_pass_a & some_pass_b, some_pass_a, some_pass_b],
        ["flaky", "passed", "broken", "fixed"],
        "failed",
    ).astype(np.object_)


def count_tasks(tasks: PairedTasks) -> Difference:
    """Return a difference with the numbers of tasks, and the tasks whose outcome changed."""
    difference = Difference(
        num_tasks=len(tasks.name),
        num_attempts_a=int(tasks.a.num_attempts.sum()),
        num_attempts_b=int(tasks.b.num_attempts.sum()),
        num_regressed=int((tasks.difference < 0.0).sum()),
        num_improved=int((tasks.difference > 0.0).sum()),
        num_unchanged=int((tasks.difference == 0.0).sum()),
    )
    if None not in tasks.change:
        difference.num_flaky_a = int(_are_flaky(tasks.a).sum())
        difference.num_flaky_b = int(_are_flaky(tasks.b).sum())
        for change in ("fixed", "broken", "flaky"):
            names = tasks.name[tasks.change == change].tolist()
            setattr(difference, f"num_{change}", len(names))
            setattr(difference, change, heapq.nsmallest(_MAX_NAMED, names))
    return difference


def slices_of(
    tasks: PairedTasks, field: str, values: NDArray[np.object_]
) -> Iterator[tuple[str, PairedTasks]]:
    """Yield the tasks of each value of a field, with the name of the slice."""
    unique_values, slice_numbers = np.unique(values, return_inverse=True)
    names: list[str] = unique_values.tolist()
    check_num_slices(field, len(names))
    for number in sorted(range(len(names)), key=lambda number: slice_order(names[number])):
        yield names[number], tasks.at(np.flatnonzero(slice_numbers == number))


def regressions(tasks: PairedTasks, facts: Mapping[str, EnvironmentFacts]) -> list[TaskDifference]:
    """Return the tasks that lost most, as a share of the range where environments have others."""
    losses = zip(tasks.difference.tolist(), tasks.env, tasks.task_id, strict=True)
    largest = heapq.nsmallest(
        _MAX_REGRESSIONS,
        (
            (difference / (facts[env].max_reward or 1.0), env, task_id, place)
            for place, (difference, env, task_id) in enumerate(losses)
            if difference < 0.0
        ),
    )
    places = [place for *_, place in largest]
    return list(task_rows(tasks.at(np.array(places, np.intp))))


def task_rows(tasks: PairedTasks) -> Iterator[TaskDifference]:
    """Yield each task with its values in both runs."""
    a, b = tasks.a, tasks.b
    flaky_a, flaky_b = _are_flaky(a), _are_flaky(b)
    columns = {
        "env": tasks.env,
        "task_id": tasks.task_id,
        "num_attempts_a": a.num_attempts,
        "num_attempts_b": b.num_attempts,
        "num_passes_a": a.num_passes,
        "num_passes_b": b.num_passes,
        "value_a": a.value,
        "value_b": b.value,
        "difference": tasks.difference,
        "direction": np.select(
            [tasks.difference < 0.0, tasks.difference > 0.0], ["regressed", "improved"], "unchanged"
        ),
        "flaky_in": np.select([flaky_a & flaky_b, flaky_a, flaky_b], ["both", "A", "B"], ""),
        "change": tasks.change,
    }
    for row in zip(*(column.tolist() for column in columns.values()), strict=True):
        task = TaskDifference(**dict(zip(columns, row, strict=True)))
        if task.change is None:
            task.num_passes_a = task.num_passes_b = None
        yield task
