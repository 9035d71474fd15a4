"""`gym data generate`: the data sets of environments, written from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import one_line, print_json, result
from gymcli.commands.data.rows import OutOption, give_rows
from gymcli.errors import UsageError

if TYPE_CHECKING:
    from gymcli.data.generation import Comparison

__all__ = ["generate"]

_FAILED = 3


def generate(
    envs: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV", help="One environment; with --check any, none: all."),
    ] = None,
    num: Annotated[
        int | None,
        typer.Option("--num", "-n", min=1, help="Rows; else as many as ship with it, or 60."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed; 0, the default, gives what ships.")
    ] = None,
    out: OutOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with what ships; exit code 3 if it differs.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Write the data set of an environment, the same rows for the same seed."""
    from gymcli.data.generation import compare_generated, generated_rows
    from gymcli.environment.registry import Registry, shipped_tasks

    if check:
        if num is not None or seed is not None or out is not None:
            raise UsageError("--check compares with what ships: it takes no -n, --seed or -o")
        names = envs or [name for name in Registry.names() if shipped_tasks(name)]
        _report([compare_generated(name) for name in names], is_json=json)
        return
    if json:
        raise UsageError("--json is for --check; rows are JSON already")
    if envs is None or len(envs) != 1:
        raise UsageError("name one environment (gym envs lists them), or compare with --check")
    give_rows(generated_rows(envs[0], num, seed=seed or 0), out)


def _report(comparisons: list[Comparison], *, is_json: bool) -> None:
    """Print what was compared.

    Raises:
        typer.Exit: An environment gives other rows.

    """
    import msgspec

    if is_json:
        print_json(msgspec.json.encode(comparisons))
    else:
        for one in comparisons:
            status = "ok" if one.difference is None else f"FAILED {one_line(one.difference)}"
            result(f"{one.env}: {one.num_rows} rows: {status}")
    if any(one.difference is not None for one in comparisons):
        raise typer.Exit(_FAILED)
