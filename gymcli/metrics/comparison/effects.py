"""What another verifier does to the numbers of the same attempts: each before, after, and moved."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gymcli.metrics.at_k import avg_at_k, best_of_k, pass_at_k, pass_hat_k
from gymcli.metrics.comparison.moments import MeansBySize, PairedMoments
from gymcli.metrics.curves import values_of_k
from gymcli.metrics.estimators import mean
from gymcli.metrics.records import EnvironmentFacts
from gymcli.metrics.results import Effect

__all__ = ["TwiceScored", "reward_effects"]

_OF_PASSES = {"pass@": pass_at_k, "pass^": pass_hat_k}
_OF_REWARDS = {"avg@": avg_at_k, "best@": best_of_k}
_TASKS_AT_A_TIME = 1 << 13
"""Tasks that are counted together; each takes about 300 bytes until then."""


class TwiceScored(NamedTuple):
    """The attempts of one task by two verifiers."""

    before: tuple[float, ...]
    """The rewards of those that have both, in order."""
    after: tuple[float, ...]
    only_before: tuple[float, ...] = ()
    """The rewards of those that the new verifier could not score."""
    only_after: tuple[float, ...] = ()
    num_unscored: int = 0
    """Those that have no reward by either."""


def reward_effects(
    tasks: Iterable[TwiceScored], facts: EnvironmentFacts, *, level: float = 0.95
) -> dict[str, Effect]:
    """Give the effect on every number that rewards alone make, by the names that gates use.

    They are `mean_reward`, `micro_mean_reward`, `pass@K`, `pass^K`, `avg@K` and `best@K` over
    attempts that have both scores, and `strict_mean_reward`, which counts what is unscored by one
    of the verifiers, or by both, as 0. Left out are `pass^1`, which is `pass@1`, and `best@1`,
    which is `mean_reward`.

    Args:
        tasks: The tasks of one environment, each once.
        facts: What is known of it.
        level: Of the intervals.

    """
    gathering = _Gathering(facts)
    rest = iter(tasks)
    while kinds := Counter(itertools.islice(rest, _TASKS_AT_A_TIME)):
        for task, num_tasks in kinds.items():
            gathering.add(task, num_tasks)
    return gathering.effects(level)


class _Gathering:
    """The sums over the tasks of one environment."""

    def __init__(self, facts: EnvironmentFacts) -> None:
        self._facts = facts
        self._mean = MeansBySize()
        self._strict = PairedMoments()
        """Of each task the mean with absent attempts as 0."""
        self._totals = PairedMoments()
        """Of each task the sum of rewards, which is wanted where not all attempts are known."""
        self._passes: Counter[tuple[int, int, int]] = Counter()
        """Tasks by their attempts with both scores, and how many of these pass by either."""
        self._at_k: defaultdict[str, PairedMoments] = defaultdict(PairedMoments)
        """By name, what k rewards of each task are worth."""
        self._num_present = 0
        self._lowest = 0.0
        self._highest = 0.0

    def add(self, task: TwiceScored, num_tasks: int) -> None:
        before = (*task.before, *task.only_before)
        after = (*task.after, *task.only_after)
        num_both = len(task.before)
        num_present = num_both + len(task.only_before) + len(task.only_after) + task.num_unscored
        self._num_present += num_tasks * num_present
        self._lowest = min(self._lowest, *before, *after, 0.0)
        self._highest = max(self._highest, *before, *after, 0.0)
        num_scores = len(before) + len(after)
        sums = math.fsum(before), math.fsum(after)
        means = sums[0] / num_present, sums[1] / num_present
        self._totals.add(*sums, num_attempts=num_scores, times=num_tasks)
        if num_both:
            both = mean(task.before), mean(task.after)
            means = both if num_both == num_present else means
            self._mean.add(*both, size=num_both, times=num_tasks)
            self._add_at_k(task, num_tasks)
            threshold = self._facts.success_threshold
            if threshold is not None:
                passed = [sum(x >= threshold for x in own) for own in (task.before, task.after)]
                self._passes[num_both, passed[0], passed[1]] += num_tasks
        self._strict.add(*means, num_attempts=num_scores, times=num_tasks)

    def _add_at_k(self, task: TwiceScored, num_tasks: int) -> None:
        num_both = len(task.before)
        for k in values_of_k(num_both):
            for name, value in _OF_REWARDS.items():
                before, after = value(task.before, k), value(task.after, k)
                if before is None or after is None or (name == "best@" and k == 1):
                    continue
                num_taken = 2 * (k if name == "avg@" else num_both)
                moments = self._at_k[f"{name}{k}"]
                moments.add(before, after, num_attempts=num_taken, times=num_tasks)

    def effects(self, level: float) -> dict[str, Effect]:
        """Give the effects by name: those on means, then those on what k attempts are worth."""
        best = self._facts.max_reward
        if self._lowest < 0.0 or (best is not None and self._highest > best):
            best = None
        found = {
            "mean_reward": self._mean.effect(best=best, level=level),
            "micro_mean_reward": self._mean.micro_effect(best=best, level=level),
            "strict_mean_reward": self._strict_effect(best, level),
            **self._passes_at_k(level),
            **self._rewards_at_k(best, level),
        }
        return {name: effect for name, effect in found.items() if effect is not None}

    def _strict_effect(self, best: float | None, level: float) -> Effect | None:
        """Give that of the mean of all expected attempts, weighed as `gym metrics` does."""
        if self._facts.can_be_negative or self._lowest < 0.0:
            return None
        num_expected = self._facts.num_expected
        if num_expected is None or self._num_present >= num_expected:
            return self._strict.effect(best=best, level=level)
        return self._totals.effect(best=best, level=level, weight=1.0 / num_expected)

    def _passes_at_k(self, level: float) -> Mapping[str, Effect | None]:
        found = {}
        for name, value in _OF_PASSES.items():
            for k in values_of_k(self._mean.most):
                if name == "pass^" and k == 1:
                    continue
                moments = PairedMoments()
                for (num, num_before, num_after), num_tasks in self._passes.items():
                    before, after = value(num, num_before, k), value(num, num_after, k)
                    if before is not None and after is not None:
                        moments.add(before, after, num_attempts=2 * num, times=num_tasks)
                found[f"{name}{k}"] = moments.effect(best=1.0, level=level)
        return found

    def _rewards_at_k(self, best: float | None, level: float) -> Mapping[str, Effect | None]:
        names = [f"{name}{k}" for name in _OF_REWARDS for k in values_of_k(self._mean.most)]
        return {
            name: self._at_k[name].effect(best=best, level=level)
            for name in names
            if name in self._at_k
        }
