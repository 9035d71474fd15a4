"""The scored attempts of an environment: a few bytes each, put together by task in the end."""

from __future__ import annotations

import itertools
import operator
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from gymcli.errors import RunFileError
from gymcli.metrics.answers import Answers
from gymcli.metrics.small_ints import SmallInts
from gymcli.metrics.texts import Texts

__all__ = ["ScoredAttempts", "Stretch"]

_NUM_BUCKETS = 1 << 8
_bucket_of = (_NUM_BUCKETS - 1).__and__


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
        self._task_ids = Texts()
        self._attempts = SmallInts()
        self._buckets = [array("I") for _ in range(_NUM_BUCKETS)]
        """Lines by the hash of their task's id, as long as they are not put together."""
        self._stretches: list[Stretch] = []

    def __len__(self) -> int:
        """Give how many attempts there are."""
        return len(self.rewards)

    def extend(
        self, task_ids: Sequence[str], attempts: Iterable[int], rewards: Iterable[float]
    ) -> None:
        """Add attempts."""
        self._take_apart()
        buckets = [bucket.append for bucket in self._buckets]
        for line, bucket in enumerate(map(_bucket_of, map(hash, task_ids)), len(self)):
            buckets[bucket](line)
        self._task_ids.extend(task_ids)
        self._attempts.extend(attempts)
        self.rewards.extend(rewards)

    def with_rewards(self, rewards: array[float]) -> ScoredAttempts:
        """Give the same attempts with other rewards and no answers; none is added any more."""
        self._take_apart()
        other = ScoredAttempts(self.env)
        other.rewards = rewards
        other._task_ids, other._attempts = self._task_ids, self._attempts
        other._buckets = [bucket[:] for bucket in self._buckets]
        return other

    def stretches(self, apart: Collection[str] = ()) -> list[Stretch]:
        """Put the attempts together by task; each of the tasks `apart` is a stretch of its own.

        Raises:
            RunFileError: An attempt was scored by two lines.

        """
        self._take_apart()
        self.answers.complete(len(self))
        encoded = {task_id.encode() for task_id in apart}
        twice: list[tuple[str, int]] = []
        for number, bucket in enumerate(self._buckets):
            task_ids = self._task_ids.encoded(bucket)
            if len(set(task_ids)) == len(bucket) and encoded.isdisjoint(task_ids):
                found = [Stretch(bucket, 1)] if bucket else []
            else:
                found = list(_stretches_of(bucket, task_ids, encoded))
                twice += [one for stretch in found if (one := self._sort(stretch)) is not None]
            if not twice:
                self._stretches += found
                self._buckets[number] = array("I")
        if twice:
            task_id, attempt = min(twice)
            raise RunFileError(
                f"task {task_id!r} of environment {self.env!r}, attempt {attempt}, is scored "
                "by two lines; keep one of them"
            )
        return self._stretches

    def _sort(self, stretch: Stretch) -> tuple[str, int] | None:
        """Put the lines of each task in the order of attempts; give an attempt that is there twice.

        There are few different rows of attempts, and as a rule all of them are in order: only
        where one is not the tasks are looked at one by one.
        """
        lines, size = stretch.lines, stretch.num_attempts
        rows = set(zip(*[self.attempts(lines)] * size, strict=True))
        if all(all(map(operator.lt, row, row[1:])) for row in rows):
            return None
        twice = []
        number_of = self._attempts.getter()
        for start in range(0, len(lines), size):
            own = sorted(lines[start : start + size], key=number_of)
            lines[start : start + size] = array("I", own)
            numbers = [number_of(line) for line in own]
            twice += [
                (self.task_id(own[0]), number)
                for number, following in itertools.pairwise(numbers)
                if number == following
            ]
        return min(twice, default=None)

    def task_id(self, line: int) -> str:
        """Give the id of the task of a line."""
        return self._task_ids[line]

    def attempts(self, lines: Iterable[int]) -> Iterator[int]:
        """Give the number of each attempt within its task."""
        return map(self._attempts.getter(), lines)

    def rewards_by_task(self, stretch: Stretch) -> Iterator[tuple[float, ...]]:
        """Give the rewards of each task of a stretch."""
        rewards = map(self.rewards.__getitem__, stretch.lines)
        return zip(*[rewards] * stretch.num_attempts, strict=True)

    def answers_by_task(self, stretch: Stretch) -> Iterator[tuple[int, ...]]:
        """Give the numbers of the answers of each task; of none where no attempt has any."""
        if not self.answers:
            return itertools.repeat((), stretch.num_tasks)
        answers = map(self.answers.getter(), stretch.lines)
        return zip(*[answers] * stretch.num_attempts, strict=True)

    def _take_apart(self) -> None:
        """Put the lines back into their buckets."""
        for stretch in self._stretches:
            bucket = _bucket_of(hash(self.task_id(stretch.lines[0])))
            self._buckets[bucket].extend(stretch.lines)
        self._stretches = []


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
