"""`gym envs`: list the environments, or describe one."""

from __future__ import annotations

from typing import Annotated

import typer

from gymcli.commands.console import print_json, result, scrubbed
from gymcli.commands.options import JsonOption, complete_env
from gymcli.errors import EnvironmentImportError, UsageError

__all__ = ["envs"]

_FILTERS = ("structure", "capability", "domain", "task_type", "verification")
"""The properties that environments are filtered by, each with an option of its name."""


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
    from gymcli.environment.registry import Registry, describe

    given = (structure, capability, domain, task_type, verification)
    wanted = {name: text for name, text in zip(_FILTERS, given, strict=True) if text is not None}
    registry = Registry((name,) if name else ())
    if name is not None:
        if wanted:
            raise UsageError(f"the options filter the list of environments; leave out {name}")
        found = describe(registry.find(name))
        if json:
            print_json(found)
            return
        for key, value in found.items():
            result(f"{key.replace('_', ' '):16}{_shown(value)}")
        return
    described: list[dict[str, object]] = []
    for known in registry.names():
        try:
            described.append(describe(registry.find(known)))
        except EnvironmentImportError as error:  # the others are still listed
            described.append({"name": known, "description": "", "error": scrubbed(str(error))})
    for column, text in wanted.items():
        values = sorted({str(one[column]) for one in described if column in one})
        described = [
            one for one in described if text.casefold() in str(one.get(column, "")).casefold()
        ]
        if not described:
            what = f"{column.replace('_', ' ')} {text!r}"
            raise UsageError(f"no environment has the {what}; choose from: {', '.join(values)}")
    if json:
        print_json(described)
        return
    columns = ("name", *_FILTERS)
    rows = [[str(one.get(column, "")) for column in columns] for one in described]
    rows.insert(0, [column.replace("_", " ") for column in columns])
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    errors = [""] + [str(one.get("error", "")) for one in described]
    for row, reason in zip(rows, errors, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        result("  ".join([cells[0], reason] if reason else cells).rstrip())


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {kind}" for name, kind in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)
