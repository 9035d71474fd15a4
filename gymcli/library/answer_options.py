"""The options of scoring answers as a benchmark does."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from gymcli.command_line import CommandOption, Heading


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
