"""The plan of a run as a person reads it, for `gym metrics --power`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gymcli.commands.console import one_line, print_table, result

if TYPE_CHECKING:
    from gymcli.metrics.planning import Plan

__all__ = ["print_plans"]


def print_plans(plans: Mapping[str, Plan]) -> None:
    """Print for each environment what runs of several sizes can detect."""
    for number, (name, found) in enumerate(plans.items()):
        if number:
            result()
        _print_plan(one_line(name), found)


def _print_plan(name: str, found: Plan) -> None:
    pilot = found.pilot
    within = "not known (one attempt of each)" if pilot.within is None else f"{pilot.within:.4f}"
    measured = "assumed; a second run of these tasks would tell" if pilot.is_assumed else "measured"
    result(f"{name}: planned from {pilot.num_tasks:,} tasks")
    result(f"variance      {pilot.between:.4f} between tasks, {within} within")
    result(f"correlation   {pilot.correlation:.2f} of two models' task means ({measured})")
    result(f"test          two-sided at {found.significance:.0%}, power {found.power:.0%}")
    for design, says in (
        ("unpaired", "each model on tasks of its own"),
        ("paired", "both models on the same tasks"),
    ):
        own = [row for row in found.designs if row.design == design]
        head = ("tasks", *(_attempts(row.num_attempts) for row in own))
        rows = [
            (f"{int(size):,}", *(f"{row.differences[size]:.4f}" for row in own))
            for size in own[0].differences
        ]
        if found.margin is not None:
            needed = (f"{row.tasks_needed:,}" for row in own if row.tasks_needed is not None)
            rows.append((f"to detect {found.margin:g}", *needed))
        result()
        result(f"smallest difference detected, {design} ({says}):")
        print_table(head, rows)


def _attempts(num_attempts: int) -> str:
    return "1 attempt" if num_attempts == 1 else f"{num_attempts} attempts"
