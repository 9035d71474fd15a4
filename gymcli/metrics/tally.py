"""What one pass over the lines keeps: a few numbers per attempt, nothing of its conversation."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gymcli.metrics.at_k import TaskRewards, may_draw
from gymcli.metrics.attempts import Attempts, SameSize, Texts, rows_by_task
from gymcli.metrics.estimators import mean
from gymcli.metrics.results import TaskMetrics
from gymcli.metrics.scored_lines import (
    AttemptScore,
    EnvironmentFacts,
    FailureLine,
    Group,
    ScoredLine,
)
from gymcli.metrics.slicing import FieldValues, check_num_slices, slice_name
from gymcli.metrics.totals import Totals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EnvironmentPart", "EnvironmentTally"]


class EnvironmentPart(NamedTuple):
    """The attempts of one environment, or those of a slice of its tasks, ready to be counted."""

    facts: EnvironmentFacts
    totals: Totals
    tasks: list[TaskRewards]
    """The tasks that have a record; those without a scored attempt have rows without a reward."""
    num_absent: list[NDArray[np.int32]]
    """By group of `tasks`, of each task the attempts whose last record is a failure."""
    total_seconds: NDArray[np.float64]
    """Of the scored attempts that recorded their time."""
    model_seconds: NDArray[np.float64]
    named: dict[str, list[NDArray[np.float64]]]
    """By `components.NAME` and `metrics.NAME`, of the tasks that have it the attempts' numbers."""

    @property
    def scored(self) -> list[NDArray[np.float64]]:
        """The rewards of the tasks that have a scored attempt."""
        return [group.rewards for group in self.tasks if group.num_attempts]


class NamedNumbers:
    """Numbers of which each belongs to a line; not every line has one."""

    def __init__(self) -> None:
        self.lines = array("i")
        """In ascending order."""
        self.values = array("d")

    def of_line(self, line: int) -> float | None:
        place = bisect_left(self.lines, line)
        is_there = place < len(self.lines) and self.lines[place] == line
        return self.values[place] if is_there else None


class EnvironmentTally:
    """The numbers of one environment's attempts.

    Args:
        name: The environment.
        facts: What is known of it.
        fields: The fields of the task rows that come with its lines.
        by: Those of them that the numbers are sliced by.

    """

    def __init__(
        self,
        name: str,
        facts: EnvironmentFacts,
        fields: Sequence[str] = (),
        by: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.facts = facts
        self._attempts = Attempts(name)
        self._answers = Texts()
        self._fields = {field: Texts() for field in fields}
        self._total_seconds = array("d")
        self._model_seconds = array("d")
        self._components: defaultdict[str, NamedNumbers] = defaultdict(NamedNumbers)
        self._metrics: defaultdict[str, NamedNumbers] = defaultdict(NamedNumbers)
        self._totals = Totals()
        self._totals_of: dict[str, dict[str, Totals]] = {field: {} for field in by}
        """By field and the name of the slice."""
        self._failures: dict[tuple[str, int], FailureLine] = {}
        """By task and attempt, those that were made up for among them."""
        self._values_of_failed: dict[str, FieldValues] = {}
        """By task, where a failure came with them."""
        self._groups: list[SameSize] | None = None
        self._unscored: list[FailureLine] | None = None

    def __len__(self) -> int:
        """Return how many scored attempts there are."""
        return len(self._attempts)

    def add_scored(self, lines: Sequence[ScoredLine], values: Sequence[FieldValues] = ()) -> None:
        """Count scored attempts; `values` has for each what its task row says of the fields.

        Column by column: a loop for each takes a third of the time of one loop for all.
        """
        first = len(self._attempts)
        self._attempts.extend(
            [line.task_id for line in lines],
            [line.attempt for line in lines],
            [line.reward for line in lines],
        )
        self._total_seconds.extend([line.timing.total_seconds for line in lines])
        self._model_seconds.extend([line.timing.model_seconds for line in lines])
        self._answers.extend([line.answer for line in lines])
        self._totals.add_scored(lines)
        _add_named(self._components, first, [line.components for line in lines])
        _add_named(self._metrics, first, [line.metrics for line in lines])
        for place, (field, column) in enumerate(self._fields.items()):
            column.extend([of_line[place] for of_line in values])
            if field in self._totals_of:
                self._add_to_slices(field, [of_line[place] for of_line in values], lines)
        self._groups = self._unscored = None

    def add_failure(self, line: FailureLine, values: FieldValues | None = None) -> None:
        """Keep a failure in place of an earlier one of the same attempt."""
        self._failures[line.task_id, line.attempt] = line
        if values is not None:
            self._values_of_failed[line.task_id] = values
        self._unscored = None

    def unscored(self) -> list[FailureLine]:
        """Return the last failure of each attempt that was not scored, by task id and attempt."""
        if self._unscored is None:
            attempts, scored = self._attempts, set[tuple[int, int]]()
            numbers = {attempts.task_numbers.get(task_id, -1) for task_id, _ in self._failures}
            if numbers - {-1}:
                lines = zip(attempts.tasks, attempts.attempts, strict=True)
                scored = {line for line in lines if line[0] in numbers}
            self._unscored = [
                self._failures[task_id, attempt]
                for task_id, attempt in sorted(self._failures)
                if (attempts.task_numbers.get(task_id, -1), attempt) not in scored
            ]
        return self._unscored

    def part(self) -> EnvironmentPart:
        """Return all attempts.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        return self._part(None, self._by_task(), self._totals, self.unscored(), self.facts)

    def slices(self, field: str) -> dict[str, EnvironmentPart]:
        """Return the attempts by the value of a field; how many were expected is not known."""
        import numpy as np  # late: heavy

        facts = msgspec.structs.replace(self.facts, num_expected=None)
        tasks, attempts = np.asarray(self._attempts.tasks), np.asarray(self._attempts.attempts)
        totals, failed = self._totals_of[field], self._failed_by_slice(field)
        names = [slice_name(text) for text in self._fields[field].known()]
        numbers = np.asarray(self._fields[field].numbers)
        parts = {}
        for name in {**totals, **failed}:
            own = [number for number, known in enumerate(names) if known == name]
            lines = np.flatnonzero(np.isin(numbers, own)).astype(np.int32)
            groups = [
                group._replace(lines=lines[group.lines])
                for group in rows_by_task(tasks[lines], attempts[lines])
            ]
            parts[name] = self._part(
                lines, groups, totals.get(name, Totals()), failed.get(name, []), facts
            )
        return parts

    def groups(self) -> Iterator[Group]:
        """Yield the scored attempts of each task that has any, one after another.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        task_ids, attempts = list(self._attempts.task_numbers), self._attempts
        answers = self._answers.known()
        fields = {name: (column.known(), column) for name, column in self._fields.items()}
        for group in self._by_task():
            for task, lines in zip(group.tasks.tolist(), group.lines, strict=True):
                own: list[int] = lines.tolist()
                scores = [
                    AttemptScore(
                        attempts.attempts[line],
                        attempts.rewards[line],
                        _named_of(self._components, line),
                        _named_of(self._metrics, line),
                        answers[self._answers.numbers[line]],
                    )
                    for line in own
                ]
                texts = {name: known[c.numbers[own[0]]] for name, (known, c) in fields.items()}
                yield Group(
                    task_ids[task],
                    {
                        name: None if text is None else msgspec.json.decode(text)
                        for name, text in texts.items()
                    },
                    scores,
                )

    def task_rows(self) -> Iterator[TaskMetrics]:
        """Yield the numbers of each task that has a record.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        threshold = self.facts.success_threshold
        num_absent = Counter(line.task_id for line in self.unscored())
        for group in self.groups():
            rewards = [score.reward for score in group.scores]
            answers = Counter(s.answer for s in group.scores if s.answer is not None)
            yield TaskMetrics(
                env=self.name,
                task_id=group.task_id,
                num_scored=len(rewards),
                num_unscored=num_absent.pop(group.task_id, 0),
                num_passes=None if threshold is None else sum(r >= threshold for r in rewards),
                mean_reward=mean(rewards),
                min_reward=min(rewards),
                max_reward=max(rewards),
                # Counter keeps the order of first counting, and so does most_common among equals.
                majority_answer=answers.most_common(1)[0][0] if answers else None,
            )
        for task_id, num in num_absent.items():
            yield TaskMetrics(
                env=self.name,
                task_id=task_id,
                num_scored=0,
                num_unscored=num,
                num_passes=None if threshold is None else 0,
            )

    def _add_to_slices(
        self, field: str, values: Sequence[str | None], lines: Sequence[ScoredLine]
    ) -> None:
        lines_of: dict[str | None, list[ScoredLine]] = {}
        for value, line in zip(values, lines, strict=True):
            lines_of.setdefault(value, []).append(line)
        totals = self._totals_of[field]
        for value, own in lines_of.items():
            name = slice_name(value)
            if name not in totals:
                check_num_slices(field, len(totals) + 1)
                totals[name] = Totals()
            totals[name].add_scored(own)

    def _failed_by_slice(self, field: str) -> dict[str, list[FailureLine]]:
        """Return the unscored attempts by slice.

        Where its task is known by what came with a failure, else by a scored attempt, else nowhere.
        """
        place = list(self._fields).index(field)
        column, attempts = self._fields[field], self._attempts
        failed = {line.task_id for line in self.unscored()}
        tasks = {attempts.task_numbers.get(task_id, -1): task_id for task_id in failed}
        lines = zip(attempts.tasks, column.numbers, strict=True) if failed else ()
        numbers = {tasks[task]: number for task, number in lines if task in tasks}
        known = column.known()
        found: dict[str, list[FailureLine]] = {}
        for line in self.unscored():
            own = self._values_of_failed.get(line.task_id)
            value = own[place] if own is not None else known[numbers.get(line.task_id, 0)]
            found.setdefault(slice_name(value), []).append(line)
        return found

    def _by_task(self) -> list[SameSize]:
        if self._groups is None:
            self._groups = self._attempts.by_task()
        return self._groups

    def _part(
        self,
        lines: NDArray[np.int32] | None,
        groups: Sequence[SameSize],
        scored: Totals,
        unscored: Sequence[FailureLine],
        facts: EnvironmentFacts,
    ) -> EnvironmentPart:
        """Return the numbers of these lines, put together by task; None: of all lines."""
        import numpy as np  # late: heavy

        totals = Totals()
        totals.add(scored)
        totals.add_unscored(unscored)
        num_absent, never_scored = self._absent(groups, unscored)
        tasks = self._rewards(groups, facts)
        if never_scored:
            tasks.append(TaskRewards(np.zeros((len(never_scored), 0)), facts.success_threshold))
            num_absent.append(np.array(never_scored, np.int32))
        total, model = np.asarray(self._total_seconds), np.asarray(self._model_seconds)
        if lines is not None:
            total, model = total[lines], model[lines]
        is_timed = total > 0.0  # 0 is "not recorded", as in rollouts of others
        if not is_timed.all():  # no copy as a rule: it would be a tenth of all that is held
            total, model = total[is_timed], model[is_timed]
        named = {
            f"{kind}.{name}": found
            for kind, own in (("components", self._components), ("metrics", self._metrics))
            for name, numbers in own.items()
            if (found := self._by_task_of(numbers, lines))
        }
        return EnvironmentPart(facts, totals, tasks, num_absent, total, model, named)

    def _rewards(self, groups: Sequence[SameSize], facts: EnvironmentFacts) -> list[TaskRewards]:
        import numpy as np  # late: heavy

        rewards, answers = np.asarray(self._attempts.rewards), np.asarray(self._answers.numbers)
        has_answers = any(answers[group.lines].any() for group in groups)
        task_ids: list[str] = []
        found = []
        for group in groups:
            seeds: list[str] = []
            if has_answers and may_draw(group.lines.shape[1]):
                task_ids = task_ids or list(self._attempts.task_numbers)
                seeds = [f"{self.name}/{task_ids[task]}" for task in group.tasks.tolist()]
            own = answers[group.lines] if has_answers else None
            found.append(TaskRewards(rewards[group.lines], facts.success_threshold, own, seeds))
        return found

    def _absent(
        self, groups: Sequence[SameSize], unscored: Sequence[FailureLine]
    ) -> tuple[list[NDArray[np.int32]], list[int]]:
        """Count the unscored attempts of each task by group, and of each task that is in none."""
        import numpy as np  # late: heavy

        counts = Counter(line.task_id for line in unscored)
        numbers = self._attempts.task_numbers
        num_absent = np.zeros(len(numbers), np.int32)
        for task_id, count in counts.items():
            if task_id in numbers:
                num_absent[numbers[task_id]] = count
        by_group = [num_absent[group.tasks] for group in groups]
        for group in groups:
            num_absent[group.tasks] = 0
        never_scored = [
            count
            for task_id, count in counts.items()
            if task_id not in numbers or num_absent[numbers[task_id]]
        ]
        return by_group, never_scored

    def _by_task_of(
        self, numbers: NamedNumbers, lines: NDArray[np.int32] | None
    ) -> list[NDArray[np.float64]]:
        import numpy as np  # late: heavy

        own, values = np.asarray(numbers.lines), np.asarray(numbers.values)
        if lines is not None:
            is_in = np.isin(own, lines)
            own, values = own[is_in], values[is_in]
        groups = rows_by_task(np.asarray(self._attempts.tasks)[own], own)
        return [values[group.lines] for group in groups]


def _add_named(
    named: Mapping[str, NamedNumbers], first: int, of_lines: Sequence[Mapping[str, float] | None]
) -> None:
    """Add the named numbers of lines from `first` on; most runs have none."""
    if not any(of_lines):
        return
    for line, values in enumerate(of_lines, first):
        for name, value in (values or {}).items():
            named[name].lines.append(line)
            named[name].values.append(value)


def _named_of(named: Mapping[str, NamedNumbers], line: int) -> dict[str, float]:
    found = {name: numbers.of_line(line) for name, numbers in named.items()}
    return {name: value for name, value in found.items() if value is not None}
