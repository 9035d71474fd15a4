"""The values of tasks in two runs, or by two verifiers, and their mean difference."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np

from gymcli.errors import UsageError
from gymcli.metrics.at_k import METRICS, Metric, TaskRewards, values_of_k
from gymcli.metrics.estimators import mean_of, row_means, row_sums, row_variances, sum_of, variance
from gymcli.metrics.intervals import t_interval
from gymcli.metrics.results import Effect, Estimate, Interval
from gymcli.store.attempt_table import AttemptTable
from gymcli.store.scored_lines import EnvironmentFacts
from gymcli.suggestions import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAIRED_DIFFERENCES = "mean of paired task differences"
_LEVEL = 0.95
"""Of the intervals of effects."""
_ROUNDING = 1e-12
"""The share of the largest value by which rounding may move equal means or differences apart."""


class Measure(NamedTuple):
    """A measure to compare: its name, and how to compute a task's value from its attempts."""

    name: str
    """As gates spell it."""
    source: Literal["reward", "components", "metrics"]
    """Where an attempt's value is from."""
    key: str
    """The name of the component or number; empty for the reward."""
    values: Callable[[TaskRewards], NDArray[np.float64] | None]
    """Returns the value of each task; None if the attempts are too few."""
    scale: Literal["reward", "share", "none"]
    """The range of the value: 0 to the best reward, 0 to 1, or not known."""
    is_mean: bool
    """Whether it is the mean of all attempts, so that more of them narrow the interval."""

    @property
    def column(self) -> str:
        """The column of an `AttemptTable` that it is computed from."""
        return "reward" if self.source == "reward" else self.name

    @property
    def needs_threshold(self) -> bool:
        """Whether it counts successes."""
        return self.scale == "share"


def parse_measure(name: str) -> Measure:
    """Return the measure of this name; raise UsageError if single tasks have no value of it."""
    if name == _MEAN_REWARD.name:
        return _MEAN_REWARD
    metrics_by_name = {
        metric.name: metric for metric in METRICS.values() if not metric.needs_answers
    }
    match = re.fullmatch(r"([a-z]+[@^])([1-9][0-9]{0,5})", name)
    if match is not None and match[1] in metrics_by_name:
        return _measure_at_k(metrics_by_name[match[1]], int(match[2]))
    for source in ("components", "metrics"):
        if (key := name.removeprefix(f"{source}.")) not in ("", name):
            return Measure(name, source, key, _means, "none", is_mean=True)
    at_k = "".join(f"{prefix}K, " for prefix in metrics_by_name)
    k = name[len(name.rstrip("0123456789")) :].lstrip("0") or "1"
    hint = did_you_mean(name, [_MEAN_REWARD.name, *(f"{prefix}{k}" for prefix in metrics_by_name)])
    raise UsageError(
        f"--metric {name}: cannot be compared task by task; {hint and f'{hint} '}use mean_reward, "
        f"{at_k}components.NAME or metrics.NAME"
    )


def _means(tasks: TaskRewards) -> NDArray[np.float64]:
    return row_means(tasks.rewards)


_MEAN_REWARD = Measure("mean_reward", "reward", "", _means, "reward", is_mean=True)


def _measure_at_k(metric: Metric, k: int) -> Measure:
    name = f"{metric.name}{k}"
    return Measure(
        name,
        "reward",
        "",
        lambda tasks: metric.of_tasks(tasks, k),
        "share" if metric.needs_threshold else "reward",
        # With more attempts of a task, only the variance of means shrinks as 1/n.
        is_mean=k == 1 and (metric.needs_threshold or metric.same_at_1 == "mean_reward"),
    )


class PairedAttempts:
    """The attempts of one environment in two runs, or by two verifiers.

    The tables share the numbers of tasks. Those of two verifiers have the same rows.
    """

    def __init__(self, env: str, num_fields: int = 0) -> None:
        self.env = env
        self.task_numbers: dict[str, int] = {}
        self.a = AttemptTable(env, {"reward": "d"}, self.task_numbers)
        self.b = AttemptTable(env, {"reward": "d"}, self.task_numbers)
        self.slices: list[list[str]] = [[] for _ in range(num_fields)]
        """By field, the value of each task."""

    def values(
        self, measure: Measure, threshold: float | None, rows: NDArray[np.intp] | None = None
    ) -> tuple[TaskValues, TaskValues]:
        """Return the values of each task in either run, from all rows or from some of both."""
        return (
            _task_values(self.a, self.a.values(measure.column), measure, threshold, rows),
            _task_values(self.b, self.b.values(measure.column), measure, threshold, rows),
        )

    def add_unscored(self, keys: set[tuple[str, int]]) -> None:
        """Add attempts, by task and number, without a score in either table, unless they exist."""
        task_ids = list(self.task_numbers)
        tasks, attempts = self.a["task"].tolist(), self.a["attempt"].tolist()
        recorded = {(task_ids[task], n) for task, n in zip(tasks, attempts, strict=True)}
        missing = sorted(keys - recorded)
        for table in (self.a, self.b):
            table.extend(
                [task_id for task_id, _ in missing],
                [attempt for _, attempt in missing],
                reward=[math.nan] * len(missing),
            )

    def means(self) -> tuple[float, float] | None:
        """Return both mean rewards over rows that both verifiers scored; None if there are none."""
        a, b = self.shared_values(_MEAN_REWARD)
        return (mean_of(a.value), mean_of(b.value)) if len(a.value) else None

    def rows_of_both(self) -> NDArray[np.intp]:
        """Return the rows that both verifiers scored."""
        return np.flatnonzero(~np.isnan(self.a["reward"]) & ~np.isnan(self.b["reward"]))

    def shared_values(
        self, measure: Measure, threshold: float | None = None
    ) -> tuple[TaskValues, TaskValues]:
        """Return the values of tasks that have one by both verifiers, from rows both scored."""
        a, b = self.values(measure, threshold, self.rows_of_both())
        places = np.flatnonzero(~np.isnan(a.value) & ~np.isnan(b.value))
        return a.at(places), b.at(places)


class TaskValues(NamedTuple):
    """The values of tasks in one run, indexed by task number."""

    value: NDArray[np.float64]
    """nan if the attempts are too few."""
    num_attempts: NDArray[np.int64]
    """Scored attempts that have the compared value."""
    num_passes: NDArray[np.int64]
    """0 without a threshold of success."""
    variance: NDArray[np.float64]
    """Of one attempt around the task's mean; nan for a single one."""
    is_there: NDArray[np.bool_]
    """Whether the run has a scored attempt of the task, even without the compared value."""

    def at(self, places: NDArray[np.int64]) -> TaskValues:
        """Return some of the tasks."""
        return TaskValues._make(column[places] for column in self)


def _task_values(
    table: AttemptTable,
    numbers: NDArray[np.float64],
    measure: Measure,
    threshold: float | None,
    rows: NDArray[np.intp] | None,
) -> TaskValues:
    """Return the values of tasks from a number of each row, nan if it lacks one."""
    num_tasks = len(table.task_numbers)
    values = TaskValues(
        np.full(num_tasks, np.nan),
        np.zeros(num_tasks, np.int64),
        np.zeros(num_tasks, np.int64),
        np.full(num_tasks, np.nan),
        np.zeros(num_tasks, np.bool_),
    )
    values.is_there[table["task"] if rows is None else table["task"][rows]] = True
    groups = table.by_task(rows)
    has_number = ~np.isnan(numbers)
    if not has_number.all():
        # Rows without the number change how many a task has, so the groups are made again.
        rows = np.flatnonzero(has_number) if rows is None else rows[has_number[rows]]
        groups = table.by_task(rows)
    for tasks, rows_of_tasks in groups:
        scores = numbers[rows_of_tasks]
        num_attempts = scores.shape[1]
        values.num_attempts[tasks] = num_attempts
        if (value := measure.values(TaskRewards(scores, threshold))) is not None:
            values.value[tasks] = value
        counted = scores
        if threshold is not None:
            passes = scores >= threshold
            values.num_passes[tasks] = passes.sum(axis=1)
            # pass@1 is the mean of whether attempts pass, not of their rewards.
            counted = passes.astype(np.float64) if measure.needs_threshold else scores
        if num_attempts > 1:
            values.variance[tasks] = row_variances(counted)
    return values


class PairedEstimate(NamedTuple):
    """The differences between the values of tasks in A and B."""

    mean_a: float
    mean_b: float
    difference: Estimate
    """B - A, without an interval."""
    differences: NDArray[np.float64]
    """The difference of each task, 0 if it is as small as rounding errors."""
    spread: float
    """The variance of the differences; 0 for a single one."""


def task_differences(
    values_a: NDArray[np.float64], values_b: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return B - A of each task, 0 if it is as small as rounding errors."""
    differences = values_b - values_a
    # Equal means of different rewards may differ in their last digits, which is no difference.
    differences[np.abs(differences) <= _noise(values_a, values_b)] = 0.0
    return differences


def _noise(values_a: NDArray[np.float64], values_b: NDArray[np.float64]) -> float:
    return _ROUNDING * float(
        max(np.abs(values).max(initial=0.0) for values in (values_a, values_b))
    )


def paired_estimate(
    values_a: NDArray[np.float64],
    values_b: NDArray[np.float64],
    *,
    num_values: int,
    estimator: str = _PAIRED_DIFFERENCES,
) -> PairedEstimate:
    """Return the mean difference of at least one task; `num_values` scores are behind it."""
    num_tasks = len(values_a)
    noise = _noise(values_a, values_b)
    differences = task_differences(values_a, values_b)
    centre = mean_of(differences)
    difference = Estimate(
        value=0.0 if abs(centre) <= noise else centre,
        estimator=estimator,
        num_values=num_values,
        num_clusters=num_tasks,
    )
    spread = 0.0
    if num_tasks > 1:
        spread = variance(differences)
        spread = 0.0 if spread <= noise**2 else spread
        difference.standard_error = math.sqrt(spread / num_tasks)
    return PairedEstimate(mean_of(values_a), mean_of(values_b), difference, differences, spread)


def with_pseudo_tasks(difference: Estimate, spread: float, size: float) -> Estimate:
    """Return a mean difference of tasks as if two more tasks differed by plus and minus `size`.

    Without them, tasks that hardly differ would seem to be certain: Student's interval has no width
    if none differs. The idea is that of Bonett and Price 2012, "Adjusted Wald confidence interval
    for a difference of binomial proportions based on paired data", Journal of Educational and
    Behavioral Statistics 37(4). `spread` is the variance of the tasks' differences.
    """
    num_tasks = difference.num_clusters
    # The sum of squares around the new mean, which the pseudo-tasks move towards 0.
    squares = (num_tasks - 1) * spread + 2.0 * size * size
    squares += 2.0 * num_tasks * difference.value**2 / (num_tasks + 2)
    return msgspec.structs.replace(
        difference,
        value=difference.value * num_tasks / (num_tasks + 2),
        standard_error=math.sqrt(squares / (num_tasks + 1) / (num_tasks + 2)),
        num_clusters=num_tasks + 2,
    )


def reward_effects(scores: PairedAttempts, facts: EnvironmentFacts) -> dict[str, Effect]:
    """Return the effect of another verifier on every number of rewards, by its name in gates.

    These are `mean_reward`, `micro_mean_reward` and the numbers of `METRICS`, over attempts that
    both verifiers scored, and `strict_mean_reward`, for which a missing score is 0. Metrics of
    answers are left out, and for k = 1 those that equal another number.
    """
    rewards = np.array([scores.a["reward"], scores.b["reward"]])
    is_score = ~np.isnan(rewards)
    lowest = float(rewards.min(initial=0.0, where=is_score))
    best = facts.max_reward
    # Differences have no bounds if a reward lies outside 0 to the best one.
    if lowest < 0.0 or (best is not None and rewards.max(initial=0.0, where=is_score) > best):
        best = None
    effects: dict[str, Effect] = {}
    means = scores.shared_values(_MEAN_REWARD)
    if len(means[0].value):
        effects["mean_reward"] = _effect(*means, largest=best)
        estimator = "mean of paired attempt differences, errors clustered by task"
        micro = _by_attempt(means[0]), _by_attempt(means[1])
        effects["micro_mean_reward"] = _effect(*micro, largest=best, estimator=estimator)
    if len(scores.a) and not facts.can_be_negative and lowest >= 0.0:
        strict = _strict_values(scores, facts.num_expected)
        num_scores = int(is_score.sum())
        effects["strict_mean_reward"] = _effect(*strict, largest=best, num_values=num_scores)
    most_attempts = int(means[0].num_attempts.max(initial=0))
    for metric in METRICS.values():
        for k in values_of_k(most_attempts):
            if metric.needs_answers or (k == 1 and metric.same_at_1):
                continue
            if metric.takes_first and k != most_attempts:
                continue
            measure = _measure_at_k(metric, k)
            values = scores.shared_values(measure, facts.success_threshold)
            if num_tasks := len(values[0].value):
                effects[measure.name] = _effect(
                    *values,
                    largest=1.0 if metric.needs_threshold else best,
                    num_values=2 * k * num_tasks if metric.takes_first else None,
                )
    return effects


def number_effects(scores: PairedAttempts) -> dict[str, Effect]:
    """Return the effect of another verifier on each component and other number that changed.

    Only attempts count that both verifiers scored. Without a task that has the number from both,
    there is no difference, but perhaps a mean before or after.
    """
    effects: dict[str, Effect] = {}
    rows = scores.rows_of_both()
    for name in sorted(scores.a.named.keys() | scores.b.named.keys()):
        before, after = scores.a.values(name)[rows], scores.b.values(name)[rows]
        if np.array_equal(before, after, equal_nan=True):
            continue
        measure = parse_measure(name)
        shared = scores.shared_values(measure)
        if len(shared[0].value):
            # Values that all lie between 0 and 1 are taken as shares, as in `gym metrics`.
            is_share = all(((side.value >= 0.0) & (side.value <= 1.0)).all() for side in shared)
            effects[name] = _effect(*shared, largest=1.0 if is_share else None)
            continue
        means = [
            mean_of(values) if len(values := side.value[~np.isnan(side.value)]) else None
            for side in scores.values(measure, None, rows)
        ]
        effects[name] = Effect(before=means[0], after=means[1])
    return effects


def _effect(
    before: TaskValues,
    after: TaskValues,
    *,
    largest: float | None,
    num_values: int | None = None,
    estimator: str = _PAIRED_DIFFERENCES,
) -> Effect:
    if num_values is None:
        num_values = int(before.num_attempts.sum() + after.num_attempts.sum())
    estimate = paired_estimate(
        before.value, after.value, num_values=num_values, estimator=estimator
    )
    difference = estimate.difference
    difference.interval = _student_interval(difference, largest)
    return Effect(before=estimate.mean_a, after=estimate.mean_b, difference=difference)


def _student_interval(difference: Estimate, largest: float | None) -> Interval | None:
    """Return the interval, within the range if values lie between 0 and `largest`.

    It may have no width: if no task differs, or if all differ by the same amount and are so many
    that chance would hardly make all of them differ in the same direction.
    """
    error, num_tasks = difference.standard_error, difference.num_clusters
    if error is None or (not error and difference.value and 0.5**num_tasks > 1.0 - _LEVEL):
        return None
    low, high = t_interval(difference.value, error, num_clusters=num_tasks, level=_LEVEL)
    if largest is not None:
        low, high = max(low, -largest), min(high, largest)
    return Interval(low=low, high=high, level=_LEVEL, method="t")


def _by_attempt(means: TaskValues) -> TaskValues:
    """Return a value for each task such that their mean is the mean of all attempts.

    The mean of attempts is a ratio of sums over tasks, here linearised: with c the ratio and n of N
    attempts, each of G tasks has the value c + G n / N (mean - c). The standard error of these is
    the clustered one of Miller 2024 (arXiv 2411.00640) with the CR1 factor of Liang and Zeger 1986.
    """
    sizes = means.num_attempts
    num_attempts = int(sizes.sum())
    shares: NDArray[np.float64] = sizes * len(sizes) / num_attempts
    ratio = sum_of(means.value * sizes) / num_attempts
    return means._replace(value=shares * means.value + (1.0 - shares) * ratio)


def _strict_values(
    scores: PairedAttempts, num_expected: int | None
) -> tuple[TaskValues, TaskValues]:
    """Return the mean rewards of tasks, counting an attempt without a score as 0."""
    measure = _MEAN_REWARD
    if num_expected is not None and num_expected > len(scores.a):
        # The tasks of attempts without a record are unknown: all expected attempts have equal
        # weights.
        weight = len(set(scores.a["task"].tolist())) / num_expected
        measure = measure._replace(values=lambda tasks: weight * row_sums(tasks.rewards))
    before, after = (
        _task_values(table, np.nan_to_num(table["reward"]), measure, None, None)
        for table in (scores.a, scores.b)
    )
    places = np.flatnonzero(before.is_there)
    return before.at(places), after.at(places)
