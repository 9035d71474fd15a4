"""What one pass over the lines keeps: a few numbers per attempt, nothing of its conversation."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from gymcli.metrics.alike import MAX_KINDS, Alike, count_alike
from gymcli.metrics.answers import Answers
from gymcli.metrics.at_k import may_draw
from gymcli.metrics.attempts import ScoredAttempts, Stretch
from gymcli.metrics.costs import Cost, RoleTotal, Totals, add_role_usage
from gymcli.metrics.failures import Failures
from gymcli.metrics.grouping import Values, add_named
from gymcli.metrics.groups import Group, groups_of
from gymcli.metrics.records import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.metrics.slices import FieldValues
from gymcli.metrics.task_scores import Kind, TaskScores, by_votes
from gymcli.types import Usage

__all__ = ["EnvironmentTally", "NamedKind"]

NamedKind = Literal["components", "metrics"]
"""The numbers that verifiers give names: rewards, and any others."""


class EnvironmentTally:
    """The numbers of one environment's attempts."""

    def __init__(self, name: str, facts: EnvironmentFacts, fields: Sequence[str] = ()) -> None:
        self.name = name
        self.facts = facts
        self.stop_reasons: Counter[str] = Counter()
        self.tool_errors: Counter[str] = Counter()
        self.total_seconds = array("d")
        self.model_seconds = array("d")
        self._attempts = ScoredAttempts(name)
        self._attempts.fields = {field: Answers() for field in fields}
        self._retries: Counter[str] = Counter()
        self._usage = Usage()
        self._cost = Cost()
        self._role_usage: dict[str, RoleTotal] = {}
        self._named: dict[NamedKind, dict[str, Values]] = {"components": {}, "metrics": {}}
        self._failures = Failures()
        """Settled once `_stretches` is known."""
        self._stretches: list[Stretch] | None = None
        """The attempts put together by task."""
        self._alike: list[Alike] | None = None
        """The tasks put together that are alike; empty where they are not worth it."""

    @property
    def rewards(self) -> array[float]:
        """Of all scored attempts, in the order they were added."""
        return self._attempts.rewards

    def add_scored(self, lines: Sequence[ScoredLine], values: Sequence[FieldValues] = ()) -> None:
        """Count scored attempts; `values` has for each what its task row says of the fields.

        Field by field, each in a loop of its own: together they take a third of the time that
        line by line they would.
        """
        first = len(self._attempts)
        self.add_rewards(
            [line.task_id for line in lines],
            [line.attempt for line in lines],
            [line.reward for line in lines],
        )
        self.stop_reasons.update([line.stop_reason for line in lines])
        self._cost.add_all([line.cost for line in lines])
        self._usage.add_all([line.usage for line in lines])
        # 0 is "not recorded", as in rollouts of others.
        timings = [line.timing for line in lines if line.timing.total_seconds > 0.0]
        self.total_seconds.extend(array("d", [timing.total_seconds for timing in timings]))
        self.model_seconds.extend(array("d", [timing.model_seconds for timing in timings]))
        self._attempts.answers.add_all(first, [line.answer for line in lines])
        for place, column in enumerate(self._attempts.fields.values()):
            column.add_all(first, [of_line[place] for of_line in values])
        add_named(self._named["components"], first, [line.components for line in lines])
        add_named(self._named["metrics"], first, [line.metrics for line in lines])
        for counts in filter(None, [line.tool_errors for line in lines]):
            self.tool_errors.update(counts)
        for counts in filter(None, [line.retries for line in lines]):
            self._retries.update(counts)
        for use in filter(None, [line.role_usage for line in lines]):
            add_role_usage(self._role_usage, use)

    def add_rewards(
        self, task_ids: Sequence[str], attempts: Sequence[int], rewards: Sequence[float]
    ) -> None:
        """Count scored attempts of which nothing else is known."""
        self._attempts.extend(task_ids, attempts, rewards)
        self._stretches = self._alike = None

    def with_rewards(self, rewards: array[float]) -> EnvironmentTally:
        """Give a tally of the same attempts with other rewards, in the order they were added."""
        other = EnvironmentTally(self.name, self.facts)
        other._attempts = self._attempts.with_rewards(rewards)
        return other

    def add_failure(self, line: FailureLine) -> None:
        """Keep a failure in place of an earlier one of the same attempt."""
        self._failures.add(line)
        self._stretches = self._alike = None

    def num_tasks(self) -> int:
        """Count the tasks that have a record.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        return self.num_scored().total()

    def num_scored(self) -> Counter[int]:
        """Count the tasks that have so many scored attempts.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        counts = Counter[int]()
        for stretch in self._by_task():
            counts[stretch.num_attempts] += stretch.num_tasks
        if num_others := len(self._failures.never_scored):
            counts[0] = num_others
        return counts

    def tasks(self) -> Iterator[TaskScores]:
        """Give every task that has a record.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        for stretch in self._by_task():
            yield from self._scores_of(stretch)
        for task_id in self._failures.never_scored:
            yield self._scores(task_id, (), (), self._failures.num_unscored(task_id))

    def alike(self) -> Iterable[Alike]:
        """Give the rewards of every task and how many attempts it lacks, like tasks in one.

        Where hardly any two tasks are alike each is given by itself.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        if self._alike is None:
            self._alike = count_alike(self._rewards_by_task())
        return self._alike or itertools.starmap(Alike, self._rewards_by_task())

    def kinds(self) -> Iterator[tuple[TaskScores, int]]:
        """Give tasks that have a score, with how many there are of which every number is the same.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        counts = Counter[Kind]()
        for stretch in self._by_task():
            if self._attempts.answers and may_draw(stretch.num_attempts):
                yield from ((scores, 1) for scores in self._scores_of(stretch))
                continue
            rewards = self._attempts.rewards_by_task(stretch)
            answers = self._attempts.answers_by_task(stretch)
            counts.update(zip(rewards, answers, strict=True))
            if len(counts) > MAX_KINDS:
                yield from self._kinds_of(counts)
                counts.clear()
        yield from self._kinds_of(counts)

    def _kinds_of(self, counts: Mapping[Kind, int]) -> Iterator[tuple[TaskScores, int]]:
        """Take those for the same whose answers are others, but agree where theirs do."""
        for (rewards, votes), num_tasks in by_votes(counts).items():
            texts = [str(vote) if vote else None for vote in votes]
            yield self._scores("", rewards, texts), num_tasks

    def _scores_of(self, stretch: Stretch) -> Iterator[TaskScores]:
        attempts = self._attempts
        for line, rewards, numbers in zip(
            stretch.lines[:: stretch.num_attempts],
            attempts.rewards_by_task(stretch),
            attempts.answers_by_task(stretch),
            strict=True,
        ):
            texts = [attempts.answers.text(number) for number in numbers]
            num_unscored = self._num_unscored(stretch)
            yield self._scores(attempts.task_id(line), rewards, texts, num_unscored)

    def _scores(
        self,
        task_id: str,
        rewards: Sequence[float],
        answers: Sequence[str | None],
        num_unscored: int = 0,
    ) -> TaskScores:
        threshold = self.facts.success_threshold
        return TaskScores(
            self.name,
            task_id,
            rewards,
            answers if self._attempts.answers else None,
            None if threshold is None else sum(reward >= threshold for reward in rewards),
            num_unscored,
        )

    def _rewards_by_task(self) -> Iterator[tuple[tuple[float, ...], int]]:
        """Give the rewards of every task, in order of attempt, and how many are not scored."""
        for stretch in self._by_task():
            num_unscored = itertools.repeat(self._num_unscored(stretch), stretch.num_tasks)
            yield from zip(self._attempts.rewards_by_task(stretch), num_unscored, strict=True)
        for task_id in self._failures.never_scored:
            yield (), self._failures.num_unscored(task_id)

    def named_by_task(self, kind: NamedKind) -> dict[str, Iterator[Sequence[float]]]:
        """Give for each number that has a name its values, task by task of those that have it."""
        named = self._named[kind]
        if not named:
            return {}
        task_of = array("I", [0]) * len(self._attempts)
        num_tasks = 0
        for stretch in self._by_task():
            for place, line in enumerate(stretch.lines):
                task_of[line] = num_tasks + place // stretch.num_attempts
            num_tasks += stretch.num_tasks
        return {name: values.by_task(task_of, num_tasks) for name, values in named.items()}

    def groups(self) -> Iterator[Group]:
        """Give the scored attempts of each task that has any, one after another.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        return groups_of(self._attempts, self._by_task(), **self._named)

    def fields_of_failed(self) -> Iterator[tuple[str, FieldValues]]:
        """Give of tasks that have both scores and failures what their rows say of the fields.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        for stretch in self._by_task():
            if stretch.is_apart:
                line = stretch.lines[0]
                fields = self._attempts.fields.values()
                yield self._attempts.task_id(line), [column.at(line) for column in fields]

    def failures(self) -> Iterator[FailureLine]:
        """Give for each attempt that was not scored its last failure, by task id.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        self._by_task()
        return self._failures.unscored()

    def totals(self) -> Totals:
        """Give what the scored attempts took, and those that failed and were not made up for.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        self._by_task()
        totals = Totals(Usage(), Cost(), {}, Counter(self._retries))
        totals.usage.add(self._usage)
        totals.cost.add_sum(self._cost)
        totals.add_roles(self._role_usage)
        self._failures.add_to(totals)
        return totals

    def _by_task(self) -> Sequence[Stretch]:
        """Put the attempts together by task, and with them what was not scored.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        if self._stretches is None:
            attempts = self._attempts
            self._stretches = attempts.stretches(self._failures.tasks)
            self._failures.settle(
                (attempts.task_id(stretch.lines[0]), set(attempts.attempts(stretch.lines)))
                for stretch in self._stretches
                if stretch.is_apart
            )
        return self._stretches

    def _num_unscored(self, stretch: Stretch) -> int:
        """Count the attempts of each task of a stretch that are not scored."""
        if not stretch.is_apart:
            return 0
        return self._failures.num_unscored(self._attempts.task_id(stretch.lines[0]))
