"""What the scored attempts of one task say, or of several that are the same in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["Kind", "TaskScores", "by_votes"]

Kind: TypeAlias = tuple[tuple[float, ...], tuple[int, ...]]
"""The rewards of a task in order of attempt, and the numbers of the answers, 0 for none."""


class TaskScores(NamedTuple):
    """The scored attempts of one task, in order of attempt."""

    env: str
    task_id: str
    """Empty where it stands for several tasks that are alike."""
    rewards: Sequence[float]
    answers: Sequence[str | None] | None
    """None where no attempt of the environment has an answer: it does not extract any."""
    num_passes: int | None
    """Attempts whose reward reaches the threshold of success; None where there is none."""
    num_unscored: int = 0
    """Attempts whose last record is a failure."""


def by_votes(counts: Mapping[Kind, int]) -> Counter[Kind]:
    """Count tasks as the same that have other answers, but whose attempts agree in the same way."""
    kinds = Counter[Kind]()
    for (rewards, answers), num_tasks in counts.items():
        own = {0: 0}
        votes = tuple([own.setdefault(number, len(own)) for number in answers])
        kinds[rewards, votes] += num_tasks
    return kinds
