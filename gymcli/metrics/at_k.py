"""Estimates of the result of k attempts at a task from n attempts: pass@k and similar metrics.

`METRICS` lists them with their names in help, gates, tables and reports. A new metric takes a
function, an entry in `METRICS`, and the field of results.py that it fills.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gymcli.metrics.estimators import mean, row_means, row_sums

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SUBSETS = 200
"""The most subsets of a task's attempts that majority@k votes on; all of them if they are fewer."""
_TASKS_AT_A_TIME = 1 << 13
"""Tasks that are converted to Python lists together, which take many times the memory."""


def pass_at_k(num_attempts: int, num_passes: int, k: int) -> float | None:
    """Return the chance that at least one of k attempts passes; None for fewer attempts than k.

    1 - C(n-c, k)/C(n, k), unbiased, as a product: Chen et al. 2021, arXiv 2107.03374.
    """
    if num_attempts < k:
        return None
    num_fails = num_attempts - num_passes
    if num_fails < k:
        return 1.0
    return 1.0 - math.prod((num_fails - i) / (num_attempts - i) for i in range(k))


def pass_hat_k(num_attempts: int, num_passes: int, k: int) -> float | None:
    """Return the chance that all of k attempts pass; None for fewer attempts than k.

    C(c, k)/C(n, k), unbiased: Yao et al. 2024 (tau-bench), arXiv 2406.12045.
    """
    if num_attempts < k:
        return None
    return math.prod(max(0, num_passes - i) / (num_attempts - i) for i in range(k))


def majority_at_k(
    rewards: Sequence[float], answers: Sequence[str | int | None], k: int, *, seed: str
) -> float | None:
    """Return the expected reward of the commonest answer among k attempts; None for fewer than k.

    Wang et al. 2022 (self-consistency), arXiv 2203.11171. An answer is worth the mean reward of
    the task's attempts that have it; answers that tie are averaged; attempts without an answer
    have no vote, and without any vote the reward is 0. Exact if all answers are worth the same or
    there are at most `MAX_SUBSETS` subsets; else the mean over that many random subsets, drawn with
    `seed`.
    """
    num_attempts = len(rewards)
    if num_attempts < k:
        return None
    by_answer: dict[str | int, list[float]] = {}
    for reward, answer in zip(rewards, answers, strict=True):
        if answer is not None:
            by_answer.setdefault(answer, []).append(reward)
    worth = {answer: mean(values) for answer, values in by_answer.items()}
    # If all answers are worth the same, it only matters whether anyone votes.
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
    """Return whether `majority_at_k` may draw random subsets for some k, and so needs a seed."""
    return math.comb(num_attempts, num_attempts // 2) > MAX_SUBSETS


def _vote(answers: Sequence[str | int | None], worth: Mapping[str | int, float]) -> float:
    votes: dict[str | int, int] = {}  # no Counter in the innermost loop of `gym metrics`
    for answer in answers:
        if answer is not None:
            votes[answer] = votes.get(answer, 0) + 1
    most_votes = max(votes.values(), default=0)
    winners = [worth[answer] for answer, count in votes.items() if count == most_votes]
    return math.fsum(winners) / len(winners) if winners else 0.0


def values_of_k(most_attempts: int) -> list[int]:
    """Return the powers of 2 up to the largest number of attempts, and that number."""
    powers = [1 << exponent for exponent in range(most_attempts.bit_length())]
    return sorted({*powers, most_attempts} - {0})


class TaskRewards(NamedTuple):
    """The rewards of tasks with equally many attempts, one row per task."""

    rewards: NDArray[np.float64]
    """In order of attempt."""
    threshold: float | None
    """The reward from which an attempt passes; None if unknown."""
    answers: NDArray[np.int32] | None = None
    """A number for each answer, 0 for none; None if the environment extracts no answers."""
    seeds: Sequence[str] = ()
    """Of each task, for majority@k; empty unless `may_draw`."""

    @property
    def num_attempts(self) -> int:
        """Attempts of each task."""
        return int(self.rewards.shape[1])

    @property
    def num_passes(self) -> NDArray[np.intp] | None:
        """Attempts of each task that pass; None without a threshold."""
        return None if self.threshold is None else (self.rewards >= self.threshold).sum(axis=1)


Values: TypeAlias = "NDArray[np.float64] | None"
"""One value per task; None if the metric needs a threshold or answers that they lack."""


def _of_passes(
    tasks: TaskRewards, k: int, estimator: Callable[[int, int, int], float | None]
) -> Values:
    import numpy as np  # late: heavy

    num_passes = tasks.num_passes
    if num_passes is None:
        return None
    # Tasks with equally many passes have the same value, which is computed once.
    values = np.zeros(tasks.num_attempts + 1)
    for count in np.flatnonzero(np.bincount(num_passes)).tolist():
        values[count] = estimator(tasks.num_attempts, count, k)
    return values[num_passes]


def _avg_at_k(tasks: TaskRewards, k: int) -> Values:
    """Return the mean of the first k rewards, in order of attempt.

    DeepSeek-AI 2025, arXiv 2501.12948, report this mean over k samples of a task as pass@1.
    """
    return row_means(tasks.rewards[:, :k])


def _best_of_k(tasks: TaskRewards, k: int) -> Values:
    """Return the expected best reward of k attempts.

    The sum over ranks r of s_(r) * C(r-1, k-1)/C(n, k), the expected maximum of a random subset:
    unbiased, from order statistics (David and Nagaraja 2003, "Order Statistics"); for rewards of
    0 and 1 it is pass@k.
    """
    import numpy as np  # late: heavy

    weights = [k / tasks.num_attempts]  # the chance that a rank is the best, from the top rank on
    for rank in range(tasks.num_attempts, k, -1):
        weights.append(weights[-1] * ((rank - k) / (rank - 1)))
    best_first = np.sort(tasks.rewards, axis=1)[:, ::-1]
    return row_sums(best_first[:, : len(weights)] * weights)


def _majority_at_k(tasks: TaskRewards, k: int) -> Values:
    import numpy as np  # late: heavy

    answers, num_attempts = tasks.answers, tasks.num_attempts
    if answers is None:
        return None
    values: list[float | None] = []
    if may_draw(num_attempts):
        for rewards, numbers, seed in zip(tasks.rewards, answers, tasks.seeds, strict=True):
            votes_of_task = [answer or None for answer in numbers.tolist()]
            values.append(majority_at_k(rewards.tolist(), votes_of_task, k, seed=seed))
        return np.array(values, np.float64)
    for start in range(0, len(answers), _TASKS_AT_A_TIME):
        some = answers[start : start + _TASKS_AT_A_TIME]
        # Only which attempts agree matters: numbering answers by their first attempt makes more
        # tasks alike, which the cache below computes once.
        first = (some[:, :, None] == some[:, None, :]).argmax(axis=2)
        votes = np.where(some == 0, 0, first + 1).tolist()
        rows = tasks.rewards[start : start + _TASKS_AT_A_TIME].tolist()
        values += [
            _exact_majority(tuple(rewards), tuple(numbers), k)
            for rewards, numbers in zip(rows, votes, strict=True)
        ]
    return np.array(values, np.float64)


@functools.lru_cache(maxsize=1 << 14)  # many tasks of a run are alike in rewards and votes
def _exact_majority(rewards: tuple[float, ...], votes: tuple[int, ...], k: int) -> float | None:
    return majority_at_k(rewards, [vote or None for vote in votes], k, seed="")


class Metric(NamedTuple):
    """A metric of k attempts at a task, with its names and descriptions."""

    name: str
    """The text before k in gates, tables and reports."""
    key: str
    """The field of the results, and of --json."""
    label: str
    """The name of its estimator."""
    estimator: Callable[[TaskRewards, int], Values]
    """Returns the values of tasks that have k attempts."""
    needs_threshold: bool = False
    """Whether it counts successes, and so is a share."""
    needs_answers: bool = False
    """Whether it uses the answers of attempts, not only their rewards."""
    takes_first: bool = False
    """Whether it uses only the first k attempts. Its values for several k differ by chance alone,
    so it is computed for all n attempts, and for another k only if that is requested."""
    same_at_1: str | None = None
    """The number that this metric equals for k = 1, if any."""

    def of_tasks(self, tasks: TaskRewards, k: int) -> Values:
        """Return the value of each task; None if they have fewer attempts than k."""
        return self.estimator(tasks, k) if tasks.num_attempts >= k else None


METRICS: dict[str, Metric] = {
    "pass_at_k": Metric(
        name="pass@",
        key="pass_at_k",
        label="unbiased pass@k, mean over tasks with k attempts or more",
        estimator=lambda tasks, k: _of_passes(tasks, k, pass_at_k),
        needs_threshold=True,
    ),
    "pass_hat_k": Metric(
        name="pass^",
        key="pass_hat_k",
        label="unbiased pass^k, mean over tasks with k attempts or more",
        estimator=lambda tasks, k: _of_passes(tasks, k, pass_hat_k),
        needs_threshold=True,
        same_at_1="pass@1",
    ),
    "avg_at_k": Metric(
        name="avg@",
        key="avg_at_k",
        label="mean of the first k rewards, over tasks with k attempts or more",
        estimator=_avg_at_k,
        takes_first=True,
    ),
    "best_of_k": Metric(
        name="best@",
        key="best_of_k",
        label="expected best of k rewards, over tasks with k attempts or more",
        estimator=_best_of_k,
        same_at_1="mean_reward",
    ),
    "majority_at_k": Metric(
        name="majority@",
        key="majority_at_k",
        label="majority vote of k attempts, over tasks with k attempts or more",
        estimator=_majority_at_k,
        needs_answers=True,
    ),
}
"""By key, in the order of tables."""
