"""The mean reward of the same attempts by two verifiers."""

from __future__ import annotations

import itertools
import operator
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gymcli.metrics.attempts import ScoredAttempts
from gymcli.metrics.estimators import mean
from gymcli.metrics.records import EnvironmentFacts
from gymcli.metrics.sums import RunningMean
from gymcli.metrics.tally import EnvironmentTally
from gymcli.metrics.texts import Texts

__all__ = ["PairedAttempts", "PairedMeans"]

_NUM_BUCKETS = 1 << 8
_bucket_of = (_NUM_BUCKETS - 1).__and__
_PIECES_AT_A_TIME = 1 << 13
"""Pieces that are counted together; each takes about 400 bytes until then."""

_Row = tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]
"""Attempts of a task, and the two rewards of each."""


class PairedAttempts(NamedTuple):
    """The attempts of a task that have both rewards, in order."""

    task_id: str
    attempts: Sequence[int]
    rewards: tuple[float, ...]
    others: tuple[float, ...]


class PairedMeans:
    """Takes the two rewards of attempts and gives the mean over tasks of either.

    They are the means that `Aggregator` gives of an environment of which no facts are known; tasks
    of several environments have none in common.
    """

    def __init__(self) -> None:
        self._pairs: dict[str, _Pairs] = {}
        """By environment."""

    def add(
        self,
        env: str,
        task_ids: Sequence[str],
        *,
        num_attempts: Iterable[int],
        attempts: Iterable[int],
        rewards: Iterable[float],
        others: Iterable[float],
    ) -> None:
        """Take attempts of an environment that have both rewards.

        Args:
            env: The environment.
            task_ids: The tasks; one may come again later, with more of its attempts.
            num_attempts: How many attempts of each task there are.
            attempts: Their numbers, those of each task together.
            rewards: The reward of each by the one verifier.
            others: The reward of each by the other verifier.

        """
        if env not in self._pairs:
            self._pairs[env] = _Pairs(env)
        self._pairs[env].add(task_ids, num_attempts, attempts, rewards, others)

    def means(self) -> tuple[float | None, float | None]:
        """Give both means, once all are added; None unless they are of one environment.

        Raises:
            RunFileError: An attempt was there twice.

        """
        means = [self._pairs[env].means() for env in sorted(self._pairs)]
        return means[0] if len(means) == 1 else (None, None)

    def tasks(self, env: str) -> Iterator[PairedAttempts]:
        """Give every task of an environment once, when all are added.

        Raises:
            RunFileError: An attempt was there twice.

        """
        return self._pairs[env].tasks() if env in self._pairs else iter(())


class _Pairs:
    """The attempts of one environment in columns: in pieces, each of several of one task.

    Most tasks are one piece, and of those there are few kinds: to count them takes a third of the
    time that it would take to put all attempts together by task.
    """

    def __init__(self, env: str) -> None:
        self._env = env
        self._task_ids = Texts()
        self._buckets = array("B")
        """Of each piece: pieces of one task have the same."""
        self._sizes = array("I")
        """How many attempts each piece has."""
        self._attempts = array("q")
        self._rewards = array("d")
        self._others = array("d")

    def add(
        self,
        task_ids: Sequence[str],
        num_attempts: Iterable[int],
        attempts: Iterable[int],
        rewards: Iterable[float],
        others: Iterable[float],
    ) -> None:
        """Add pieces."""
        self._task_ids.extend(task_ids)
        self._buckets.extend(map(_bucket_of, map(hash, task_ids)))
        self._sizes.extend(num_attempts)
        self._attempts.extend(attempts)
        self._rewards.extend(rewards)
        self._others.extend(others)

    def means(self) -> tuple[float, float]:
        """Give both means.

        Raises:
            RunFileError: An attempt was there twice.

        """
        first, second = RunningMean(), RunningMean()
        is_whole = self._is_whole()
        wholes = itertools.compress(self._rows(), is_whole)
        while kinds := Counter(itertools.islice(wholes, _PIECES_AT_A_TIME)):
            for (attempts, rewards, others), num_tasks in kinds.items():
                if len(set(attempts)) < len(attempts):
                    self._together(bytes(len(is_whole)))  # raises
                first.add(mean(rewards), num_tasks)
                second.add(mean(others), num_tasks)
        if not all(is_whole):
            for means, tally in zip((first, second), self._together(is_whole), strict=True):
                for task in tally.alike():
                    means.add(mean(task.rewards), task.num_tasks)
        return first.mean, second.mean

    def _rows(self) -> Iterator[_Row]:
        """Give each piece."""
        columns = iter(self._attempts), iter(self._rewards), iter(self._others)
        for size, pieces in itertools.groupby(self._sizes):
            num_attempts = size * len(list(pieces))
            own = (itertools.islice(column, num_attempts) for column in columns)
            yield from zip(*(zip(*[column] * size, strict=True) for column in own), strict=True)

    def _is_whole(self) -> bytearray:
        """Say of each piece whether all of its task is there.

        In one bucket of pieces after another: a set of those is small.
        """
        is_whole = bytearray(b"\1") * len(self._sizes)
        buckets = [array("I") for _ in range(_NUM_BUCKETS)]
        append_to = [bucket.append for bucket in buckets]
        for piece, number in enumerate(self._buckets):
            append_to[number](piece)
        for bucket in buckets:
            task_ids = self._task_ids.encoded(bucket)
            if len(set(task_ids)) < len(bucket):
                num_pieces = Counter(task_ids)
                for piece, task_id in zip(bucket, task_ids, strict=True):
                    is_whole[piece] = num_pieces[task_id] == 1
        return is_whole

    def tasks(self) -> Iterator[PairedAttempts]:
        """Give every task once.

        Raises:
            RunFileError: An attempt was there twice.

        """
        is_whole = self._is_whole()
        for piece, row in itertools.compress(enumerate(self._rows()), is_whole):
            yield PairedAttempts(self._task_ids[piece], *_in_order(row))
        scattered, others = ScoredAttempts(self._env), array("d")
        for task_ids, attempts, rewards, seconds in self._scattered(is_whole):
            scattered.extend(task_ids, attempts, rewards)
            others.extend(seconds)
        for stretch in scattered.stretches():
            for start in range(0, len(stretch.lines), stretch.num_attempts):
                lines = stretch.lines[start : start + stretch.num_attempts]
                yield PairedAttempts(
                    scattered.task_id(lines[0]),
                    scattered.attempts(lines),
                    tuple([scattered.rewards[line] for line in lines]),
                    tuple([others[line] for line in lines]),
                )

    def _together(self, is_whole: Sequence[int]) -> tuple[EnvironmentTally, EnvironmentTally]:
        """Put the attempts of tasks in several pieces together by task, with either reward.

        Raises:
            RunFileError: An attempt was there twice.

        """
        first, seconds = EnvironmentTally(self._env, EnvironmentFacts()), array("d")
        for task_ids, attempts, rewards, others in self._scattered(is_whole):
            first.add_rewards(task_ids, attempts, rewards)
            seconds.extend(others)
        first.num_tasks()  # finds what is there twice
        return first, first.with_rewards(seconds)

    def _scattered(
        self, is_whole: Sequence[int]
    ) -> Iterator[tuple[list[str], list[int], list[float], list[float]]]:
        """Give the attempts of tasks in several pieces, in columns: the last one the others."""
        pieces = itertools.compress(enumerate(self._rows()), map(operator.not_, is_whole))
        while part := list(itertools.islice(pieces, _PIECES_AT_A_TIME)):
            yield (
                [self._task_ids[piece] for piece, row in part for _ in row[0]],
                [attempt for _, row in part for attempt in row[0]],
                [reward for _, row in part for reward in row[1]],
                [other for _, row in part for other in row[2]],
            )


def _in_order(row: _Row) -> _Row:
    """Give a piece in the order of its attempts, which it has as a rule."""
    attempts, rewards, others = row
    if all(map(operator.lt, attempts, attempts[1:])):
        return row
    places = sorted(range(len(attempts)), key=attempts.__getitem__)
    return (
        tuple([attempts[place] for place in places]),
        tuple([rewards[place] for place in places]),
        tuple([others[place] for place in places]),
    )
