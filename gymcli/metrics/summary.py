"""The numbers of one environment's tally, or of several taken together."""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gymcli.metrics.advice import advice_of
from gymcli.metrics.alike import Alike
from gymcli.metrics.costs import Cost, Totals
from gymcli.metrics.curves import num_tasks_at_k
from gymcli.metrics.estimators import mean, mean_with_absent
from gymcli.metrics.intervals import Range
from gymcli.metrics.percentiles import percentiles
from gymcli.metrics.records import EnvironmentFacts
from gymcli.metrics.results import Bounds, Latency, Metrics, Percentiles, TaskMetrics
from gymcli.metrics.reward_numbers import (
    add_curves,
    add_means,
    add_named_means,
    add_strict_mean,
)
from gymcli.metrics.tally import EnvironmentTally
from gymcli.metrics.task_scores import TaskScores
from gymcli.types import Usage

__all__ = ["summarise", "summarise_task"]

T = TypeVar("T")


def summarise(tallies: Sequence[EnvironmentTally], *, level: float) -> Metrics:
    """Give the numbers of these environments taken together.

    Tasks are pooled, and every task weighs the same, only where the environments share a best
    reward that is known; else counts, failures, usage and times are all that can be told.

    Raises:
        RunFileError: An attempt was scored by two lines.

    """
    num_scored = _merged(tally.num_scored() for tally in tallies)
    metrics = _counts(tallies, num_scored)
    facts = _shared_facts([tally.facts for tally in tallies], metrics.num_expected)
    if facts is None:
        return metrics
    rewards = _pooled([tally.rewards for tally in tallies])
    extent = Range(min(rewards, default=0.0), max(rewards, default=0.0))
    best = facts.max_reward if _is_bounded(extent, facts.max_reward) else None
    _add_bounds(metrics, tallies, rewards, extent, facts)
    if rewards:
        metrics.num_tasks_at_k = num_tasks_at_k(num_scored)
        add_means(metrics, tallies, rewards, best=best, level=level)
        add_curves(metrics, tallies, most_scored=max(num_scored), best=best, level=level)
        add_named_means(metrics, tallies, level=level)
        metrics.advice = advice_of(metrics, num_attempts=_harmonic_mean(num_scored))
    add_strict_mean(metrics, tallies, best=best, level=level)
    return metrics


def summarise_task(task: TaskScores) -> TaskMetrics:
    """Give the numbers of one task."""
    row = TaskMetrics(
        env=task.env,
        task_id=task.task_id,
        num_scored=len(task.rewards),
        num_unscored=task.num_unscored,
        num_passes=task.num_passes,
    )
    if task.rewards:
        row.mean_reward = mean(task.rewards)
        row.min_reward = min(task.rewards)
        row.max_reward = max(task.rewards)
    answers = Counter(answer for answer in task.answers or () if answer is not None)
    if answers:
        # Counter keeps the order of first counting, and so does most_common among equals.
        row.majority_answer = answers.most_common(1)[0][0]
    return row


def _counts(tallies: Sequence[EnvironmentTally], num_scored_of: Mapping[int, int]) -> Metrics:
    """Give everything that can be added up whatever the rewards mean."""
    total = Totals(Usage(), Cost(), {}, Counter())
    for tally in tallies:
        more = tally.totals()
        total.usage.add(more.usage)
        total.cost.add_sum(more.cost)
        total.add_roles(more.role_usage)
        total.retries.update(more.retries)
    classes = Counter(line.error.error_class for tally in tallies for line in tally.failures())
    num_scored = sum(len(tally.rewards) for tally in tallies)
    num_expected = _sum_of_known([tally.facts.num_expected for tally in tallies])
    return Metrics(
        num_expected=num_expected,
        num_present=num_scored + classes.total(),
        num_scored=num_scored,
        num_unscored=classes.total(),
        coverage=num_scored / num_expected if num_expected else None,
        num_tasks=sum(tally.num_tasks() for tally in tallies),
        num_clusters=sum(count for number, count in num_scored_of.items() if number),
        failures=_by_name(classes),
        stop_reasons=_by_name(_merged(tally.stop_reasons for tally in tallies)),
        tool_errors=_by_name(_merged(tally.tool_errors for tally in tallies)),
        retries=_by_name(total.retries),
        usage=msgspec.structs.asdict(total.usage),
        cost=total.cost.total,
        role_usage={role: use.use for role, use in sorted(total.role_usage.items())},
        latency=_latency(tallies),
    )


def _shared_facts(
    facts: Sequence[EnvironmentFacts], num_expected: int | None
) -> EnvironmentFacts | None:
    """Give what holds for all the environments; None where they share no scale of rewards."""
    if len(facts) > 1 and (
        facts[0].max_reward is None or any(f.max_reward != facts[0].max_reward for f in facts)
    ):
        return None
    return EnvironmentFacts(
        max_reward=facts[0].max_reward if facts else None,
        can_be_negative=any(f.can_be_negative for f in facts),
        num_expected=num_expected,
    )


def _add_bounds(
    metrics: Metrics,
    tallies: Sequence[EnvironmentTally],
    rewards: Sequence[float],
    extent: Range,
    facts: EnvironmentFacts,
) -> None:
    """Add what the absent attempts leave open.

    Where every expected attempt has a record it is known which task each belongs to. Else every
    expected attempt weighs the same, which is the same number where all tasks have equally many.
    """
    if facts.can_be_negative or extent.low < 0.0:
        return

    def parts() -> Iterable[Alike]:
        if facts.num_expected is None or metrics.num_present >= facts.num_expected:
            return (task for tally in tallies for task in tally.alike())
        return [Alike(rewards, facts.num_expected - len(rewards))]

    metrics.strict_mean_reward = low = mean_with_absent(parts(), absent_reward=0.0)
    if facts.max_reward is not None and _is_bounded(extent, facts.max_reward):
        high = mean_with_absent(parts(), absent_reward=facts.max_reward)
        if low is not None and high is not None:
            metrics.bounds = Bounds(low=low, high=high)


def _is_bounded(extent: Range, max_reward: float | None) -> bool:
    if max_reward is None:
        return False
    return max_reward > 0.0 and extent.low >= 0.0 and extent.high <= max_reward


def _harmonic_mean(num_scored: Mapping[int, int]) -> float:
    """Give how many scored attempts a task has, of those that have any."""
    counts = {number: count for number, count in num_scored.items() if number}
    return sum(counts.values()) / math.fsum(count / number for number, count in counts.items())


def _latency(tallies: Sequence[EnvironmentTally]) -> Latency | None:
    total = _pooled([tally.total_seconds for tally in tallies])
    model = _pooled([tally.model_seconds for tally in tallies])
    if not total:
        return None
    return Latency(total_seconds=_percentiles(total), model_seconds=_percentiles(model))


def _pooled(values: Sequence[array[float]]) -> array[float]:
    """Give the values of all environments; those of one are not copied."""
    if len(values) == 1:
        return values[0]
    return array("d", itertools.chain.from_iterable(values))


def _percentiles(seconds: array[float]) -> Percentiles:
    p50, p90, p95, p99 = percentiles(seconds, (0.50, 0.90, 0.95, 0.99))
    return Percentiles(p50=p50, p90=p90, p95=p95, p99=p99)


def _sum_of_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _merged(counters: Iterable[Counter[T]]) -> Counter[T]:
    total = Counter[T]()
    for counter in counters:
        total.update(counter)
    return total


def _by_name(counter: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counter.items()))
