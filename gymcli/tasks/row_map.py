"""Maps select rows of a table and turn their columns into task rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from gymcli.errors import UsageError
from gymcli.suggestions import pydantic_reason
from gymcli.tasks.task_row import PromptTemplate, listed, read_yaml
from gymcli.types import JSON, JSON_ERRORS, JSONObject

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
"""Commas may only separate thousands; another comma may be a decimal one: 1,5 is not 15."""
_WRITTEN_LETTER = re.compile(r"\s*\(?([A-Za-z])[.):]?\s*", re.ASCII)


class _Transform(NamedTuple):
    function: Callable[[JSON, JSON], JSON]
    """Takes the value and the argument; raises ValueError for a value that it cannot convert."""
    argument: str | None = None
    """The kind of the argument in a map: `text`, `column` or None."""


def _text(value: JSON, _: JSON = None) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _number(value: JSON, _: JSON) -> JSON:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = _known_text(value).strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{value!r:.80} is not a number")
    try:
        # As JSON, an integer stays one: its digits are exact.
        number: JSON = msgspec.json.decode(text.replace(",", "").removeprefix("+"))
    except JSON_ERRORS as error:  # leading zeros, or too large
        raise ValueError(f"{value!r:.80} is not a number") from error
    return number


def _after(value: JSON, marker: JSON) -> JSON:
    # The last marker counts: in GSM8K, for example, the answer follows the final "####".
    _, marker_found, text_after = _known_text(value).rpartition(str(marker))
    if not marker_found:
        raise ValueError(f"{value!r:.80} has no {marker!r}")
    return text_after.strip()


def _json(value: JSON, _: JSON) -> JSON:
    try:
        decoded: JSON = msgspec.json.decode(_known_text(value))
    except JSON_ERRORS as error:
        raise ValueError(f"{value!r:.80} is not JSON: {error}") from error
    return decoded


def _lettered(value: JSON, _: JSON) -> JSON:
    items = enumerate(_known_list(value))
    return "\n".join(f"{_letter(place)}: {_text(item)}" for place, item in items)


def _letters(value: JSON, _: JSON) -> JSON:
    texts = [item if item is None else _text(item) for item in _known_list(value)]
    return [{_letter(place): text} for place, text in enumerate(texts)]


def _letter(value: JSON) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_LETTERS):
        return _LETTERS[value]
    raise ValueError(f"{value!r:.80} is not an index from 0 to {len(_LETTERS) - 1}")


def _letter_in(value: JSON, options: JSON) -> JSON:
    items = enumerate(_options(options))
    # As texts: the option 4 of a JSON list is the answer "4" of a table of texts.
    places = [place for place, item in items if _is_same_text(item, value)]
    if len(places) != 1:
        raise ValueError(f"{value!r:.80} appears {len(places)} times among the options, not once")
    return _letter(places[0])


def _letter_of(value: JSON, options: JSON) -> JSON:
    match = _WRITTEN_LETTER.fullmatch(value) if isinstance(value, str) else None
    letters = _LETTERS[: len(_options(options))]
    if match is None or (letter := match[1].upper()) not in letters:
        raise ValueError(f"{value!r:.80} is not a letter from A to {letters[-1:]}")
    return letter


def _letter_from(first: int, value: JSON, options: JSON) -> JSON:
    number, num_options = _number(value, None), len(_options(options))
    if not isinstance(number, int) or not first <= number < first + num_options:
        last = first + num_options - 1
        raise ValueError(f"{value!r:.80} is not a position from {first} to {last}")
    return _letter(number - first)


def _is_same_text(value: JSON, other_value: JSON) -> bool:
    return _is_same(value, other_value) or _text(value).strip() == _text(other_value).strip()


def _options(value: JSON) -> list[JSON]:
    """Return a list, of which a table of texts has the JSON."""
    return _known_list(_json(value, None) if isinstance(value, str) else value)


def _known_text(value: JSON) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")
    return value


def _known_list(value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.80} is not a list")
    return value


TRANSFORMS = {
    "text": _Transform(_text),
    "number": _Transform(_number),
    "strip": _Transform(lambda value, _: _known_text(value).strip()),
    "after": _Transform(_after, "text"),
    "json": _Transform(_json),
    "objects": _Transform(
        lambda value, key: [{str(key): item} for item in _known_list(value)], "text"
    ),
    "letters": _Transform(_letters),
    "lettered": _Transform(_lettered),
    "letter": _Transform(lambda value, _: _letter(value)),
    "letter_in": _Transform(_letter_in, "column"),
    "letter_of": _Transform(_letter_of, "column"),
    "letter_from_0": _Transform(partial(_letter_from, 0), "column"),
    "letter_from_1": _Transform(partial(_letter_from, 1), "column"),
}
"""The transforms by their name in maps."""


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    argument: str | tuple[str, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        if isinstance(data, str):
            return {"name": data}
        if isinstance(data, dict) and len(data) == 1:
            [(name, argument)] = data.items()
            return {"name": name, "argument": argument}
        raise ValueError("a transform must be a name, or name: argument")

    @model_validator(mode="after")
    def _check(self) -> Self:
        transform = TRANSFORMS.get(self.name)
        if transform is None:
            raise ValueError(f'no transform "{self.name}" (choose from {", ".join(TRANSFORMS)})')
        if (self.argument is None) != (transform.argument is None):
            takes = f"a {transform.argument}" if transform.argument else "nothing"
            raise ValueError(f'the transform "{self.name}" takes {takes}')
        if transform.argument == "text" and not isinstance(self.argument, str):
            raise ValueError(f'the transform "{self.name}" takes one text')
        return self


def _as_column(data: object) -> object:
    return {"from": data} if isinstance(data, str | list) else data


def _as_list(data: object) -> object:
    return data if isinstance(data, list) else [data]


def _as_json(values: Mapping[str, JSON]) -> JSONObject:
    return {name: json_value(value, name) for name, value in values.items()}


class _Column(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str | tuple[str, ...] = Field(alias="from", min_length=1)
    """A column's name, or a path into it: `answers.text.0`. Several become a list.

    The path `choices.text` into a list of objects is the list of their `text`.
    """
    apply: Annotated[tuple[_Step, ...], BeforeValidator(_as_list)] = ()


class RowMap(BaseModel):
    """The content of a map file; an empty map takes every row unchanged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: Annotated[
        dict[str, Annotated[list[JSON], BeforeValidator(_as_list)]], AfterValidator(_as_json)
    ] = {}
    """Take only rows whose columns have these values, or one of several."""
    fields: dict[str, Annotated[_Column, BeforeValidator(_as_column)]] | None = None
    """The row's fields by name; None takes every column under its own name."""
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

    def takes(self, row: Mapping[str, object]) -> bool:
        """Return whether a row is taken; raise ValueError if it lacks a column."""
        return all(
            any(_is_same(json_value(_at(row, path), path), value) for value in values)
            for path, values in self.where.items()
        )

    def apply(self, row: Mapping[str, object]) -> JSONObject:
        """Return the task row; raise ValueError if a column is missing or cannot be converted."""
        if self.fields is None:
            columns = {n: v for n, v in row.items() if not (self.drop_empty and _is_empty(v))}
            mapped = {name: json_value(value, name) for name, value in columns.items()}
        else:
            mapped = {}
            for name, column in self.fields.items():
                value = _source(column.source, row)
                if not (self.drop_empty and _is_empty(value)):
                    mapped[name] = _converted(value, column, row)
        mapped.update(self.constants)
        if self.template is not None:
            if mapped.get("messages") is not None:
                raise ValueError(
                    'the row already has "messages"; leave out "user" or rename the field'
                )
            mapped["messages"] = msgspec.to_builtins(self.template.messages(mapped))
        return mapped


def read_map(path: Path) -> RowMap:
    """Read a map file; raise UsageError if it is missing or invalid."""
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


def map_text(row_map: RowMap) -> str:
    """Return the content of a map file in one line: JSON, which is YAML."""
    fields: dict[str, object] = {}
    for name, column in (row_map.fields or {}).items():
        steps = [
            step.name if step.argument is None else {step.name: step.argument}
            for step in column.apply
        ]
        apply = steps[0] if len(steps) == 1 else steps
        fields[name] = {"from": column.source, "apply": apply} if steps else column.source
    content = {"fields": fields} | row_map.model_dump(exclude={"fields"}, exclude_defaults=True)
    return msgspec.json.encode(content).decode()


def _converted(value: JSON, column: _Column, row: Mapping[str, object]) -> JSON:
    for step in column.apply:
        transform = TRANSFORMS[step.name]
        argument: JSON = None
        if step.argument is not None:
            is_column = transform.argument == "column"
            argument = _source(step.argument, row) if is_column else str(step.argument)
        try:
            value = transform.function(value, argument)
        except ValueError as error:
            raise ValueError(f"{_named(column.source)}: {step.name}: {error}") from error
    return value


def _named(source: str | tuple[str, ...]) -> str:
    if isinstance(source, str):
        return f'column "{source}"'
    return f"columns {listed(source)}"


def _source(source: str | tuple[str, ...], row: Mapping[str, object]) -> JSON:
    """Return the value of a column, or the list of several columns' values."""
    if isinstance(source, str):
        return json_value(_at(row, source), source)
    values = [json_value(_at(row, path), path) for path in source]
    while values and _is_empty(values[-1]):  # a table has cells for the longest list
        values.pop()
    return values


def _is_empty(value: object) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _at(row: Mapping[str, object], path: str) -> object:
    # A column's own name may contain dots.
    if path in row:
        return row[path]
    value: object = row
    for step in path.split("."):
        if isinstance(value, str):
            value = _decoded(value)
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list | tuple) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, list) and all(isinstance(i, Mapping) and step in i for i in value):
            value = [item[step] for item in value]
        else:
            raise ValueError(f'there is no column "{path}" (the row has: {listed(row)})')
    return value


def _decoded(text: str) -> object:
    """Return the value of a JSON text, which has nested values in a table of texts."""
    try:
        return msgspec.json.decode(text)
    except JSON_ERRORS:
        return text


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


def _is_same(value: JSON, other_value: JSON) -> bool:
    # In JSON, true is not 1.
    return value == other_value and isinstance(value, bool) == isinstance(other_value, bool)
