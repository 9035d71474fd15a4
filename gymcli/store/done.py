"""Which attempts of a run are scored already, read from its rollouts."""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from gymcli.errors import RunFileError
from gymcli.store.rollout_files import numbered_structs
from gymcli.types import RecordHead

__all__ = ["Done", "DoneTasks", "read_done"]

_MAX_ATTEMPT = 1_000_000
"""A bit each: a number beyond this is damage, and would take the memory."""


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
        """Return whether an attempt is scored."""
        return bool(self.attempts >> attempt & 1)

    @property
    def is_torn(self) -> bool:
        """Whether attempts that were scored together are not all there."""
        return self.attempts.bit_count() < self.group_size


DoneTasks: TypeAlias = dict[tuple[str, str], Done]
"""What is scored of each task, by environment and task id: some 350 bytes a task."""


def read_done(path: Path) -> DoneTasks:
    """Read which attempts are scored; none where there is no file.

    Raises:
        RunFileError: A line is damaged, or an attempt is there twice.

    """
    found: DoneTasks = {}
    if not path.is_file():
        return found
    for number, line in numbered_structs(path, msgspec.json.Decoder(_Scored)):
        task = intern(line.env), line.task_id
        before = found.get(task, Done(line.task_hash, 0, line.group_size))
        if before.has(line.attempt):
            raise RunFileError(
                f"{path}:{number}: attempt {line.attempt} of task {line.task_id} "
                f"({line.env}) is there twice; delete one of the lines"
            )
        found[task] = before._replace(attempts=before.attempts | 1 << line.attempt)
    return found
