"""`gym envs`: which environments there are, and what one of them is."""

from __future__ import annotations

from typing import Annotated

import typer

from gymcli.commands.console import print_json, result

__all__ = ["envs"]


def envs(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One environment, in full.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the environments, or describe one."""
    import msgspec

    from gymcli.errors import EnvironmentImportError
    from gymcli.registry import Registry, describe

    registry = Registry((name,) if name else ())
    if name is not None:
        found = describe(registry.find(name))
        if json:
            print_json(msgspec.json.encode(found))
            return
        for key, value in found.items():
            result(f"{key.replace('_', ' '):16}{_shown(value)}")
        return
    described: list[dict[str, object]] = []
    for known in registry.names():
        try:
            described.append(describe(registry.find(known)))
        except EnvironmentImportError as error:
            described.append({"name": known, "description": "", "error": str(error)})
    if json:
        print_json(msgspec.json.encode(described))
        return
    columns = ("name", "structure", "capability", "domain", "task_type", "verification")
    rows = [[str(one.get(column, "")) for column in columns] for one in described]
    rows.insert(0, [column.replace("_", " ") for column in columns])
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    errors = [""] + [str(one.get("error", "")) for one in described]
    for row, reason in zip(rows, errors, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        result("  ".join([cells[0], reason] if reason else cells).rstrip())


def _shown(value: object) -> str:
    """Give a value of the description as a person reads it."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {kind}" for name, kind in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)
