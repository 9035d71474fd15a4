"""Which attempts of a run are scored already, read from its rollouts."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from gymcli.errors import RunFileError
from gymcli.numbering import Numbering
from gymcli.store.rollout_files import numbered_structs
from gymcli.types import RecordHead

__all__ = ["Done", "DoneTasks", "read_done"]

_MAX_ATTEMPT = 1_000_000
"""A bit each: a number beyond this is damage, and would take the memory."""
_HASH = re.compile(r"[0-9a-f]{16}")
_COLUMN_BITS = 64
_COLUMN_MASK = (1 << _COLUMN_BITS) - 1


class _Scored(RecordHead, kw_only=True):
    """The part of a rollout line that resuming needs."""

    attempt: Annotated[int, msgspec.Meta(ge=0, le=_MAX_ATTEMPT)] = 0
    group_size: Annotated[int, msgspec.Meta(ge=0, le=_MAX_ATTEMPT)] = 0


class Done(NamedTuple):
    """The attempts of one task that are scored already."""

    task_hash: str
    attempts: int
    """A bit for every scored attempt."""
    group_size: int = 0
    """Attempts that were scored together; 0 where each was scored by itself."""

    def has(self, attempt: int) -> bool:
        """Say whether an attempt is scored."""
        return bool(self.attempts >> attempt & 1)

    @property
    def is_torn(self) -> bool:
        """Whether attempts that were scored together are not all there."""
        return self.attempts.bit_count() < self.group_size


class DoneTasks(Mapping[tuple[str, str], Done]):
    """What is scored of each task, by environment and task id.

    Memory holds some 40 bytes of a task beside its id.
    """

    def __init__(self) -> None:
        self._environments: dict[str, _Columns] = {}

    def __len__(self) -> int:
        """Give how many tasks have a score."""
        return sum(len(columns.tasks) for columns in self._environments.values())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Give the tasks, those of one environment after each other."""
        for env, columns in self._environments.items():
            for number in range(len(columns.tasks)):
                yield env, columns.tasks[number].decode()

    def __getitem__(self, key: tuple[str, str]) -> Done:
        """Give what is scored of a task."""
        env, task_id = key
        columns = self._environments.get(env)
        number = None if columns is None else columns.tasks.find(task_id.encode())
        if columns is None or number is None:
            raise KeyError(key)
        return columns.done(number)

    def add(self, env: str, task_id: str, done: Done) -> bool:
        """Count attempts of a task, whose first hash counts; False: they are there already."""
        columns = self._environments.get(env)
        if columns is None:
            columns = self._environments[env] = _Columns()
        return columns.add(task_id.encode(), done)

    def absent(self, tasks: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Give those that are not among these tasks."""
        is_there = {env: bytearray(len(found.tasks)) for env, found in self._environments.items()}
        for env, task_id in tasks:
            columns = self._environments.get(env)
            number = None if columns is None else columns.tasks.find(task_id.encode())
            if number is not None:
                is_there[env][number] = True
        for env, flags in is_there.items():
            found = self._environments[env].tasks
            number = flags.find(0)
            while number >= 0:
                yield env, found[number].decode()
                number = flags.find(0, number + 1)

    def num_attempts(self) -> dict[str, int]:
        """Count the attempts by environment."""
        return {env: columns.num_attempts() for env, columns in self._environments.items()}


class _Columns:
    """What is scored of the tasks of one environment, each thing in an array of its own."""

    def __init__(self) -> None:
        self.tasks = Numbering()
        self._hashes = array("Q")
        self._other_hashes: dict[int, str] = {}
        """By task, those that are not 16 hex digits."""
        self._attempts = array("Q")
        """The bits of the first attempts."""
        self._more_attempts: dict[int, int] = {}
        """By task, the bits of the others."""
        self._group_sizes = array("I")

    def add(self, task_id: bytes, done: Done) -> bool:
        number = self.tasks.number_of(task_id)
        if number == len(self._hashes):
            self._hashes.append(self._hash_of(number, done.task_hash))
            self._attempts.append(0)
            self._group_sizes.append(done.group_size)
        elif self._all_attempts(number) & done.attempts:
            return False
        self._attempts[number] |= done.attempts & _COLUMN_MASK
        if more := done.attempts >> _COLUMN_BITS:
            self._more_attempts[number] = self._more_attempts.get(number, 0) | more
        return True

    def done(self, number: int) -> Done:
        task_hash = self._other_hashes.get(number)
        if task_hash is None:
            task_hash = f"{self._hashes[number]:016x}"
        return Done(task_hash, self._all_attempts(number), self._group_sizes[number])

    def num_attempts(self) -> int:
        first = sum(map(int.bit_count, self._attempts))
        return first + sum(map(int.bit_count, self._more_attempts.values()))

    def _all_attempts(self, number: int) -> int:
        return self._attempts[number] | self._more_attempts.get(number, 0) << _COLUMN_BITS

    def _hash_of(self, number: int, text: str) -> int:
        if _HASH.fullmatch(text):
            return int(text, 16)
        self._other_hashes[number] = text
        return 0


def read_done(path: Path) -> DoneTasks:
    """Read which attempts are scored; none where there is no file.

    Raises:
        RunFileError: A line is damaged, or an attempt is there twice.

    """
    found = DoneTasks()
    if not path.is_file():
        return found
    for number, line in numbered_structs(path, msgspec.json.Decoder(_Scored)):
        done = Done(line.task_hash, 1 << line.attempt, line.group_size)
        if not found.add(line.env, line.task_id, done):
            raise RunFileError(
                f"{path}:{number}: attempt {line.attempt} of task {line.task_id} "
                f"({line.env}) is there twice; delete one of the lines"
            )
    return found
