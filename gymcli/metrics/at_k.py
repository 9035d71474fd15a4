"""What k attempts at a task are worth, from the n that were made: pass@k and the like."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from random import Random

from gymcli.metrics.estimators import mean

__all__ = [
    "MAX_SUBSETS",
    "avg_at_k",
    "best_of_k",
    "majority_at_k",
    "may_draw",
    "pass_at_k",
    "pass_hat_k",
]

MAX_SUBSETS = 200
"""Subsets of attempts that majority@k looks at for one task; all of them where there are fewer."""


@functools.lru_cache(maxsize=1 << 12)  # few are different, and tasks are many
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


@functools.lru_cache(maxsize=1 << 12)  # few are different, and tasks are many
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
    if len(rewards) < k:
        return None
    best_first = sorted(rewards, reverse=True)
    return math.fsum(map(operator.mul, _weights_of_best(len(rewards), k), best_first))


@functools.lru_cache(maxsize=1 << 8)
def _weights_of_best(num_attempts: int, k: int) -> list[float]:
    """Give the chance of each rank, the best first, to be the best of k; 0 for the last ones."""
    weights = [k / num_attempts]
    for rank in range(num_attempts, k, -1):
        weights.append(weights[-1] * ((rank - k) / (rank - 1)))
    return weights


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


def may_draw(num_attempts: int) -> bool:
    """Say whether `majority_at_k` may draw subsets at random, and so depend on its seed."""
    return math.comb(num_attempts, num_attempts // 2) > MAX_SUBSETS


def _vote(answers: Sequence[str | None], worth: Mapping[str, float]) -> float:
    votes: dict[str, int] = {}  # by hand: this is the loop where `gym metrics` spends its time
    for answer in answers:
        if answer is not None:
            votes[answer] = votes.get(answer, 0) + 1
    most = max(votes.values(), default=0)
    winners = [worth[answer] for answer, count in votes.items() if count == most]
    return math.fsum(winners) / len(winners) if winners else 0.0
