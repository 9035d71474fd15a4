"""The scored attempts of an environment: a few bytes each, put together by task in the end."""

from __future__ import annotations

import itertools
import operator
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from gymcli.errors import RunFileError
from gymcli.metrics.answers import Answers
from gymcli.metrics.small_ints import SmallInts
from gymcli.metrics.texts import Texts

__all__ = ["ScoredAttempts", "Stretch"]

_NUM_BUCKETS = 1 << 8
_FEW_LINES = 1 << 12
"""As many are one bucket."""
_bucket_of = (_NUM_BUCKETS - 1).__and__

T = TypeVar("T")


class Stretch(NamedTuple):
    """Tasks that have equally many attempts, with the lines of each next to each other."""

    lines: array[int]
    """In the order of the attempts of each task."""
    num_attempts: int
    """Of each of the tasks."""
    is_apart: bool = False
    """Whether it is a task that was asked to stand by itself."""

    @property
    def num_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.lines) // self.num_attempts


class ScoredAttempts:
    """Attempts, numbered as they come ("lines"): each thing of theirs is in a column of its own.

    Which of them are of one task is found out in the end, in one bucket of tasks after another
    (the partitioned hash join of Kitsuregawa et al. 1983): a table of the tasks of one bucket at a
    time is small, and all of it is done by dict, sort and zip, which are C.
    """

    def __init__(self, env: str) -> None:
        self.env = env
        """The environment of all of them."""
        self.rewards = array("d")
        """In the order they came."""
        self.answers = Answers()
        self.fields: dict[str, Answers] = {}
        """What the task rows say, as JSON texts, of the fields that were asked for."""
        self._task_ids = Texts()
        self._attempts = SmallInts()
        self._bucket_of = array("B")
        """Of each line, by the hash of its task's id."""

    def __len__(self) -> int:
        """Give how many attempts there are."""
        return len(self.rewards)

    def extend(
        self, task_ids: Sequence[str], attempts: Sequence[int], rewards: Sequence[float]
    ) -> None:
        """Add attempts."""
        self._bucket_of.extend(map(_bucket_of, map(hash, task_ids)))
        self._task_ids.extend(task_ids)
        self._attempts.extend(attempts)
        self.rewards.extend(array("d", rewards))

    def with_rewards(self, rewards: array[float]) -> ScoredAttempts:
        """Give the same attempts with other rewards and no answers; none is added any more."""
        other = ScoredAttempts(self.env)
        other.rewards = rewards
        other._task_ids, other._attempts = self._task_ids, self._attempts
        other._bucket_of = self._bucket_of
        return other

    def stretches(self, apart: Collection[str] = ()) -> list[Stretch]:
        """Put the attempts together by task; each of the tasks `apart` is a stretch of its own.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        for column in (self.answers, *self.fields.values()):
            column.complete(len(self))
        encoded = {task_id.encode() for task_id in apart}
        stretches: list[Stretch] = []
        twice: list[tuple[str, int]] = []
        buckets = self._buckets()
        while buckets:
            bucket = buckets.pop()
            task_ids = self._task_ids.encoded(bucket)
            if len(set(task_ids)) == len(bucket) and encoded.isdisjoint(task_ids):
                found = [Stretch(bucket, 1)]
            else:
                found = list(_stretches_of(bucket, task_ids, encoded))
                twice += [one for stretch in found if (one := self._sort(stretch)) is not None]
            stretches += found
        if twice:
            task_id, attempt = min(twice)
            raise RunFileError(
                f"task {task_id!r} of environment {self.env!r}, attempt {attempt}, is scored "
                "by two lines; keep one of them"
            )
        return stretches

    def _buckets(self) -> list[array[int]]:
        """Give the lines in buckets, of which each task is in one."""
        if len(self) <= _FEW_LINES:
            return [array("I", range(len(self)))] if self else []
        buckets = [array("I") for _ in range(_NUM_BUCKETS)]
        append_to = [bucket.append for bucket in buckets]
        for line, number in enumerate(self._bucket_of):
            append_to[number](line)
        return [bucket for bucket in buckets if bucket]

    def _sort(self, stretch: Stretch) -> tuple[str, int] | None:
        """Put the lines of each task in the order of attempts; give an attempt that is there twice.

        There are few different rows of attempts, and as a rule all of them are in order: only
        where one is not the tasks are looked at one by one.
        """
        lines, size = stretch.lines, stretch.num_attempts
        rows = set(_by_task(self.attempts(lines), size))
        if all(all(map(operator.lt, row, row[1:])) for row in rows):
            return None
        twice = []
        numbered = list(zip(self.attempts(lines), lines, strict=True))
        for start in range(0, len(lines), size):
            own = sorted(numbered[start : start + size])
            lines[start : start + size] = array("I", [line for _, line in own])
            twice += [
                (self.task_id(line), number)
                for (number, line), (following, _) in itertools.pairwise(own)
                if number == following
            ]
        return min(twice, default=None)

    def task_id(self, line: int) -> str:
        """Give the id of the task of a line."""
        return self._task_ids[line]

    def attempts(self, lines: Iterable[int]) -> list[int]:
        """Give the number of each attempt within its task."""
        return self._attempts.at(lines)

    def rewards_by_task(self, stretch: Stretch) -> Iterator[tuple[float, ...]]:
        """Give the rewards of each task of a stretch."""
        rewards = self.rewards
        return _by_task([rewards[line] for line in stretch.lines], stretch.num_attempts)

    def answers_by_task(self, stretch: Stretch) -> Iterator[tuple[int, ...]]:
        """Give the numbers of the answers of each task; of none where no attempt has any."""
        if not self.answers:
            return itertools.repeat((), stretch.num_tasks)
        return _by_task(self.answers.numbers_at(stretch.lines), stretch.num_attempts)


def _by_task(values: Iterable[T], num_attempts: int) -> Iterator[tuple[T, ...]]:
    """Give the values of each task, of those of tasks that follow one another."""
    return zip(*[iter(values)] * num_attempts, strict=True)


def _stretches_of(
    lines: Sequence[int], task_ids: Sequence[bytes], apart: Collection[bytes]
) -> Iterator[Stretch]:
    """Give the tasks of a bucket, those with equally many lines together."""
    lines_of = defaultdict(list)
    for line, task_id in zip(lines, task_ids, strict=True):
        lines_of[task_id].append(line)
    for task_id in apart:
        if own := lines_of.pop(task_id, None):
            yield Stretch(array("I", own), len(own), is_apart=True)
    in_order = sorted(lines_of.values(), key=len)
    for num_attempts, tasks in itertools.groupby(in_order, len):
        yield Stretch(array("I", itertools.chain.from_iterable(tasks)), num_attempts)
