"""The options of comparing runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from gymcli.command_line import CommandOption
from gymcli.metrics.at_k import METRICS

_AT_K = ", ".join(f"{metric.name}K" for metric in METRICS.values() if not metric.needs_answers)


class CompareOptions(BaseModel):
    """Which number is compared, of which tasks, and when B is worse."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: Annotated[
        str,
        CommandOption(
            f"Number to compare: mean_reward, {_AT_K}, components.NAME or metrics.NAME.",
            metavar="NAME",
        ),
    ] = "mean_reward"
    margin: Annotated[
        float | None,
        CommandOption(
            "How much worse B may be.",
            metavar="DIFFERENCE",
            show_default="2 % of the range of rewards",
        ),
    ] = None
    strict: Annotated[bool, CommandOption("Fail only if B is worse by more than the margin.")] = (
        False
    )
    level: Annotated[
        float, CommandOption("Confidence level of the intervals.", metavar="SHARE")
    ] = 0.95
    by: Annotated[
        tuple[str, ...],
        CommandOption("Also compare the tasks of each value of this field.", metavar="FIELD"),
    ] = ()
    allow_drift: Annotated[bool, CommandOption("Compare runs even if their settings differ.")] = (
        False
    )
    env: Annotated[
        str | None,
        CommandOption(
            "Environment of lines that name none, such as NeMo Gym's.",
            metavar="ENV",
            completion="env",
        ),
    ] = None
    by_task: Annotated[bool, CommandOption("Print a line for every task.")] = False
