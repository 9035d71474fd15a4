"""Maps make task rows of tables: YAML selects and renames columns, a Python function does more."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Self, TypeVar

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    model_validator,
)

import gymcli.envs
from gymcli.errors import GymError, TasksError, UsageError, described
from gymcli.store.lines import TOO_DEEP, file_sha256
from gymcli.suggestions import pydantic_reason
from gymcli.tasks.table_files import SourceTable
from gymcli.tasks.task_row import PromptTemplate, listed, read_yaml
from gymcli.tracebacks import frames_of
from gymcli.types import JSON, JSONObject, digest, json_or_text

T = TypeVar("T")

MappedRows = Iterator[tuple[str, int, JSONObject | str]]
"""Name of the table, number of the row, and the task row, or the reason why it cannot be one."""
RowFunction = Callable[[dict[str, object]], JSONObject | None]
"""Returns the task row of a table's row, None if it is not taken; ValueError says why not."""
TableMap = Callable[[Iterable[SourceTable]], MappedRows]


def _as_list(data: object) -> object:
    return data if isinstance(data, list) else [data]


def _as_json(values: Mapping[str, JSON]) -> JSONObject:
    return {name: json_value(value, name) for name, value in values.items()}


def _as_column(data: object) -> object:
    if not isinstance(data, str):
        raise ValueError(
            "must be the name of a column: a YAML map only selects and renames; convert values "
            "with a function, FILE.py:FUNCTION (`gym docs data` has an example)"
        )
    return data


class RowMap(BaseModel):
    """The content of a YAML map; an empty one takes every row unchanged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: Annotated[
        dict[str, Annotated[list[JSON], BeforeValidator(_as_list)]], AfterValidator(_as_json)
    ] = {}
    """Take only rows whose columns have these values, or one of several."""
    fields: dict[str, Annotated[str, BeforeValidator(_as_column)]] | None = None
    """The column of each field, or a path into one; None takes every column under its own name."""
    constants: Annotated[JSONObject, AfterValidator(_as_json)] = {}
    """Fields that are the same in every row; they override columns."""
    drop_empty: bool = False
    """Leave out fields whose column is empty: null, or blank text."""
    user: str | None = None
    """A prompt template filled with the row's fields, as in a prompt file."""
    system: str | None = None

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.system is not None and self.user is None:
            raise ValueError('"system" needs the text "user"')
        return self

    @cached_property
    def template(self) -> PromptTemplate | None:
        """The prompt that the map writes into every row."""
        return None if self.user is None else PromptTemplate(self.user, self.system)

    def task(self, row: Mapping[str, object]) -> JSONObject | None:
        """Return the task row, None if it is not taken; ValueError if it lacks a column."""
        for path, allowed_values in self.where.items():
            value = column_value(row, path)
            if not any(is_same(value, allowed) for allowed in allowed_values):
                return None
        if self.fields is None:
            fields = {name: json_value(value, name) for name, value in row.items()}
        else:
            fields = {name: column_value(row, path) for name, path in self.fields.items()}
        if self.drop_empty:
            fields = {name: value for name, value in fields.items() if not is_empty(value)}
        return with_prompt(fields | self.constants, self.template)


def with_prompt(fields: JSONObject, template: PromptTemplate | None) -> JSONObject:
    """Return the fields of a row with the messages that a template makes of them."""
    if template is None:
        return fields
    if fields.get("messages") is not None:
        raise ValueError('the row already has "messages"; leave out "user" or rename the field')
    return {**fields, "messages": msgspec.to_builtins(template.messages(fields))}


def read_row_map(path: Path) -> RowMap:
    """Read a YAML map; raise UsageError if it is missing or invalid."""
    loaded = read_yaml(path)
    if not isinstance(loaded, dict):
        raise UsageError(f"{path}: a map must be a YAML mapping")
    try:
        row_map = RowMap.model_validate(loaded)
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(str(step) for step in detail["loc"])
        reason = pydantic_reason(detail)
        raise UsageError(f"{path}: {place + ': ' if place else ''}{reason}") from error
    if row_map.template is not None:
        row_map.template.check(path)
    return row_map


def map_file_of(spec: Path) -> tuple[Path, str]:
    """Return the file of a map, and the function in it if it is `FILE.py:FUNCTION`."""
    file, _, function = str(spec).rpartition(":")
    return (Path(file), function) if file.endswith(".py") else (spec, "")


def read_map(spec: Path | None) -> TableMap:
    """Return what makes task rows of tables: a YAML map, or `FILE.py:FUNCTION`.

    A function takes a row and returns its task row, or None to leave it out; a generator takes all
    rows and yields task rows.

    Raises:
        UsageError: The map is missing or invalid.
    """
    if spec is None:
        return partial(map_rows, RowMap().task)
    path, name = map_file_of(spec)
    if path.suffix == ".py" and not name:
        raise UsageError(f"{path}: name the function, {path}:FUNCTION")
    if not name:
        return partial(map_rows, read_row_map(path).task)
    # A file that was edited is another module.
    module_name = f"gymcli_map_{digest([str(path.resolve()), file_sha256(path)])}"
    try:
        function = getattr(gymcli.envs.load_file(module_name, path), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(f"{spec}: cannot be loaded: {_failure(error)}") from error
    if inspect.isgeneratorfunction(function):
        return partial(_map_tables, function, spec)

    def task(row: dict[str, object]) -> JSONObject | None:
        try:
            task_row = function(row)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an author's `sys.exit` too is the row's problem
            raise ValueError(f"{spec} fails: {_failure(error)}") from error
        return None if task_row is None else _made_row(task_row)

    return partial(map_rows, task)


def _failure(error: BaseException) -> str:
    frames = frames_of(error)
    return described(error) + (f" ({frames[-1]})" if frames else "")


def _made_row(row: object) -> JSONObject | None:
    if not isinstance(row, dict):
        raise ValueError(f"the map makes {row!r:.80} of it, not a dict")
    return RowMap().task(row)


def map_rows(function: RowFunction, tables: Iterable[SourceTable]) -> MappedRows:
    """Yield the rows that a function takes, each as a task row, or why it cannot be one."""
    for name, rows in tables:
        for number, row in rows:
            mapped = row if isinstance(row, str) else _mapped(function, row)
            if mapped is not None:
                yield name, number, mapped


def _mapped(function: Callable[[T], JSONObject | None], row: T) -> JSONObject | str | None:
    try:
        # Through JSON, so that the row is the same as one that is read from a JSONL file.
        mapped: JSONObject | None = msgspec.json.decode(msgspec.json.encode(function(row)))
    except RecursionError:
        return TOO_DEEP
    except ValueError as error:
        return str(error)
    return mapped


def _map_tables(
    function: Callable[[Iterable[dict[str, object]]], Iterator[object]],
    spec: Path,
    tables: Iterable[SourceTable],
) -> MappedRows:
    """Yield what a generator makes of all rows, each at the place of the last row that it took."""
    name, number = str(spec), 0

    def read_rows() -> Iterator[dict[str, object]]:
        nonlocal name, number
        for table in tables:
            name = table.name
            for number, row in table.rows:
                if isinstance(row, str):
                    raise TasksError(f"{name}:{number}: {row}")
                yield row

    try:
        for row in function(read_rows()):
            yield name, number, _mapped(_made_row, row) or {}
    except (GymError, KeyboardInterrupt):
        raise
    except BaseException as error:
        place = f"{name}:{number}" if number else "the first row"
        raise UsageError(f"{spec} fails at {place}: {_failure(error)}") from error


def is_empty(value: object) -> bool:
    """Return whether a column holds nothing: null, an empty list or blank text."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def column_value(row: Mapping[str, object], path: str) -> JSON:
    """Return the value of a column, or at a path into one; ValueError if there is none."""
    # A column's own name may contain dots.
    if path in row:
        return json_value(row[path], path)
    value: object = row
    for step in path.split("."):
        if isinstance(value, str):
            value = json_or_text(value)
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list | tuple) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, list) and all(isinstance(i, Mapping) and step in i for i in value):
            value = [item[step] for item in value]
        else:
            raise ValueError(f'there is no column "{path}" (the row has: {listed(row)})')
    return json_value(value, path)


def json_value(value: object, column: str) -> JSON:
    """Return a value as JSON; raise ValueError for bytes, infinity and others that JSON lacks.

    Dates and times become ISO 8601 text, decimals text, NaN null, numpy scalars numbers, and numpy
    arrays lists.
    """
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f'column "{column}" holds {value}, which JSON cannot express')
        # NaN is how tables mark a missing value. numpy's float64 is a subclass of float.
        return None if math.isnan(value) else float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):  # as text, since a float would change its digits
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item, f"{column}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, column) for item in value]
    if callable(to_list := getattr(value, "tolist", None)):  # numpy's
        return json_value(to_list(), column)
    kind = type(value).__name__
    raise ValueError(f'column "{column}" holds {kind}, which JSON cannot express')


def is_same(value: JSON, other_value: JSON) -> bool:
    """Return whether two values are the same in JSON, in which true is not 1."""
    return value == other_value and isinstance(value, bool) == isinstance(other_value, bool)
