"""What a page says of one run, read from its files: its numbers, and a few for each attempt."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymcli.metrics import RunMetrics, TaskMetrics
from gymcli.runner.indexing import index_run
from gymcli.runner.measure import measure
from gymcli.store.manifest import Manifest, read_manifest

__all__ = ["Attempts", "RunReading", "read_run"]


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
