"""Rows of any shape, written in the plain shape with their prompt filled in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from gymcli.environment.registry import Found, Registry, own_options, split_env_args
from gymcli.environment.tool import EnvironmentOptions
from gymcli.nemo_gym.rows import own_task_id
from gymcli.runner.options import CollectOptions
from gymcli.runner.survey import Problems, row_problems
from gymcli.runner.task_source import TaskSource, named_file
from gymcli.store.task_row import PromptTemplate
from gymcli.store.tasks import (
    Hints,
    IgnoredParameter,
    RowProblem,
    TaskReading,
    read_tasks,
    told_apart,
)
from gymcli.types import JSONObject, TaskRow

__all__ = ["Validation", "rendered_rows", "validate"]


class Validation(msgspec.Struct, kw_only=True):
    """What was found in task files."""

    files: list[str]
    is_checked: bool
    """Whether fields and tools were compared with the environments."""
    num_rows: int = 0
    num_tasks: int = 0
    """Rows that are right, without their identical copies."""
    num_wrong: int = 0
    num_without_id: int = 0
    """Tasks that are known by a hash of their content."""
    num_shared_ids: int = 0
    """Ids that different rows of NeMo Gym have; the content of these is in their names."""
    environments: dict[str, int] = {}
    """Right rows by environment; the key is empty where a row names none."""
    ignored_params: dict[str, int] = {}
    """Rows by the request parameter that they set and may not."""
    problems: list[RowProblem] = []
    agents: list[str] = []
    """What is to be said of agents in rows that no environment is known for."""

    @property
    def num_copies(self) -> int:
        """Rows that are attempts of a task which stands before them."""
        return self.num_rows - self.num_wrong - self.num_tasks

    @property
    def warnings(self) -> list[str]:
        """What is no mistake, and may not be meant."""
        texts = []
        if self.num_copies:
            texts.append(f"{self.num_copies} rows are copies of others: more attempts of one task")
        if self.num_without_id:
            texts.append(
                f"{self.num_without_id} tasks have no id: a hash of their content is one, "
                "which any edit changes"
            )
        if self.num_shared_ids:
            texts.append(
                f"{self.num_shared_ids} ids are those of different rows of NeMo Gym: these tasks "
                "are named ID-HASH, by the first 8 digits of the hash of their content"
            )
        if self.ignored_params:
            names = ", ".join(sorted(self.ignored_params))
            texts.append(f"rows set {names}: ignored, the command line decides these")
        return texts + self.agents


def validate(
    tasks: Sequence[str | Path],
    *,
    env: str | None = None,
    env_args: Mapping[str, str] | None = None,
    prompt: Path | None = None,
    id_field: str | None = None,
    id_by_file: bool = False,
) -> Validation:
    """Read every row, with all that is wrong.

    Where an environment is given, or a file is named by the environment that ships it, that is
    what a collection would refuse; else the shape alone is looked at.

    Raises:
        UsageError: A file, the template or the environment cannot be read, or an option is wrong.

    """
    files = [named_file(task) for task in tasks]
    is_checked = env is not None or any(file.env for file in files)
    environments: dict[str, tuple[Found, EnvironmentOptions]] = {}
    registry = Registry((env,) if env else ()) if is_checked else None
    reading = TaskReading(
        default_env="",
        template=PromptTemplate.read(prompt) if prompt else None,
        id_field=id_field,
        id_by_file=id_by_file,
    )
    options = CollectOptions(
        model="none",
        env=env,
        env_args=dict(env_args or {}),
        prompt=prompt,
        id_field=id_field,
        id_by_file=id_by_file,
    )

    def count(shared_ids: frozenset[tuple[str, str]]) -> Validation:
        result = Validation(files=[str(file.path) for file in files], is_checked=is_checked)
        result.num_shared_ids = len(shared_ids)
        if registry is None:
            told = reading._replace(shared_ids=shared_ids)
            _count(read_tasks([file.path for file in files], told), result, lambda _: [])
            return result

        def problems(row: TaskRow) -> list[str]:
            if row.env not in environments:
                found = registry.find(row.env)
                environments[row.env] = found, own_options(options.env_args, found)
            return row_problems(row, *environments[row.env])

        source = TaskSource(tasks, options, registry)
        source.shared_ids = shared_ids
        _count(source.read(), result, problems)
        return result

    result = told_apart(count)
    if registry is not None:
        result.agents = registry.agent_warnings
    split_env_args(env_args or {}, (found for found, _ in environments.values()))
    if id_field is not None:
        result.num_without_id = 0
    if not result.num_rows:
        reason = "no tasks; expected one JSON object a line"
        result.problems += [RowProblem(file, reason) for file in result.files]
    return result


def _count(
    items: Iterator[TaskRow | RowProblem | IgnoredParameter],
    result: Validation,
    problems_of: Callable[[TaskRow], list[str]],
) -> None:
    """Count the rows and list their problems."""
    environments: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    for item in items:
        if isinstance(item, IgnoredParameter):
            ignored[item.name] += 1
            continue
        result.num_rows += 1
        if isinstance(item, RowProblem):
            found = [item]
        else:
            found = [RowProblem(item.place, text) for text in problems_of(item)]
        result.problems += found
        if found or isinstance(item, RowProblem):
            result.num_wrong += 1
            continue
        environments[item.env] += 1
        if item.first_attempt == 0:
            result.num_tasks += 1
            result.num_without_id += own_task_id(item.fields) is None
    result.environments, result.ignored_params = dict(environments), dict(ignored)


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
