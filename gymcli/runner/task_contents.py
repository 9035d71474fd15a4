"""What the tasks of a run were, so that another run's tasks of the same ids can be held to it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gymcli.runner.made_lines import MadeLine

__all__ = ["Different", "TaskContents", "different_tasks"]

_HASH = re.compile(r"[0-9a-f]{16}")
_MASK = (1 << 64) - 1
_NEVER = (1 << 63) - 1


class TaskContents:
    """Content, prompt and seed of the first attempt of each task: 32 bytes a task."""

    def __init__(self) -> None:
        self._attempts = array("q")
        self._contents = array("Q")
        self._prompts = array("q")
        self._seeds = array("Q")

    def see(self, tasks: Sequence[int], lines: Sequence[MadeLine], num_tasks: int) -> None:
        """Take lines, each with the number of its task, of which there are so many now."""
        num_new = num_tasks - len(self._attempts)
        self._attempts.extend([_NEVER] * num_new)
        for column in (self._contents, self._prompts, self._seeds):
            column.frombytes(bytes(column.itemsize * num_new))
        attempts = self._attempts
        for task, line in zip(tasks, lines, strict=True):
            if line.attempt < attempts[task]:
                attempts[task] = line.attempt
                self._contents[task] = _number_of(line.task_hash)
                self._prompts[task] = line.prompt_hash
                self._seeds[task] = line.seed & _MASK

    def __len__(self) -> int:
        """Give how many tasks there are, with those that this run lacks."""
        return len(self._attempts)

    def is_there(self, task: int) -> bool:
        """Say whether the run has a task."""
        return self._attempts[task] != _NEVER

    def has_other_content(self, other: TaskContents, task: int) -> bool:
        """Say whether both runs know the content of a task and it is not the same."""
        mine, theirs = self._contents[task], other._contents[task]
        return bool(mine and theirs) and mine != theirs

    def has_other_prompt(self, other: TaskContents, task: int) -> bool:
        """Say whether both runs know what the model was shown and it is not the same."""
        mine, theirs = self._prompts[task], other._prompts[task]
        return bool(mine and theirs) and mine != theirs

    def has_other_seed(self, other: TaskContents, task: int) -> bool:
        """Say whether the prompts of a task may differ since chance had other seeds."""
        key = (self._attempts[task], self._seeds[task])
        return key != (other._attempts[task], other._seeds[task])


class Different(NamedTuple):
    """Tasks that both runs have and that are not the same."""

    contents: list[int]
    prompts: list[int]
    """Of the same content and seed."""
    num_by_seed: int
    """Tasks with other prompts and other seeds, of which either may be the cause."""


def different_tasks(a: TaskContents, b: TaskContents) -> Different:
    """Give the tasks of one environment that differ between two runs, by their numbers."""
    contents, prompts, num_by_seed = [], [], 0
    for task in _shared(a, b):
        if a.has_other_content(b, task):
            contents.append(task)
        elif a.has_other_prompt(b, task):
            if a.has_other_seed(b, task):
                num_by_seed += 1
            else:
                prompts.append(task)
    return Different(contents, prompts, num_by_seed)


def _shared(a: TaskContents, b: TaskContents) -> Iterator[int]:
    numbers = range(min(len(a), len(b)))
    return (task for task in numbers if a.is_there(task) and b.is_there(task))


def _number_of(task_hash: str) -> int:
    """Give a number for the content of a task; 0 where it is not known."""
    if _HASH.fullmatch(task_hash):
        return int(task_hash, 16)
    return hash(task_hash) & _MASK if task_hash else 0
