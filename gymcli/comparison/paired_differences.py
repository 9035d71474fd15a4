"""The values of tasks in two runs, or by two verifiers, and their mean difference."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np

from gymcli.errors import UsageError
from gymcli.metrics.at_k import METRICS, Metric, TaskRewards, values_of_k
from gymcli.metrics.estimators import mean_of, row_means, row_sums, row_variances, sum_of, variance
from gymcli.metrics.intervals import t_interval
from gymcli.metrics.results import Effect, Estimate, Interval
from gymcli.metrics.scored_attempts import Attempts, SameSize, rows_by_task
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
    of_tasks: Callable[[TaskRewards], NDArray[np.float64] | None]
    """Returns the value of each task; None if the attempts are too few."""
    scale: Literal["reward", "share", "none"]
    """The range of the value: 0 to the best reward, 0 to 1, or not known."""
    is_mean: bool
    """Whether it is the mean of all attempts, so that more of them narrow the interval."""

    @property
    def needs_threshold(self) -> bool:
        """Whether it counts successes."""
        return self.scale == "share"


def parse_measure(name: str) -> Measure:
    """Return the measure of this name; raise UsageError if single tasks have no value of it."""
    if name == _MEAN_REWARD.name:
        return _MEAN_REWARD
    known = {metric.name: metric for metric in METRICS.values() if not metric.needs_answers}
    found = re.fullmatch(r"([a-z]+[@^])([1-9][0-9]{0,5})", name)
    if found is not None and found[1] in known:
        return _measure_at_k(known[found[1]], int(found[2]))
    for source in ("components", "metrics"):
        if (key := name.removeprefix(f"{source}.")) not in ("", name):
            return Measure(name, source, key, _means, "none", is_mean=True)
    at_k = "".join(f"{prefix}K, " for prefix in known)
    k = name[len(name.rstrip("0123456789")) :].lstrip("0") or "1"
    hint = did_you_mean(name, [_MEAN_REWARD.name, *(f"{prefix}{k}" for prefix in known)])
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
    """The attempts of one environment in two runs, which share the numbers of tasks."""

    def __init__(self, env: str, num_fields: int = 0) -> None:
        self.env = env
        self.task_numbers: dict[str, int] = {}
        self.a = Attempts(env, self.task_numbers)
        self.b = Attempts(env, self.task_numbers)
        self.slices: list[list[str]] = [[] for _ in range(num_fields)]
        """By field, the value of each task."""

    def values(self, measure: Measure, threshold: float | None) -> tuple[TaskValues, TaskValues]:
        """Return the values of each task in either run."""
        return (
            _task_values(self.a, self.a.by_task(), self.a.rewards, measure, threshold),
            _task_values(self.b, self.b.by_task(), self.b.rewards, measure, threshold),
        )


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
    attempts: Attempts,
    rows: list[SameSize],
    numbers: array[float],
    measure: Measure,
    threshold: float | None,
) -> TaskValues:
    """Return the values of tasks from the numbers of attempts; nan is an attempt without one."""
    num_tasks = len(attempts.task_numbers)
    found = TaskValues(
        np.full(num_tasks, np.nan),
        np.zeros(num_tasks, np.int64),
        np.zeros(num_tasks, np.int64),
        np.full(num_tasks, np.nan),
        np.zeros(num_tasks, np.bool_),
    )
    found.is_there[np.asarray(attempts.tasks)] = True
    values = np.asarray(numbers)
    # Attempts without the number change how many a task has, so the groups are made again.
    if np.isnan(values).any():
        known = np.flatnonzero(~np.isnan(values))
        own_tasks = np.array(attempts.tasks, np.intp)[known]
        rows = rows_by_task(own_tasks, np.array(attempts.attempts, np.int64)[known])
        rows = [SameSize(tasks, known[lines]) for tasks, lines in rows]
    for tasks, lines in rows:
        own = values[lines]
        num_attempts = own.shape[1]
        found.num_attempts[tasks] = num_attempts
        if (value := measure.of_tasks(TaskRewards(own, threshold))) is not None:
            found.value[tasks] = value
        counted = own
        if threshold is not None:
            passes = own >= threshold
            found.num_passes[tasks] = passes.sum(axis=1)
            # pass@1 is the mean of whether attempts pass, not of their rewards.
            counted = passes.astype(np.float64) if measure.needs_threshold else own
        if num_attempts > 1:
            found.variance[tasks] = row_variances(counted)
    return found


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
    return _ROUNDING * float(max(np.abs(own).max(initial=0.0) for own in (values_a, values_b)))


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


class RescoredAttempts:
    """The attempts of one environment as two verifiers scored them, in columns."""

    def __init__(self, env: str) -> None:
        self.both = Attempts(env)
        """Attempts that have both scores, with their old ones."""
        self.after = array("d")
        """Their new scores."""
        self.others = Attempts(env, self.both.task_numbers)
        """Attempts that lack one of the scores, with their old ones; nan for a missing one."""
        self.others_after = array("d")

    def extend(
        self,
        task_ids: Sequence[str],
        attempts: Sequence[int],
        before: Sequence[float],
        after: Sequence[float],
    ) -> None:
        """Add attempts that have both scores."""
        self.both.extend(task_ids, attempts, before)
        self.after.extend(after)

    def add_unscored(
        self, task_id: str, attempt: int, before: float | None, after: float | None
    ) -> None:
        """Add an attempt that lacks a score."""
        self.others.extend([task_id], [attempt], [before])
        self.others_after.append(math.nan if after is None else after)

    def add_failures(self, keys: Iterable[tuple[str, int]]) -> None:
        """Add attempts, by task and number, unless they have a rollout."""
        numbers = self.both.task_numbers
        missing = {
            (numbers.setdefault(task_id, len(numbers)), attempt): task_id
            for task_id, attempt in keys
        }
        for table in (self.both, self.others):
            for key in zip(table.tasks, table.attempts, strict=True):
                missing.pop(key, None)
        for (_, attempt), task_id in missing.items():
            self.add_unscored(task_id, attempt, None, None)

    def means(self) -> tuple[float, float] | None:
        """Return both mean rewards over the attempts that have both scores; None if none has."""
        sides = _sides(self.both.by_task(), (self.both.rewards, self.after), _means)
        return None if sides is None else (mean_of(sides.before), mean_of(sides.after))


def reward_effects(scores: RescoredAttempts, facts: EnvironmentFacts) -> dict[str, Effect]:
    """Return the effect on every number that depends only on rewards, by its name in gates.

    These are `mean_reward`, `micro_mean_reward` and the numbers of `METRICS`, over attempts that
    have both scores, and `strict_mean_reward`, for which a missing score is 0. Metrics of answers
    are left out, and for k = 1 those that equal another number.
    """
    rows, rewards = scores.both.by_task(), (scores.both.rewards, scores.after)
    columns = [np.asarray(own) for own in (*rewards, scores.others.rewards, scores.others_after)]
    lowest = min(own.min(initial=0.0, where=~np.isnan(own)) for own in columns)
    highest = max(own.max(initial=0.0, where=~np.isnan(own)) for own in columns)
    best = facts.max_reward
    # Differences have no bounds if a reward lies outside 0 to the best one.
    if lowest < 0.0 or (best is not None and highest > best):
        best = None
    found: dict[str, Effect] = {}

    def add(
        name: str,
        sides: _Sides | None,
        *,
        num_values: int | None = None,
        largest: float | None = best,
        estimator: str = _PAIRED_DIFFERENCES,
    ) -> None:
        if sides is not None:
            found[name] = _effect(
                sides.before,
                sides.after,
                num_values=2 * int(sides.sizes.sum()) if num_values is None else num_values,
                largest=largest,
                estimator=estimator,
            )

    means = _sides(rows, rewards, _means)
    add("mean_reward", means)
    estimator = "mean of paired attempt differences, errors clustered by task"
    add("micro_mean_reward", means and _by_attempt(means), estimator=estimator)
    if not facts.can_be_negative and lowest >= 0.0:
        num_scores = sum(int((~np.isnan(own)).sum()) for own in columns)
        add("strict_mean_reward", _strict_sides(scores, facts, means), num_values=num_scores)
    most = max((row.lines.shape[1] for row in rows), default=0)
    for metric in METRICS.values():
        for k in values_of_k(most):
            measure = _measure_at_k(metric, k)
            if metric.needs_answers or (k == 1 and metric.same_at_1):
                continue
            if metric.takes_first and k != most:
                continue
            sides = _sides(rows, rewards, measure.of_tasks, facts.success_threshold)
            add(
                measure.name,
                sides,
                num_values=2 * k * len(sides.sizes) if sides and metric.takes_first else None,
                largest=1.0 if metric.needs_threshold else best,
            )
    return found


def number_effect(before: Attempts, after: array[float]) -> Effect:
    """Return the effect on the mean over tasks of a component or another number.

    `before` has the attempts with the old verifier's numbers, nan where it returned none; `after`
    has the new verifier's numbers of the same attempts.
    """
    rows = before.by_task()
    values_before, values_after = sides = [
        _task_values(before, rows, numbers, _MEAN_REWARD, None)
        for numbers in (before.rewards, after)
    ]
    is_in_both = ~np.isnan(values_before.value) & ~np.isnan(values_after.value)
    if not is_in_both.any():
        means = [
            mean_of(own) if len(own := side.value[~np.isnan(side.value)]) else None
            for side in sides
        ]
        return Effect(before=means[0], after=means[1])
    a, b = (side.at(np.flatnonzero(is_in_both)) for side in sides)
    # Values that all lie between 0 and 1 are taken as shares, as in `gym metrics`.
    is_share = all(((side.value >= 0.0) & (side.value <= 1.0)).all() for side in (a, b))
    num_values = int(a.num_attempts.sum() + b.num_attempts.sum())
    return _effect(a.value, b.value, num_values=num_values, largest=1.0 if is_share else None)


def _effect(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    *,
    num_values: int,
    largest: float | None,
    estimator: str = _PAIRED_DIFFERENCES,
) -> Effect:
    found = paired_estimate(before, after, num_values=num_values, estimator=estimator)
    difference = found.difference
    difference.interval = _student_interval(difference, largest)
    return Effect(before=found.mean_a, after=found.mean_b, difference=difference)


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


class _Sides(NamedTuple):
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    sizes: NDArray[np.int64]
    """Attempts of each task."""


def _sides(
    rows: Sequence[SameSize],
    rewards: Sequence[Sequence[float]],
    of_tasks: Callable[[TaskRewards], NDArray[np.float64] | None],
    threshold: float | None = None,
) -> _Sides | None:
    """Return the values of tasks by both verifiers; None if no task has a value."""
    parts = []
    for tasks, lines in rows:
        before, after = (
            of_tasks(TaskRewards(np.asarray(own)[lines], threshold)) for own in rewards
        )
        if before is not None and after is not None:
            parts.append((before, after, np.full(len(tasks), lines.shape[1])))
    if not parts:
        return None
    return _Sides(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _by_attempt(means: _Sides) -> _Sides:
    """Return a value for each task such that their mean is the mean of all attempts.

    The mean of attempts is a ratio of sums over tasks, here linearised: with c the ratio and n of N
    attempts, each of G tasks has the value c + G n / N (mean - c). The standard error of these is
    the clustered one of Miller 2024 (arXiv 2411.00640) with the CR1 factor of Liang and Zeger 1986.
    """
    num_attempts = int(means.sizes.sum())
    shares: NDArray[np.float64] = means.sizes * len(means.sizes) / num_attempts
    before, after = (
        shares * values + (1.0 - shares) * (sum_of(values * means.sizes) / num_attempts)
        for values in (means.before, means.after)
    )
    return _Sides(before, after, means.sizes)


def _strict_sides(
    scores: RescoredAttempts, facts: EnvironmentFacts, means: _Sides | None
) -> _Sides | None:
    """Return the mean rewards of tasks, counting an attempt without a score as 0."""
    both, others = scores.both, scores.others
    num_present = len(both) + len(others)
    is_whole = facts.num_expected is None or num_present >= facts.num_expected
    if is_whole and not others:
        return means
    rows = rows_by_task(
        np.concatenate([both.tasks, others.tasks], dtype=np.intp),
        np.concatenate([both.attempts, others.attempts], dtype=np.int64),
    )
    rewards = (
        np.nan_to_num(np.concatenate([both.rewards, others.rewards])),
        np.nan_to_num(np.concatenate([scores.after, scores.others_after])),
    )
    if is_whole or facts.num_expected is None:
        return _sides(rows, rewards, _means)
    # The tasks of attempts without a record are unknown: all expected attempts have equal weights.
    weight = sum(len(row.tasks) for row in rows) / facts.num_expected
    return _sides(rows, rewards, lambda tasks: weight * row_sums(tasks.rewards))
