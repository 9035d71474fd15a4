"""`gym envs`: list the environments, or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import (
    folded,
    one_line,
    print_json,
    print_table,
    result,
    scrubbed,
    terminal_width,
)
from gymcli.commands.options import JsonOption, complete_env
from gymcli.errors import EnvironmentImportError, UsageError

if TYPE_CHECKING:
    from gymcli.environment.description import FieldDescription
    from gymcli.environment.registry import Registration
    from gymcli.types import JSONObject

_FILTERS = ("structure", "capability", "domain", "task_type", "verification")
"""The properties that environments are filtered by, each with an option of its name."""
_MAX_NAME = 24
"""Characters of a name in the list; the text of a longer one begins on the next line."""
_MAX_EXAMPLE = 400
"""Characters of a value in the example row."""


def envs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Environment to describe in full.", autocompletion=complete_env
        ),
    ] = None,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS", help="Only environments of this structure, such as multi-turn."
        ),
    ] = None,
    capability: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Only environments that test this capability."),
    ] = None,
    domain: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Only environments of this domain.")
    ] = None,
    task_type: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Only environments with this type of tasks.")
    ] = None,
    verification: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Only environments verified this way.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the environments, or describe one.

    The options match any part of a value, in upper or lower case.
    """
    from gymcli.environment.description import describe
    from gymcli.environment.registry import Registry

    texts = (structure, capability, domain, task_type, verification)
    filters = {name: text for name, text in zip(_FILTERS, texts, strict=True) if text is not None}
    registry = Registry((name,) if name else ())
    if name is not None:
        if filters:
            raise UsageError(f"the options filter the list of environments; leave out {name}")
        _describe_one(registry.find(name), is_json=json)
        return
    described: list[JSONObject] = []
    for env in registry.names():
        try:
            described.append(describe(registry.find(env)))
        except EnvironmentImportError as error:  # the others are still listed
            described.append({"name": env, "description": "", "error": scrubbed(str(error))})
    for column, text in filters.items():
        values = sorted({str(row[column]) for row in described if column in row})
        described = [
            row for row in described if text.casefold() in str(row.get(column, "")).casefold()
        ]
        if not described:
            value = f"{column.replace('_', ' ')} {text!r}"
            raise UsageError(f"no environment has the {value}; choose from: {', '.join(values)}")
    if json:
        print_json(described)
        return
    _print_list(described)


def _print_list(described: list[JSONObject]) -> None:
    """Print a line for each environment, with as many properties as the terminal has room for."""
    head = ["name", "description", *(column.replace("_", " ") for column in _FILTERS)]
    rows = [
        [
            one_line(str(row["name"])),
            one_line(str(row.get("error") or row["description"]), 1000),
            *(one_line(str(row.get(column, ""))) for column in _FILTERS),
        ]
        for row in described
    ]
    width = terminal_width()
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    if width is None or sum(widths[:3]) + 4 <= width:
        print_table(head, rows, left=head, optional=head[:2:-1])
        return
    for name, text, *_ in rows:
        if len(name) > _MAX_NAME:
            result(name)
            name = ""
        result(folded(f"{name:{_MAX_NAME}}  {text}", _MAX_NAME + 2))


def _describe_one(registration: Registration, *, is_json: bool) -> None:
    """Print what an environment is, what its rows hold, and what ships with it."""
    from gymcli.environment.description import (
        describe,
        example_row,
        extra_of,
        fields_of,
        num_tasks,
    )
    from gymcli.environment.registry import generates

    described = describe(registration)
    fields = fields_of(registration.environment.Task)
    options = fields_of(registration.environment.Options)
    example, num = example_row(registration), num_tasks(registration)
    if is_json:
        print_json(
            {
                **described,
                "num_tasks": num,
                "fields": fields,
                "option_fields": options,
                "example": example,
            }
        )
        return
    del described["extra"]
    extra, purpose = extra_of(registration)
    needs = f"pip install 'gymcli[{extra}]'{purpose and f', for {purpose}'}"
    described["needs"] = needs if extra else "no other package"
    if num:
        described["tasks"] = f"{num} in {described['tasks']}"
    elif generates(registration):
        described["tasks"] = f"generated: gym data generate {registration.name}"
    if not options:
        described["options"] = None
    for key, value in described.items():
        if key == "options" and options:
            continue
        result(folded(f"{key.replace('_', ' '):16}{_shown(value)}", 16))
    _print_fields("fields of a row, besides its prompt", fields)
    _print_fields("options, as in --env-arg NAME=VALUE", options)
    if example is not None:
        result()
        result("example row, long values cut" if _is_long(example) else "example row")
        for name, value in example.items():
            result(folded(f"  {name}: {one_line(_as_json(value), _MAX_EXAMPLE)}", 4))


def _is_long(row: JSONObject) -> bool:
    return any(len(" ".join(_as_json(value).split())) > _MAX_EXAMPLE for value in row.values())


def _as_json(value: object) -> str:
    import msgspec

    # With spaces, at which a long line can be broken.
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _print_fields(head: str, fields: list[FieldDescription]) -> None:
    if not fields:
        return
    result()
    result(head)
    for field in fields:
        default = field.default if isinstance(field.default, str) else _as_json(field.default)
        need = "required" if field.is_required else f"default {default or 'empty'}"
        if not field.is_required and field.default is None:
            need = "may be left out"
        result(folded(f"  {field.name}: {field.type}; {need}", 4))
        if field.meaning:
            result(folded(f"      {field.meaning}", 6))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {kind}" for name, kind in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)
