"""`gym data validate`: everything that is wrong with task files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import print_json, result, warn
from gymcli.commands.options import (
    IdByFileOption,
    IdFieldOption,
    JsonOption,
    PromptOption,
    key_values,
)

if TYPE_CHECKING:
    from gymcli.store.tasks import RowProblem

__all__ = ["validate"]

_USAGE = 2


def validate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="JSONL files (.gz, .zst), or an environment for its own tasks."
        ),
    ],
    env: Annotated[
        str | None,
        typer.Option(help="Check fields and tools; the environment of rows that name none."),
    ] = None,
    env_arg: Annotated[
        list[str] | None, typer.Option(metavar="[ENV.]KEY=VALUE", help="An environment's option.")
    ] = None,
    prompt: PromptOption = None,
    id_field: IdFieldOption = None,
    id_by_file: IdByFileOption = False,
    json: JsonOption = False,
) -> None:
    """List every row that is wrong, with its line; exit code 2 where there is one.

    With --env, all that `gym collect` would refuse; without it the shape of the rows alone.
    """
    import msgspec

    from gymcli.data.validation import validate as validate_files

    found = validate_files(
        files,
        env=env,
        env_args=key_values("--env-arg", env_arg or ()),
        prompt=prompt,
        id_field=id_field,
        id_by_file=id_by_file,
    )
    for text in found.warnings:
        warn(text)
    if json:
        problems = [_located(problem, found.files) for problem in found.problems]
        report = {**msgspec.to_builtins(found), "problems": problems}
        print_json(msgspec.json.encode(report))
    else:
        for problem in found.problems:
            result(str(problem))
        looked = "fields and tools too" if found.is_checked else "shape alone; --env checks fields"
        result(
            f"{found.num_rows} rows, {found.num_tasks} tasks, {found.num_wrong} wrong ({looked})"
        )
    if found.problems:
        raise typer.Exit(_USAGE)


def _located(problem: RowProblem, files: list[str]) -> dict[str, str | int | None]:
    file, line = problem.place, None
    if file not in files:
        file, _, number = file.rpartition(":")
        line = int(number)
    return {"place": problem.place, "file": file, "line": line, "reason": problem.reason}
