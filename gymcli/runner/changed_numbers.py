"""Components and other numbers that rescoring changed, and what that does to their means."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from gymcli.metrics import Effect, ScoredLine
from gymcli.metrics.comparison import PairedMoments
from gymcli.metrics.comparison.scores import Scores
from gymcli.metrics.estimators import mean
from gymcli.numbering import Numbering
from gymcli.rollout.rescored import Numbers
from gymcli.runner.made_lines import made_lines
from gymcli.runner.measure import RunReading
from gymcli.types import AttemptKey

__all__ = ["ChangedNumbers"]


class ChangedNumbers:
    """Takes the numbers of rollouts where they changed; those of the others stand in the file.

    So a run without any such change pays nothing, and one with some is read once more.
    """

    def __init__(self) -> None:
        self._environments: dict[str, _OfEnvironment] = {}

    def add(self, key: AttemptKey, before: Numbers, after: Numbers) -> None:
        """Take a rollout that has both scores, and other numbers by either."""
        if key.env not in self._environments:
            self._environments[key.env] = _OfEnvironment()
        of_environment = self._environments[key.env]
        of_environment.add(key.task_id, key.attempt, _named(before), _named(after))

    def effects(
        self, run: RunReading, unscored: Collection[AttemptKey], *, level: float = 0.95
    ) -> dict[str, dict[str, Effect]]:
        """Give by environment the effect on each number that changed, by the names of gates.

        Args:
            run: The run that was rescored.
            unscored: Rollouts that lack one of their scores, which count on neither side.
            level: Of the intervals.

        Raises:
            UsageError: A line is no rollout.

        """
        if not self._environments:
            return {}
        for line in _scored_lines(run):
            of_environment = self._environments.get(line.env)
            key = AttemptKey(line.env, line.task_id, line.attempt)
            if of_environment is not None and key not in unscored:
                of_environment.add_unchanged(line)
        return {
            env: of_environment.effects(level)
            for env, of_environment in sorted(self._environments.items())
        }


class _OfEnvironment:
    """The numbers of one environment by name: a few bytes each, and some 100 where one changed."""

    def __init__(self) -> None:
        self._tasks = Numbering()
        self._taken: set[tuple[int, int]] = set()
        self._changed: set[str] = set()
        self._scores: dict[str, tuple[Scores, Scores]] = {}

    def add(
        self, task_id: str, attempt: int, before: Mapping[str, float], after: Mapping[str, float]
    ) -> None:
        """Take an attempt of which some number is another one now."""
        task = self._tasks.number_of(task_id.encode())
        self._taken.add((task, attempt))
        for name in before.keys() | after.keys():
            old, new = before.get(name), after.get(name)
            if old != new:
                self._changed.add(name)
            self._extend(name, task, attempt, old, new)

    def add_unchanged(self, line: ScoredLine) -> None:
        """Take an attempt of the file, unless its numbers changed."""
        task = self._tasks.number_of(line.task_id.encode())
        if (task, line.attempt) in self._taken:
            return
        numbers = _named(Numbers(line.components or {}, line.metrics or {}))
        for name in self._changed & numbers.keys():
            self._extend(name, task, line.attempt, numbers[name], numbers[name])

    def effects(self, level: float) -> dict[str, Effect]:
        """Give the effect on each number that changed."""
        return {name: self._effect(*self._scores[name], level) for name in sorted(self._changed)}

    def _extend(
        self, name: str, task: int, attempt: int, old: float | None, new: float | None
    ) -> None:
        if name not in self._scores:
            self._scores[name] = Scores(), Scores()
        before, after = self._scores[name]
        before.extend([task], [attempt], [old])
        after.extend([task], [attempt], [new])

    def _effect(self, before: Scores, after: Scores, level: float) -> Effect:
        num_tasks, moments = len(self._tasks), PairedMoments()
        alone: tuple[list[float], list[float]] = ([], [])
        for old, new in zip(before.by_task(num_tasks), after.by_task(num_tasks), strict=True):
            if old.values and new.values:
                num_attempts = len(old.values) + len(new.values)
                moments.add(mean(old.values), mean(new.values), num_attempts=num_attempts)
                continue
            for own, one in zip(alone, (old, new), strict=True):
                if one.values:
                    own.append(mean(one.values))
        # What never leaves 0 to 1 is taken for a share, as in `gym metrics`.
        found = moments.effect(best=1.0, level=level)
        if found is None:
            return Effect(before=_mean(alone[0]), after=_mean(alone[1]))
        return found if moments.lie_within(1.0) else moments.effect(best=None, level=level) or found


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _named(numbers: Numbers) -> dict[str, float]:
    """Give all numbers by the names that gates use."""
    components = {f"components.{name}": value for name, value in numbers.components.items()}
    return components | {f"metrics.{name}": value for name, value in numbers.metrics.items()}


def _scored_lines(run: RunReading) -> Iterator[ScoredLine]:
    if run.rollouts is None:
        return
    for lines in made_lines(run.rollouts, run.reading):
        for line in lines:
            if isinstance(line, ScoredLine):
                line.env = run.names.get(line.env, line.env)
                yield line
