"""Tasks that are alike, taken together: a run has few kinds of tasks, and very many of each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["MAX_KINDS", "Alike", "count_alike"]

MAX_KINDS = 1 << 14
"""Kinds of tasks that are told apart at a time; each takes about 500 bytes."""
_TASKS_AT_A_TIME = 1 << 10
"""Tasks that are counted together; each takes about 200 bytes until then."""


class Alike(NamedTuple):
    """Tasks whose attempts got the same rewards: what is said of one of them holds for all."""

    rewards: Sequence[float]
    """Of one of the tasks."""
    num_absent: int = 0
    """Attempts of one of the tasks that have no reward."""
    num_tasks: int = 1


def count_alike(tasks: Iterator[tuple[tuple[float, ...], int]]) -> list[Alike]:
    """Count the tasks that are alike; gives nothing where there are too many kinds.

    Args:
        tasks: Of each task the rewards, and how many attempts have none.

    """
    counts = Counter[tuple[tuple[float, ...], int]]()
    while part := list(itertools.islice(tasks, _TASKS_AT_A_TIME)):
        counts.update(part)
        if len(counts) > MAX_KINDS:
            return []
    return [Alike(*kind, num_tasks) for kind, num_tasks in counts.items()]
