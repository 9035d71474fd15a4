"""Which tasks a run has, and how rows become tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gymcli.command_line import CommandOption, EnvArgsOption, Heading
from gymcli.store.shards import Shard


def _canonical_shard(text: str | None) -> str | None:
    return None if text is None else str(Shard.parse(text))


class TaskOptions(BaseModel):
    """The options that decide which tasks are read, and in which order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: Annotated[
        str | None,
        CommandOption(
            "Environment of rows that name none: NAME, FILE.py, FILE.py:CLASS or MODULE:CLASS; "
            "AGENT=ENV plays rows of NeMo Gym's agent AGENT in ENV.",
            Heading.WHAT,
            metavar="ENV",
            completion="env",
        ),
    ] = None
    """The environment of rows that do not name one."""
    env_args: EnvArgsOption = {}
    """Options of environments: `key` or `env.key`."""
    prompt: Annotated[
        Path | None,
        CommandOption(
            "YAML file with user and system templates for raw rows.", Heading.WHAT, metavar="FILE"
        ),
    ] = None
    map_file: Annotated[
        Path | None,
        CommandOption(
            "YAML file that maps columns to fields, or FILE.py:FUNCTION.",
            Heading.WHAT,
            name="map",
            metavar="FILE",
            show_default="by the columns' names",
        ),
    ] = None
    """For the files that are named by a path; without it, that of a CSV or Parquet file is inferred
    from its columns."""
    repeats: Annotated[int, Field(ge=1), CommandOption("Attempts per task.", Heading.AMOUNT)] = 1
    limit: Annotated[
        int | None,
        Field(ge=1),
        CommandOption("Use only the first N rows of each file.", Heading.AMOUNT, "-n"),
    ] = None
    """Counted after `shuffle`."""
    task_ids: Annotated[
        tuple[str, ...],
        CommandOption("Run only the task with this id.", Heading.AMOUNT, name="task", metavar="ID"),
    ] = ()
    shuffle: Annotated[
        bool,
        CommandOption("Run the tasks in a random order, which loads them all.", Heading.AMOUNT),
    ] = False
    """The order depends on the seed only."""
    shard: Annotated[
        str | None,
        AfterValidator(_canonical_shard),
        CommandOption(
            "Run only this part of the tasks, 1/N to N/N.", Heading.DISTRIBUTED, metavar="I/N"
        ),
    ] = None
    """A part of the tasks that the other options select."""
    seed: Annotated[
        int | None,
        CommandOption("Seed environments and requests, per task and attempt.", Heading.SAMPLING),
    ] = None
    """None seeds environments with 0 and requests not at all."""
    id_field: Annotated[
        str | None,
        CommandOption(
            "Field with the task id.",
            Heading.EXPERT,
            metavar="FIELD",
            show_default="task_id, id or uuid",
        ),
    ] = None
    """Replaces `task_id`, `id` and `uuid`."""
    id_by_file: Annotated[
        bool, CommandOption("Allow the same task id in several files.", Heading.EXPERT)
    ] = False
