"""What one pass over the lines keeps: a few numbers per attempt, nothing of its conversation."""

from __future__ import annotations

import itertools
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gymcli.errors import RunFileError
from gymcli.metrics.records import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.types import RoleUse, Usage

__all__ = ["EnvironmentTally", "TaskScores", "Totals", "add_role_usage"]


class TaskScores(NamedTuple):
    """The scored attempts of one task, in order of attempt."""

    env: str
    task_id: str
    rewards: Sequence[float]
    answers: Sequence[str | None] | None
    """None where no attempt of the environment has an answer: it does not extract any."""
    num_passes: int | None
    """Attempts whose reward reaches the threshold of success; None where there is none."""
    components: Mapping[str, Sequence[float]]
    """Values of each named reward, in the order they were read."""
    metrics: Mapping[str, Sequence[float]]
    failures: Sequence[FailureLine]
    """For each attempt that was not scored, its last failure."""


class Totals(NamedTuple):
    """What attempts took, added up."""

    usage: Usage
    role_usage: dict[str, RoleUse]
    retries: Counter[str]


def add_role_usage(total: dict[str, RoleUse], more: Mapping[str, RoleUse]) -> None:
    """Add what models beside the policy took, role by role."""
    for role, use in more.items():
        total.setdefault(role, RoleUse()).add(use)


class _TaskTally:
    """The numbers of one task's attempts, in the order they were read."""

    __slots__ = ("answers", "attempts", "components", "failures", "metrics", "rewards")

    def __init__(self) -> None:
        self.attempts = array("q")
        self.rewards = array("d")
        self.answers: list[str | None] = []
        self.components: dict[str, array[float]] = {}
        self.metrics: dict[str, array[float]] = {}
        self.failures: dict[int, FailureLine] = {}

    def add(self, line: ScoredLine) -> None:
        self.attempts.append(line.attempt)
        self.rewards.append(line.reward)
        # A run has few different answers, but every line brings its own copy.
        self.answers.append(None if line.answer is None else sys.intern(line.answer))
        _append(self.components, line.components)
        _append(self.metrics, line.metrics)


class EnvironmentTally:
    """The numbers of one environment's attempts."""

    def __init__(self, name: str, facts: EnvironmentFacts) -> None:
        self.name = name
        self.facts = facts
        self.stop_reasons: Counter[str] = Counter()
        self.tool_errors: Counter[str] = Counter()
        self.total_seconds = array("d")
        self.model_seconds = array("d")
        self._has_answers = False
        self._retries: Counter[str] = Counter()
        self._usage = Usage()
        self._role_usage: dict[str, RoleUse] = {}
        self._tasks: dict[str, _TaskTally] = {}

    def add_scored(self, line: ScoredLine) -> None:
        """Count a scored attempt."""
        self._task(line.task_id).add(line)
        self._has_answers = self._has_answers or line.answer is not None
        self.stop_reasons[line.stop_reason] += 1
        self.tool_errors.update(line.tool_errors)
        self._retries.update(line.retries)
        self._usage.add(line.usage)
        add_role_usage(self._role_usage, line.role_usage)
        if line.timing.total_seconds > 0.0:  # 0 is "not recorded", as in rollouts of others
            self.total_seconds.append(line.timing.total_seconds)
            self.model_seconds.append(line.timing.model_seconds)

    def add_failure(self, line: FailureLine) -> None:
        """Keep a failure in place of an earlier one of the same attempt."""
        self._task(line.task_id).failures[line.attempt] = line

    def tasks(self) -> Iterator[TaskScores]:
        """Give every task that has a record, by id.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        threshold = self.facts.success_threshold
        for task_id in sorted(self._tasks):
            task = self._tasks[task_id]
            order = sorted(range(len(task.attempts)), key=task.attempts.__getitem__)
            self._check_attempts(task_id, [task.attempts[place] for place in order])
            rewards = [task.rewards[place] for place in order]
            scored = set(task.attempts)
            yield TaskScores(
                env=self.name,
                task_id=task_id,
                rewards=rewards,
                answers=[task.answers[place] for place in order] if self._has_answers else None,
                num_passes=None if threshold is None else sum(r >= threshold for r in rewards),
                components=task.components,
                metrics=task.metrics,
                failures=[line for key, line in task.failures.items() if key not in scored],
            )

    def totals(self, failures: Sequence[FailureLine]) -> Totals:
        """Give what the scored attempts and these failures took.

        A failure that was made up for is not among them: where only its verifier had failed, the
        scored line has the same tokens again.
        """
        totals = Totals(Usage(), {}, Counter(self._retries))
        totals.usage.add(self._usage)
        add_role_usage(totals.role_usage, self._role_usage)
        for line in failures:
            totals.usage.add(line.usage)
            add_role_usage(totals.role_usage, line.role_usage)
            totals.retries.update(line.retries)
        return totals

    def _task(self, task_id: str) -> _TaskTally:
        task = self._tasks.get(task_id)
        if task is None:
            task = self._tasks[task_id] = _TaskTally()
        return task

    def _check_attempts(self, task_id: str, ordered: Sequence[int]) -> None:
        for before, attempt in itertools.pairwise(ordered):
            if before == attempt:
                raise RunFileError(
                    f"task {task_id!r} of environment {self.name!r}, attempt {attempt}, is scored "
                    "by two lines; keep one of them"
                )


def _append(arrays: dict[str, array[float]], values: Mapping[str, float]) -> None:
    for name, value in values.items():
        found = arrays.get(name)
        if found is None:
            found = arrays[sys.intern(name)] = array("d")
        found.append(value)
