"""The numbers of verified rollouts, under the keys of NeMo Gym's aggregate.

They are mean, max, min, median and std (ddof 1) of every number in the rows, and our estimates of
pass@k, pass^k, majority@k and pass@1[avg-of-k] over the tasks that have k rollouts, in percent as
in NeMo Gym. Format: NVIDIA NeMo Gym 0.5 (Apache-2.0).
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.at_k import values_of_k
from gymcli.metrics.slicing import field_of
from gymcli.store.scored_lines import EnvironmentFacts, OwnMetrics, ScoredLine
from gymcli.types import JSON, JSONObject, Rollout

_INDEX = "_ng_task_index"

_CURVES = {
    "pass_at_k": "pass@{k}/accuracy",
    "pass_hat_k": "pass^{k}/accuracy",
    "avg_at_k": "pass@1[avg-of-{k}]/accuracy",
    "majority_at_k": "majority@{k}/accuracy",
}
"""NeMo Gym's key, by our name of the metric."""


class _Row(NamedTuple):
    names: tuple[str, ...]
    """One shared object for all rows with the same names."""
    values: array[float]


class NemoAggregate:
    """Collects scored rollouts of one environment and returns their numbers.

    Each row takes eight bytes of memory per number, plus about a hundred.
    """

    def __init__(
        self, env: str, facts: EnvironmentFacts, own_metrics: OwnMetrics | None = None
    ) -> None:
        self._env = env
        self._aggregator = Aggregator(
            {env: facts}, own_metrics={env: own_metrics} if own_metrics else {}
        )
        self._rows: list[_Row] = []
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._rows_of: dict[str, array[int]] = {}
        """By task."""
        self._stamps: dict[str, JSONObject] = {}

    def add(self, row: JSONObject, rollout: Rollout) -> None:
        """Add an answer of `/verify` that has a reward, and its record."""
        numbers = _numbers(row)
        names = tuple(numbers)
        names = self._names.setdefault(names, names)
        self._rows_of.setdefault(rollout.task_id, array("I")).append(len(self._rows))
        self._rows.append(_Row(names, array("d", numbers.values())))
        self._stamps[rollout.task_id] = {name: row[name] for name in (_INDEX,) if name in row}
        values = [field_of(rollout.task, field) for field in self._aggregator.fields]
        line = ScoredLine(
            env=self._env,
            task_id=rollout.task_id,
            attempt=rollout.attempt,
            reward=rollout.reward or 0.0,
            components=rollout.components,
            metrics=rollout.metrics,
            answer=rollout.answer,
            usage=rollout.usage,
        )
        self._aggregator.add_scored(line, values)

    @property
    def warnings(self) -> list[str]:
        """The reasons why numbers could not be computed; complete after `totals`."""
        return self._aggregator.warnings

    def totals(self) -> JSONObject:
        """Return `agent_metrics` and `key_metrics`; raise OverflowError if a sum is too large.

        `agent_metrics` has the statistics of all rows, `key_metrics` only their means. Both have
        the curves over k, in percent, and the metrics that the environment computes itself.
        """
        most_rollouts = max(map(len, self._rows_of.values()), default=0)
        metrics = self._aggregator.metrics(ks=values_of_k(most_rollouts))
        rates: dict[str, JSON] = {}
        for name, key in _CURVES.items():
            for k, value in (getattr(metrics, name) or {}).items():
                rates[key.format(k=k)] = 100.0 * value
        rates |= metrics.environment_metrics
        statistics_of_rows = _statistics(self._rows)
        means = {
            name: value for name, value in statistics_of_rows.items() if name.startswith("mean/")
        }
        return {"agent_metrics": {**statistics_of_rows, **rates}, "key_metrics": {**means, **rates}}

    def group_level_metrics(self) -> Iterator[JSONObject]:
        """Yield the statistics of each task, in order of arrival."""
        for task_id, rows in self._rows_of.items():
            statistics_of_task = _statistics(self._rows[row] for row in rows)
            yield {"task_id": task_id, **self._stamps[task_id], **statistics_of_task}


def _statistics(rows: Iterable[_Row]) -> JSONObject:
    columns: dict[str, array[float]] = {}
    for row in rows:
        for name, value in zip(row.names, row.values, strict=True):
            columns.setdefault(name, array("d")).append(value)
    statistics_of_columns: JSONObject = {}
    for name, values in columns.items():
        statistics_of_columns[f"mean/{name}"] = statistics.fmean(values)
        statistics_of_columns[f"max/{name}"] = max(values)
        statistics_of_columns[f"min/{name}"] = min(values)
        statistics_of_columns[f"median/{name}"] = statistics.median(values)
        statistics_of_columns[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics_of_columns


def _numbers(row: JSONObject) -> dict[str, float]:
    """Return the numbers that NeMo Gym averages: those of the row and of its usage."""
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    values = {**row, **(usage if isinstance(usage, dict) else {})}
    return {
        name: float(value)
        for name, value in values.items()
        # Names with this prefix are NeMo Gym's bookkeeping, such as the index of the task.
        if isinstance(value, int | float) and not name.startswith("_ng_")
    }
