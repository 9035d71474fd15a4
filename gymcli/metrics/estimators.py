"""Estimators over rewards: means, standard errors, intervals, bounds, and what k attempts give.

A task is the sampling unit: attempts of one task are never taken for independent. Sums are
`math.fsum`, which rounds once, so no result depends on the order of its terms.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from gymcli.metrics.distributions import normal_quantile, student_t_quantile
from gymcli.metrics.sums import RunningMean

__all__ = [
    "MAX_SUBSETS",
    "Range",
    "VarianceParts",
    "avg_at_k",
    "best_of_k",
    "clustered_standard_error",
    "majority_at_k",
    "mean",
    "mean_of_means",
    "mean_with_absent",
    "pass_at_k",
    "pass_hat_k",
    "standard_error",
    "t_interval",
    "variance",
    "variance_parts",
    "wilson_effective_interval",
    "wilson_interval",
]

MAX_SUBSETS = 200
"""Subsets of attempts that majority@k looks at for one task; all of them where there are fewer."""


class Range(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


class VarianceParts(NamedTuple):
    """Where the variance of rewards comes from: between tasks, or between attempts of a task."""

    between: float
    """Variance of the tasks' true means."""
    within: float
    """Variance of one attempt around the true mean of its task."""
    intraclass_correlation: float | None
    """`between / (between + within)`; None where both are 0."""
    design_effect: float | None
    """How many times the variance of as many independent attempts: 1 + (K - 1) * ICC."""


def mean(values: Sequence[float]) -> float:
    """Give the arithmetic mean of at least one value."""
    rounded = math.fsum(values) / len(values)
    # The mean of equal values is that value, also where the quotient is rounded beside it.
    return min(max(rounded, min(values)), max(values))


def mean_of_means(groups: Iterable[Sequence[float]]) -> float:
    """Give the mean of the groups' means, each group weighing the same (the macro mean)."""
    return mean(array("d", map(mean, groups)))


def variance(values: Sequence[float]) -> float:
    """Give the sample variance (n - 1 below the line) of at least two values."""
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def standard_error(task_means: Sequence[float]) -> float | None:
    """Give the standard error of the mean of task means; None for fewer than two tasks.

    sd(task means) / sqrt(G): Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640. With
    equally many attempts per task it is the clustered (CR1) standard error of all attempts.
    """
    if len(task_means) < 2:
        return None
    return math.sqrt(variance(task_means) / len(task_means))


def clustered_standard_error(clusters: Collection[Sequence[float]]) -> float | None:
    """Give the standard error of the mean of all values, which are independent between clusters.

    SE^2 = G/(G - 1) / N^2 * sum over clusters of (sum of deviations)^2: Miller 2024,
    arXiv 2411.00640, with the CR1 factor of Liang and Zeger 1986. None for fewer than two
    clusters.
    """
    if len(clusters) < 2:
        return None
    values = RunningMean()
    for cluster in clusters:
        values.add_values(cluster)
    centre = values.value
    squares = math.fsum(math.fsum(value - centre for value in cluster) ** 2 for cluster in clusters)
    return math.sqrt(squares * len(clusters) / (len(clusters) - 1)) / values.num_values


def variance_parts(groups: Collection[Sequence[float]]) -> VarianceParts | None:
    """Split the variance of rewards into tasks and attempts; None where it cannot be told.

    It takes two tasks, and a task of two attempts. Miller 2024, arXiv 2411.00640, section 3;
    K is the harmonic mean of the numbers of attempts, which is exact where they are equal.
    """
    repeated = array("d", (variance(group) for group in groups if len(group) > 1))
    if len(groups) < 2 or not repeated:
        return None
    attempts = len(groups) / math.fsum(1.0 / len(group) for group in groups)
    within = mean(repeated)
    between = max(0.0, variance(array("d", map(mean, groups))) - within / attempts)
    total = between + within
    if total == 0.0:
        return VarianceParts(0.0, 0.0, None, None)
    correlation = between / total
    return VarianceParts(between, within, correlation, 1.0 + (attempts - 1.0) * correlation)


def wilson_interval(rate: float, num_trials: float, *, level: float = 0.95) -> Range:
    """Give the score interval of a rate in [0, 1]; the number of trials may be a fraction.

    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    z = normal_quantile((1.0 + level) / 2.0)
    shrink = 1.0 + z * z / num_trials
    centre = (rate + z * z / (2.0 * num_trials)) / shrink
    spread = rate * (1.0 - rate) / num_trials + (z / (2.0 * num_trials)) ** 2
    half = z / shrink * math.sqrt(max(0.0, spread))
    # Rounding may put an end that equals the rate, or 0, or 1, just beside it.
    return Range(
        max(0.0, min(rate, centre - half)),
        min(1.0, max(rate, centre + half)),
    )


def wilson_effective_interval(
    rate: float, error: float, *, num_clusters: int, num_values: int, level: float = 0.95
) -> Range:
    """Give the Wilson interval on the effective sample size.

    Korn and Graubard 1998 (effective size, adjusted for the degrees of freedom) with the Wilson
    kernel, as Franco et al. 2019 recommend for clustered samples (PMC6690503). For scores inside
    (0, 1) it is conservative, since no variance exceeds Bernoulli's.

    Args:
        rate: The mean, in [0, 1].
        error: Its standard error.
        num_clusters: How many independent units there are: tasks, at least two.
        num_values: How many values there are: attempts; the effective size is never more.
        level: The share of such intervals that contain the true rate.

    Raises:
        ValueError: There are fewer than two clusters.

    """
    effective = float(num_clusters)
    if error > 0.0 and 0.0 < rate < 1.0:
        effective = rate * (1.0 - rate) / error / error
    upper = (1.0 + level) / 2.0
    adjustment = normal_quantile(upper) / student_t_quantile(upper, num_clusters - 1)
    return wilson_interval(rate, min(num_values, effective * adjustment**2), level=level)


def t_interval(centre: float, error: float, *, num_clusters: int, level: float = 0.95) -> Range:
    """Give centre ± t * error with `num_clusters - 1` degrees of freedom.

    Student 1908, "The probable error of a mean"; over clusters: Miller 2024, arXiv 2411.00640.

    Raises:
        ValueError: There are fewer than two clusters.

    """
    half = student_t_quantile((1.0 + level) / 2.0, num_clusters - 1) * error
    return Range(centre - half, centre + half)


def mean_with_absent(
    tasks: Iterable[tuple[Sequence[float], int]], *, absent_reward: float
) -> float | None:
    """Give the mean of task means if every absent attempt had got `absent_reward`.

    A task is its rewards and the number of attempts absent beside them. None without tasks. With
    the worst and the best reward these are the bounds of Manski 1989, "Anatomy of the selection
    problem": whatever became of the absent attempts, the mean lies between.
    """
    means = array(
        "d",
        (
            math.fsum(itertools.chain(rewards, (num_absent * absent_reward,)))
            / (len(rewards) + num_absent)
            for rewards, num_absent in tasks
        ),
    )
    return mean(means) if means else None


def pass_at_k(num_attempts: int, num_passes: int, k: int) -> float | None:
    """Give the chance that at least one of k attempts passes; None for fewer attempts than k.

    1 - C(n-c, k)/C(n, k), unbiased, as a product: Chen et al. 2021, arXiv 2107.03374.
    """
    if num_attempts < k:
        return None
    num_fails = num_attempts - num_passes
    if num_fails < k:
        return 1.0
    return 1.0 - math.prod((num_fails - i) / (num_attempts - i) for i in range(k))


def pass_hat_k(num_attempts: int, num_passes: int, k: int) -> float | None:
    """Give the chance that all of k attempts pass; None for fewer attempts than k.

    C(c, k)/C(n, k), unbiased: Yao et al. 2024 (tau-bench), arXiv 2406.12045.
    """
    if num_attempts < k:
        return None
    return math.prod(max(0, num_passes - i) / (num_attempts - i) for i in range(k))


def avg_at_k(rewards: Sequence[float], k: int) -> float | None:
    """Give the mean of the first k rewards, in order of attempt; None for fewer than k.

    What DeepSeek-AI 2025, arXiv 2501.12948, report as pass@1: the mean over k samples of a task.
    """
    return mean(rewards[:k]) if len(rewards) >= k else None


def best_of_k(rewards: Sequence[float], k: int) -> float | None:
    """Give the expected best reward of k attempts; None for fewer attempts than k.

    The sum over ranks r of s_(r) * C(r-1, k-1)/C(n, k), the expected maximum of a random subset:
    unbiased, from order statistics (David and Nagaraja 2003, "Order Statistics"); for rewards of
    0 and 1 it is pass@k.
    """
    num_attempts = len(rewards)
    if num_attempts < k:
        return None
    terms = []
    weight = k / num_attempts
    best_first = sorted(rewards, reverse=True)
    for rank, reward in zip(range(num_attempts, k - 1, -1), best_first, strict=False):
        terms.append(weight * reward)
        weight *= (rank - k) / (rank - 1 or 1)
    return math.fsum(terms)


def majority_at_k(
    rewards: Sequence[float], answers: Sequence[str | None], k: int, *, seed: str
) -> float | None:
    """Give the expected reward of the commonest answer among k attempts; None for fewer than k.

    Wang et al. 2022 (self-consistency), arXiv 2203.11171. An answer is worth the mean reward of
    the task's attempts that gave it; answers that tie are averaged; attempts without an answer
    have no vote, and without any vote the reward is 0. Exact where all answers are worth the
    same or there are at most `MAX_SUBSETS` subsets; else the mean over that many random ones,
    drawn with `seed`.
    """
    num_attempts = len(rewards)
    if num_attempts < k:
        return None
    by_answer: dict[str, list[float]] = {}
    for reward, answer in zip(rewards, answers, strict=True):
        if answer is not None:
            by_answer.setdefault(answer, []).append(reward)
    worth = {answer: mean(values) for answer, values in by_answer.items()}
    if len(set(worth.values())) <= 1:
        num_answered = sum(len(values) for values in by_answer.values())
        chance_of_a_vote = pass_at_k(num_attempts, num_answered, k)
        assert chance_of_a_vote is not None
        return chance_of_a_vote * next(iter(worth.values()), 0.0)
    if math.comb(num_attempts, k) <= MAX_SUBSETS:
        return mean([_vote(subset, worth) for subset in itertools.combinations(answers, k)])
    random = Random(f"majority_at_k:{k}:{seed}")
    return mean([_vote(random.sample(answers, k), worth) for _ in range(MAX_SUBSETS)])


def _vote(answers: Sequence[str | None], worth: Mapping[str, float]) -> float:
    votes: dict[str, int] = {}  # by hand: this is the loop where `gym metrics` spends its time
    for answer in answers:
        if answer is not None:
            votes[answer] = votes.get(answer, 0) + 1
    most = max(votes.values(), default=0)
    winners = [worth[answer] for answer, count in votes.items() if count == most]
    return math.fsum(winners) / len(winners) if winners else 0.0
