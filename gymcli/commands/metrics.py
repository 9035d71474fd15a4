"""`gym metrics`: the numbers of one run or several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gymcli.commands.console import print_json, result, warn
from gymcli.commands.options import JsonOption

__all__ = ["metrics"]


def metrics(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories or rollout files.")
    ],
    env: Annotated[
        str | None, typer.Option(help="Environment of lines that name none (NeMo Gym's).")
    ] = None,
    by_task: Annotated[bool, typer.Option("--by-task", help="A line for every task.")] = False,
    json: JsonOption = False,
) -> None:
    """Report coverage, mean rewards with intervals, pass@k, tokens, latency and failures.

    The variance of pass@k is largest where all n attempts of a task are taken, k = n: n >= 2k is
    better. Of a run directory the numbers are also written to its metrics.json.
    """
    import msgspec

    from gymcli.commands.summary import print_curves, print_summary, print_tasks
    from gymcli.errors import RunDirectoryError
    from gymcli.runner import measure
    from gymcli.secrets import scrubber_of
    from gymcli.store.rollouts import unfinished_line
    from gymcli.store.run import RunDirectory

    reports = []
    scrubber = scrubber_of((), os.environ)
    for number, run in enumerate(runs):
        aggregator = measure(run, env=env)
        numbers = aggregator.metrics()
        if run.is_dir():
            try:
                RunDirectory(run, scrubber).write_metrics(msgspec.json.encode(numbers))
            except RunDirectoryError as error:  # a run of somebody else's can still be read
                warn(str(error))
        unfinished = unfinished_line(run)
        if unfinished:
            warn(unfinished)
        if not numbers.num_scored:
            warn(f"{run}: nothing is scored")
        if json:
            report = {"run": str(run), **msgspec.to_builtins(numbers)}
            if by_task:
                report["tasks"] = msgspec.to_builtins(aggregator.task_rows())
            reports.append(report)
            continue
        if number:
            result()
        result(f"{run}")
        print_summary(numbers)
        print_curves(numbers)
        if by_task:
            result()
            print_tasks(aggregator.task_rows())
    if json:
        print_json(msgspec.json.encode(reports[0] if len(reports) == 1 else {"runs": reports}))
