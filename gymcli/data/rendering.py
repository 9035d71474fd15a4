"""Rows of any shape, written in the plain shape with their prompt filled in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from gymcli.nemo_gym.rows import own_task_id
from gymcli.runner.survey import Problems
from gymcli.runner.task_source import named_file
from gymcli.store.task_row import PromptTemplate
from gymcli.store.tasks import Hints, RowProblem, TaskReading, read_tasks, told_apart
from gymcli.types import JSONObject, TaskRow

__all__ = ["rendered_rows"]

_ID_NAMES = ("id", "task_id", "uuid")


def rendered_rows(
    task: str | Path,
    *,
    prompt: Path | None = None,
    id_field: str | None = None,
    limit: int | None = None,
) -> Iterator[JSONObject]:
    """Give the rows of a file, or those that ship with an environment, in the plain shape.

    Collecting them gives the same tasks as collecting the file with the same template: id,
    environment, messages, tools, parameters and fields. A row without an id gets one, since its
    content is no longer what names it; with an `id_field`, a collection needs that again.

    Raises:
        UsageError: The file or the template cannot be read.
        TasksError: Rows are wrong; the first 20 are listed, after the last row was given.

    """
    file = named_file(task)
    template = PromptTemplate.read(prompt) if prompt else None
    reading = TaskReading(
        default_env=file.env or "",
        template=template,
        id_field=id_field,
        hints=Hints(same_id_in_files=""),
    )
    told = told_apart(lambda shared_ids: _read_whole(file.path, reading, shared_ids))
    items = (i for i in read_tasks([file.path], told) if isinstance(i, TaskRow | RowProblem))
    problems = Problems()
    for item in islice(items, limit):
        if isinstance(item, RowProblem):
            problems.add(item)
            continue
        try:
            row = _plain_row(item, is_named=id_field is not None)
        except ValueError as error:
            problems.add(RowProblem(item.place, str(error)))
            continue
        yield row
    problems.check()


def _read_whole(
    path: Path, reading: TaskReading, shared_ids: frozenset[tuple[str, str]]
) -> TaskReading:
    """Return how the rows are read, once it is known which ids they share."""
    told = reading._replace(shared_ids=shared_ids)
    deque(read_tasks([path], told), maxlen=0)
    return told


def _plain_row(task: TaskRow, *, is_named: bool) -> JSONObject:
    """Give a row that is read as this task.

    Raises:
        ValueError: One of its fields would be taken for its prompt.

    """
    row = dict(task.fields)
    for name in ("messages", "tools"):
        if row.pop(name, None) is not None:
            raise ValueError(
                f'the field "{name}" would be read as the {name} of the prompt; rename it'
            )
    own_id = None if is_named else own_task_id(row)
    if own_id not in (None, task.id):
        row["task_id"] = task.id  # other rows have its own, too
    elif not is_named and own_id is None:
        name = next((name for name in _ID_NAMES if name not in row), _ID_NAMES[0])
        row.pop(name, None)
        row = {name: task.id, **row}
    control: JSONObject = {
        "env": task.env or None,
        "max_turns": task.max_turns,
        "messages": msgspec.to_builtins(task.messages),
        "tools": task.tools,
        "params": task.params or None,
    }
    return {**row, **{name: value for name, value in control.items() if value is not None}}
