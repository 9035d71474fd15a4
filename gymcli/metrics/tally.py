"""What one pass over the lines keeps: a few numbers per attempt, nothing of its conversation."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gymcli.errors import RunFileError
from gymcli.metrics.grouping import Values, line_order, starts_of
from gymcli.metrics.records import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.metrics.sums import RunningSum
from gymcli.numbering import Numbering
from gymcli.types import RoleUse, Usage

__all__ = ["Cost", "EnvironmentTally", "TaskScores", "Totals", "add_role_usage"]


class TaskScores(NamedTuple):
    """The scored attempts of one task, in order of attempt."""

    env: str
    task_id: str
    rewards: Sequence[float]
    answers: Sequence[str | None] | None
    """None where no attempt of the environment has an answer: it does not extract any."""
    num_passes: int | None
    """Attempts whose reward reaches the threshold of success; None where there is none."""
    num_unscored: int = 0
    """Attempts whose last record is a failure."""


class Cost:
    """What attempts cost, added up."""

    def __init__(self) -> None:
        self._sum = RunningSum()
        self._is_known = True
        self._is_any = False

    @property
    def total(self) -> float | None:
        """The sum; None where it is not known of every attempt, or there is none."""
        return self._sum.total if self._is_any and self._is_known else None

    def add(self, cost: float | None) -> None:
        """Add the cost of one attempt."""
        if cost is None:
            self._is_known = False
        else:
            self._is_any = True
            self._sum.add(cost)

    def add_all(self, other: Cost) -> None:
        """Add up two sums."""
        self._sum.add_all(other._sum)
        self._is_known = self._is_known and other._is_known
        self._is_any = self._is_any or other._is_any


class Totals(NamedTuple):
    """What attempts took, added up."""

    usage: Usage
    cost: Cost
    role_usage: dict[str, RoleUse]
    retries: Counter[str]


def add_role_usage(total: dict[str, RoleUse], more: Mapping[str, RoleUse]) -> None:
    """Add what models beside the policy took, role by role."""
    for role, use in more.items():
        total.setdefault(role, RoleUse()).add(use)


class _Answers:
    """The answers of lines, of which a run has few different ones; many runs have none at all."""

    def __init__(self) -> None:
        self._texts = Numbering()
        self._numbers = array("I")
        """Of each line the number of its answer, plus 1; 0, or no place: it has none."""

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def add(self, line: int, answer: str) -> None:
        """Add the answer of a line."""
        self._pad(line)
        self._numbers.append(self._texts.number_of(answer.encode()) + 1)

    def of(self, start: int, end: int) -> list[str | None]:
        """Give the answers of some lines."""
        numbers = self._numbers[start:end]
        # One object for each different answer: votes are counted by it.
        texts = {n: self._texts[n - 1].decode() if n else None for n in set(numbers)}
        return [texts[n] for n in numbers]

    def reorder(self, order: Sequence[int]) -> None:
        """Put the lines in another order."""
        if self._numbers:
            self._pad(len(order))
            self._numbers = array("I", map(self._numbers.__getitem__, order))

    def _pad(self, num_lines: int) -> None:
        num_absent = num_lines - len(self._numbers)
        self._numbers.frombytes(bytes(num_absent * self._numbers.itemsize))


class EnvironmentTally:
    """The numbers of one environment's attempts."""

    def __init__(self, name: str, facts: EnvironmentFacts) -> None:
        self.name = name
        self.facts = facts
        self.stop_reasons: Counter[str] = Counter()
        self.tool_errors: Counter[str] = Counter()
        self.rewards = array("d")
        """Of all scored attempts, in no order that means anything."""
        self.total_seconds = array("d")
        self.model_seconds = array("d")
        self._retries: Counter[str] = Counter()
        self._usage = Usage()
        self._cost = Cost()
        self._role_usage: dict[str, RoleUse] = {}
        self._task_ids = Numbering()
        self._task_of = array("I")
        self._attempts = array("q")
        self._answers = _Answers()
        self._components: dict[str, Values] = {}
        self._metrics: dict[str, Values] = {}
        self._failures: dict[int, dict[int, FailureLine]] = {}
        """By number of task and attempt; those that were made up for are among them."""
        self._starts: array[int] | None = None
        """Where the lines of each task start; None as long as the lines are in no order."""

    def add_scored(self, line: ScoredLine) -> None:
        """Count a scored attempt."""
        task = self._task_ids.number_of(line.task_id.encode())
        if line.answer is not None:
            self._answers.add(len(self._task_of), line.answer)
        _add_named(self._components, task, line.components)
        _add_named(self._metrics, task, line.metrics)
        self._task_of.append(task)
        self._attempts.append(line.attempt)
        self.rewards.append(line.reward)
        self._starts = None
        self.stop_reasons[line.stop_reason] += 1
        self.tool_errors.update(line.tool_errors)
        self._retries.update(line.retries)
        self._usage.add(line.usage)
        self._cost.add(line.cost)
        add_role_usage(self._role_usage, line.role_usage)
        if line.timing.total_seconds > 0.0:  # 0 is "not recorded", as in rollouts of others
            self.total_seconds.append(line.timing.total_seconds)
            self.model_seconds.append(line.timing.model_seconds)

    def add_failure(self, line: FailureLine) -> None:
        """Keep a failure in place of an earlier one of the same attempt."""
        task = self._task_ids.number_of(line.task_id.encode())
        self._failures.setdefault(task, {})[line.attempt] = line
        self._starts = None

    @property
    def num_tasks(self) -> int:
        """Tasks that have a record."""
        return len(self._task_ids)

    def num_scored(self) -> Counter[int]:
        """Count the tasks that have so many scored attempts.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        starts = self._sorted()
        return Counter(end - start for start, end in itertools.pairwise(starts))

    def tasks(self) -> Iterator[TaskScores]:
        """Give every task that has a record, in the order they came.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        threshold = self.facts.success_threshold
        starts = self._sorted()
        for task, (values, num_unscored) in enumerate(self.attempts_by_task()):
            rewards = values.tolist()
            answers = self._answers.of(starts[task], starts[task + 1]) if self._answers else None
            yield TaskScores(
                self.name,
                self._task_ids[task].decode(),
                rewards,
                answers,
                None if threshold is None else sum(r >= threshold for r in rewards),
                num_unscored,
            )

    def attempts_by_task(self) -> Iterator[tuple[array[float], int]]:
        """Give the rewards of every task, in order of attempt, and how many are not scored.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        rewards = self.rewards
        for task, (start, end) in enumerate(itertools.pairwise(self._sorted())):
            num_unscored = sum(1 for _ in self._failed(task)) if task in self._failures else 0
            yield rewards[start:end], num_unscored

    def components_by_task(self) -> dict[str, Iterator[Sequence[float]]]:
        """Give for each named reward its values, task by task of those that have it."""
        return {name: values.by_task(self.num_tasks) for name, values in self._components.items()}

    def metrics_by_task(self) -> dict[str, Iterator[Sequence[float]]]:
        """Give for each other number its values, task by task of those that have it."""
        return {name: values.by_task(self.num_tasks) for name, values in self._metrics.items()}

    def failures(self) -> Iterator[FailureLine]:
        """Give for each attempt that was not scored its last failure, by task id."""
        for task in sorted(self._failures, key=self._task_ids.__getitem__):
            yield from self._failed(task)

    def totals(self) -> Totals:
        """Give what the scored attempts and those that failed took.

        A failure that was made up for is not among them: where only its verifier had failed, the
        scored line has the same tokens again.
        """
        totals = Totals(Usage(), Cost(), {}, Counter(self._retries))
        totals.usage.add(self._usage)
        totals.cost.add_all(self._cost)
        add_role_usage(totals.role_usage, self._role_usage)
        for line in self.failures():
            totals.usage.add(line.usage)
            if line.cost is not None or line.usage.prompt_tokens or line.usage.completion_tokens:
                totals.cost.add(line.cost)  # what failed before an answer cost nothing
            add_role_usage(totals.role_usage, line.role_usage)
            totals.retries.update(line.retries)
        return totals

    def _failed(self, task: int) -> Iterator[FailureLine]:
        starts = self._sorted()
        scored = set(self._attempts[starts[task] : starts[task + 1]])
        return (line for key, line in self._failures[task].items() if key not in scored)

    def _sorted(self) -> array[int]:
        """Put the lines in the order of tasks and attempts; give where each task starts."""
        if self._starts is None:
            starts = starts_of(self._task_of, self.num_tasks)
            order = line_order(self._task_of, starts)
            for start, end in itertools.pairwise(starts):
                if end - start > 1:
                    ordered = sorted(order[start:end], key=self._attempts.__getitem__)
                    order[start:end] = array("I", ordered)
            self._task_of = array("I", map(self._task_of.__getitem__, order))
            self._attempts = array("q", map(self._attempts.__getitem__, order))
            self.rewards = array("d", map(self.rewards.__getitem__, order))
            self._answers.reorder(order)
            self._check_attempts()
            self._starts = starts
        return self._starts

    def _check_attempts(self) -> None:
        """Refuse attempts that are there twice; names the first by task id and attempt."""
        lines = itertools.pairwise(zip(self._task_of, self._attempts, strict=True))
        twice = [line for before, line in lines if before == line]
        if twice:
            task_id, attempt = min((self._task_ids[task].decode(), n) for task, n in twice)
            raise RunFileError(
                f"task {task_id!r} of environment {self.name!r}, attempt {attempt}, is scored "
                "by two lines; keep one of them"
            )


def _add_named(named: dict[str, Values], task: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if name not in named:
            named[name] = Values()
        named[name].add(task, value)
