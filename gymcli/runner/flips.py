"""What rescoring a file changed, counted as it goes, and what that does to the numbers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gymcli.metrics import Effect, EnvironmentFacts, FailureLine, PairedMeans
from gymcli.rollout.rescored import Rescored
from gymcli.runner.measure import RunReading
from gymcli.store.rollout_files import read_structs
from gymcli.types import AttemptKey

if TYPE_CHECKING:
    from gymcli.metrics.comparison import TwiceScored
    from gymcli.runner.changed_numbers import ChangedNumbers

__all__ = ["Change", "Counting", "EnvironmentFlips", "Flips", "RescoringReport"]

_MAX_CHANGES = 1_000


class Change(msgspec.Struct, kw_only=True):
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
    both verifiers, and what `Environment.metrics` computes are not told."""


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
    changes: list[Change] = []
    """The first 1,000 changes."""
    environments: dict[str, EnvironmentFlips] = {}
    """What changed, by environment; those where nothing did are left out."""


class _Unpaired(NamedTuple):
    """A rollout that lacks one of its rewards."""

    attempt: int
    before: float | None
    after: float | None


class Counting:
    """Counts the results of a rescoring in a report.

    What a change does to the numbers is reckoned only where there is one, and what that takes to
    know of the run is asked for only then.

    Args:
        report: What is counted in.
        open_run: Looks at the run.

    """

    def __init__(self, report: RescoringReport, open_run: Callable[[], RunReading]) -> None:
        self._report = report
        self._open_run = open_run
        self._means = PairedMeans()
        self._unpaired: dict[str, dict[str, list[_Unpaired]]] = {}
        """By environment and task, rollouts that lack one of their scores."""

    def add(self, batch: list[Rescored]) -> None:
        """Count results."""
        report = self._report
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
        self._measure(batch)

    def end(self) -> None:
        """Fill in what takes all results: the means, and the effects where something changed.

        Raises:
            UsageError: A line is wrong, or an attempt was there twice.

        """
        report = self._report
        report.mean_before, report.mean_after = self._means.means()
        if report.environments:
            self._add_effects()

    @cached_property
    def _numbers(self) -> ChangedNumbers:
        from gymcli.runner.changed_numbers import ChangedNumbers  # late: heavy, as below

        return ChangedNumbers()

    def _add_effects(self) -> None:
        from gymcli.metrics.comparison import reward_effects  # late: heavy, and few runs change

        environments = self._report.environments
        of_rewards = [env for env, flips in environments.items() if flips.num_changed]
        failed = self._failed(of_rewards)
        for env in of_rewards:
            tasks = self._twice_scored(env, failed[env])
            environments[env].effects = reward_effects(tasks, self._facts(env))
        unscored = {
            AttemptKey(env, task_id, item.attempt)
            for env, tasks in self._unpaired.items()
            for task_id, items in tasks.items()
            for item in items
        }
        for env, effects in self._numbers.effects(self._run, unscored).items():
            environments[env].effects |= effects

    @cached_property
    def _run(self) -> RunReading:
        return self._open_run()

    def _facts(self, env: str) -> EnvironmentFacts:
        return self._run.facts.get(env, EnvironmentFacts())

    def _measure(self, batch: list[Rescored]) -> None:
        """Take the rewards by environment and task: few calls for many lines."""
        tasks: dict[tuple[str, str], list[Rescored]] = {}
        for item in batch:
            key = item.key
            if item.old_reward is None or item.new_reward is None:
                unpaired = _Unpaired(key.attempt, item.old_reward, item.new_reward)
                self._unpaired.setdefault(key.env, {}).setdefault(key.task_id, []).append(unpaired)
            else:
                tasks.setdefault((key.env, key.task_id), []).append(item)
        for env, members in itertools.groupby(tasks, key=operator.itemgetter(0)):
            own = list(members)
            items = [item for key in own for item in tasks[key]]
            self._means.add(
                env,
                [task_id for _, task_id in own],
                num_attempts=[len(tasks[key]) for key in own],
                attempts=[item.key.attempt for item in items],
                rewards=[item.old_reward or 0.0 for item in items],
                others=[item.new_reward or 0.0 for item in items],
            )

    def _count_changes(self, item: Rescored) -> None:
        report, env = self._report, item.key.env
        flips = report.environments.get(env)
        if flips is None:
            flips = report.environments[env] = EnvironmentFlips()
        if item.numbers is not None and None not in (item.old_reward, item.new_reward):
            self._numbers.add(item.key, *item.numbers)
        if not item.is_changed:
            flips.num_others += 1
            return
        reason = f"{item.old_reason or '-'} -> {item.new_reason or '-'}"
        report.reasons[reason] = report.reasons.get(reason, 0) + 1
        threshold = self._facts(env).success_threshold
        for counts in (report, flips, flips.reasons.setdefault(reason, Flips())):
            counts.add(item, threshold)
        if len(report.changes) < _MAX_CHANGES:
            report.changes.append(
                Change(
                    env=env,
                    task_id=item.key.task_id,
                    attempt=item.key.attempt,
                    old_reward=item.old_reward,
                    new_reward=item.new_reward,
                    reason=reason,
                )
            )

    def _failed(self, environments: list[str]) -> dict[str, dict[str, set[int]]]:
        """Give by environment and task the attempts on record that failed once or more."""
        found: dict[str, dict[str, set[int]]] = {env: {} for env in environments}
        if self._run.failures is not None:
            for line in read_structs(self._run.failures, msgspec.json.Decoder(FailureLine)):
                if line.env in found:
                    found[line.env].setdefault(line.task_id, set()).add(line.attempt)
        return found

    def _twice_scored(self, env: str, failed: dict[str, set[int]]) -> Iterator[TwiceScored]:
        """Give every task of an environment once, with what is not scored of it."""
        from gymcli.metrics.comparison import TwiceScored  # late: heavy, as in `_add_effects`

        unpaired = dict(self._unpaired.get(env, {}))
        failed = dict(failed)
        for task in self._means.tasks(env):
            lacking = _lacking(
                unpaired.pop(task.task_id, []),
                failed.pop(task.task_id, set()).difference(task.attempts),
            )
            yield TwiceScored(task.rewards, task.others, *lacking)
        for task_id in unpaired.keys() | failed.keys():
            lacking = _lacking(unpaired.get(task_id, []), failed.get(task_id, set()))
            yield TwiceScored((), (), *lacking)


def _lacking(
    unpaired: list[_Unpaired], failed: set[int]
) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """Give the old rewards and the new ones without a partner, and how many have neither."""
    return (
        tuple([item.before for item in unpaired if item.before is not None]),
        tuple([item.after for item in unpaired if item.after is not None]),
        sum(item.before is None and item.after is None for item in unpaired)
        + len(failed.difference([item.attempt for item in unpaired])),
    )
