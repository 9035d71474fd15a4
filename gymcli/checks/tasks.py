"""The tasks on which an environment is checked: given, shipped or generated, each of them valid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import ValidationError

from gymcli.checks.report import Finding, failed, passed
from gymcli.environment.registry import (
    NUM_GENERATED,
    Found,
    Registry,
    generated_lines,
    generates,
    own_tasks,
)
from gymcli.errors import AttemptError, EpisodeError, TasksError
from gymcli.runner.options import CollectOptions
from gymcli.runner.survey import survey
from gymcli.runner.task_source import TaskSource
from gymcli.types import TaskRow

__all__ = ["TaskSet", "read_task_set"]


class TaskSet(NamedTuple):
    """Tasks that an environment is checked on."""

    rows: list[TaskRow]
    """The first of those that are valid, without identical copies."""
    origin: str
    """Where they come from, for people."""
    finding: Finding
    """What is wrong with any of them."""


def read_task_set(found: Found, registry: Registry, given: Path | None, *, limit: int) -> TaskSet:
    """Read the tasks of a file, else those that ship with the environment, else generate some.

    Raises:
        TasksError: The file that was given is not there.

    """
    try:
        with _tasks_file(found, given) as (path, origin):
            options = CollectOptions(model="check", env=found.name)
            source = TaskSource([path], options, registry)
            rows = [row for row in source.rows() if row.env == found.name]
            finding = _finding(source, registry, rows, origin)
            valid = (row for row in rows if row.first_attempt == 0 and _is_valid(row, found))
            return TaskSet(list(islice(valid, limit)), origin, finding)
    except AttemptError as error:
        return TaskSet([], "none", failed(str(error)))


@contextmanager
def _tasks_file(found: Found, given: Path | None) -> Iterator[tuple[Path, str]]:
    """Give the file to read, and how its origin is shown."""
    path = given or own_tasks(found)
    if path is not None:
        yield path, str(path)
        return
    if not generates(found):
        name = found.environment.__name__
        raise EpisodeError(f"{name} generates no tasks and ships none; give --tasks FILE")
    with TemporaryDirectory() as folder:
        path = Path(folder, "generated.jsonl")
        path.write_bytes(b"".join(generated_lines(found)))
        yield path, f"{NUM_GENERATED} generated with Random(0)"


def _finding(source: TaskSource, registry: Registry, rows: list[TaskRow], origin: str) -> Finding:
    """Say what `gym collect` would refuse, and what stands twice."""
    try:
        survey(source, registry)
    except TasksError as error:
        lines = str(error).replace(f"{source.paths[0].parent}/", "").splitlines()
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        return failed(lines[0] + more)
    if not rows:
        return failed(f"{origin}: no row is of this environment")
    copies = [row.id for row in rows if row.first_attempt]
    if copies:
        return failed(f"{len(copies)} rows are copies of others", copies)
    return passed(f"{len(rows)} valid, each with an id of its own")


def _is_valid(row: TaskRow, found: Found) -> bool:
    try:
        found.environment.parse_task(row.fields)
    except ValidationError:
        return False
    return True
