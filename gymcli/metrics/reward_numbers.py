"""What the rewards of tasks say: means, variance, curves, named rewards, each with its estimate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from gymcli.metrics.alike import Alike
from gymcli.metrics.curves import METRICS, Curves
from gymcli.metrics.estimates import MEAN_OF_TASKS, estimate, estimate_of, moments_of
from gymcli.metrics.estimators import (
    clustered_standard_error,
    mean,
    task_means,
    variance_parts,
    with_absent,
)
from gymcli.metrics.results import Estimate, Metrics, Variance
from gymcli.metrics.tally import EnvironmentTally, NamedKind

__all__ = ["add_curves", "add_means", "add_named_means", "add_strict_mean"]

_ESTIMATORS = {
    "pass_at_k": ("pass@{k}", "unbiased pass@k, mean over tasks with k attempts or more"),
    "pass_hat_k": ("pass^{k}", "unbiased pass^k, mean over tasks with k attempts or more"),
    "avg_at_k": ("avg@{k}", "mean of the first k rewards, over tasks with k attempts or more"),
    "majority_at_k": ("majority@{k}", "majority vote of k attempts, over tasks with so many"),
    "best_of_k": ("best@{k}", "expected best of k rewards, over tasks with k attempts or more"),
}
"""By the key of `METRICS`, the name of the estimate and what it is."""


class _Scored:
    """The tasks that have rewards, put together whenever they are asked for."""

    def __init__(self, tallies: Sequence[EnvironmentTally]) -> None:
        self._tallies = tallies

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Alike]:
        return (task for tally in self._tallies for task in tally.alike() if task.rewards)

    def __contains__(self, task: object) -> bool:
        return any(task == own for own in self)


def add_means(
    metrics: Metrics,
    tallies: Sequence[EnvironmentTally],
    rewards: Sequence[float],
    *,
    best: float | None,
    level: float,
) -> None:
    """Add the mean over tasks, that over attempts, and where their variance comes from.

    Args:
        metrics: Where they are added.
        tallies: The environments that are taken together.
        rewards: Of all attempts; at least one.
        best: The best reward where all lie between 0 and it, else None.
        level: The share of intervals that contain the true number.

    """
    tasks = _Scored(tallies)
    means = task_means(tasks)
    sizes = {"num_values": metrics.num_scored, "num_clusters": metrics.num_clusters}
    macro = estimate(
        means.mean, means.standard_error, estimator=MEAN_OF_TASKS, best=best, level=level, **sizes
    )
    micro = estimate(
        mean(rewards),
        clustered_standard_error(tasks),
        estimator="mean of all attempts, errors clustered by task",
        best=best,
        level=level,
        **sizes,
    )
    metrics.estimates |= {"mean_reward": macro, "micro_mean_reward": micro}
    metrics.mean_reward, metrics.standard_error = macro.value, macro.standard_error
    metrics.interval = macro.interval
    metrics.micro_mean_reward, metrics.micro_standard_error = micro.value, micro.standard_error
    parts = variance_parts(tasks)
    metrics.variance = Variance(**parts._asdict()) if parts else None


def add_strict_mean(
    metrics: Metrics, tallies: Sequence[EnvironmentTally], *, best: float | None, level: float
) -> None:
    """Add the estimate of the strict mean, where there is one.

    Where attempts without a record are absent it is not known which tasks they are of: then it is
    the mean of all attempts, times the coverage, and so is its error.
    """
    value, error = metrics.strict_mean_reward, metrics.micro_standard_error
    if value is None:
        return
    if metrics.num_expected is None or metrics.num_present >= metrics.num_expected:
        moments = moments_of(
            (with_absent(task, 0.0), len(task.rewards) + task.num_absent, task.num_tasks)
            for tally in tallies
            for task in tally.alike()
        )
        title = f"{MEAN_OF_TASKS}, absent attempts as 0"
        found = estimate_of(moments, estimator=title, best=best, level=level)
        if found is not None:
            metrics.estimates["strict_mean_reward"] = found
        return
    coverage = metrics.num_scored / metrics.num_expected
    metrics.estimates["strict_mean_reward"] = estimate(
        value,
        None if error is None else coverage * error,
        estimator="mean of all expected attempts, absent ones as 0, errors clustered by task",
        best=best,
        num_values=metrics.num_expected,
        num_clusters=metrics.num_clusters,
        level=level,
    )


def add_curves(
    metrics: Metrics,
    tallies: Sequence[EnvironmentTally],
    *,
    most_scored: int,
    best: float | None,
    level: float,
) -> None:
    """Add what k attempts are worth, for each k, and how many tasks are flaky.

    Args:
        metrics: Where they are added.
        tallies: The environments that are taken together.
        most_scored: The most scored attempts that a task has.
        best: The best reward where all lie between 0 and it, else None.
        level: The share of intervals that contain the true number.

    """
    curves = Curves(most_scored)
    num_flaky: int | None = 0
    for task, num_tasks in (kind for tally in tallies for kind in tally.kinds()):
        curves.add(task, num_tasks)
        if num_flaky is None or task.num_passes is None:
            num_flaky = None
        else:
            num_flaky += num_tasks * (0 < task.num_passes < len(task.rewards))
    metrics.num_flaky_tasks = num_flaky
    for name in METRICS:
        setattr(metrics, name, curves.curve(name))
        title, estimator = _ESTIMATORS[name]
        own_best = 1.0 if name.startswith("pass_") else best
        for k, moments in curves.moments(name):
            found = estimate_of(moments, estimator=estimator, best=own_best, level=level)
            if found is not None:
                metrics.estimates[title.format(k=k)] = found


def add_named_means(metrics: Metrics, tallies: Sequence[EnvironmentTally], *, level: float) -> None:
    """Add the means of the numbers that verifiers gave names, over the tasks that have them.

    Nothing says what range they have: those of which all lie between 0 and 1 are taken for shares.
    """
    metrics.components = _means(metrics.estimates, "components", tallies, level)
    metrics.metrics = _means(metrics.estimates, "metrics", tallies, level)


def _means(
    estimates: dict[str, Estimate],
    kind: NamedKind,
    tallies: Sequence[EnvironmentTally],
    level: float,
) -> dict[str, float]:
    environments = [tally.named_by_task(kind) for tally in tallies]
    means = {}
    for name in sorted({name for values in environments for name in values}):
        tasks = itertools.chain.from_iterable(values.get(name, ()) for values in environments)
        moments = moments_of((mean(values), len(values), 1) for values in tasks)
        found = estimate_of(moments, estimator=MEAN_OF_TASKS, best=1.0, level=level)
        if found is not None:
            estimates[f"{kind}.{name}"] = found
            means[name] = found.value
    return means
