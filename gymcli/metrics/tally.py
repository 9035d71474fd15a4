"""Collects the numbers of attempts, without their conversations, in one pass over the lines."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gymcli.metrics.at_k import TaskRewards, may_draw
from gymcli.metrics.estimators import mean
from gymcli.metrics.results import NO_ANSWER, NoAnswers, TaskMetrics
from gymcli.metrics.slicing import FieldValues, check_num_slices, slice_name
from gymcli.store.attempt_table import AttemptTable
from gymcli.store.scored_lines import (
    AttemptScore,
    EnvironmentFacts,
    FailureLine,
    Group,
    ScoredLine,
)
from gymcli.types import JSON, RoleUse, Usage

_CUT = ("length", "context_overflow", "episode_tokens")
"""The stop reasons of attempts that a limit on tokens cut off."""


class EnvironmentPart(NamedTuple):
    """The attempts of one environment, or of a slice of its tasks, from which numbers are made."""

    facts: EnvironmentFacts
    totals: Totals
    tasks: list[TaskRewards]
    """The tasks that have a record; a task without a scored attempt has an empty row."""
    num_absent: list[NDArray[np.int32]]
    """For each group of `tasks`, the number of unscored attempts of each task."""
    total_seconds: NDArray[np.float64]
    """Times of the scored attempts that recorded theirs."""
    model_seconds: NDArray[np.float64]
    named: dict[str, list[NDArray[np.float64]]]
    """By `components.NAME` and `metrics.NAME`, the numbers of attempts, in rows by task."""

    @property
    def scored(self) -> list[NDArray[np.float64]]:
        """The rewards of the tasks that have a scored attempt."""
        return [group.rewards for group in self.tasks if group.num_attempts]


class Totals:
    """The tokens, cost and time of attempts, and how they ended."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.role_usage: dict[str, _RoleTotal] = {}
        self.retries: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.tool_errors: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """Unscored attempts by the class of their last error."""
        self.no_answers = NoAnswers()
        self._costs = array("d")

    @property
    def cost(self) -> float | None:
        """The total cost; None without attempts, or if the cost of one is unknown."""
        return _sum_of_costs(self._costs)

    def add_scored(self, lines: Sequence[ScoredLine]) -> None:
        """Add scored attempts."""
        self.stop_reasons.update([line.stop_reason for line in lines])
        self._costs.extend([math.nan if line.cost is None else line.cost for line in lines])
        self.usage.add(*[line.usage for line in lines])
        for line in lines:
            if line.tool_errors:
                self.tool_errors.update(line.tool_errors)
            if line.retries:
                self.retries.update(line.retries)
            if line.role_usage:
                self._add_roles(line.role_usage)
            if line.details is not None and isinstance(line.details.reason, str):
                self.no_answers.num_attempts += 1
                if line.details.reason == NO_ANSWER:
                    self.no_answers.num += 1
                    self.no_answers.num_cut += line.stop_reason in _CUT

    def add_unscored(self, lines: Iterable[FailureLine]) -> None:
        """Add attempts that were not scored, and have not been scored since.

        If only the verifier failed, the scored line of a later try has the same tokens.
        """
        for line in lines:
            self.failures[line.error.error_class] += 1
            self.usage.add(line.usage)
            if line.cost is not None or line.usage.prompt_tokens or line.usage.completion_tokens:
                # An attempt that failed before its first answer cost nothing.
                self._costs.append(math.nan if line.cost is None else line.cost)
            self.retries.update(line.retries)
            self._add_roles(line.role_usage)

    def add(self, other: Totals) -> None:
        """Add other attempts."""
        self.usage.add(other.usage)
        self._costs.extend(other._costs)
        for role, total in other.role_usage.items():
            self.role_usage.setdefault(role, _RoleTotal()).add(total)
        self.retries.update(other.retries)
        self.stop_reasons.update(other.stop_reasons)
        self.tool_errors.update(other.tool_errors)
        self.failures.update(other.failures)
        self.no_answers.add(other.no_answers)

    def _add_roles(self, roles: Mapping[str, RoleUse]) -> None:
        for role, use in roles.items():
            self.role_usage.setdefault(role, _RoleTotal()).add_use(use)


class _RoleTotal:
    def __init__(self) -> None:
        self._counts = RoleUse()
        self._costs = array("d")
        self._seconds = array("d")

    @property
    def use(self) -> RoleUse:
        return msgspec.structs.replace(
            self._counts,
            cost=_sum_of_costs(self._costs),
            seconds=math.fsum(self._seconds),
            retries=dict(sorted(self._counts.retries.items())),
        )

    def add_use(self, use: RoleUse) -> None:
        self._counts.add(use)
        self._seconds.append(use.seconds)
        if use.num_calls or use.cost is not None:
            self._costs.append(math.nan if use.cost is None else use.cost)

    def add(self, other: _RoleTotal) -> None:
        self._counts.add(other._counts)
        self._seconds.extend(other._seconds)
        self._costs.extend(other._costs)


def _sum_of_costs(costs: array[float]) -> float | None:
    # fsum rounds once, so the order of lines does not matter; nan is an unknown cost.
    total = math.fsum(costs) if costs else math.nan
    return None if math.isnan(total) else total


class EnvironmentTally:
    """The numbers of the attempts of one environment.

    Each line comes with its task row's values of `fields`; the numbers are sliced by `by`.
    """

    def __init__(
        self, name: str, facts: EnvironmentFacts, fields: Sequence[str] = (), by: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.facts = facts
        numbers = dict.fromkeys(("reward", "total_seconds", "model_seconds"), "d")
        self._fields = {field: f"field {field}" for field in fields}
        """The names of columns."""
        texts = dict.fromkeys(("answer", *self._fields.values()), "i")
        self._table = AttemptTable(name, {**numbers, **texts})
        self._totals = Totals()
        self._totals_of: dict[str, dict[str, Totals]] = {field: {} for field in by}
        """By field and the name of the slice."""
        self._failures: dict[tuple[str, int], FailureLine] = {}
        """By task and attempt, including attempts that were scored later."""
        self._values_of_failed: dict[str, FieldValues] = {}
        """By task, the values that came with a failure."""

    def __len__(self) -> int:
        return len(self._table)

    def add_scored(self, lines: Sequence[ScoredLine], values: Sequence[FieldValues] = ()) -> None:
        """Count scored attempts; `values` has the task row's values of the fields for each."""
        # A loop for each column takes a third of the time of one loop over all lines.
        table, first_row = self._table, len(self._table)
        values_of = {
            field: [row[place] for row in values] for place, field in enumerate(self._fields)
        }
        table.extend(
            [line.task_id for line in lines],
            [line.attempt for line in lines],
            reward=[line.reward for line in lines],
            total_seconds=[line.timing.total_seconds for line in lines],
            model_seconds=[line.timing.model_seconds for line in lines],
            answer=table.text_numbers([line.answer for line in lines]),
            **{
                self._fields[field]: table.text_numbers(texts) for field, texts in values_of.items()
            },
        )
        table.extend_named("components", first_row, [line.components for line in lines])
        table.extend_named("metrics", first_row, [line.metrics for line in lines])
        self._totals.add_scored(lines)
        for field in self._totals_of:
            self._add_to_slices(field, values_of[field], lines)

    def add_failure(self, line: FailureLine, values: FieldValues | None = None) -> None:
        """Record a failure, replacing an earlier one of the same attempt."""
        self._failures[line.task_id, line.attempt] = line
        if values is not None:
            self._values_of_failed[line.task_id] = values

    def unscored(self) -> list[FailureLine]:
        """Return the last failure of each attempt that was not scored, by task id and attempt."""
        table = self._table
        numbers = {table.task_numbers.get(task_id, -1) for task_id, _ in self._failures}
        # Only attempts of tasks with a failure go into the set: few of millions.
        rows = np.flatnonzero(np.isin(table["task"], list(numbers)))
        scored = {*zip(table["task"][rows].tolist(), table["attempt"][rows].tolist(), strict=True)}
        return [
            self._failures[task_id, attempt]
            for task_id, attempt in sorted(self._failures)
            if (table.task_numbers.get(task_id, -1), attempt) not in scored
        ]

    def part(self) -> EnvironmentPart:
        """Return all attempts; raise RunFileError if two lines score the same one."""
        return self._part(None, self._totals, self.unscored(), self.facts)

    def slices(self, field: str) -> dict[str, EnvironmentPart]:
        """Return the attempts by the value of a field, without a number of expected attempts."""
        facts = msgspec.structs.replace(self.facts, num_expected=None)
        totals, unscored = self._totals_of[field], self._unscored_by_slice(field)
        # Two JSON values may have one name: 1 and "1" are the same slice.
        column, texts = self._table[self._fields[field]], self._table.texts()
        numbers_of = defaultdict[str, list[int]](list)
        for number in np.unique(column).tolist():
            numbers_of[slice_name(texts[number])].append(number)
        return {
            name: self._part(
                np.flatnonzero(np.isin(column, numbers_of[name])),
                totals.get(name, Totals()),
                unscored.get(name, []),
                facts,
            )
            for name in {**totals, **unscored}
        }

    def groups(self) -> Iterator[Group]:
        """Yield the scored attempts of each task that has any."""
        table, task_ids, texts = self._table, list(self._table.task_numbers), self._table.texts()
        # Copies, since lines may be added before the last group is taken.
        attempts, rewards, answers = (table[n].copy() for n in ("attempt", "reward", "answer"))
        fields = {field: table[column].copy() for field, column in self._fields.items()}
        for group in table.by_task():
            for task, rows in zip(group.tasks.tolist(), group.rows.tolist(), strict=True):
                scores = []
                for row in rows:
                    named: dict[str, dict[str, float]] = {"components": {}, "metrics": {}}
                    for title, numbers in table.named.items():
                        if (value := numbers.at(row)) is not None:
                            kind, _, name = title.partition(".")
                            named[kind][name] = value
                    attempt, reward = attempts.item(row), rewards.item(row)
                    answer = texts[answers[row]]
                    scores.append(AttemptScore(attempt, reward, answer=answer, **named))
                values: dict[str, JSON] = {}
                for field, column in fields.items():
                    text = texts[column[rows[0]]]
                    values[field] = None if text is None else msgspec.json.decode(text)
                yield Group(task_ids[task], values, scores)

    def task_rows(self) -> Iterator[TaskMetrics]:
        """Yield the numbers of each task that has a record."""
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
                # Among equals, most_common returns the answer that was counted first.
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
        lines_of: defaultdict[str | None, list[ScoredLine]] = defaultdict(list)
        for value, line in zip(values, lines, strict=True):
            lines_of[value].append(line)
        totals = self._totals_of[field]
        for value, lines_of_slice in lines_of.items():
            name = slice_name(value)
            if name not in totals:
                check_num_slices(field, len(totals) + 1)
                totals[name] = Totals()
            totals[name].add_scored(lines_of_slice)

    def _unscored_by_slice(self, field: str) -> dict[str, list[FailureLine]]:
        """Return the unscored attempts by slice.

        The values that came with a failure of the task count, else those of a scored attempt of it;
        without either the slice is `NONE`.
        """
        place, unscored = list(self._fields).index(field), self.unscored()
        table, texts = self._table, self._table.texts()
        tasks = {table.task_numbers.get(line.task_id, -1): line.task_id for line in unscored}
        rows = np.flatnonzero(np.isin(table["task"], list(tasks)))
        numbers = zip(
            table["task"][rows].tolist(), table[self._fields[field]][rows].tolist(), strict=True
        )
        texts_of_tasks = {tasks[task]: texts[number] for task, number in numbers}
        by_slice: dict[str, list[FailureLine]] = {}
        for line in unscored:
            values = self._values_of_failed.get(line.task_id)
            value = texts_of_tasks.get(line.task_id) if values is None else values[place]
            by_slice.setdefault(slice_name(value), []).append(line)
        return by_slice

    def _part(
        self,
        rows: NDArray[np.intp] | None,
        scored: Totals,
        unscored: Sequence[FailureLine],
        facts: EnvironmentFacts,
    ) -> EnvironmentPart:
        """Return the attempts of these rows; None: of all."""
        totals = Totals()
        totals.add(scored)
        totals.add_unscored(unscored)
        table, threshold = self._table, facts.success_threshold
        rewards, answers = table["reward"], table["answer"]
        total, model = table["total_seconds"], table["model_seconds"]
        if rows is not None:
            total, model = total[rows], model[rows]
        has_answers = bool(answers.any() if rows is None else answers[rows].any())
        task_ids = list(table.task_numbers)
        num_unscored = Counter(line.task_id for line in unscored)
        tasks, num_absent = [], []
        for group in table.by_task(rows):
            absent, seeds = np.zeros(len(group.tasks), np.int32), list[str]()
            if num_unscored:
                absent[:] = [num_unscored.pop(task_ids[task], 0) for task in group.tasks.tolist()]
            # A seed by name: the subsets that are drawn do not depend on the other tasks of a run.
            if has_answers and may_draw(group.rows.shape[1]):
                seeds = [f"{self.name}/{task_ids[task]}" for task in group.tasks.tolist()]
            num_absent.append(absent)
            tasks.append(
                TaskRewards(
                    rewards[group.rows],
                    threshold,
                    answers[group.rows] if has_answers else None,
                    seeds,
                )
            )
        if num_unscored:  # tasks of which no attempt is scored
            tasks.append(TaskRewards(np.zeros((len(num_unscored), 0)), threshold))
            num_absent.append(np.array([*num_unscored.values()], np.int32))
        is_timed = total > 0.0  # 0 is "not recorded", as in rollouts of other programs
        named = {name: self._named_by_task(name, rows) for name in table.named}
        return EnvironmentPart(
            facts,
            totals,
            tasks,
            num_absent,
            total[is_timed],
            model[is_timed],
            {name: numbers for name, numbers in named.items() if numbers},
        )

    def _named_by_task(self, name: str, rows: NDArray[np.intp] | None) -> list[NDArray[np.float64]]:
        """Return a named number of the attempts of these rows that have it, in rows by task."""
        numbers = self._table.named[name]
        rows_with_number, values = np.asarray(numbers.rows), np.asarray(numbers.values)
        if rows is not None:
            rows_with_number = rows_with_number[np.isin(rows_with_number, rows)]
        return [
            values[np.searchsorted(numbers.rows, group.rows)]
            for group in self._table.by_task(rows_with_number)
        ]
