"""The options of a run that the command line and Python share, each declared once.

`gym collect` makes a command-line option of every field, and `CollectOptions` a field that pydantic
checks. Both refuse the same values. This module imports nothing heavy: `gym --help` needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from gymcli.store.shards import Shard

__all__ = [
    "AddressOption",
    "EngineOption",
    "IdFieldOption",
    "PromptOption",
    "RowOptions",
    "RunOptions",
    "WorkersOption",
    "not_negative",
    "positive",
    "shard_of",
]


def positive(value: float | None) -> float | None:
    """Return a number that is finite and above 0; another one is a bad parameter."""
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def not_negative(value: float | None) -> float | None:
    """Return a number that is finite and not below 0; another one is a bad parameter."""
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise typer.BadParameter(f"{value:g} is not a number from 0 on")
    return value


def shard_of(value: str | None) -> str | None:
    """Return a shard `I/N` in its usual spelling; another text is a bad parameter."""
    try:
        return None if value is None else str(Shard.parse(value))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where the work is done: here, or in the workers of a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="The Ray cluster to join, HOST:PORT or auto; else one of this machine."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes of the Ray cluster; else one for each core."),
]


@dataclass(kw_only=True)
class RunOptions:
    """Which attempts a run consists of, where they run and what ends them."""

    out: Annotated[
        Path | None, typer.Option(help="The run directory; default runs/TASKS-MODEL-HASH.")
    ] = None
    """From Python, None keeps nothing on disk."""
    fresh: Annotated[bool, typer.Option("--fresh", help="Start another run.")] = False
    repeats: Annotated[int, typer.Option(min=1, help="Attempts of each task.")] = 1
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many rows of each file.")] = None
    """The first ones, after `shuffle`."""
    task_ids: Annotated[
        list[str] | None, typer.Option("--task", help="Only the task of this id.")
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", callback=shard_of, help="Only this part of the tasks, 1/N to N/N."
        ),
    ] = None
    """Of the tasks that the other options select."""
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Take the tasks in a random order (in memory).")
    ] = False
    """The order is the same for one seed."""
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts under way at once.")] = 64
    engine: EngineOption = "local"
    address: AddressOption = None
    num_workers: WorkersOption = None
    """They share `concurrency`."""
    max_turns: Annotated[
        int | None, typer.Option(min=1, help="Model messages of an episode; else 32.")
    ] = None
    """It wins over the limit of the row and of the environment."""
    max_episode_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the model in one episode.")
    ] = None
    """Prompts included; the episode ends there and is scored."""
    max_episode_cost: Annotated[
        float | None, typer.Option(callback=positive, help="The same, by gym.toml's prices.")
    ] = None
    max_episode_time: Annotated[
        float, typer.Option(callback=positive, help="Seconds of one episode.")
    ] = 3600.0
    """The episode ends there and is scored."""
    max_tokens_total: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the run, roles included; it stops there.")
    ] = None
    """Earlier commands of this run included."""
    max_cost: Annotated[
        float | None,
        typer.Option(callback=positive, help="Cost of the run by gym.toml's prices; it stops."),
    ] = None
    """Everything that is asked needs prices."""
    max_run_time: Annotated[
        float | None, typer.Option(callback=positive, help="Seconds of this command; it stops.")
    ] = None
    """No attempt is started after it."""
    grace: Annotated[
        float,
        typer.Option(
            callback=not_negative, help="Seconds for attempts in flight when the run stops early."
        ),
    ] = 30.0
    outage_deadline: Annotated[
        float | None,
        typer.Option(
            callback=not_negative, help="Seconds that a dead endpoint is waited for; else 300."
        ),
    ] = None
    """It wins over what an endpoint says itself."""
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="Leave attempts that failed before as they are.")
    ] = False
    retry_crashed: Annotated[
        bool,
        typer.Option("--retry-crashed", help="Try attempts again with which the process died."),
    ] = False


PromptOption = Annotated[
    Path | None, typer.Option(help="YAML file with a user and system template for raw rows.")
]
IdFieldOption = Annotated[str | None, typer.Option(help="The field that holds a task's id.")]
IdByFileOption = Annotated[bool, typer.Option("--id-by-file", help="Ids count within their file.")]


@dataclass(kw_only=True)
class RowOptions:
    """How rows become tasks."""

    prompt: PromptOption = None
    id_field: IdFieldOption = None
    """It takes the place of `task_id`, `id` and `uuid`."""
    id_by_file: IdByFileOption = False
