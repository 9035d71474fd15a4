"""What is wrong with rows for their environments, and what is told of many wrong ones."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from gymcli.environment.contract import Environment
from gymcli.environment.registry import Found
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import TasksError
from gymcli.store.tasks import RowProblem
from gymcli.types import JSONObject, TaskRow

__all__ = ["Problems", "row_problems"]

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
        """Give the problems of the first rows, and how many more there are."""
        num_more = self.num_rows - _MAX_LISTED
        more = [f"and {num_more} more rows are wrong"] if num_more > 0 else []
        return [*self._first, *more]

    def check(self) -> None:
        """Raise what was added, if anything was."""
        if self._first:
            raise TasksError("\n".join(self.lines()))


def row_problems(row: TaskRow, found: Found, options: EnvironmentOptions) -> list[str]:
    """Say what is wrong with a row for its environment, which has these options."""
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
