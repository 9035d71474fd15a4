"""What sections are made of: numbers as they are shown, tables, and charts with their tables."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from gymcli.metrics import Estimate, Interval, RunMetrics, TaskMetrics
from gymcli.runner.measure import index_run, measure
from gymcli.store.manifest import Manifest, read_manifest
from gymcli.types import JSONObject

__all__ = [
    "ESTIMATE_HEAD",
    "Attempts",
    "Card",
    "Cell",
    "Chart",
    "RunReading",
    "Shown",
    "Table",
    "amount",
    "between",
    "count",
    "estimate_cells",
    "method_of",
    "number",
    "read_run",
    "share",
    "total",
]


class Shown(NamedTuple):
    """A number as it is, and as it is written."""

    value: float
    text: str


Cell: TypeAlias = Shown | str | None
"""None is what cannot be said; it is written as a dash."""


class Card(NamedTuple):
    """One number at the head of a run, with what qualifies it."""

    title: str
    value: Cell
    note: str


class Table(NamedTuple):
    """Numbers under their heads; a row begins with what it is about."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def numeric(self) -> frozenset[int]:
        """The columns, counted from 0, that hold numbers."""
        return frozenset(
            column for row in self.rows for column, cell in enumerate(row) if type(cell) is Shown
        )


class Chart(NamedTuple):
    """A picture, what it shows in words, and its numbers."""

    name: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    words: str
    figure: JSONObject | None
    """For plotly, with colours as `var(--...)`; None where a table says it all."""
    table: Table


def number(value: float | None) -> Shown | None:
    """Show a reward or a rate with three decimals; what is not finite or known is None."""
    if value is None or not math.isfinite(value):
        return None
    text = f"{value:,.3f}"
    return Shown(value, "0.000" if text == "-0.000" else text)


def amount(value: float | None) -> Shown | None:
    """Show a time, a sum of tokens or money with about three digits."""
    if value is None or not math.isfinite(value):
        return None
    size = abs(value)
    return Shown(value, f"{value:,.0f}" if size >= 100 else f"{value:,.{1 if size >= 10 else 2}f}")


def count(value: int | None) -> Shown | None:
    """Show a whole number."""
    return None if value is None else Shown(value, f"{value:,}")


def total(value: int) -> Shown:
    """Show a sum that may be large: millions with one decimal."""
    return Shown(value, f"{value / 1e6:,.1f} M" if value >= 10_000_000 else f"{value:,}")


def share(value: float | None) -> Shown | None:
    """Show a share in per cent; only what is whole is 100.0 %, and only nothing 0.0 %."""
    if value is None or not math.isfinite(value):
        return None
    text = f"{value:.1%}"
    if text == "100.0%" and value < 1.0:
        text = "99.9%"
    elif text == "0.0%" and value > 0.0:
        text = "0.1%"
    return Shown(value, text.replace("%", " %"))


def between(interval: Interval | None) -> str | None:
    """Show the ends of an interval."""
    return None if interval is None else f"{interval.low:,.3f} .. {interval.high:,.3f}"


def method_of(interval: Interval | None) -> str | None:
    """Name the level and the method of an interval."""
    return None if interval is None else f"{100 * interval.level:g} % {interval.method}"


ESTIMATE_HEAD = ("value", "interval", "method", "standard error", "attempts", "tasks", "estimator")


def estimate_cells(estimate: Estimate) -> tuple[Cell, ...]:
    """Show a number with all that says how sure it is, under `ESTIMATE_HEAD`."""
    error = estimate.standard_error
    return (
        number(estimate.value),
        between(estimate.interval),
        method_of(estimate.interval),
        None if error is None else Shown(error, f"{error:.4f}"),
        count(estimate.num_values),
        count(estimate.num_clusters),
        estimate.estimator,
    )


class Attempts:
    """The attempts of one environment, a few numbers of each in arrays: some hundred bytes."""

    def __init__(self) -> None:
        self.rewards = array("d")
        """Of the scored attempts; the next four are of the same ones, 0 where not recorded."""
        self.num_turns = array("d")
        self.seconds = array("d")
        self.prompt_tokens = array("d")
        self.completion_tokens = array("d")
        self._task_numbers: dict[str, int] = {}
        self._tasks = array("L")
        self._attempts = array("L")
        self._rewards = array("d")
        """Of all attempts with a record; NaN where it has no reward."""

    def add(self, task_id: str, attempt: int, reward: float | None) -> None:
        """Take an attempt that has a record."""
        self._tasks.append(self._task_numbers.setdefault(task_id, len(self._task_numbers)))
        self._attempts.append(attempt)
        self._rewards.append(math.nan if reward is None else reward)

    def of_tasks(self, task_ids: Iterable[str]) -> dict[str, dict[int, float | None]]:
        """Give the rewards of some tasks, by attempt; None where an attempt has no reward."""
        found: dict[str, dict[int, float | None]] = {task_id: {} for task_id in task_ids}
        numbers = self._task_numbers
        wanted = {numbers[task_id]: own for task_id, own in found.items() if task_id in numbers}
        for task, attempt, reward in zip(self._tasks, self._attempts, self._rewards, strict=True):
            if task in wanted:
                wanted[task][attempt] = None if math.isnan(reward) else reward
        return found


@dataclass(frozen=True)
class RunReading:
    """One run as it was read."""

    name: str
    """As it was given."""
    manifest: Manifest | None
    models: Sequence[str]
    metrics: RunMetrics
    warnings: Sequence[str]
    """What is wrong with the numbers."""
    tasks: Sequence[TaskMetrics]
    attempts: Mapping[str, Attempts]
    """By environment."""
    best_rewards: Mapping[str, float | None]
    """The best reward that there can be, by environment; None: unbounded, or not known."""


def read_run(path: Path, *, env: str | None = None, by: Sequence[str] = ()) -> RunReading:
    """Read a run directory, or a rollout file of ours or of NeMo Gym.

    Args:
        path: The directory or the file.
        env: The environment of lines that name none.
        by: Fields of the task rows to slice the numbers by.

    Raises:
        UsageError: The path or one of its lines is wrong, or a field has too many values.

    """
    manifest = read_manifest(path) if path.is_dir() else None
    aggregator = measure(path, env=env, by=by)
    attempts: dict[str, Attempts] = {}
    models: dict[str, None] = {}
    with index_run(path, env=env) as index:
        for row in index.rows:
            own = attempts.setdefault(row.env, Attempts())
            own.add(row.task_id, row.attempt, row.reward)
            if row.model is not None:
                models[row.model] = None
            if row.reward is None:
                continue
            own.rewards.append(row.reward)
            own.num_turns.append(row.num_turns)
            own.seconds.append(row.seconds or 0.0)
            own.prompt_tokens.append(row.prompt_tokens)
            own.completion_tokens.append(row.completion_tokens)
    known = manifest.environments if manifest else {}
    return RunReading(
        name=str(path),
        manifest=manifest,
        models=[manifest.model] if manifest and manifest.model else list(models),
        metrics=aggregator.metrics(),
        warnings=aggregator.warnings,
        tasks=aggregator.task_rows(),
        attempts=dict(sorted(attempts.items())),
        best_rewards={name: record.max_reward for name, record in known.items()},
    )
