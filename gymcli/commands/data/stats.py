"""`gym data stats`: what task files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import one_line, print_json, print_table, result, warn
from gymcli.commands.options import JsonOption, PromptOption

if TYPE_CHECKING:
    from gymcli.data.statistics import Spread, Statistics

__all__ = ["stats"]

_SPREAD = ("mean", "standard_deviation", "min", "median", "p90", "p99", "max")
_MAX_TOOLS = 10


def stats(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="JSONL files (.gz, .zst), or an environment for its own tasks."
        ),
    ],
    prompt: PromptOption = None,
    json: JsonOption = False,
) -> None:
    """Describe task files: how many, how long, how many turns, tools, images, which values."""
    import msgspec

    from gymcli.data.statistics import describe_tasks
    from gymcli.errors import TasksError

    found = describe_tasks(files, prompt=prompt)
    if not found.num_rows:
        raise TasksError(f"{', '.join(found.files)}: no row is a task; gym data validate says why")
    if found.num_wrong:
        warn(f"{found.num_wrong} rows are wrong and not counted; gym data validate says why")
    if json:
        print_json(msgspec.json.encode(found))
        return
    _print(found)


def _print(found: Statistics) -> None:
    result(f"rows          {found.num_rows}, of {found.num_tasks} tasks")
    texts = f"{found.num_unique_user_texts} different texts of users"
    result(f"prompts       {found.num_unique_prompts} different, {texts}")
    if found.num_without_id:
        result(f"without id    {found.num_without_id}")
    if found.num_images:
        result(f"images        {found.num_images}")
    result(f"environments  {_counts(found.environments)}")
    if found.tool_names:
        shown = dict(list(found.tool_names.items())[:_MAX_TOOLS])
        more = ", ..." if len(found.tool_names) > _MAX_TOOLS else ""
        result(f"tools         {len(found.tool_names)} different: {_counts(shown)}{more}")
    for name, values in found.fields.items():
        result(f"{one_line(name, 40)}: {_counts(values)}")
    result()
    head = ("", "rows", *(name.replace("_", " ") for name in _SPREAD))
    print_table(head, [_row(name, spread) for name, spread in found.spreads.items()])


def _row(name: str, spread: Spread) -> tuple[str, ...]:
    numbers = (f"{getattr(spread, key):.10g}" for key in _SPREAD[2:])
    means = (f"{spread.mean:.2f}", f"{spread.standard_deviation:.2f}")
    return (name.replace("_", " "), str(spread.num), *means, *numbers)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name) or 'none'} {count}" for name, count in counts.items())
