"""The same rollouts scored several times: whether verifiers say the same, and what it does."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from gymcli.metrics.attempts import ScoredAttempts
from gymcli.metrics.estimators import mean, variance
from gymcli.metrics.grouping import line_order, starts_of
from gymcli.metrics.moments import Moments
from gymcli.metrics.small_ints import SmallInts
from gymcli.metrics.sums import RunningMean
from gymcli.numbering import Numbering
from gymcli.rollout.rescored import Rescored

__all__ = ["Disagreement", "EnvironmentAgreement", "RepeatReport", "Repeats"]

_MAX_DISAGREEMENTS = 1_000
_NOT_SCORED = float("nan")


class Disagreement(msgspec.Struct, kw_only=True):
    """One rollout that its verifier did not score alike each time."""

    env: str
    task_id: str
    attempt: int
    rewards: list[float | None]
    """In the order of the repeats; None where the verifier failed."""
    spread: float
    """The largest of them less the smallest."""


class EnvironmentAgreement(msgspec.Struct, kw_only=True):
    """How far the verifier of one environment agrees with itself."""

    asks_models: bool
    """Whether it may ask models, or a server, and so say another thing each time."""
    num_rollouts: int = 0
    """Those that were scored again."""
    num_disagreeing: int = 0
    """Those whose rewards are not all the same, or that were scored in some repeats only."""
    num_failed: int = 0
    """Those that were not scored once."""
    agreement: float | None = None
    """The share of the rollouts with any score that do not disagree; None where there is none."""
    largest_spread: float = 0.0
    mean_rewards: list[float] = []
    """The mean over tasks by each repeat, of rollouts that all of them scored."""
    within_variance: float | None = None
    """Of one rollout's reward over the repeats: the mean over rollouts that all of them scored."""
    standard_error: float | None = None
    """Of the mean reward by one repeat, over tasks: the root of the mean square over repeats."""
    verifier_error: float | None = None
    """What of that is the verifier's, where it errs on each task by itself; where it errs on many
    in the same way `mean_rewards` move more than this."""
    verifier_share: float | None = None
    """What that part is of the variance of the mean: all of it, where chance gives more than that;
    None where there is no variance."""


class RepeatReport(msgspec.Struct, kw_only=True):
    """What scoring the same rollouts several times gave."""

    num_repeats: int
    num_rollouts: int = 0
    num_disagreeing: int = 0
    num_faulty: int = 0
    """Those of verifiers that ask no model, and so should say the same each time."""
    num_failed: int = 0
    """Rollouts that were not scored once."""
    num_not_rescored: int = 0
    """Rollouts of environments whose world cannot be replayed; they are not scored again."""
    largest_spread: float = 0.0
    errors: dict[str, int] = {}
    """Verifier failures by their text, of all repeats."""
    disagreements: list[Disagreement] = []
    """The first 1,000, by environment."""
    environments: dict[str, EnvironmentAgreement] = {}


class Repeats:
    """Takes the rewards of every repeat: a few bytes each.

    Args:
        num_repeats: How many there will be.
        asks_models: Says of an environment whether its verifier asks models.

    """

    def __init__(self, num_repeats: int, asks_models: Callable[[str], bool]) -> None:
        self.num_scores = 0
        """Scores so far, with the failures."""
        self._num_repeats = num_repeats
        self._asks_models = asks_models
        self._rewards: dict[str, _Rewards] = {}
        self._errors: dict[str, int] = {}
        self._num_not_rescored = 0

    def add(self, batch: list[Rescored], *, is_first: bool) -> None:
        """Take results of a repeat.

        Args:
            batch: They.
            is_first: It is the first repeat, by which what is not scored again is counted.

        """
        for item in batch:
            if not item.is_rescored:
                self._num_not_rescored += is_first
                continue
            self.num_scores += 1
            self._of(item.key.env).add(item)
            if item.error is not None:
                text = f"{item.error.error_class}: {item.error.message}"
                self._errors[text] = self._errors.get(text, 0) + 1

    def check(self) -> None:
        """Look at the first repeat, before another is paid for.

        Raises:
            RunFileError: An attempt was there twice.

        """
        for env, rewards in sorted(self._rewards.items()):
            rewards.check(env)

    def report(self) -> RepeatReport:
        """Compare what all repeats gave."""
        report = RepeatReport(
            num_repeats=self._num_repeats,
            num_not_rescored=self._num_not_rescored,
            errors=self._errors,
        )
        for env, rewards in sorted(self._rewards.items()):
            agreement = EnvironmentAgreement(asks_models=self._asks_models(env))
            noise = _Noise(self._num_repeats)
            for task in rewards.tasks():
                noise.add(task)
                for attempt, own in task.rewards.items():
                    _compare(
                        report,
                        agreement,
                        Disagreement(
                            env=env,
                            task_id=task.task_id,
                            attempt=attempt,
                            rewards=own,
                            spread=_spread(own),
                        ),
                    )
            noise.describe(agreement)
            num_scored = agreement.num_rollouts - agreement.num_failed
            if num_scored:
                agreement.agreement = 1.0 - agreement.num_disagreeing / num_scored
            report.environments[env] = agreement
            _add_up(report, agreement)
        return report

    def _of(self, env: str) -> _Rewards:
        if env not in self._rewards:
            self._rewards[env] = _Rewards()
        return self._rewards[env]


class _OfTask(NamedTuple):
    task_id: str
    rewards: dict[int, list[float | None]]
    """Of each attempt, in the order of the repeats."""


class _Rewards:
    """The rewards of one environment's rollouts by all repeats, one after another."""

    def __init__(self) -> None:
        self._ids = Numbering()
        self._tasks = array("I")
        self._attempts = SmallInts()
        self._rewards = array("d")

    def add(self, item: Rescored) -> None:
        self._tasks.append(self._ids.number_of(item.key.task_id.encode()))
        self._attempts.extend([item.key.attempt])
        self._rewards.append(_NOT_SCORED if item.new_reward is None else item.new_reward)

    def check(self, env: str) -> None:
        attempts = ScoredAttempts(env)
        task_ids = [self._ids[number].decode() for number in self._tasks]
        attempts.extend(task_ids, self._attempts.at(range(len(task_ids))), self._rewards)
        attempts.stretches()  # finds what is there twice

    def tasks(self) -> Iterator[_OfTask]:
        starts = starts_of(self._tasks, len(self._ids))
        order = line_order(self._tasks, starts)
        for number, (start, end) in enumerate(itertools.pairwise(starts)):
            found: dict[int, list[float | None]] = {}
            for line in order[start:end]:
                reward = self._rewards[line]
                own = found.setdefault(self._attempts[line], [])
                own.append(None if math.isnan(reward) else reward)
            yield _OfTask(self._ids[number].decode(), dict(sorted(found.items())))


class _Noise:
    """What verifiers add to the error of the mean reward.

    The mean of a task's attempts differs from repeat to repeat only by its verifier, whatever that
    does to several attempts at once. The variance of the mean over tasks is the sum of these over
    the square of their number, and a part of the one that the standard error is of: that of the
    tasks' means is what lies between tasks and what lies within them (Miller 2024, arXiv
    2411.00640), here the verifier's.
    """

    def __init__(self, num_repeats: int) -> None:
        self._num_repeats = num_repeats
        self._means = [Moments() for _ in range(num_repeats)]
        self._of_tasks = RunningMean()
        self._of_rollouts = RunningMean()

    def add(self, task: _OfTask) -> None:
        """Take the attempts of a task that were scored every time."""
        whole = []
        for rewards in task.rewards.values():
            scored = [reward for reward in rewards if reward is not None]
            if len(scored) == len(rewards) == self._num_repeats:
                whole.append(scored)
        if not whole:
            return
        by_repeat = [mean(rewards) for rewards in zip(*whole, strict=True)]
        for moments, one in zip(self._means, by_repeat, strict=True):
            moments.add(one)
        self._of_tasks.add(variance(by_repeat))
        for scored in whole:
            self._of_rollouts.add(variance(scored))

    def describe(self, agreement: EnvironmentAgreement) -> None:
        """Fill in the numbers of an environment."""
        num_tasks = self._of_tasks.num_values
        if not num_tasks:
            return
        agreement.mean_rewards = [moments.mean for moments in self._means]
        agreement.within_variance = self._of_rollouts.mean
        of_mean = self._of_tasks.mean / num_tasks
        agreement.verifier_error = math.sqrt(of_mean)
        errors = [moments.standard_error for moments in self._means]
        squares = [error**2 for error in errors if error is not None]
        if squares:
            square = mean(squares)
            agreement.standard_error = math.sqrt(square)
            agreement.verifier_share = min(1.0, of_mean / square) if square else None


def _compare(report: RepeatReport, agreement: EnvironmentAgreement, found: Disagreement) -> None:
    """Count a rollout."""
    agreement.num_rollouts += 1
    if all(reward is None for reward in found.rewards):
        agreement.num_failed += 1
        return
    if len(set(found.rewards)) == 1:
        return
    agreement.num_disagreeing += 1
    agreement.largest_spread = max(agreement.largest_spread, found.spread)
    if len(report.disagreements) < _MAX_DISAGREEMENTS:
        report.disagreements.append(found)


def _spread(rewards: list[float | None]) -> float:
    scored = [reward for reward in rewards if reward is not None]
    return max(scored) - min(scored) if scored else 0.0


def _add_up(report: RepeatReport, agreement: EnvironmentAgreement) -> None:
    report.num_rollouts += agreement.num_rollouts
    report.num_disagreeing += agreement.num_disagreeing
    report.num_failed += agreement.num_failed
    report.largest_spread = max(report.largest_spread, agreement.largest_spread)
    if not agreement.asks_models:
        report.num_faulty += agreement.num_disagreeing
