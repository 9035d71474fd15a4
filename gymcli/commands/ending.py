"""How `gym collect` ends: its numbers, what stopped it, and the command that goes on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gymcli.commands.console import print_json, result
from gymcli.errors import BudgetReachedError, GymError, InterruptedRunError, RunError

if TYPE_CHECKING:
    from gymcli.metrics import RunMetrics
    from gymcli.runner import Collection

__all__ = ["Ending", "check_coverage", "command_to_go_on", "raise_cause", "show_end"]


class Ending(NamedTuple):
    """What a run came to."""

    metrics: RunMetrics
    cause: GymError | None = None
    """What stopped it before all was done."""


def show_end(collection: Collection, metrics: RunMetrics, *, is_json: bool) -> None:
    """Print the numbers of the run."""
    import msgspec

    from gymcli.commands.summary import print_summary

    if is_json:
        report = {"run": str(collection.path), **msgspec.to_builtins(metrics)}
        print_json(msgspec.json.encode(report))
        return
    print_summary(metrics)
    if collection.num_outages:
        seconds = f"{collection.outage_seconds:.1f} s in all"
        result(f"outages       {collection.num_outages} of an endpoint, {seconds}")
    result(f"time          {collection.manifest.seconds:.1f} s")
    result(f"files         {collection.path}")


def raise_cause(collection: Collection, cause: GymError, command: str) -> None:
    """End a run that was stopped with what stopped it and how to go on.

    Raises:
        GymError: Always, of the cause's class.

    """
    if isinstance(cause, InterruptedRunError):
        scored = f"{collection.num_scored} of {collection.num_expected} attempts are scored"
        text = f"{cause}: {scored}; go on with: {command}"
    elif isinstance(cause, BudgetReachedError):
        text = f"{cause}; go on, with more where it was too little: {command}"
    elif collection.num_scored:
        text = f"{cause}; go on with: {command}"
    else:
        text = str(cause)
    raise type(cause)(text) from cause


def command_to_go_on(typed: Sequence[str], *, out: str, is_fresh: bool) -> str:
    """Give the command that goes on with a run: what was typed, without the start of a new one.

    Args:
        typed: The arguments of `gym`.
        out: The run directory.
        is_fresh: It was made by `--fresh`, so its name must be given now.

    """
    if not is_fresh:
        return shlex.join(["gym", *typed])
    kept: list[str] = []
    arguments = iter(typed)
    for argument in arguments:
        if argument == "--out":
            next(arguments, None)
        elif argument != "--fresh" and not argument.startswith("--out="):
            kept.append(argument)
    place = kept.index("collect") + 1 if "collect" in kept else len(kept)
    return shlex.join(["gym", *kept[:place], "--out", out, *kept[place:]])


def check_coverage(collection: Collection, metrics: RunMetrics, min_coverage: float) -> None:
    """End with exit code 4 where too little of the plan is scored.

    Raises:
        RunError: It is.

    """
    num_scored, num_expected = collection.num_scored, collection.num_expected
    if num_scored and num_scored / num_expected >= min_coverage:
        return
    failures = ", ".join(f"{count} {name}" for name, count in metrics.failures.items())
    without = " without --no-retry" if collection.options.no_retry else ""
    raise RunError(
        f"{num_scored} of {num_expected} attempts are scored, less than --min-coverage "
        f"{min_coverage:g} (failed: {failures}); run the same command{without} to try them again, "
        f"{collection.path}/failures.jsonl says why they failed"
    )
