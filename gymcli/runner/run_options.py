"""The options of a run that the command line and Python share, each declared once.

`gym collect` turns every field into a command-line option, `CollectOptions` into a field that
pydantic checks. Both refuse the same values. This module imports nothing heavy: `gym --help` needs
it.
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
    "MapOption",
    "PromptOption",
    "RowOptions",
    "RunOptions",
    "WorkersOption",
    "not_negative",
    "positive",
    "shard_of",
]


def positive(value: float | None) -> float | None:
    """Return `value` if it is finite and above 0; raise BadParameter otherwise."""
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def not_negative(value: float | None) -> float | None:
    """Return `value` if it is finite and at least 0; raise BadParameter otherwise."""
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise typer.BadParameter(f"{value:g} is not a number from 0 on")
    return value


def shard_of(value: str | None) -> str | None:
    """Return a shard `I/N` in its canonical spelling; raise BadParameter if it is not one."""
    try:
        return None if value is None else str(Shard.parse(value))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Work on this machine, or in the workers of a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Ray cluster to join, HOST:PORT or auto (default: start one here)."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Worker processes of the Ray cluster (default: one per core)."
    ),
]


@dataclass(kw_only=True)
class RunOptions:
    """Which attempts a run consists of, where they run and what stops them."""

    out: Annotated[
        Path | None, typer.Option(help="Run directory (default: runs/TASKS-MODEL-HASH).")
    ] = None
    """From Python, None writes nothing to disk."""
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new run, in an unused directory such as run-2.")
    ] = False
    repeats: Annotated[int, typer.Option(min=1, help="Attempts per task.")] = 1
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N rows of each file.")
    ] = None
    """Counted after `shuffle`."""
    task_ids: Annotated[
        list[str] | None,
        typer.Option("--task", help="Run only the task with this id (repeatable)."),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", callback=shard_of, help="Run only this part of the tasks, 1/N to N/N."
        ),
    ] = None
    """A part of the tasks that the other options select."""
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Run the tasks in a random order (loads them all).")
    ] = False
    """The order depends on the seed only."""
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum attempts in flight.")] = 64
    engine: EngineOption = "local"
    address: AddressOption = None
    num_workers: WorkersOption = None
    """The workers share `concurrency`."""
    max_turns: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop an episode after N model messages (default: the row's or the "
            "environment's limit, else 32).",
        ),
    ] = None
    """Overrides the limits of the row and of the environment."""
    max_episode_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Stop an episode after N tokens, prompts included."),
    ] = None
    """The episode is scored as it is then."""
    max_episode_cost: Annotated[
        float | None,
        typer.Option(
            callback=positive, help="Stop an episode at this cost (needs prices in gym.toml)."
        ),
    ] = None
    max_episode_time: Annotated[
        float, typer.Option(callback=positive, help="Stop an episode after this many seconds.")
    ] = 3600.0
    """The episode is scored as it is then."""
    max_tokens_total: Annotated[
        int | None, typer.Option(min=1, help="Stop the run after N tokens, roles included.")
    ] = None
    """Earlier commands of this run count too."""
    max_cost: Annotated[
        float | None,
        typer.Option(
            callback=positive, help="Stop the run at this cost (needs prices in gym.toml)."
        ),
    ] = None
    """Every model needs prices, those of roles too."""
    max_run_time: Annotated[
        float | None,
        typer.Option(callback=positive, help="Stop the run after this many seconds."),
    ] = None
    """Counted for this command; no attempt starts later."""
    grace: Annotated[
        float,
        typer.Option(
            callback=not_negative,
            help="Seconds that attempts in flight get to finish when the run stops early.",
        ),
    ] = 30.0
    outage_deadline: Annotated[
        float | None,
        typer.Option(
            callback=not_negative,
            help="Seconds to wait for an endpoint that is down (default: gym.toml's, else 300).",
        ),
    ] = None
    """Overrides what an endpoint sets itself."""
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="Do not retry attempts that failed earlier.")
    ] = False
    retry_crashed: Annotated[
        bool,
        typer.Option("--retry-crashed", help="Retry attempts that crashed the run's process."),
    ] = False


PromptOption = Annotated[
    Path | None, typer.Option(help="YAML file with user and system templates for raw rows.")
]
MapOption = Annotated[
    Path | None,
    typer.Option("--map", help="YAML file that maps columns to fields (default: by their names)."),
]
IdFieldOption = Annotated[
    str | None, typer.Option(help="Field with the task id (default: task_id, id or uuid).")
]
IdByFileOption = Annotated[
    bool, typer.Option("--id-by-file", help="Allow the same task id in several files.")
]


@dataclass(kw_only=True)
class RowOptions:
    """How rows become tasks."""

    prompt: PromptOption = None
    map_file: MapOption = None
    """For the files that are named by a path; without it, that of a CSV or Parquet file is inferred
    from its columns."""
    id_field: IdFieldOption = None
    """Replaces `task_id`, `id` and `uuid`."""
    id_by_file: IdByFileOption = False
