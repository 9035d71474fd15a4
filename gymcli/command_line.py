"""How options look on a command line, as plain data that commands read, and checks of values."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple


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


class CommandOption(NamedTuple):
    """How a field of a pydantic model looks as an option of a command.

    It is an annotation of the field, which has the type, the limits and the default.
    """

    help: str
    heading: Heading | None = None
    short: str | None = None
    """A second name of one letter, such as -n."""
    name: str | None = None
    """The name, where it is not the field's: task for `task_ids`."""
    metavar: str | None = None
    """What stands for the value in the help."""
    show_default: str | bool = True
    """Text in place of the default; False: none."""
    completion: Literal["benchmark", "env", "model", "run"] | None = None
    """What a shell completes."""


EnvArgsOption = Annotated[
    dict[str, str],
    CommandOption(
        "Set an option of an environment.",
        Heading.WHAT,
        name="env-arg",
        metavar="[ENV.]KEY=VALUE",
    ),
]
RoleParamsOption = Annotated[
    dict[str, dict[str, object]],
    CommandOption(
        "Set a request parameter of a role's model.",
        Heading.MODEL,
        name="role-param",
        metavar="ROLE.KEY=VALUE",
    ),
]


def positive(value: float | None) -> float | None:
    """Return `value` if it is None, or finite and above 0; raise ValueError otherwise."""
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{value:g} is not a number above 0")
    return value


def not_negative(value: float | None) -> float | None:
    """Return `value` if it is None, or finite and at least 0; raise ValueError otherwise."""
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{value:g} is not a number from 0 on")
    return value
