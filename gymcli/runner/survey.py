"""The first pass over the tasks: everything that can be wrong is found before anything is sent."""

from __future__ import annotations

import difflib
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from gymcli.environment import Environment
from gymcli.errors import TasksError, UnknownNameError
from gymcli.registry import Found, Registry, shipped_tasks
from gymcli.runner.options import CollectOptions
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import file_sha256
from gymcli.store.prompt import PromptTemplate
from gymcli.store.tasks import IgnoredParameter, RowProblem, TaskReading, read_tasks
from gymcli.types import JSONObject, TaskRow

__all__ = ["Problems", "Survey", "TaskSource", "TasksFile", "named_file", "row_problems", "survey"]

_MAX_LISTED = 20
_MAX_COMPARED = 10_000
"""Ids among which a mistyped one is looked for."""

_UNWRITABLE = (
    "holds a secret (a key in use, or the value of a variable that is named like one), which is "
    "never written; give it another"
)


class TaskSource:
    """The tasks of a run, which can be read from the start as often as wanted.

    Raises:
        TasksError: A path is no file.
        UnknownNameError: The environment of the options is not there.

    """

    def __init__(
        self, tasks: Iterable[str | Path], options: CollectOptions, registry: Registry
    ) -> None:
        named = [named_file(task) for task in tasks]
        if options.env is not None:
            registry.find(options.env)
        self.paths = [file.path for file in named]
        self.template = PromptTemplate.read(options.prompt) if options.prompt else None
        self.asked_ids = frozenset(options.task_ids)
        self._options = options
        shipped = {file.path: file.env for file in named if file.env is not None}
        self._reading = TaskReading(
            default_env=options.env,
            default_envs=shipped if options.env is None else {},
            template=self.template,
            id_field=options.id_field,
            id_by_file=options.id_by_file,
            canonical_env=lambda name: registry.find(name).name,
        )

    @property
    def repeats(self) -> int:
        """Attempts of each row."""
        return self._options.repeats

    @property
    def is_sample(self) -> bool:
        """Whether only some rows, drawn at random, are selected."""
        return self._options.shuffle and self._options.limit is not None

    def read(self) -> Iterator[TaskRow | RowProblem | IgnoredParameter]:
        """Give every row of the files, with what is wrong in its place."""
        return read_tasks(self.paths, self._reading)

    def rows(self) -> Iterator[TaskRow]:
        """Give every row of the files."""
        return (row for row in self.read() if isinstance(row, TaskRow))

    def takes(self, row: TaskRow, num_before: int) -> bool:
        """Say whether a row is selected, given how many before it in its file are.

        Of a sample that cannot be said row by row.
        """
        is_asked = not self.asked_ids or row.id in self.asked_ids
        return is_asked and (self._options.limit is None or num_before < self._options.limit)

    def selected(self) -> Iterator[TaskRow]:
        """Give the rows that the options ask for, in the order they are to be run."""
        options = self._options
        rows = self.rows()
        if self.asked_ids:
            rows = (row for row in rows if row.id in self.asked_ids)
        if options.shuffle:
            held = list(rows)
            random.Random(options.seed or 0).shuffle(held)
            rows = iter(held)
        num_of_file: Counter[str] = Counter()
        for row in rows:
            num_of_file[_file_of(row)] += 1
            if options.limit is None or num_of_file[_file_of(row)] <= options.limit:
                yield row


class Survey:
    """What the first pass found."""

    def __init__(self) -> None:
        self.environments: dict[str, Found] = {}
        """The environments of all rows."""
        self.num_rows: Counter[str] = Counter()
        """Selected rows by environment."""
        self.num_tasks = 0
        """Selected rows without their identical copies."""
        self.group_sizes: Counter[tuple[str, str]] = Counter()
        """Selected attempts of each task whose attempts are scored together."""
        self.files: list[JSONObject] = []
        """`path`, `sha256` and `num_rows` of each file."""
        self.param_names: set[str] = set()
        """Names of the request parameters that rows set."""
        self.ignored: set[str] = set()
        """Parameters that rows set and may not."""

    @property
    def num_selected(self) -> int:
        """Selected rows of all environments."""
        return self.num_rows.total()


def survey(source: TaskSource, registry: Registry, scrubber: Scrubber = NOTHING_SECRET) -> Survey:
    """Read and check every row, and count those that are selected.

    A row whose id holds a secret is wrong: the id would not be on record as it is, nor would the
    name of an environment.

    Raises:
        TasksError: Rows are wrong; the first 20 are listed.
        UnknownNameError: A task that was asked for by id is not there.

    """
    result = Survey()
    num_rows_of_file: Counter[str] = Counter()
    num_selected_of_file: Counter[str] = Counter()
    missing = set(source.asked_ids)
    for row in _checked(source, registry, scrubber, result):
        file = _file_of(row)
        num_rows_of_file[file] += 1
        missing.discard(row.id)
        if source.takes(row, num_selected_of_file[file]):
            num_selected_of_file[file] += 1
            result.num_rows[row.env] += 1
            result.num_tasks += row.first_attempt == 0
            _count_group(result, row, source.repeats)
    if missing:
        raise _unknown_task(min(missing), source)
    if not num_rows_of_file:
        names = ", ".join(str(path) for path in source.paths)
        raise TasksError(f"{names}: no tasks; expected one JSON object a line")
    if source.is_sample:
        sample = list(source.selected())
        result.num_rows = Counter(row.env for row in sample)
        result.num_tasks = len({(row.env, row.id) for row in sample})
        result.group_sizes.clear()
        for row in sample:
            _count_group(result, row, source.repeats)
    result.files = [_described(path, num_rows_of_file[str(path)]) for path in source.paths]
    return result


def _unknown_task(task_id: str, source: TaskSource) -> UnknownNameError:
    known = (row.id for row in itertools.islice(source.rows(), _MAX_COMPARED))
    close = difflib.get_close_matches(task_id, list(dict.fromkeys(known)), n=1)
    hint = f' (did you mean "{close[0]}"?)' if close else ""
    return UnknownNameError(f"--task {task_id}: no task has this id{hint}")


def _file_of(row: TaskRow) -> str:
    return row.place.rpartition(":")[0]


def _count_group(result: Survey, row: TaskRow, repeats: int) -> None:
    if result.environments[row.env].environment.scores_groups():
        result.group_sizes[row.env, row.id] += repeats


def _checked(
    source: TaskSource, registry: Registry, scrubber: Scrubber, result: Survey
) -> Iterator[TaskRow]:
    """Give the rows with a look at each; at the end, complain of those that are wrong."""
    problems = Problems()
    for item in source.read():
        if isinstance(item, RowProblem):
            problems.add(item)
        elif isinstance(item, IgnoredParameter):
            result.ignored.add(item.name)
        else:
            found = result.environments[item.env] = registry.find(item.env)
            result.param_names.update(item.params)
            if scrubber.holds_secret(item.id):
                text = f"the task's id {_UNWRITABLE} id, or name its field with --id-field"
                problems.add(RowProblem(item.place, text))
            if scrubber.holds_secret(item.env):
                text = f"the name of the environment {_UNWRITABLE} name"
                problems.add(RowProblem(item.place, text))
            for text in row_problems(item, found):
                problems.add(RowProblem(item.place, text))
            yield item
    problems.check()


class Problems:
    """The wrong rows: the first ones, and how many there are in all."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._first: list[str] = []
        self._last_place = ""

    def add(self, problem: RowProblem) -> None:
        """Count a problem, which becomes one line; those of one row come one after another."""
        if problem.place != self._last_place:
            self.num_rows += 1
            self._last_place = problem.place
        if self.num_rows <= _MAX_LISTED:
            self._first.append(str(problem))

    def lines(self) -> list[str]:
        """Give the problems of the first rows, and how many more there are."""
        num_more = self.num_rows - _MAX_LISTED
        more = [f"and {num_more} more rows are wrong"] if num_more > 0 else []
        return [*self._first, *more]

    def check(self) -> None:
        """Raise what was added, if anything was."""
        if self._first:
            raise TasksError("\n".join(self.lines()))


def row_problems(row: TaskRow, found: Found) -> Iterator[str]:
    """Say what is wrong with a row for its environment."""
    environment = found.environment
    try:
        environment.parse_task(row.fields)
    except ValidationError as error:
        for detail in error.errors():
            field = ".".join(str(step) for step in detail["loc"])
            if detail["type"] == "missing":
                yield f'"{field}" is missing (environment {found.name} needs it)'
            else:
                what = f'"{field}": ' if field else ""
                reason = detail["msg"].removeprefix("Value error, ")
                yield f"{what}{reason} (environment {found.name})"
    is_open = not environment.executes_tools or environment.tools is not Environment.tools
    if not row.tools or is_open:
        return
    own = environment.method_tools()
    for tool in row.tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name is not None and name not in own:
            known = ", ".join(own) or "none"
            yield f'tool "{name}" is not one of environment {found.name} (it has: {known})'


class TasksFile(NamedTuple):
    """A tasks file as it was named on the command line."""

    path: Path
    env: str | None
    """The environment that ships the file."""


def named_file(task: str | Path) -> TasksFile:
    """Give the file that is meant: the path, or the tasks that ship with an environment.

    Raises:
        TasksError: It is neither, or no regular file.

    """
    path = Path(task)
    if path.is_file():
        return TasksFile(path, None)
    shipped = shipped_tasks(str(task))
    if shipped is not None:
        return TasksFile(shipped, str(task))
    if path.is_dir():
        raise TasksError(f"{path}: is a folder; give a JSONL file")
    if path.exists():
        raise TasksError(f"{path}: is no regular file; tasks are read more than once")
    raise TasksError(f"{path}: no such file, and no environment of this name ships tasks")


def _described(path: Path, num_rows: int) -> JSONObject:
    return {"path": str(path), "sha256": file_sha256(path), "num_rows": num_rows}
