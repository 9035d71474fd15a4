"""Shards of a set of tasks: together, the runs of all shards take each task once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gymcli.errors import RunMismatchError

_MAX_SHARDS = 100_000


class Shard(NamedTuple):
    """One of several parts of a set of tasks, of about equal size."""

    number: int
    """Counted from 1."""
    num_shards: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `I/N`; ValueError if it is not a shard."""
        match = re.fullmatch("([0-9]+)/([0-9]+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not I/N, such as 1/4")
        shard = cls(int(match[1]), int(match[2]))
        if not 1 <= shard.number <= shard.num_shards:
            raise ValueError(f"{text!r} is not one of 1/N to N/N")
        if shard.num_shards > _MAX_SHARDS:
            raise ValueError(f"{text!r} has more than {_MAX_SHARDS:,} shards")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.num_shards}"

    def takes(self, task_hash: str) -> bool:
        return int(task_hash, 16) % self.num_shards == self.number - 1


def check_same_shard(path: Path, run_shard: str, shard: str) -> None:
    """Raise RunMismatchError if a run is of another shard; an empty string means all tasks."""
    if run_shard == shard:
        return
    content = f"shard {run_shard}" if run_shard else "a run of all shards"
    remedy = f"use --shard {run_shard}" if run_shard else "leave out --shard"
    raise RunMismatchError(f"{path}: holds {content}; {remedy} to resume it, or use another --out")
