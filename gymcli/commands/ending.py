"""How `gym collect` ends: its numbers, what stopped it, and the command that goes on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from gymcli.commands.console import print_json, result
from gymcli.errors import BudgetReachedError, GymError, InterruptedRunError, RunError

if TYPE_CHECKING:
    import typer

    from gymcli.metrics import RunMetrics
    from gymcli.runner import Collection

__all__ = ["TYPED", "Ending", "check_coverage", "command_to_go_on", "raise_cause", "show_end"]

TYPED = "gymcli.typed"
"""Where the context of a command keeps the arguments as they were typed."""


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
        go_on = f"; go on with: {command}" if collection.num_left else ""
        text = f"{cause}: {collection.told}{go_on}"
    elif isinstance(cause, BudgetReachedError):
        go_on = f"; go on, with more where it was too little: {command}"
        text = f"{cause}{go_on if collection.num_left else ''}"
    elif collection.num_scored:
        text = f"{cause}; go on with: {command}"
    else:
        text = str(cause)
    raise type(cause)(text) from cause


def command_to_go_on(
    context: typer.Context, collection: Collection, *, without: Iterable[str] = ()
) -> str:
    """Give the command that goes on with a run: what was typed, without the start of a new one.

    Args:
        context: Holds what was typed, and which options there are.
        collection: What is gone on with; where `--fresh` made its directory, that is named now.
        without: Options to leave out as well.

    """
    is_fresh = collection.options.fresh
    dropped = {*without, *(("--fresh", "--out") if is_fresh else ())}
    options = [option for option in context.command.params if not getattr(option, "is_flag", False)]
    with_value = {name for option in options for name in option.opts if name.startswith("-")}
    kept: list[str] = []
    rest: list[str] = list(context.meta[TYPED])
    while rest and rest[0] != "--":
        size = 2 if rest[0] in with_value else 1
        if rest[0].partition("=")[0] not in dropped:
            kept += rest[:size]
        del rest[:size]
    if is_fresh:
        kept += ["--out", str(collection.path)]
    return " ".join(map(_quoted, ["gym", *kept, *rest]))


def _quoted(argument: str) -> str:
    """Quote for a shell, in one line and with nothing that a terminal would obey."""
    if argument.isprintable():
        return shlex.quote(argument)
    characters = (
        character if character.isprintable() and character not in "\\'" else _escaped(character)
        for character in argument
    )
    return f"$'{''.join(characters)}'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def check_coverage(
    collection: Collection, metrics: RunMetrics, min_coverage: float, command: str
) -> None:
    """End with exit code 4 where too little of the plan is scored.

    Raises:
        RunError: It is.

    """
    # The run may hold other attempts as well; what the files lack no longer counts.
    num_scored = min(collection.num_scored, metrics.num_scored)
    num_expected = collection.num_expected
    if not num_expected or (num_scored and num_scored / num_expected >= min_coverage):
        return
    failures = ", ".join(f"{count} {name}" for name, count in metrics.failures.items())
    raise RunError(
        f"{num_scored} of {num_expected} attempts are scored, less than --min-coverage "
        f"{min_coverage:g} (failed: {failures}); {collection.path}/failures.jsonl says why; try "
        f"them again with: {command}"
    )
