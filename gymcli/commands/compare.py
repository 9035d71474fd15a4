"""`gym compare`: one run against another, task by task, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.ci import MarkdownOption
from gymcli.commands.console import harmless, print_json, warn
from gymcli.commands.options import JsonOption

__all__ = ["EXIT_CODES", "compare"]

EXIT_CODES = {"PASS": 0, "FAIL": 3, "INCONCLUSIVE": 5}
"""By verdict."""


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The run to compare with: a baseline.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The run to judge.")],
    metric: Annotated[
        str,
        typer.Option(
            help="What to compare: mean_reward, pass@K, pass^K, avg@K, best@K, components.NAME or "
            "metrics.NAME."
        ),
    ] = "mean_reward",
    margin: Annotated[
        float | None,
        typer.Option(help="How much worse B may be; by default 2 % of the range of rewards."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail only what is worse by more than the margin.")
    ] = False,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Compare the tasks with each value of this field as well (repeatable)."),
    ] = None,
    allow_drift: Annotated[
        bool, typer.Option("--allow-drift", help="Compare runs that were not made alike.")
    ] = False,
    env: Annotated[
        str | None, typer.Option(help="Environment of lines that name none (NeMo Gym's).")
    ] = None,
    by_task: Annotated[bool, typer.Option("--by-task", help="A line for every task.")] = False,
    markdown: MarkdownOption = None,
    json: JsonOption = False,
) -> None:
    """Compare run B with run A on the tasks that both have, and say whether B is worse.

    PASS, exit code 0: B is not worse by the margin or more. FAIL, 3: B is worse. INCONCLUSIVE, 5:
    these tasks cannot tell, and how many would is printed. Runs with other prompts, verifiers,
    options or tasks are refused.
    """
    import msgspec

    from gymcli.commands.ci import STDOUT, write_comparison
    from gymcli.commands.comparison import print_comparison
    from gymcli.errors import UsageError
    from gymcli.metrics.comparison import Rule
    from gymcli.runner.comparing import compare_runs
    from gymcli.store.rollout_files import unfinished_line

    if markdown == STDOUT and json:
        raise UsageError("--markdown -: --json goes to stdout; give a file")
    comparison = compare_runs(
        a,
        b,
        metric=metric,
        rule=Rule(margin, level, strict),
        by=by or [],
        env=env,
        allow_drift=allow_drift,
        with_tasks=by_task,
    )
    for run in (a, b):
        if unfinished := unfinished_line(run):
            warn(unfinished)
    for drift in comparison.drift:
        warn(f"not made alike: {drift}")
    for text in (*comparison.unknown, *comparison.warnings):
        warn(text)
    for side in (comparison.a, comparison.b):
        side.run = harmless(side.run)  # a name that is no Unicode cannot stand in JSON
    if json:
        print_json(msgspec.json.encode(comparison))
    elif markdown != STDOUT:
        print_comparison(comparison)
    if markdown is not None:
        write_comparison(markdown, comparison)
    raise typer.Exit(EXIT_CODES[comparison.verdict])
