"""The numbers of the slices of a run as a person reads them, for `gym metrics --by`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymcli.commands.console import one_line, print_table, result

if TYPE_CHECKING:
    from gymcli.metrics import Metrics, RunMetrics

__all__ = ["print_slices"]

_MAX_VALUE = 24
_HEAD = (
    "value",
    "tasks",
    "scored",
    "unscored",
    "mean reward",
    "95 %",
    "error",
    "pass@1",
    "flaky",
)


def print_slices(metrics: RunMetrics) -> None:
    """Print a table for each field and environment, a line for each value."""
    for env, found in metrics.environments.items():
        for field, slices in found.slices.items():
            result()
            result(f"{one_line(env)} by {one_line(field)}")
            print_table(_HEAD, [_row(name, numbers) for name, numbers in slices.items()])


def _row(name: str, numbers: Metrics) -> tuple[str, ...]:
    interval = numbers.interval
    flaky = numbers.num_flaky_tasks
    return (
        one_line(name, _MAX_VALUE) or '""',
        f"{numbers.num_tasks:,}",
        f"{numbers.num_scored:,}",
        f"{numbers.num_unscored:,}",
        _number(numbers.mean_reward),
        "-" if interval is None else f"{interval.low:.3f} .. {interval.high:.3f}",
        _number(numbers.standard_error),
        _number((numbers.pass_at_k or {}).get("1")),
        "-" if flaky is None else f"{flaky:,}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
