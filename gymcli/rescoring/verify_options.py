"""The options of scoring stored rollouts again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gymcli.command_line import CommandOption, EnvArgsOption, Heading, RoleParamsOption
from gymcli.runner.collect_options import (
    AddressOption,
    EngineOption,
    WorkersOption,
)


class VerifyOptions(BaseModel):
    """Which rollouts are scored again, how, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: Annotated[
        str | None,
        CommandOption(
            "Environment of lines that name none, or FILE.py:CLASS.",
            Heading.WHAT,
            metavar="ENV",
            completion="env",
        ),
    ] = None
    env_args: EnvArgsOption = {}
    role_params: RoleParamsOption = {}
    concurrency: Annotated[
        int,
        Field(ge=1),
        CommandOption("Maximum rollouts that wait for models.", Heading.AMOUNT, "-j"),
    ] = 64
    engine: EngineOption = "local"
    address: AddressOption = None
    num_workers: WorkersOption = None
    tasks: Annotated[
        tuple[Path, ...],
        CommandOption(
            "Task rows, if a rollout file from elsewhere lacks their fields.",
            Heading.WHAT,
            metavar="FILE",
        ),
    ] = ()
    out: Annotated[
        Path | None,
        CommandOption(
            "Write the rescored rollouts as a new run.", Heading.RESULTS, "-o", metavar="DIR"
        ),
    ] = None
    pending: Annotated[
        bool, CommandOption("Score only the conversations that wait for a score.", Heading.AMOUNT)
    ] = False
    repeat: Annotated[
        int | None,
        Field(ge=2),
        CommandOption("Score every rollout N times and report disagreement.", Heading.AMOUNT),
    ] = None
