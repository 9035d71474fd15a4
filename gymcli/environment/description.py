"""Describes an environment for `gym envs`: its properties, the fields of its rows, its options."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from itertools import pairwise
from pathlib import Path

import msgspec
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError

from gymcli.environment.registry import Registration, generated_lines, generates, own_tasks
from gymcli.errors import EpisodeError
from gymcli.store.lines import iterate_lines
from gymcli.types import JSON, JSONObject

EXTRAS = {
    "aviary": ("aviary", ""),
    "instruction_following": ("ifeval", "rows about sentences or languages"),
    "math_with_judge": ("math", ""),
    "reasoning_gym": ("reasoning-gym", ""),
    "structured_outputs": ("structured", "XML"),
}
"""The extra of gymcli that a built-in environment needs, and for what; empty: for every row."""


class FieldDescription(msgspec.Struct):
    """A field of a row, or an option, in words."""

    name: str
    type: str
    is_required: bool
    default: JSON
    """None if the field is required, too."""
    meaning: str


def describe(registration: Registration) -> JSONObject:
    environment = registration.environment
    lines = (inspect.getdoc(environment) or "").splitlines()
    tasks = own_tasks(registration)
    return {
        "name": registration.name,
        "description": lines[0] if lines else "",
        "version": environment.version,
        "max_reward": environment.max_reward,
        "tools": list(environment.method_tools()),
        "options": {
            name: _in_words(field.annotation)
            for name, field in environment.Options.model_fields.items()
        },
        "roles": [
            *environment.required_roles,
            *(f"{role} (optional)" for role in environment.optional_roles),
        ],
        "rescore": environment.rescore,
        **environment.properties._asdict(),
        "skipped_checks": dict(environment.skipped_checks),
        "tasks": str(tasks) if tasks else None,
        "extra": extra_of(registration)[0] or None,
    }


def extra_of(registration: Registration) -> tuple[str, str]:
    is_built_in = registration.environment.__module__.startswith("gymcli.envs.")
    return EXTRAS.get(registration.name, ("", "")) if is_built_in else ("", "")


def num_tasks(registration: Registration) -> int:
    path = own_tasks(registration)
    return 0 if path is None else sum(1 for _ in iterate_lines(path))


def example_row(registration: Registration) -> JSONObject | None:
    path = own_tasks(registration)
    try:
        if path is not None:
            line = next((line.data for line in iterate_lines(path)), None)
        else:
            line = next(generated_lines(registration), None) if generates(registration) else None
    except EpisodeError:  # the generator fails
        return None
    return None if line is None else msgspec.json.decode(line, type=JSONObject)


def fields_of(model: type[BaseModel]) -> list[FieldDescription]:
    """Describe the fields of a task or of options; the docstring under a field is its meaning."""
    meanings = _docstrings(model)
    return [
        FieldDescription(
            name=name,
            type=_in_words(field.annotation),
            is_required=field.is_required(),
            default=_default(field),
            meaning=" ".join((field.description or meanings.get(name, "")).split()),
        )
        for name, field in model.model_fields.items()
    ]


def _default(field: FieldInfo) -> JSON:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    try:
        default: JSON = msgspec.json.decode(TypeAdapter(object).dump_json(value))
    except PydanticSerializationError:  # an author may use any Python type
        return str(value)
    return default


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    docstrings: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, BaseModel) or cls is BaseModel:
            continue
        try:
            [tree] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # made without a file, or it is gone
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for statement, next_statement in pairwise(body):
            value = next_statement.value if isinstance(next_statement, ast.Expr) else None
            if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                continue
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                docstrings[statement.target.id] = inspect.cleandoc(value.value)
    return docstrings


_WORDS = {
    str: ("text", "texts"),
    int: ("whole number", "whole numbers"),
    float: ("number", "numbers"),
    bool: ("true or false", "booleans"),
    type(None): ("null", "nulls"),
    Path: ("path", "paths"),
}
"""Types in words, of one value and of several."""


def _in_words(annotation: object, *, is_plural: bool = False) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and annotation in _WORDS:
        return _WORDS[annotation][is_plural]
    if origin is typing.Annotated:
        return _in_words(arguments[0], is_plural=is_plural)
    if origin is typing.Literal:
        values = ", ".join(str(value) for value in arguments)
        return values if len(arguments) == 1 else f"one of {values}"
    if origin in (typing.Union, types.UnionType):
        members = (argument for argument in arguments if argument is not type(None))
        words = [_in_words(member, is_plural=is_plural) for member in members]
        return " or ".join(dict.fromkeys(words))
    is_list = annotation in (list, tuple, set) or origin in (list, tuple, set)
    if is_list:
        item_types = (argument for argument in arguments if argument is not ...)
        items = dict.fromkeys(_in_words(item_type, is_plural=True) for item_type in item_types)
        name = "lists" if is_plural else "list"
        return f"{name} of {' and '.join(items)}" if items else name
    if origin is dict or annotation is dict:
        return "objects" if is_plural else "object"
    if isinstance(annotation, type) and annotation is not object:
        is_object = issubclass(annotation, BaseModel | msgspec.Struct)
        return ("objects" if is_plural else "object") if is_object else annotation.__name__
    return "any JSON"
