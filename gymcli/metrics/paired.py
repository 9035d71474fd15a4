"""The mean reward of the same attempts by two verifiers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from gymcli.metrics.estimators import task_means
from gymcli.metrics.records import EnvironmentFacts
from gymcli.metrics.tally import EnvironmentTally

__all__ = ["PairedMeans"]


class PairedMeans:
    """Takes the two rewards of attempts and gives the mean over tasks of either.

    They are the means that `Aggregator` gives of an environment of which no facts are known; tasks
    of several environments have none in common.
    """

    def __init__(self) -> None:
        self._tallies: dict[str, EnvironmentTally] = {}
        """By environment, with the first rewards."""
        self._others: dict[str, array[float]] = {}
        """By environment, the second rewards in the order they came."""

    def add(
        self,
        env: str,
        task_ids: Sequence[str],
        attempts: Sequence[int],
        rewards: Sequence[float],
        others: Sequence[float],
    ) -> None:
        """Take attempts of an environment that have both rewards."""
        if env not in self._tallies:
            self._tallies[env] = EnvironmentTally(env, EnvironmentFacts())
            self._others[env] = array("d")
        self._tallies[env].add_rewards(task_ids, attempts, rewards)
        self._others[env].extend(others)

    def means(self) -> tuple[float | None, float | None]:
        """Give both means, once all are added; None unless they are of one environment.

        Raises:
            RunFileError: An attempt was there twice.

        """
        means: list[tuple[float, float]] = []
        for env in sorted(self._tallies):
            tally, others = self._tallies[env], self._others[env]
            second = tally if tally.rewards == others else tally.with_rewards(others)
            means.append((task_means(tally.alike()).mean, task_means(second.alike()).mean))
        return means[0] if len(means) == 1 else (None, None)
