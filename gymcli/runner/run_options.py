"""The options of a run that the command line and Python share, each declared once.

`gym collect` turns every field into a command-line option, `CollectOptions` into a field that
pydantic checks. Both refuse the same values. This module imports nothing heavy: `gym --help` needs
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from gymcli.store.shards import Shard


class Heading(StrEnum):
    """The groups of options in the help of a command with many, in this order."""

    WHAT = "What to run"
    MODEL = "Model"
    SAMPLING = "Sampling"
    AMOUNT = "How much"
    BUDGETS = "Budgets"
    NUMBERS = "Numbers"
    ANSWERS = "Answers"
    FAULTS = "Faults and limits"
    SERVER = "Server"
    RESULTS = "Results"
    DISTRIBUTED = "Distributed"
    EXPERT = "Expert"


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
    typer.Option(
        help="Work on this machine, or in the workers of a Ray cluster.",
        rich_help_panel=Heading.DISTRIBUTED,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray cluster to join; auto finds it.",
        show_default="start one here",
        rich_help_panel=Heading.DISTRIBUTED,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Worker processes of the Ray cluster.",
        show_default="one per core",
        rich_help_panel=Heading.DISTRIBUTED,
    ),
]


@dataclass(kw_only=True)
class RunOptions:
    """Which attempts a run consists of, where they run and what stops them."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Run directory.",
            show_default="runs/TASKS-MODEL-HASH",
            rich_help_panel=Heading.RESULTS,
        ),
    ] = None
    """From Python, None writes nothing to disk."""
    record_tokens: Annotated[
        bool,
        typer.Option(
            "--record-tokens",
            help="Record the token ids of every call in tokens.jsonl, for training.",
            rich_help_panel=Heading.SAMPLING,
        ),
    ] = False
    """Needs `out`, and an endpoint that reports token ids. An endpoint may set it, too."""
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start a new run, in an unused directory such as run-2.",
            rich_help_panel=Heading.RESULTS,
        ),
    ] = False
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            "-j",
            min=1,
            help="Maximum attempts in flight.",
            rich_help_panel=Heading.AMOUNT,
        ),
    ] = 64
    engine: EngineOption = "local"
    address: AddressOption = None
    num_workers: WorkersOption = None
    """The workers share `concurrency`."""
    max_turns: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop an episode after N model messages.",
            show_default="the limit of the row or the environment, else 32",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    """Overrides the limits of the row and of the environment."""
    max_episode_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop an episode after N tokens, prompts included.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    """The episode is scored as it is then."""
    max_episode_cost: Annotated[
        float | None,
        typer.Option(
            metavar="COST",
            callback=positive,
            help="Stop an episode at this cost; gym.toml must have prices.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    max_episode_time: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="Stop an episode after this time.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = 3600.0
    """The episode is scored as it is then."""
    max_tokens_total: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop the run after N tokens, roles included.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    """Earlier commands of this run count too."""
    max_cost: Annotated[
        float | None,
        typer.Option(
            metavar="COST",
            callback=positive,
            help="Stop the run at this cost; gym.toml must have prices.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    """Every model needs prices, those of roles too."""
    max_run_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="Stop the run after this time.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    """Counted for this command; no attempt starts later."""
    max_failures: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Stop the run after N failed attempts, with exit code 4.",
            rich_help_panel=Heading.BUDGETS,
        ),
    ] = None
    """Counted for this command, retries of a request excluded."""
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=not_negative,
            help="Time that attempts in flight get to finish when the run stops early.",
            rich_help_panel=Heading.EXPERT,
        ),
    ] = 30.0
    outage_deadline: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=not_negative,
            help="Time to wait for an endpoint that is down.",
            show_default="gym.toml's, else 300",
            rich_help_panel=Heading.EXPERT,
        ),
    ] = None
    """Overrides what an endpoint sets itself."""
    no_retry: Annotated[
        bool,
        typer.Option(
            "--no-retry",
            help="Skip attempts that failed in an earlier command.",
            rich_help_panel=Heading.EXPERT,
        ),
    ] = False
    retry_crashed: Annotated[
        bool,
        typer.Option(
            "--retry-crashed",
            help="Also retry attempts in which the run's process died.",
            rich_help_panel=Heading.EXPERT,
        ),
    ] = False


PromptOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML file with user and system templates for raw rows.",
        rich_help_panel=Heading.WHAT,
    ),
]
MapOption = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="YAML file that maps columns to fields.",
        show_default="by the columns' names",
        rich_help_panel=Heading.WHAT,
    ),
]
IdFieldOption = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD",
        help="Field with the task id.",
        show_default="task_id, id or uuid",
        rich_help_panel=Heading.EXPERT,
    ),
]
IdByFileOption = Annotated[
    bool,
    typer.Option(
        "--id-by-file",
        help="Allow the same task id in several files.",
        rich_help_panel=Heading.EXPERT,
    ),
]


@dataclass(kw_only=True)
class RowOptions:
    """Which tasks are read, and how rows become tasks."""

    repeats: Annotated[
        int, typer.Option(min=1, help="Attempts per task.", rich_help_panel=Heading.AMOUNT)
    ] = 1
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="Use only the first N rows of each file.",
            rich_help_panel=Heading.AMOUNT,
        ),
    ] = None
    """Counted after `shuffle`."""
    task_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="ID",
            help="Run only the task with this id.",
            rich_help_panel=Heading.AMOUNT,
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            callback=shard_of,
            help="Run only this part of the tasks, 1/N to N/N.",
            rich_help_panel=Heading.DISTRIBUTED,
        ),
    ] = None
    """A part of the tasks that the other options select."""
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle",
            help="Run the tasks in a random order, which loads them all.",
            rich_help_panel=Heading.AMOUNT,
        ),
    ] = False
    """The order depends on the seed only."""
    prompt: PromptOption = None
    map_file: MapOption = None
    """For the files that are named by a path; without it, that of a CSV or Parquet file is inferred
    from its columns."""
    id_field: IdFieldOption = None
    """Replaces `task_id`, `id` and `uuid`."""
    id_by_file: IdByFileOption = False
