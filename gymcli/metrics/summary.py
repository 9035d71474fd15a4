"""The numbers of one environment's tally, or of several taken together."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gymcli.metrics.curves import METRICS, curve, num_tasks_at_k
from gymcli.metrics.estimators import (
    clustered_standard_error,
    mean,
    mean_of_means,
    mean_with_absent,
    percentile,
    standard_error,
    t_interval,
    variance_parts,
    wilson_effective_interval,
)
from gymcli.metrics.records import EnvironmentFacts
from gymcli.metrics.results import (
    Bounds,
    Interval,
    Latency,
    Metrics,
    Percentiles,
    TaskMetrics,
    Variance,
)
from gymcli.metrics.tally import EnvironmentTally, TaskScores, Totals, add_role_usage
from gymcli.types import Usage

__all__ = ["summarise", "summarise_task"]


def summarise(tallies: Sequence[EnvironmentTally], *, level: float) -> Metrics:
    """Give the numbers of these environments taken together.

    Tasks are pooled, and every task weighs the same, only where the environments share a best
    reward that is known; else counts, failures, usage and times are all that can be told.

    Raises:
        RunFileError: An attempt was scored by two lines.

    """
    tasks = [task for tally in tallies for task in tally.tasks()]
    metrics = _counts(tallies, tasks)
    facts = _shared_facts([tally.facts for tally in tallies], metrics.num_expected)
    if facts is None:
        return metrics
    _add_bounds(metrics, tasks, facts)
    scored = [task for task in tasks if task.rewards]
    if scored:
        _add_means(metrics, scored, facts, level)
        _add_curves(metrics, scored)
    return metrics


def summarise_task(task: TaskScores) -> TaskMetrics:
    """Give the numbers of one task."""
    row = TaskMetrics(
        env=task.env,
        task_id=task.task_id,
        num_scored=len(task.rewards),
        num_unscored=len(task.failures),
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


def _counts(tallies: Sequence[EnvironmentTally], tasks: Sequence[TaskScores]) -> Metrics:
    """Give everything that can be added up whatever the rewards mean."""
    failures = {
        name: [line for task in group for line in task.failures]
        for name, group in itertools.groupby(tasks, key=lambda task: task.env)
    }
    total = Totals(Usage(), {}, Counter())
    for tally in tallies:
        more = tally.totals(failures.get(tally.name, []))
        total.usage.add(more.usage)
        add_role_usage(total.role_usage, more.role_usage)
        total.retries.update(more.retries)
    classes = Counter(line.error.error_class for lines in failures.values() for line in lines)
    num_scored = sum(len(task.rewards) for task in tasks)
    num_expected = _sum_of_known([tally.facts.num_expected for tally in tallies])
    return Metrics(
        num_expected=num_expected,
        num_present=num_scored + classes.total(),
        num_scored=num_scored,
        num_unscored=classes.total(),
        coverage=num_scored / num_expected if num_expected else None,
        num_tasks=len(tasks),
        num_clusters=sum(bool(task.rewards) for task in tasks),
        failures=_by_name(classes),
        stop_reasons=_by_name(_merged(tally.stop_reasons for tally in tallies)),
        tool_errors=_by_name(_merged(tally.tool_errors for tally in tallies)),
        retries=_by_name(total.retries),
        usage=msgspec.structs.asdict(total.usage),
        role_usage=total.role_usage,
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


def _add_bounds(metrics: Metrics, tasks: Sequence[TaskScores], facts: EnvironmentFacts) -> None:
    """Add what the absent attempts leave open.

    Where every expected attempt has a record it is known which task each belongs to. Else every
    expected attempt weighs the same, which is the same number where all tasks have equally many.
    """
    rewards = [reward for task in tasks for reward in task.rewards]
    if facts.can_be_negative or any(reward < 0.0 for reward in rewards):
        return
    parts: list[tuple[Sequence[float], int]]
    if facts.num_expected is None or metrics.num_present >= facts.num_expected:
        parts = [(task.rewards, len(task.failures)) for task in tasks]
    else:
        parts = [(rewards, facts.num_expected - len(rewards))]
    metrics.strict_mean_reward = low = mean_with_absent(parts, absent_reward=0.0)
    if facts.max_reward is not None and _is_bounded(rewards, facts.max_reward):
        high = mean_with_absent(parts, absent_reward=facts.max_reward)
        if low is not None and high is not None:
            metrics.bounds = Bounds(low=low, high=high)


def _add_means(
    metrics: Metrics, scored: Sequence[TaskScores], facts: EnvironmentFacts, level: float
) -> None:
    groups = [task.rewards for task in scored]
    means = [mean(group) for group in groups]
    rewards = [reward for group in groups for reward in group]
    metrics.mean_reward = mean(means)
    metrics.standard_error = standard_error(means)
    metrics.micro_mean_reward = mean(rewards)
    metrics.micro_standard_error = clustered_standard_error(groups)
    metrics.interval = _interval(metrics, rewards, facts.max_reward, level)
    parts = variance_parts(groups)
    metrics.variance = Variance(**parts._asdict()) if parts else None
    if all(task.num_passes is not None for task in scored):
        metrics.num_flaky_tasks = sum(0 < (t.num_passes or 0) < len(t.rewards) for t in scored)
    metrics.components = _means_by_name([task.components for task in scored])
    metrics.metrics = _means_by_name([task.metrics for task in scored])


def _add_curves(metrics: Metrics, scored: Sequence[TaskScores]) -> None:
    metrics.num_tasks_at_k = num_tasks_at_k(scored)
    for name in METRICS:
        setattr(metrics, name, curve(name, scored))


def _interval(
    metrics: Metrics, rewards: Sequence[float], max_reward: float | None, level: float
) -> Interval | None:
    centre, error = metrics.mean_reward, metrics.standard_error
    if centre is None or error is None:
        return None
    if max_reward is None or not _is_bounded(rewards, max_reward):
        if error == 0.0:
            return None
        student = t_interval(centre, error, num_clusters=metrics.num_clusters, level=level)
        return Interval(low=student.low, high=student.high, level=level, method="t")
    wilson = wilson_effective_interval(
        centre / max_reward,
        error / max_reward,
        num_clusters=metrics.num_clusters,
        num_values=len(rewards),
        level=level,
    )
    # Scaling there and back may round an end that equals the mean to just beside it.
    return Interval(
        low=min(centre, wilson.low * max_reward),
        high=max(centre, wilson.high * max_reward),
        level=level,
        method="wilson-neff",
    )


def _is_bounded(rewards: Iterable[float], max_reward: float) -> bool:
    return max_reward > 0.0 and all(0.0 <= reward <= max_reward for reward in rewards)


def _means_by_name(tasks: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Give for each name the mean over the tasks that have it."""
    names = sorted({name for values in tasks for name in values})
    return {name: mean_of_means(v[name] for v in tasks if name in v) for name in names}


def _latency(tallies: Sequence[EnvironmentTally]) -> Latency | None:
    total, model = array("d"), array("d")
    for tally in tallies:
        total.extend(tally.total_seconds)
        model.extend(tally.model_seconds)
    if not total:
        return None
    return Latency(total_seconds=_percentiles(total), model_seconds=_percentiles(model))


def _percentiles(seconds: Iterable[float]) -> Percentiles:
    ordered = sorted(seconds)
    return Percentiles(
        p50=percentile(ordered, 0.50),
        p90=percentile(ordered, 0.90),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
    )


def _sum_of_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _merged(counters: Iterable[Counter[str]]) -> Counter[str]:
    total = Counter[str]()
    for counter in counters:
        total.update(counter)
    return total


def _by_name(counter: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counter.items()))
