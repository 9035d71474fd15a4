"""What follows from the numbers: where to spend the next attempts, and what not to trust."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gymcli.metrics.results import Metrics

__all__ = ["FEW_TASKS", "advice_of", "best_num_attempts"]

FEW_TASKS = 10
"""Below, the spread between tasks is known too roughly for the interval to be exact."""
_LEVEL = 0.95


def advice_of(metrics: Metrics, *, num_attempts: float) -> list[str]:
    """Give what follows from the numbers of one environment, a sentence each.

    Args:
        metrics: The numbers, complete but for the advice.
        num_attempts: Scored attempts of a task: the harmonic mean.

    """
    if not metrics.num_clusters:
        return []
    return [
        *_unscored(metrics),
        *_few_tasks(metrics),
        *_all_alike(metrics),
        *_where_to_spend(metrics, num_attempts),
        *_largest_k(metrics),
        *_flaky(metrics),
    ]


def best_num_attempts(between: float, within: float) -> float:
    """Give K*, the attempts of a task that make the most of a budget; infinite where tasks agree.

    sqrt(c_task/c_attempt * within/between) minimises (between + within/K)/G at a given cost
    (Cochran 1977, "Sampling Techniques", section 10.6), here with a task as dear as an attempt.
    """
    return math.sqrt(within / between) if between else math.inf


def _unscored(metrics: Metrics) -> Iterator[str]:
    num_expected = metrics.num_expected or metrics.num_present
    num_absent = num_expected - metrics.num_scored
    if num_absent <= 0:
        return
    text = f"{num_absent:,} of {num_expected:,} attempts are not scored"
    if metrics.bounds is not None:
        low, high = metrics.bounds.low, metrics.bounds.high
        text += f": whatever they would have got, the mean lies in {low:.3f} .. {high:.3f}"
    yield text


def _few_tasks(metrics: Metrics) -> Iterator[str]:
    if metrics.num_clusters == 1:
        yield "one task says nothing about others: there is no interval"
    elif metrics.num_clusters < FEW_TASKS and metrics.interval is not None:
        yield f"fewer than {FEW_TASKS} tasks: the interval is rough"


def _all_alike(metrics: Metrics) -> Iterator[str]:
    """Give the rule of three (Hanley and Lippman-Hand 1983), exact: 1 - 0.05^(1/n)."""
    rate = (metrics.pass_at_k or {}).get("1")
    if rate not in (0.0, 1.0):
        return
    num_tasks = metrics.num_clusters
    bound = 1.0 - (1.0 - _LEVEL) ** (1.0 / num_tasks)
    others = "failures" if rate else "passes"
    tasks = "the only task" if num_tasks == 1 else f"all {num_tasks:,} tasks"
    yield (
        f"{tasks} {'passed' if rate else 'failed'} at every attempt: up to {bound:.1%} {others} "
        "would still fit (rule of three, 95%)"
    )


def _where_to_spend(metrics: Metrics, num_attempts: float) -> Iterator[str]:
    parts = metrics.variance
    if parts is None:
        if metrics.num_clusters > 1:
            yield (
                "one attempt of each task: how far attempts of a task differ is not known; "
                "--repeats 2 would tell"
            )
        return
    if parts.intraclass_correlation is None:
        return
    best = best_num_attempts(parts.between, parts.within)
    share = f"{parts.intraclass_correlation:.0%} of the variance lies between tasks"
    most = "no number is too many" if math.isinf(best) else f"about {max(1, round(best))}"
    costs = f"{most} where a task costs as much as an attempt"
    if num_attempts > 2.0 * max(1.0, best):
        yield f"{share}: take more tasks rather than more attempts of each ({costs})"
    elif num_attempts < best / 2.0:
        yield f"{share}: more attempts of each task pay as well as more tasks ({costs})"
    else:
        yield f"{share}: more tasks narrow the interval, the attempts of each suffice ({costs})"


def _largest_k(metrics: Metrics) -> Iterator[str]:
    if not metrics.num_tasks_at_k or metrics.pass_at_k is None:
        return
    most = max(map(int, metrics.num_tasks_at_k))
    if most > 1:
        yield (
            f"pass@{most} takes all attempts of a task, where its variance is largest: "
            f"trust k up to {most // 2}, or make {2 * most} attempts"
        )


def _flaky(metrics: Metrics) -> Iterator[str]:
    if metrics.num_flaky_tasks:
        verb = "passes" if metrics.num_flaky_tasks == 1 else "pass"
        yield (
            f"{metrics.num_flaky_tasks:,} of {metrics.num_clusters:,} tasks {verb} at some "
            "attempts and not at others: gym metrics --by-task lists them"
        )
