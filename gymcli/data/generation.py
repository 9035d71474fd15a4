"""Data sets of environments, written again from their seeds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec

from gymcli.environment.registry import (
    NUM_GENERATED,
    Found,
    Registry,
    generated_lines,
    generates,
    own_tasks,
)
from gymcli.errors import EpisodeError, UsageError

__all__ = ["Comparison", "compare_generated", "generated_rows"]


class Comparison(msgspec.Struct):
    """Whether an environment generates a file of tasks."""

    env: str
    num_rows: int
    """Rows of the file."""
    difference: str | None = None
    """The first one, for people; None where every byte is the same."""


def generated_rows(env: str, num: int | None = None, *, seed: int = 0) -> Iterator[bytes]:
    """Give the lines of an environment's data set; without a number, as many as ship with it.

    Raises:
        UsageError: The environment is not there, generates no tasks, or not these.

    """
    found = Registry((env,)).find(env)
    if not generates(found):
        raise UsageError(f"environment {found.name} generates no tasks")
    wanted = (_num_shipped(found) or NUM_GENERATED) if num is None else num
    num_given = 0
    try:
        for line in generated_lines(found, wanted, seed=seed):
            num_given += 1
            yield line
    except EpisodeError as error:
        raise UsageError(f"environment {found.name} cannot give {wanted} rows: {error}") from error
    if num_given != wanted:
        raise UsageError(f"environment {found.name} gave {num_given} rows, not {wanted}")


def compare_generated(env: str, path: Path | None = None) -> Comparison:
    """Generate a file of tasks again from seed 0 and compare byte for byte; else what ships.

    Raises:
        UsageError: The environment is not there, or no tasks ship with it.

    """
    found = Registry((env,)).find(env)
    path = path or own_tasks(found)
    if path is None:
        raise UsageError(f"environment {found.name} ships no tasks to compare with")
    lines = path.read_bytes().splitlines(keepends=True)
    result = Comparison(found.name, len(lines))
    try:
        pairs = zip_longest(lines, generated_lines(found, len(lines)))
        different = (number for number, (old, new) in enumerate(pairs, 1) if old != new)
        if (number := next(different, None)) is not None:
            result.difference = f"line {number} differs"
    except EpisodeError as error:
        result.difference = str(error)
    return result


def _num_shipped(found: Found) -> int:
    path = own_tasks(found)
    return len(path.read_bytes().splitlines()) if path else 0
