"""Declare the options of a command by the fields of pydantic models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import GenericAlias
from typing import Annotated, Literal, TypeVar, cast, get_args, get_origin

import typer
from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from gymcli.command_line import CommandOption, Heading, RoleParamsOption
from gymcli.commands.options import (
    complete_benchmark,
    complete_env,
    complete_model,
    complete_run,
    key_values,
    parameters,
    role_params,
)

T = TypeVar("T")

_COMPLETIONS = {
    "benchmark": complete_benchmark,
    "env": complete_env,
    "model": complete_model,
    "run": complete_run,
}
_READERS: dict[object, Callable[[str, Iterable[str]], object]] = {
    dict[str, str]: key_values,
    dict[str, object]: parameters,
    dict[str, dict[str, object]]: role_params,
}
"""How the texts of a repeatable option become the value of a field of this type."""


class RoleOptions(BaseModel):
    """The models of roles."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[
        tuple[str, ...],
        CommandOption(
            "Model of a role, such as a judge: name in gym.toml, URL#MODEL, local, or oracle.",
            Heading.MODEL,
            metavar="ROLE=MODEL",
        ),
    ] = ()
    role_params: RoleParamsOption = {}


def with_model_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with options in place of its parameters that are pydantic models.

    Every field with a `CommandOption` becomes an option. Its values are refused for the reasons
    for which the model refuses them.
    """
    models: dict[str, type[BaseModel]] = {}
    declared: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        model = parameter.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            models[parameter.name] = model
            declared += _parameters_of(model)
        else:
            # By keyword, since a parameter without a default may follow one that has one.
            declared.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def command(**values: object) -> None:
        for name, model in models.items():
            fields = model.model_fields.keys() & values.keys()
            values[name] = _filled(model, {field: values.pop(field) for field in fields})
        function(**values)

    command.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]  # PEP 362
    return command


def option_of(model: type[BaseModel], field: str) -> object:
    """Return Typer's declaration of a field, for a command that takes only some of a model's."""
    info = model.model_fields[field]
    option = _command_option(info)
    assert option is not None, f"{model.__name__}.{field}"
    flag = _flag(option, field)
    checks = [
        cast("Callable[[object], object]", item.func)
        for item in info.metadata
        if isinstance(item, AfterValidator)
    ]
    return typer.Option(
        f"{flag}/--no-{flag[2:]}" if info.default is True else flag,
        *filter(None, [option.short]),
        help=option.help,
        rich_help_panel=option.heading,
        metavar=option.metavar,
        show_default=option.show_default,
        min=_limit(info, "ge"),
        max=_limit(info, "le"),
        callback=checked_by(checks[0]) if checks else None,
        autocompletion=_COMPLETIONS[option.completion] if option.completion else None,
    )


def checked_by(check: Callable[[T], T]) -> Callable[[T], T]:
    """Return a callback of Typer that refuses what `check` refuses with a ValueError."""

    def callback(value: T) -> T:
        try:
            return check(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return callback


def _command_option(info: FieldInfo) -> CommandOption | None:
    return next((item for item in info.metadata if isinstance(item, CommandOption)), None)


def _limit(info: FieldInfo, name: Literal["ge", "le"]) -> float | None:
    return next((getattr(item, name) for item in info.metadata if hasattr(item, name)), None)


def _flag(option: CommandOption, field: str) -> str:
    return "--" + (option.name or field).replace("_", "-")


def _parameters_of(model: type[BaseModel]) -> Iterator[inspect.Parameter]:
    """Yield a parameter, as Typer reads it, for each field that has an option."""
    for field, info in model.model_fields.items():
        if _command_option(info) is None:
            continue
        default = info.default
        annotation: object = info.annotation
        if get_origin(annotation) is tuple:
            annotation, default = GenericAlias(list, get_args(annotation)[:1]) | None, None
        elif get_origin(annotation) is dict:
            annotation, default = list[str] | None, None
        yield inspect.Parameter(
            field,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[annotation, option_of(model, field)],
        )


def _filled(model: type[BaseModel], values: Mapping[str, object]) -> BaseModel:
    """Return the model of the values of its options; None stands for a field's default."""
    fields = {field: value for field, value in values.items() if value is not None}
    for field, value in fields.items():
        info = model.model_fields[field]
        option = _command_option(info)
        if option is not None and (reader := _READERS.get(info.annotation)):
            fields[field] = reader(_flag(option, field), cast("list[str]", value))
    return model(**fields)
