"""Tasks that are alike, taken together: a run has few kinds of tasks, and very many of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Alike"]


class Alike(NamedTuple):
    """Tasks whose attempts got the same rewards: what is said of one of them holds for all."""

    rewards: Sequence[float]
    """Of one of the tasks."""
    num_absent: int = 0
    """Attempts of one of the tasks that have no reward."""
    num_tasks: int = 1
