"""Validates task files, renders them in the plain shape, and generates environments' data sets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from gymcli.benchmarks.resolution import task_inputs
from gymcli.environment.registry import (
    NUM_GENERATED,
    Registration,
    Registry,
    generated_lines,
    generates,
    is_code,
    own_options,
    own_tasks,
    split_env_args,
)
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import EpisodeError, UsageError
from gymcli.nemo_gym.rows import own_task_id
from gymcli.tasks.table_files import needs_pyarrow
from gymcli.tasks.task_files import IgnoredParameter, RowProblem, read_tasks, with_shared_ids
from gymcli.tasks.task_options import TaskOptions
from gymcli.tasks.task_row import Hints, PromptTemplate, TaskReading
from gymcli.tasks.task_source import (
    Problems,
    TaskSource,
    env_of_tasks,
    map_tables,
    row_problems,
)
from gymcli.types import JSONObject, TaskRow

_ID_FIELDS = ("id", "task_id", "uuid")


class Validation(msgspec.Struct, kw_only=True):
    """The problems of task files, and warnings about them."""

    files: list[str]
    is_checked: bool = True
    """Whether fields and tools of all rows were compared with their environments."""
    num_rows: int = 0
    num_tasks: int = 0
    """Valid rows without identical copies."""
    num_wrong: int = 0
    num_without_id: int = 0
    """Tasks whose id is a hash of their content."""
    num_shared_ids: int = 0
    """Ids that different NeMo Gym rows share; a hash is appended to the ids of these tasks."""
    environments: dict[str, int] = {}
    """Valid rows by environment; the key is empty for rows that do not name one."""
    ignored_params: dict[str, int] = {}
    """The number of rows that set each ignored request parameter."""
    num_unchecked: int = 0
    """Rows of no known environment, of which only the shape was checked."""
    notes: list[str] = []
    """Which columns of tables became which fields, a line for each file."""
    problems: list[RowProblem] = []
    agents: list[str] = []
    """Warnings about agents in rows that match no environment."""

    @property
    def num_copies(self) -> int:
        """Rows that repeat an earlier one and so add attempts to its task."""
        return self.num_rows - self.num_wrong - self.num_tasks

    @property
    def warnings(self) -> list[str]:
        """Things that are valid but may be mistakes."""
        texts = []
        if self.num_copies:
            texts.append(
                f"{self.num_copies} rows are copies of others: each adds an attempt to its task"
            )
        if self.num_without_id:
            texts.append(
                f"tasks without an id: {self.num_without_id}; a hash of their content is used, "
                "which any edit changes"
            )
        if self.num_shared_ids:
            texts.append(
                f"{self.num_shared_ids} ids are shared by different NeMo Gym rows: these tasks are "
                "named ID-HASH, with the first 8 digits of the hash of their content"
            )
        if self.ignored_params:
            names = ", ".join(sorted(self.ignored_params))
            texts.append(f"rows set {names}: ignored, since the command line sets these")
        return texts + self.agents


def validate(
    tasks: Sequence[str | Path],
    *,
    env: str | None = None,
    env_args: Mapping[str, str] | None = None,
    prompt: Path | None = None,
    map_file: Path | None = None,
    id_field: str | None = None,
    id_by_file: bool = False,
) -> Validation:
    """Read every row and list every problem.

    This finds every row that a collection would refuse. Without `env`, only the shape is checked of
    rows that name no environment, or an agent of NeMo Gym for which none is known.

    Raises:
        UsageError: A file, the template or the environment cannot be read, or an option is wrong.
    """
    environments: dict[str, tuple[Registration, EnvironmentOptions]] = {}
    inputs = task_inputs(tasks)
    env = env_of_tasks(inputs, env)
    registry = Registry((env,) if env else ())
    options = TaskOptions(
        env=env,
        env_args=dict(env_args or {}),
        prompt=prompt,
        map_file=map_file,
        id_field=id_field,
        id_by_file=id_by_file,
    )
    source = TaskSource(inputs, options, registry, needs_env=False)

    def problems(row: TaskRow) -> list[str] | None:
        if not row.env:
            return None
        if row.env not in environments:
            registration = registry.find(row.env)
            environments[row.env] = registration, own_options(options.env_args, registration)
        return row_problems(row, *environments[row.env])

    def count(shared_ids: frozenset[tuple[str, str]]) -> Validation:
        result = Validation(files=[str(path) for path in source.paths], notes=source.notes)
        result.num_shared_ids = len(shared_ids)
        source.shared_ids = shared_ids
        _count(source.read(), result, problems)
        return result

    result = with_shared_ids(count)
    result.is_checked = not result.num_unchecked
    result.agents = registry.agent_warnings
    # Only now are all environments of the rows known; raises for an option that none of them has.
    split_env_args(env_args or {}, (registration for registration, _ in environments.values()))
    if id_field is not None:
        result.num_without_id = 0
    if not result.num_rows:
        expected = "" if source.has_tables else "; expected one JSON object a line"
        result.problems += [RowProblem(file, f"no tasks{expected}") for file in result.files]
    return result


def _count(
    items: Iterator[TaskRow | RowProblem | IgnoredParameter],
    result: Validation,
    problems_of: Callable[[TaskRow], list[str] | None],
) -> None:
    environments: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    for item in items:
        if isinstance(item, IgnoredParameter):
            ignored[item.name] += 1
            continue
        result.num_rows += 1
        if isinstance(item, RowProblem):
            result.problems.append(item)
            result.num_wrong += 1
            continue
        problems = problems_of(item)
        result.num_unchecked += problems is None
        if problems:
            result.problems += [RowProblem(item.place, text) for text in problems]
            result.num_wrong += 1
            continue
        environments[item.env] += 1
        if item.first_attempt == 0:
            result.num_tasks += 1
            result.num_without_id += own_task_id(item.fields) is None
    result.environments, result.ignored_params = dict(environments), dict(ignored)


def rendered_rows(
    task: str | Path,
    *,
    prompt: Path | None = None,
    map_file: Path | None = None,
    id_field: str | None = None,
    env: str | None = None,
    limit: int | None = None,
    to: Literal["plain", "verl"] = "plain",
) -> Iterator[JSONObject]:
    """Yield the rows of a file, or those that ship with an environment, in the plain shape.

    A collection reads the same tasks from the result as from the file with the same template: id,
    environment, messages, tools, parameters and fields. A row without an id gets the hash of its
    original content; with an `id_field`, a collection of the result needs that option too. Rows
    that name no environment name `env`. With `to="verl"` the rows are those of verl's prompt data
    sets.

    Raises:
        UsageError: The file, the template or the map cannot be read.
        UnknownNameError: There is no environment with the name `env`.
        TasksError: Rows are wrong; raised after the last row, with the first 20 problems.
    """
    inputs = task_inputs([task])
    paths = [item.path for item in inputs]
    template = PromptTemplate.read(prompt) if prompt else None
    find = Registry().find
    if env is not None:
        env = find(env).name  # no code, which a row may not name
    tables = map_tables(
        inputs, map_file, env=env, find=find, has_template=bool(template), id_field=id_field
    )
    reading = TaskReading(
        default_env=env or "",
        # A row may not name code.
        default_envs={p: env for p, env in tables.default_envs.items() if not is_code(env)},
        rows_of=tables.rows_of,
        template=template,
        id_field=id_field,
        hints=Hints(same_id_in_files=""),
    )
    reading = with_shared_ids(partial(_read_whole, paths, reading))
    items = (i for i in read_tasks(paths, reading) if isinstance(i, TaskRow | RowProblem))
    problems = Problems()
    for index, item in enumerate(islice(items, limit)):
        if isinstance(item, RowProblem):
            problems.add(item)
            continue
        try:
            is_named = id_field is not None
            row = _verl_row(item, index, find) if to == "verl" else _plain_row(item, is_named)
        except ValueError as error:
            problems.add(RowProblem(item.place, str(error)))
            continue
        yield row
    problems.check()


def _read_whole(
    paths: Sequence[Path], reading: TaskReading, shared_ids: frozenset[tuple[str, str]]
) -> TaskReading:
    # An id may be shared with the last row, so all are read before the first is written.
    reading = reading._replace(shared_ids=shared_ids)
    deque(read_tasks(paths, reading), maxlen=0)
    return reading


def _plain_row(task: TaskRow, is_named: bool) -> JSONObject:
    row = dict(task.fields)
    for name in ("messages", "tools"):
        if row.pop(name, None) is not None:
            raise ValueError(
                f'the field "{name}" would be read as the {name} of the prompt; rename it'
            )
    own_id = None if is_named else own_task_id(row)
    if own_id not in (None, task.id):
        row["task_id"] = task.id  # the row's own id is shared with other rows
    elif not is_named and own_id is None:
        # The id stays the hash of the original row: that of the rendered row would differ.
        name = next((name for name in _ID_FIELDS if name not in row), _ID_FIELDS[0])
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


def _verl_row(task: TaskRow, index: int, find: Callable[[str], Registration]) -> JSONObject:
    """Return the row of a task as verl's documentation describes it, "Prepare data"."""
    if not task.env:
        raise ValueError("no environment, which is verl's data_source; use --env NAME")
    if not task.messages:
        raise ValueError("no prompt: its environment opens the conversation, which verl cannot do")
    for message in task.messages:
        if (
            set(msgspec.to_builtins(message)) != {"role", "content"}
            or message.content != message.text
        ):
            raise ValueError("its prompt holds more than text, which has no place in verl's rows")
    return {
        "data_source": task.env,
        "prompt": [{"role": message.role, "content": message.content} for message in task.messages],
        "ability": find(task.env).environment.properties.domain,
        # All fields, since only the environment knows which of them it compares.
        "reward_model": {
            "style": "rule",
            "ground_truth": msgspec.json.encode(task.fields).decode(),
        },
        "extra_info": {"index": index, "task_id": task.id},
    }


def write_verl_table(lines: Iterable[bytes], file: BinaryIO) -> None:
    """Write lines of verl's rows as Parquet.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    with needs_pyarrow("a Parquet file"):
        import pyarrow as pa  # late: heavy, and an extra
        from pyarrow.parquet import write_table
    text = pa.string()
    schema = pa.schema(
        [
            ("data_source", text),
            ("prompt", pa.list_(pa.struct([("role", text), ("content", text)]))),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", pa.struct([("index", pa.int64()), ("task_id", text)])),
        ]
    )
    rows = [msgspec.json.decode(line) for line in lines]
    write_table(pa.Table.from_pylist(rows, schema), file)


def generated_rows(env: str, num: int | None = None, *, seed: int = 0) -> Iterator[bytes]:
    """Yield the lines of an environment's data set; the default `num` is that of the shipped file.

    Raise UsageError if there is no such environment or it cannot generate `num` rows.
    """
    registration = Registry((env,)).find(env)
    if not generates(registration):
        raise UsageError(f"environment {registration.name} generates no tasks")
    if num is None:
        shipped_file = own_tasks(registration)
        num = (len(shipped_file.read_bytes().splitlines()) if shipped_file else 0) or NUM_GENERATED
    num_generated = 0
    try:
        for line in generated_lines(registration, num, seed=seed):
            num_generated += 1
            yield line
    except EpisodeError as error:
        raise UsageError(
            f"environment {registration.name} cannot generate {num} rows: {error}"
        ) from error
    if num_generated != num:
        raise UsageError(
            f"environment {registration.name} generated {num_generated} rows, not {num}"
        )


class GeneratedComparison(msgspec.Struct):
    """The comparison of a tasks file with what its environment generates."""

    env: str
    num_rows: int
    """Rows of the file."""
    difference: str | None = None
    """The first difference, in words; None if all bytes are equal."""


def compare_generated(env: str, path: Path | None = None) -> GeneratedComparison:
    """Generate a tasks file (default: the shipped one) from seed 0 and compare it byte by byte.

    Raise UsageError if there is no such environment or it ships no tasks.
    """
    registration = Registry((env,)).find(env)
    path = path or own_tasks(registration)
    if path is None:
        raise UsageError(f"environment {registration.name} ships no tasks to compare with")
    lines = path.read_bytes().splitlines(keepends=True)
    result = GeneratedComparison(registration.name, len(lines))
    try:
        pairs = zip_longest(lines, generated_lines(registration, len(lines)))
        differing_lines = (number for number, (old, new) in enumerate(pairs, 1) if old != new)
        if (number := next(differing_lines, None)) is not None:
            result.difference = f"line {number} differs"
    except EpisodeError as error:
        result.difference = str(error)
    return result
