"""The options of verifying answers, comparing and measuring; light, since commands declare them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from gymcli.command_line import CommandOption, Heading
from gymcli.metrics.at_k import METRICS

_AT_K = ", ".join(f"{metric.name}K" for metric in METRICS.values() if not metric.needs_answers)


class AnswerOptions(BaseModel):
    """The benchmark whose tasks a file answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: Annotated[
        str | None,
        CommandOption(
            "Score the answers of a file as this benchmark does, and compare with published "
            "scores. Each row has a task's id or question, and the answer as response, "
            "completion, output or the like.",
            Heading.WHAT,
            metavar="NAME",
            completion="benchmark",
        ),
    ] = None
    model: Annotated[
        str | None,
        CommandOption(
            "With --benchmark: the model that gave the answers.",
            Heading.MODEL,
            metavar="NAME",
            show_default="the one that the rows name",
        ),
    ] = None


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


class MetricsOptions(BaseModel):
    """Which numbers are computed, and of which environment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: Annotated[
        str | None,
        CommandOption(
            "Environment of lines that name none, such as NeMo Gym's, or the code of one that "
            "defines its own metrics, FILE.py:CLASS.",
            Heading.WHAT,
            metavar="ENV",
            completion="env",
        ),
    ] = None
    by_task: Annotated[bool, CommandOption("Print a line for every task.", Heading.NUMBERS)] = False
    by: Annotated[
        tuple[str, ...],
        CommandOption(
            "Report each value of a task field separately, such as task.category.",
            Heading.NUMBERS,
            metavar="FIELD",
        ),
    ] = ()
    power: Annotated[
        bool,
        CommandOption(
            "Print how many tasks gym compare takes to pass if B is as good as A, planned from "
            "RUN or from two runs of the same tasks.",
            Heading.NUMBERS,
        ),
    ] = False
    margin: Annotated[
        float | None,
        CommandOption(
            "With --power: plan for this --margin of gym compare.",
            Heading.NUMBERS,
            metavar="DIFFERENCE",
        ),
    ] = None
    labels: Annotated[
        str | None,
        CommandOption(
            "Report how far rewards agree with labels (pass or fail, true or false, 1 or 0): a "
            "file with the columns task_id and label, and attempt or env if they differ, or a "
            "field of the task rows.",
            Heading.NUMBERS,
            metavar="FILE|task.FIELD",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        CommandOption(
            "Render the conversations of recorded token ids again, and report how many ids, calls "
            "and sequences that changes: a model's folder (for transformers), a server of "
            "llama.cpp or vLLM, or local, the embedded model.",
            Heading.NUMBERS,
            metavar="FOLDER|URL|local",
        ),
    ] = None
    benchmark: Annotated[
        str | None,
        CommandOption(
            "Compare with the published scores of this benchmark; for runs and files that record "
            "none.",
            Heading.NUMBERS,
            metavar="NAME",
        ),
    ] = None
    model: Annotated[
        str | None,
        CommandOption(
            "With --benchmark: the model of rollouts that name none.",
            Heading.NUMBERS,
            metavar="NAME",
        ),
    ] = None
