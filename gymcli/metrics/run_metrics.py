"""The numbers of the attempts of one or several environments, and the advice that follows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gymcli.metrics.at_k import METRICS, values_of_k
from gymcli.metrics.estimators import (
    clustered_standard_error,
    mean_of,
    mean_of_attempts,
    percentile,
    row_means,
    row_sums,
    row_variances,
    standard_error,
    variance,
)
from gymcli.metrics.intervals import NO_SCALE, Scale, interval_of
from gymcli.metrics.results import (
    FEW_TASKS,
    Bounds,
    Estimate,
    Latency,
    Metrics,
    Percentiles,
    Variance,
)
from gymcli.metrics.tally import EnvironmentPart, Totals

_MEAN_OF_TASKS = "mean of task means"
_RULE_OF_THREE_LEVEL = 0.95

Floats: TypeAlias = NDArray[np.float64]


def summarise(parts: Sequence[EnvironmentPart], *, level: float, ks: Sequence[int] = ()) -> Metrics:
    """Return the numbers of all parts together, each of one environment.

    Metrics of k attempts are computed for the `values_of_k` and for `ks`.

    Tasks are pooled, with equal weights, only if the environments share a known best reward; else
    the result has only counts, failures, usage and times.
    """
    metrics = _counts(parts)
    scored = [rewards for part in parts for rewards in part.scored]
    best_rewards = {part.facts.max_reward for part in parts}
    if len(parts) > 1 and (len(best_rewards) > 1 or None in best_rewards):
        return metrics
    metrics.max_reward = highest = best_rewards.pop() if best_rewards else None
    low = min((float(rewards.min()) for rewards in scored), default=0.0)
    high = max((float(rewards.max()) for rewards in scored), default=0.0)
    # Wilson's interval is for shares: one reward below 0 or above the best one rules it out.
    is_bounded = highest is not None and highest > 0.0 and low >= 0.0 and high <= highest
    scale = Scale(highest, _are_graded(scored, highest)) if is_bounded else NO_SCALE
    if scored:
        _add_means(metrics, scored, scale=scale, level=level)
        _add_curves(metrics, parts, ks, scale=scale, level=level)
        _add_named_means(metrics, parts, level=level)
        metrics.is_graded = any(
            bool(((rewards_of_tasks != 0.0) & (rewards_of_tasks != 1.0)).any())
            for rewards_of_tasks in scored
        )
    # Where rewards may be negative, 0 is not the worst that an absent attempt can get.
    if low >= 0.0 and not any(part.facts.can_be_negative for part in parts):
        _add_strict_mean(metrics, parts, scale=scale, level=level)
    if scored:
        sizes = [(len(rewards), rewards.shape[1]) for rewards in scored]
        # Tasks add within/K to the variance of the mean, so the mean of 1/K is what counts.
        harmonic = metrics.num_clusters / math.fsum(num / size for num, size in sizes)
        thresholds = {part.facts.success_threshold for part in parts}
        threshold = thresholds.pop() if len(thresholds) == 1 else None
        metrics.advice = advice_of(metrics, num_attempts=harmonic, threshold=threshold)
    return metrics


_SHARE = Scale(1.0, is_graded=False)
"""Of attempts that pass or fail."""


def _are_graded(values: Sequence[Floats], best: float | None) -> bool:
    return any(bool(((rewards != 0.0) & (rewards != best)).any()) for rewards in values)


def _counts(parts: Sequence[EnvironmentPart]) -> Metrics:
    """Return the counts and sums, which do not depend on the scale of rewards."""
    total = Totals()
    for part in parts:
        total.add(part.totals)
    expected = [part.facts.num_expected for part in parts]
    known_counts = [count for count in expected if count is not None]
    num_expected = (
        sum(known_counts) if known_counts and len(known_counts) == len(expected) else None
    )
    sizes = [rewards.shape for part in parts for rewards in part.scored]
    num_scored = sum(num_tasks * num_attempts for num_tasks, num_attempts in sizes)
    num_unscored = total.failures.total()
    total_seconds = _joined([part.total_seconds for part in parts])
    model_seconds = _joined([part.model_seconds for part in parts])
    return Metrics(
        num_expected=num_expected,
        num_present=num_scored + num_unscored,
        num_scored=num_scored,
        num_unscored=num_unscored,
        coverage=num_scored / num_expected if num_expected else None,
        num_tasks=sum(len(group.rewards) for part in parts for group in part.tasks),
        num_clusters=sum(num_tasks for num_tasks, _ in sizes),
        failures=dict(sorted(total.failures.items())),
        no_answers=total.no_answers,
        stop_reasons=dict(sorted(total.stop_reasons.items())),
        tool_errors=dict(sorted(total.tool_errors.items())),
        retries=dict(sorted(total.retries.items())),
        usage=msgspec.structs.asdict(total.usage),
        cost=total.cost,
        role_usage={role: use.use for role, use in sorted(total.role_usage.items())},
        latency=Latency(
            total_seconds=_percentiles(total_seconds), model_seconds=_percentiles(model_seconds)
        )
        if len(total_seconds)
        else None,
    )


def _task_means(parts: Sequence[EnvironmentPart], absent_reward: float) -> Floats:
    """Return the mean reward of each task, counting its absent attempts as `absent_reward`."""
    means = []
    for part in parts:
        for group, num_absent in zip(part.tasks, part.num_absent, strict=True):
            rewards = group.rewards
            if num_absent.any():
                rewards = np.column_stack([rewards, num_absent * absent_reward])
            means.append(row_sums(rewards) / (group.num_attempts + num_absent))
    return _joined(means)


def _add_means(metrics: Metrics, scored: Sequence[Floats], *, scale: Scale, level: float) -> None:
    macro = estimate_of(
        _joined([row_means(rewards) for rewards in scored]),
        estimator=_MEAN_OF_TASKS,
        num_values=metrics.num_scored,
        scale=scale,
        level=level,
    )
    micro = _estimate(
        mean_of_attempts(scored),
        clustered_standard_error(scored),
        estimator="mean of all attempts, errors clustered by task",
        scale=scale,
        num_values=metrics.num_scored,
        num_clusters=metrics.num_clusters,
        level=level,
    )
    metrics.estimates |= {"mean_reward": macro, "micro_mean_reward": micro}
    metrics.mean_reward, metrics.standard_error = macro.value, macro.standard_error
    metrics.interval = macro.interval
    metrics.micro_mean_reward, metrics.micro_standard_error = micro.value, micro.standard_error
    metrics.variance = variance_parts(scored)


def variance_parts(groups: Sequence[Floats]) -> Variance | None:
    """Split the variance of rewards into the parts between tasks and within tasks.

    None unless there are two tasks and one of them has two attempts. Miller 2024,
    arXiv 2411.00640, section 3; K is the harmonic mean of the numbers of attempts, which is exact
    if they are equal.
    """
    num_tasks = sum(map(len, groups))
    repeated = [group for group in groups if group.shape[1] > 1]
    if num_tasks < 2 or not repeated:
        return None
    within = mean_of(np.concatenate([row_variances(group) for group in repeated]))
    means = np.concatenate([row_means(group) for group in groups])
    attempts = num_tasks / math.fsum(len(group) / group.shape[1] for group in groups)
    # The variance of task means includes within/K; by chance the rest may come out negative.
    between = max(0.0, variance(means) - within / attempts)
    total = between + within
    if total == 0.0:
        return Variance(between=0.0, within=0.0, intraclass_correlation=None, design_effect=None)
    correlation = between / total
    return Variance(
        between=between,
        within=within,
        intraclass_correlation=correlation,
        design_effect=1.0 + (attempts - 1.0) * correlation,
    )


def _add_curves(
    metrics: Metrics,
    parts: Sequence[EnvironmentPart],
    requested: Sequence[int],
    *,
    scale: Scale,
    level: float,
) -> None:
    groups = [group for part in parts for group in part.tasks if group.num_attempts]
    most_attempts = max(group.num_attempts for group in groups)
    ks = sorted({*values_of_k(most_attempts), *(k for k in requested if k <= most_attempts)})
    metrics.num_tasks_at_k = {
        str(k): sum(len(group.rewards) for group in groups if group.num_attempts >= k) for k in ks
    }
    are_flaky = [
        (num_passes > 0) & (num_passes < group.num_attempts)
        for group in groups
        if (num_passes := group.num_passes) is not None
    ]
    # None, not 0, if one of the environments has no threshold of success.
    if len(are_flaky) == len(groups):
        metrics.num_flaky_tasks = sum(int(is_flaky.sum()) for is_flaky in are_flaky)
    for metric in METRICS.values():
        curve = {}
        for k in ks:
            if metric.takes_first and k != most_attempts and k not in requested:
                continue
            values, num_values = [], 0
            for group in groups:
                values_of_group = metric.of_tasks(group, k)
                if values_of_group is not None:
                    values.append(values_of_group)
                    num_values += len(values_of_group) * (
                        k if metric.takes_first else group.num_attempts
                    )
            if values:
                estimate = estimate_of(
                    _joined(values),
                    estimator=metric.label,
                    num_values=num_values,
                    scale=_SHARE if metric.needs_threshold else scale,
                    level=level,
                )
                metrics.estimates[f"{metric.name}{k}"] = estimate
                curve[str(k)] = estimate.value
        setattr(metrics, metric.key, curve or None)


def _add_named_means(metrics: Metrics, parts: Sequence[EnvironmentPart], *, level: float) -> None:
    metrics.components, metrics.metrics = {}, {}
    for title in sorted({title for part in parts for title in part.named}):
        # Their range is not declared: values that all lie between 0 and 1 are taken as shares.
        numbers = [values for part in parts for values in part.named.get(title, ())]
        estimate = metrics.estimates[title] = estimate_of(
            _joined([row_means(values) for values in numbers]),
            estimator=_MEAN_OF_TASKS,
            num_values=sum(values.size for values in numbers),
            scale=Scale(1.0, _are_graded(numbers, 1.0)),
            level=level,
        )
        kind, _, name = title.partition(".")
        getattr(metrics, kind)[name] = estimate.value


def _add_strict_mean(
    metrics: Metrics, parts: Sequence[EnvironmentPart], *, scale: Scale, level: float
) -> None:
    """Add the mean with absent attempts as 0 and, if the best reward is known, the bounds.

    The bounds count absent attempts as the worst and as the best reward: Manski 1989, "Anatomy of
    the selection problem".
    """
    if metrics.num_expected is not None and metrics.num_present < metrics.num_expected:
        # The tasks of attempts without a record are unknown. So all expected attempts have equal
        # weights, which yields the same number if all tasks have equally many, and the error is
        # that of the mean of all attempts times the coverage.
        rewards = [scored_rewards.ravel().data for part in parts for scored_rewards in part.scored]
        num_absent = metrics.num_expected - metrics.num_scored
        low, high = (
            math.fsum(itertools.chain(*rewards, [num_absent * reward])) / metrics.num_expected
            for reward in (0.0, scale.best or 0.0)
        )
        error = metrics.micro_standard_error
        estimate = _estimate(
            low,
            None if error is None else metrics.num_scored / metrics.num_expected * error,
            estimator="mean of all expected attempts, absent ones as 0, errors clustered by task",
            scale=scale,
            num_values=metrics.num_expected,
            num_clusters=metrics.num_clusters,
            level=level,
        )
    elif metrics.num_tasks:
        estimate = estimate_of(
            _task_means(parts, 0.0),
            estimator=f"{_MEAN_OF_TASKS}, absent attempts as 0",
            num_values=metrics.num_present,
            scale=scale,
            level=level,
        )
        high = mean_of(_task_means(parts, scale.best or 0.0))
    else:
        return
    metrics.estimates["strict_mean_reward"] = estimate
    metrics.strict_mean_reward = estimate.value
    if scale.best is not None:
        metrics.bounds = Bounds(low=estimate.value, high=high)


def estimate_of(
    values: Floats, *, estimator: str, num_values: int, scale: Scale, level: float
) -> Estimate:
    """Return the mean of the values of tasks, at least one, with the interval of `interval_of`."""
    best = scale.best
    is_within = best is not None and float(values.min()) >= 0.0 and float(values.max()) <= best
    return _estimate(
        mean_of(values),
        standard_error(values),
        estimator=estimator,
        scale=scale if is_within else NO_SCALE,
        num_values=num_values,
        num_clusters=len(values),
        level=level,
    )


def _estimate(
    value: float,
    error: float | None,
    *,
    estimator: str,
    scale: Scale,
    num_values: int,
    num_clusters: int,
    level: float,
) -> Estimate:
    interval = interval_of(
        value,
        error,
        scale=scale,
        num_values=num_values,
        num_clusters=num_clusters,
        level=level,
    )
    return Estimate(
        value=value,
        estimator=estimator,
        num_values=num_values,
        num_clusters=num_clusters,
        standard_error=error,
        interval=interval,
    )


def _joined(arrays: Sequence[Floats]) -> Floats:
    # numpy refuses to concatenate no arrays at all.
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0), *arrays])


def _percentiles(seconds: Floats) -> Percentiles:
    ordered = np.sort(seconds).data
    shares = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
    return Percentiles(**{name: percentile(ordered, share) for name, share in shares.items()})


def best_num_attempts(between: float, within: float) -> float:
    """Return K*, the best number of attempts of a task for a budget; infinite if tasks are equal.

    sqrt(c_task/c_attempt * within/between) minimises (between + within/K)/G at a given cost
    (Cochran 1977, "Sampling Techniques", section 10.6); here both costs are equal.
    """
    return math.sqrt(within / between) if between else math.inf


def advice_of(
    metrics: Metrics, *, num_attempts: float, threshold: float | None = None
) -> list[str]:
    """Return advice that follows from the complete numbers of one environment, as sentences.

    `num_attempts` is the harmonic mean of the tasks' scored attempts, `threshold` the reward from
    which one passes.
    """
    num_tasks = metrics.num_clusters
    if not num_tasks:
        return []
    advice = []
    if metrics.no_answers.are_many:
        advice.append(metrics.no_answers.sentence_with_command())
    num_expected = metrics.num_expected or metrics.num_present
    num_absent = num_expected - metrics.num_scored
    if num_absent > 0:
        text = f"{num_absent:,} of {num_expected:,} attempts are not scored"
        if metrics.bounds is not None:
            low, high = metrics.bounds.low, metrics.bounds.high
            text += f": whatever their rewards, the mean lies in {low:.3f} .. {high:.3f}"
        advice.append(text)
    if num_tasks == 1:
        advice.append("an interval needs two or more scored tasks")
    elif num_tasks < FEW_TASKS and metrics.interval is not None:
        advice.append(f"fewer than {FEW_TASKS} tasks: the interval is rough")
    rate = (metrics.pass_at_k or {}).get("1")
    if rate in (0.0, 1.0) and not metrics.no_answers.are_most:
        # The rule of three (Hanley and Lippman-Hand 1983), exact: 1 - 0.05^(1/n).
        bound = 1.0 - (1.0 - _RULE_OF_THREE_LEVEL) ** (1.0 / num_tasks)
        tasks = "the only task" if num_tasks == 1 else f"all {num_tasks:,} tasks"
        opposite = "failure" if rate else "pass"
        text = f"{tasks} passed in every attempt" if rate else f"{tasks} failed in every attempt"
        if not rate and metrics.mean_reward and threshold is not None:
            tasks = "the only task" if num_tasks == 1 else f"the {num_tasks:,} tasks"
            text = f"no attempt of {tasks} reached the pass threshold {float(threshold)}"
        advice.append(
            f"{text}: a {opposite} rate of up to {bound:.1%} is still plausible (rule of three, "
            "one-sided 95% bound)"
        )
    if metrics.variance is not None:
        advice += _where_to_spend(metrics.variance, num_attempts)
    elif num_tasks > 1:
        advice.append(
            "each task has one attempt, so the spread within tasks is unknown; --repeats 2 would "
            "show it"
        )
    if metrics.num_flaky_tasks:
        verb = "passes" if metrics.num_flaky_tasks == 1 else "pass"
        advice.append(
            f"{metrics.num_flaky_tasks:,} of {num_tasks:,} tasks {verb} only sometimes: "
            "gym show RUN --where '0 < num_passed < num_attempts'"
        )
    return advice


def _where_to_spend(parts: Variance, num_attempts: float) -> list[str]:
    if parts.intraclass_correlation is None:
        return []
    best = best_num_attempts(parts.between, parts.within)
    share = f"{parts.intraclass_correlation:.0%} of the variance lies between tasks"
    if num_attempts < best / 2.0:
        return [f"{share}: another attempt of a task is worth about as much as another task"]
    return [f"{share}: the best use of the next request is another task, not another attempt"]
