"""`gym init`: write an example environment, with its test and its tasks, to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gymcli.commands.console import message, result

Pattern = Literal[
    "single-step",
    "multi-step",
    "stateful",
    "step-rewards",
    "multi-turn",
    "simulated-user",
    "judge",
    "game",
]
"""The kinds of environments to begin with; each is a file in gymcli/checks/templates."""
_ROLES = {"judge": " --role judge=oracle", "simulated-user": " --role user=oracle"}


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Python identifier, such as demo_env.")
    ],
    pattern: Annotated[
        Pattern,
        typer.Option(
            metavar="PATTERN",
            help="What to start from: single-step, multi-step (tools), stateful (tools change a "
            "state), step-rewards (tools with a reward for each step), multi-turn, "
            "simulated-user, judge or game.",
        ),
    ] = "single-step",
) -> None:
    """Create an example environment, its test and its tasks.

    Writes NAME.py, an environment with a generator and an oracle; test_NAME.py, which runs every
    check on it; and NAME.jsonl, the tasks that it generates. They work as they are.
    """
    from gymcli.checks.new_environment import create
    from gymcli.environment.registry import NUM_GENERATED

    files = create(name, pattern, Path())
    spec = f"{files.environment}:{files.class_name}"
    message(f"wrote {files.environment}, {files.test} and {files.tasks} ({NUM_GENERATED} tasks)")
    message("try them:")
    result(f"gym check {spec}")
    result(f"gym collect {files.tasks} --env {spec} --model oracle{_ROLES.get(pattern, '')}")
    message(f"the same checks as a test (pip install pytest): python -m pytest {files.test}")
