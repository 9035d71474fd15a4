"""What rescoring changed, by reason and with its effect on the numbers; and how repeats agree."""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from gymcli.metrics.attempts import Attempts
from gymcli.metrics.estimators import mean, standard_error, variance
from gymcli.metrics.paired_differences import (
    RescoredAttempts,
    number_effect,
    reward_effects,
)
from gymcli.metrics.results import Effect
from gymcli.metrics.scored_lines import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.rollout.line_scoring import Numbers, Rescored
from gymcli.runner.measure import RunReading, open_run, read_compared_lines
from gymcli.store.rollout_files import read_structs

__all__ = [
    "Disagreement",
    "EnvironmentAgreement",
    "EnvironmentFlips",
    "Flips",
    "RepeatReport",
    "Repeats",
    "RescoringCounter",
    "RescoringReport",
    "RewardChange",
]

_MAX_CHANGES = 1_000
_MAX_DISAGREEMENTS = 1_000


class RewardChange(msgspec.Struct, kw_only=True):
    """One rollout whose reward is another one now."""

    env: str
    task_id: str
    attempt: int
    old_reward: float | None
    new_reward: float | None
    reason: str = ""


class Flips(msgspec.Struct, kw_only=True):
    """Rollouts whose reward is another one now, by where it went."""

    num_changed: int = 0
    """All of them: those that are unscored by one of the verifiers go nowhere."""
    num_up: int = 0
    num_down: int = 0
    num_fail_to_pass: int = 0
    """Rollouts that pass only now; 0 without a threshold of success."""
    num_pass_to_fail: int = 0

    def add(self, item: Rescored, threshold: float | None) -> None:
        """Count a rollout."""
        old, new = item.old_reward, item.new_reward
        self.num_changed += 1
        if old is None or new is None:
            return
        self.num_up += new > old
        self.num_down += new < old
        if threshold is not None:
            self.num_fail_to_pass += old < threshold <= new
            self.num_pass_to_fail += new < threshold <= old


class EnvironmentFlips(Flips, kw_only=True):
    """What changed of one environment's rollouts."""

    num_others: int = 0
    """Rollouts whose reward stays, and of which a component or another number changed."""
    reasons: dict[str, Flips] = {}
    """The changed rewards by `old reason -> new reason`."""
    effects: dict[str, Effect] = {}
    """What that does to the numbers, by the names that gates use; components and other numbers that
    are not here are as they were. `majority@K`, which would take the answers of all rollouts by
    both verifiers, and what `Environment.metrics` computes are left out."""


class RescoringReport(Flips, kw_only=True):
    """What rescoring a file gave."""

    num_rescored: int = 0
    num_failed: int = 0
    """Rollouts that the verifier could not score."""
    num_not_rescored: int = 0
    """Rollouts of environments whose world cannot be replayed; their score was kept."""
    mean_before: float | None = None
    """Mean of task means of the rewards on record, over attempts that have both scores."""
    mean_after: float | None = None
    """The same of the new rewards; attempts that are unscored on either side count on neither."""
    reasons: dict[str, int] = {}
    """Changed rewards by `old reason -> new reason`."""
    errors: dict[str, int] = {}
    """Verifier failures by their text."""
    changes: list[RewardChange] = []
    """The first 1,000 changes."""
    environments: dict[str, EnvironmentFlips] = {}
    """What changed, by environment; those where nothing did are left out."""


class RescoringCounter:
    """Counts the results of a rescoring in a report.

    What a change does to the numbers is computed only where there is one, and the run is read for
    it only then.
    """

    def __init__(self, report: RescoringReport, path: Path, env: str | None) -> None:
        self._report = report
        self._path, self._env = path, env
        self._scores: dict[str, RescoredAttempts] = {}
        self._numbers: dict[str, _ChangedNumbers] = {}

    def add(self, batch: Sequence[Rescored]) -> None:
        """Count results."""
        report = self._report
        paired: dict[str, list[Rescored]] = {}
        for item in batch:
            if not item.is_rescored:
                report.num_not_rescored += 1
            elif item.error is not None:
                report.num_failed += 1
                text = f"{item.error.error_class}: {item.error.message}"
                report.errors[text] = report.errors.get(text, 0) + 1
            else:
                report.num_rescored += 1
            if item.numbers is not None or item.is_changed:
                self._count_changes(item)
            key = item.key
            if item.old_reward is None or item.new_reward is None:
                scores = self._scores_of(key.env)
                scores.add_unscored(key.task_id, key.attempt, item.old_reward, item.new_reward)
            else:
                paired.setdefault(key.env, []).append(item)
        for env, items in paired.items():
            self._scores_of(env).extend(
                [item.key.task_id for item in items],
                [item.key.attempt for item in items],
                [item.old_reward or 0.0 for item in items],
                [item.new_reward or 0.0 for item in items],
            )

    def end(self) -> None:
        """Fill in what takes all results: the means, and the effects where something changed.

        Raises:
            UsageError: A line is wrong, or an attempt was there twice.

        """
        report = self._report
        means = [scores.means() for _, scores in sorted(self._scores.items())]
        known = [one for one in means if one is not None]
        if len(known) == 1:  # tasks of several environments have no mean in common
            [(report.mean_before, report.mean_after)] = known
        of_rewards = [env for env, flips in report.environments.items() if flips.num_changed]
        if of_rewards:
            self._add_failures(of_rewards)
        for env in of_rewards:
            effects = reward_effects(self._scores[env], self._facts(env))
            report.environments[env].effects = effects
        if self._numbers:
            self._add_unchanged_numbers()
        for env, numbers in self._numbers.items():
            report.environments[env].effects |= numbers.effects()

    def _add_unchanged_numbers(self) -> None:
        if self._run.rollouts is None:
            return
        names = self._run.names
        for numbers in self._numbers.values():
            numbers.leave_out_unscored()
        for lines in read_compared_lines(self._run.rollouts, self._run.reading):
            scored = [line for line in lines if isinstance(line, ScoredLine)]
            for env, numbers in self._numbers.items():
                numbers.add_unchanged(
                    [line for line in scored if names.get(line.env, line.env) == env]
                )

    @cached_property
    def _run(self) -> RunReading:
        return open_run(self._path, env=self._env)

    def _facts(self, env: str) -> EnvironmentFacts:
        return self._run.facts.get(env, EnvironmentFacts())

    def _scores_of(self, env: str) -> RescoredAttempts:
        return self._scores.setdefault(env, RescoredAttempts(env))

    def _count_changes(self, item: Rescored) -> None:
        report, key = self._report, item.key
        flips = report.environments.setdefault(key.env, EnvironmentFlips())
        if item.numbers is not None and None not in (item.old_reward, item.new_reward):
            if key.env not in self._numbers:
                self._numbers[key.env] = _ChangedNumbers(self._scores_of(key.env))
            self._numbers[key.env].add(key.task_id, key.attempt, *item.numbers)
        if not item.is_changed:
            flips.num_others += 1
            return
        reason = f"{item.old_reason or '-'} -> {item.new_reason or '-'}"
        report.reasons[reason] = report.reasons.get(reason, 0) + 1
        threshold = self._facts(key.env).success_threshold
        for counts in (report, flips, flips.reasons.setdefault(reason, Flips())):
            counts.add(item, threshold)
        if len(report.changes) < _MAX_CHANGES:
            report.changes.append(
                RewardChange(
                    env=key.env,
                    task_id=key.task_id,
                    attempt=key.attempt,
                    old_reward=item.old_reward,
                    new_reward=item.new_reward,
                    reason=reason,
                )
            )

    def _add_failures(self, environments: Sequence[str]) -> None:
        if self._run.failures is None:
            return
        failed: dict[str, set[tuple[str, int]]] = {env: set() for env in environments}
        for line in read_structs(self._run.failures, msgspec.json.Decoder(FailureLine)):
            if line.env in failed:
                failed[line.env].add((line.task_id, line.attempt))
        for env, keys in failed.items():
            self._scores_of(env).add_failures(keys)


class _ChangedNumbers:
    """Components and other numbers of an environment, in an attempt of which one changed.

    Those of the other attempts stand in the file: a run without any such change pays nothing, and
    one with some is read again.

    Args:
        scores: The rewards of the same attempts.

    """

    def __init__(self, scores: RescoredAttempts) -> None:
        self._scores = scores
        self._changed: set[str] = set()
        self._known: set[tuple[int, int]] = set()
        """The number of the task and the attempt, where a number changed."""
        self._numbers: dict[str, tuple[Attempts, array[float]]] = {}
        """By name, attempts with the old number, and the new one; nan where it was not given."""

    def add(self, task_id: str, attempt: int, before: Numbers, after: Numbers) -> None:
        task_numbers = self._scores.both.task_numbers
        self._known.add((task_numbers.setdefault(task_id, len(task_numbers)), attempt))
        old = _named(before.components, before.metrics)
        new = _named(after.components, after.metrics)
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name):
                self._changed.add(name)
            self._extend(name, task_id, attempt, old.get(name), new.get(name))

    def add_unchanged(self, lines: Sequence[ScoredLine]) -> None:
        task_numbers = self._scores.both.task_numbers
        for line in lines:
            if (task_numbers.get(line.task_id, -1), line.attempt) in self._known:
                continue
            numbers = _named(line.components or {}, line.metrics or {})
            for name in self._changed & numbers.keys():
                self._extend(name, line.task_id, line.attempt, numbers[name], numbers[name])

    def leave_out_unscored(self) -> None:
        """Take attempts that lack a score for known, too: they count nowhere."""
        others = self._scores.others
        self._known.update(zip(others.tasks, others.attempts, strict=True))

    def effects(self) -> dict[str, Effect]:
        return {name: number_effect(*self._numbers[name]) for name in sorted(self._changed)}

    def _extend(
        self, name: str, task_id: str, attempt: int, before: float | None, after: float | None
    ) -> None:
        if name not in self._numbers:
            both = self._scores.both
            self._numbers[name] = Attempts(both.env, both.task_numbers), array("d")
        attempts, numbers = self._numbers[name]
        attempts.extend([task_id], [attempt], [math.nan if before is None else before])
        numbers.append(math.nan if after is None else after)


def _named(components: Mapping[str, float], metrics: Mapping[str, float]) -> dict[str, float]:
    named = {f"components.{name}": value for name, value in components.items()}
    return named | {f"metrics.{name}": value for name, value in metrics.items()}


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

    `asks_models` says of an environment whether its verifier asks models.
    """

    def __init__(self, num_repeats: int, asks_models: Callable[[str], bool]) -> None:
        self.num_scores = 0
        """Scores so far, with the failures."""
        self._num_repeats = num_repeats
        self._asks_models = asks_models
        self._rewards: dict[str, Attempts] = {}
        """By environment, those of all repeats one after another."""
        self._errors: Counter[str] = Counter()
        self._num_not_rescored = 0

    def add(self, batch: Sequence[Rescored], *, is_first: bool) -> None:
        """Add results of a repeat; what is not scored again is counted by the first one."""
        for item in batch:
            if not item.is_rescored:
                self._num_not_rescored += is_first
                continue
            self.num_scores += 1
            key, reward = item.key, item.new_reward
            if key.env not in self._rewards:
                self._rewards[key.env] = Attempts(key.env)
            rewards = [math.nan if reward is None else reward]
            self._rewards[key.env].extend([key.task_id], [key.attempt], rewards)
            if item.error is not None:
                self._errors[f"{item.error.error_class}: {item.error.message}"] += 1

    def check(self) -> None:
        """Look at the first repeat, before another is paid for.

        Raises:
            RunFileError: An attempt was there twice.

        """
        for _, rewards in sorted(self._rewards.items()):
            rewards.by_task()

    def report(self) -> RepeatReport:
        """Compare what all repeats gave."""
        report = RepeatReport(
            num_repeats=self._num_repeats,
            num_not_rescored=self._num_not_rescored,
            errors=dict(self._errors),
        )
        for env, rewards in sorted(self._rewards.items()):
            agreement = EnvironmentAgreement(asks_models=self._asks_models(env))
            _describe_noise(agreement, rewards, self._num_repeats)
            for task_id, attempts in _by_task(rewards):
                for attempt, own in attempts.items():
                    scored = [reward for reward in own if reward is not None]
                    agreement.num_rollouts += 1
                    if not scored:
                        agreement.num_failed += 1
                        continue
                    if len(set(own)) == 1:
                        continue
                    spread = max(scored) - min(scored)
                    agreement.num_disagreeing += 1
                    agreement.largest_spread = max(agreement.largest_spread, spread)
                    if len(report.disagreements) < _MAX_DISAGREEMENTS:
                        report.disagreements.append(
                            Disagreement(
                                env=env,
                                task_id=task_id,
                                attempt=attempt,
                                rewards=own,
                                spread=spread,
                            )
                        )
            num_scored = agreement.num_rollouts - agreement.num_failed
            if num_scored:
                agreement.agreement = 1.0 - agreement.num_disagreeing / num_scored
            report.environments[env] = agreement
            report.num_rollouts += agreement.num_rollouts
            report.num_disagreeing += agreement.num_disagreeing
            report.num_failed += agreement.num_failed
            report.largest_spread = max(report.largest_spread, agreement.largest_spread)
            if not agreement.asks_models:
                report.num_faulty += agreement.num_disagreeing
        return report


def _by_task(rewards: Attempts) -> Iterator[tuple[str, dict[int, list[float | None]]]]:
    tasks, attempts = np.asarray(rewards.tasks), np.asarray(rewards.attempts)
    order = np.lexsort((attempts, tasks))  # stable, so that repeats keep their order
    attempts, values = attempts[order], np.asarray(rewards.rewards)[order]
    starts = np.searchsorted(tasks[order], np.arange(len(rewards.task_numbers) + 1)).tolist()
    for task_id, (start, end) in zip(rewards.task_numbers, itertools.pairwise(starts), strict=True):
        found: dict[int, list[float | None]] = {}
        own = zip(attempts[start:end].tolist(), values[start:end].tolist(), strict=True)
        for attempt, reward in own:
            found.setdefault(attempt, []).append(None if math.isnan(reward) else reward)
        yield task_id, found


def _describe_noise(agreement: EnvironmentAgreement, rewards: Attempts, num_repeats: int) -> None:
    """Fill in what verifiers add to the error of the mean reward.

    The mean of a task's attempts differs from repeat to repeat only by its verifier, whatever that
    does to several attempts at once. The variance of the mean over tasks is the sum of these over
    the square of their number, and a part of the one that the standard error is of: that of the
    tasks' means is what lies between tasks and what lies within them (Miller 2024, arXiv
    2411.00640), here the verifier's.
    """
    task_means = [array("d") for _ in range(num_repeats)]
    task_variances, rollout_variances = array("d"), array("d")
    for _, attempts in _by_task(rewards):
        scored = [[one for one in own if one is not None] for own in attempts.values()]
        whole = [own for own in scored if len(own) == num_repeats]
        if not whole:
            continue
        by_repeat = [mean(own) for own in zip(*whole, strict=True)]
        for means, one in zip(task_means, by_repeat, strict=True):
            means.append(one)
        task_variances.append(variance(by_repeat))
        rollout_variances.extend(map(variance, whole))
    if not task_variances:
        return
    agreement.mean_rewards = [mean(means) for means in task_means]
    agreement.within_variance = mean(rollout_variances)
    of_mean = mean(task_variances) / len(task_variances)
    agreement.verifier_error = math.sqrt(of_mean)
    errors = [standard_error(means) for means in task_means]
    squares = [error**2 for error in errors if error is not None]
    if squares:
        square = mean(squares)
        agreement.standard_error = math.sqrt(square)
        agreement.verifier_share = min(1.0, of_mean / square) if square else None
