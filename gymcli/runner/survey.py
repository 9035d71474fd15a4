"""The first pass over the tasks: everything that can be wrong is found before anything is sent."""

from __future__ import annotations

import difflib
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from gymcli.environment.contract import Environment
from gymcli.environment.registry import Found, Registry, own_options
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import TasksError, UnknownNameError
from gymcli.runner.task_source import TaskSource, file_of
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import file_sha256
from gymcli.store.tasks import IgnoredParameter, RowProblem, with_shared_ids
from gymcli.types import JSONObject, TaskRow

__all__ = ["GroupSizes", "Problems", "Survey", "row_problems", "survey"]


_MAX_LISTED = 20


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
        """Return the problems of the first rows, and how many more there are."""
        num_more = self.num_rows - _MAX_LISTED
        more = [f"and {num_more} more rows are wrong"] if num_more > 0 else []
        return [*self._first, *more]

    def check(self) -> None:
        """Raise TasksError with what was added, if anything was."""
        if self._first:
            raise TasksError("\n".join(self.lines()))


def row_problems(row: TaskRow, found: Found, options: EnvironmentOptions) -> list[str]:
    """Return what is wrong with a row for its environment, which has these options."""
    problems: list[str] = []
    try:
        task = found.environment.parse_task(row.fields)
        found.environment.check_task(task, options)
    except ValidationError as error:
        problems += _field_problems(error, found.name)
    except ValueError as error:
        problems.append(f"{error} (environment {found.name})")
    if row.tools:
        problems += _tool_problems(row.tools, found)
    return problems


def _field_problems(error: ValidationError, env: str) -> Iterator[str]:
    for detail in error.errors():
        field = ".".join(str(step) for step in detail["loc"])
        if detail["type"] == "missing":
            yield f'"{field}" is missing (environment {env} needs it)'
        else:
            what = f'"{field}": ' if field else ""
            reason = detail["msg"].removeprefix("Value error, ")
            yield f"{what}{reason} (environment {env})"


def _tool_problems(tools: list[JSONObject], found: Found) -> Iterator[str]:
    environment = found.environment
    if not environment.executes_tools or environment.tools is not Environment.tools:
        return
    own = environment.method_tools()
    for tool in tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name is not None and name not in own:
            known = ", ".join(own) or "none"
            yield f'tool "{name}" is not one of environment {found.name} (it has: {known})'


_MAX_COMPARED = 10_000
"""Ids among which a mistyped one is looked for."""

_UNWRITABLE = "holds a key in use, which is never written; give it another"


class GroupSizes:
    """Planned attempts of each task, in environments that score those of one task together."""

    def __init__(self) -> None:
        self._sizes: dict[str, Counter[str]] = {}

    def watch(self, env: str) -> None:
        """Count the attempts of an environment from now on."""
        self._sizes[env] = Counter()

    def add(self, env: str, task_id: str, num_attempts: int) -> None:
        """Count attempts of a task, where its environment is watched."""
        if env in self._sizes:
            self._sizes[env][task_id] += num_attempts

    def of(self, env: str, task_id: str) -> int:
        """Return how many attempts of a task are scored together; 0: each is scored by itself."""
        return self._sizes[env][task_id] if env in self._sizes else 0


class Survey:
    """What the first pass found."""

    def __init__(self) -> None:
        self.environments: dict[str, Found] = {}
        """The environments of all rows."""
        self.num_rows: Counter[str] = Counter()
        """Selected rows by environment."""
        self.num_rows_of_all_shards: Counter[str] = Counter()
        """The same with those of other shards."""
        self.num_tasks = 0
        """Selected rows without their identical copies."""
        self.group_sizes = GroupSizes()
        """Of selected attempts."""
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

    A row whose id holds a key in use is wrong: the id would not be on record as it is, nor would
    the name of an environment.

    Raises:
        TasksError: Rows are wrong; the first 20 are listed.
        UnknownNameError: A task that was asked for by id is not there.
        UsageError: An option of an environment is wrong.

    """

    def work(shared_ids: frozenset[tuple[str, str]]) -> Survey:
        source.shared_ids = shared_ids
        return _surveyed(source, registry, scrubber)

    return with_shared_ids(work)


def _surveyed(source: TaskSource, registry: Registry, scrubber: Scrubber) -> Survey:
    result = Survey()
    num_rows_of_file: Counter[str] = Counter()
    missing = set(source.asked_ids)

    def checked() -> Iterator[TaskRow]:
        for row in _checked(source, registry, scrubber, result):
            num_rows_of_file[file_of(row)] += 1
            missing.discard(row.id)
            yield row

    sampled: set[tuple[str, str]] = set()
    for row in source.select(checked()):
        result.num_rows_of_all_shards[row.env] += 1
        if source.is_in_shard(row):
            result.num_rows[row.env] += 1
            result.group_sizes.add(row.env, row.id, source.repeats)
            if source.is_sample:  # it may have a copy, and not the first row
                sampled.add((row.env, row.id))
            else:
                result.num_tasks += row.first_attempt == 0
    result.num_tasks += len(sampled)
    if missing:
        raise _unknown_task(min(missing), source)
    if not num_rows_of_file:
        names = ", ".join(str(path) for path in source.paths)
        raise TasksError(f"{names}: no tasks; expected one JSON object a line")
    result.files = [_described(path, num_rows_of_file[str(path)]) for path in source.paths]
    return result


def _unknown_task(task_id: str, source: TaskSource) -> UnknownNameError:
    known = (row.id for row in itertools.islice(source.rows(), _MAX_COMPARED))
    close = difflib.get_close_matches(task_id, list(dict.fromkeys(known)), n=1)
    hint = f' (did you mean "{close[0]}"?)' if close else ""
    return UnknownNameError(f"--task {task_id}: no task has this id{hint}")


def _checked(
    source: TaskSource, registry: Registry, scrubber: Scrubber, result: Survey
) -> Iterator[TaskRow]:
    """Yield the rows, checking each; raise TasksError after the last one where any is wrong."""
    problems = Problems()
    of_environments: dict[str, list[str]] = {}
    options: dict[str, EnvironmentOptions] = {}
    for item in source.read():
        if isinstance(item, RowProblem):
            problems.add(item)
            continue
        if isinstance(item, IgnoredParameter):
            result.ignored.add(item.name)
            continue
        found = result.environments.get(item.env)
        if found is None:
            found = result.environments[item.env] = registry.find(item.env)
            of_environments[item.env] = _name_problems(item.env, scrubber)
            options[item.env] = own_options(source.env_args, found)
            if found.environment.scores_groups():
                result.group_sizes.watch(item.env)
        if item.params:
            result.param_names.update(item.params)
        texts = of_environments[item.env] + row_problems(item, found, options[item.env])
        if scrubber.text(item.id) != item.id:
            texts.insert(0, f"the task's id {_UNWRITABLE} id, or name its field with --id-field")
        for text in texts:
            problems.add(RowProblem(item.place, text))
        yield item
    problems.check()


def _name_problems(env: str, scrubber: Scrubber) -> list[str]:
    """Return what is wrong with every row of an environment."""
    if scrubber.text(env) == env:
        return []
    return [f"the name of the environment {_UNWRITABLE} name"]


def _described(path: Path, num_rows: int) -> JSONObject:
    return {"path": str(path), "sha256": file_sha256(path), "num_rows": num_rows}
