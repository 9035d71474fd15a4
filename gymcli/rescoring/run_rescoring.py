"""Scores a run again, or scores the conversations of a run that wait for it.

`Rescoring` reports what changed, by reason and with the effect on the numbers, and how far repeats
agree; it can write a new run. `score_pending` appends scores to the run itself.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from gymcli.comparison.paired_differences import PairedAttempts, number_effects, reward_effects
from gymcli.environment.registry import Registry, environment_options, split_env_args
from gymcli.environment.remote import RemoteEnvironment
from gymcli.errors import RunDirectoryError, RunMismatchError, TasksError
from gymcli.metrics.estimators import mean, row_variances, standard_error, variance
from gymcli.metrics.measure import RunReading, measure, open_run
from gymcli.metrics.results import Effect
from gymcli.models.roles import check_declared, check_missing, declared_roles
from gymcli.rescoring.file_rescoring import (
    find_recorded,
    iterate_async,
    recorded_environments,
    rescore_run,
)
from gymcli.rescoring.line_rescoring import Rescored
from gymcli.runner.attempts import Attempt, Engine, Outcome, run_attempts
from gymcli.runner.identity import rescored_manifest, role_identities
from gymcli.runner.judges import Judges, open_shared
from gymcli.runner.resume_state import failed_attempts
from gymcli.store.attempt_table import AttemptTable
from gymcli.store.manifest import Manifest, differences, read_manifest
from gymcli.store.rollout_files import (
    FAILURES,
    GENERATIONS,
    read_structs,
    rollout_lines,
    rollouts_file,
)
from gymcli.store.run_directory import RunDirectory, check_unused, new_run_directory
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine
from gymcli.store.tokens import tokens_file
from gymcli.store.verdicts import Verdicts, copy_verdicts
from gymcli.tasks.task_files import RowProblem, read_row_fields
from gymcli.types import (
    SCHEMA_VERSION,
    AttemptKey,
    ErrorRecord,
    Failure,
    JSONObject,
    Rollout,
    Verifier,
)

_MAX_CHANGES = 1_000
_MAX_DISAGREEMENTS = 1_000
"""A report lists no more; its counts include all."""

T = TypeVar("T")


class Rescoring:
    """The rescoring of one run directory or rollout file, of gymcli or NeMo Gym.

    `env` names the environment of lines that name none, or the code of one; `env_args` maps
    `[ENV.]key` to value; `task_files` hold fields that a foreign rollout file lacks. `out` must be
    new or empty, and holds the rescored run once that is complete; a second try repeats the scoring
    but asks no judge twice. An `engine` scores the lines whose verifiers await nothing.

    Raises:
        UsageError: A path, a name or an option is wrong.
    """

    def __init__(
        self,
        run: Path,
        *,
        env: str | None = None,
        env_args: Mapping[str, str] | None = None,
        task_files: Sequence[Path] = (),
        judges: Judges | None = None,
        out: Path | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self._judges = judges or Judges()
        self._run = run
        self._env = env
        self._out = out
        self._engine = engine
        # Called for its error if there is no such run or file.
        rollouts_file(run)
        self._row_fields = _row_fields(task_files)
        self._manifest = read_manifest(run) if run.is_dir() else None
        self._environments = recorded_environments(run, env)
        registrations = self._environments.items()
        classes = {name: registration.environment for name, registration in registrations}
        self.warnings += check_missing(self._judges.missing, classes)
        self._env_args = split_env_args(env_args or {}, self._environments.values())
        if out is not None:
            check_unused(out)

    def run(self, *, watch: Callable[[RescoringReport], None] | None = None) -> RescoringReport:
        """Rescore every line and return what changed; call `watch` as the report grows."""
        report = RescoringReport()
        counting = RescoringCounter(report, self._run, self._env)
        num_lines: Counter[str] = Counter()
        with ExitStack() as stack:
            directory = self._opened_out(stack)
            for batch in self._rescored(directory):
                counting.add(batch)
                if directory is not None:
                    for item in batch:
                        num_lines[item.key.env] += 1
                        _write(directory, item)
                if watch is not None:
                    watch(report)
            if directory is not None:
                # Again, with the expected attempts of a bare file: the number of its lines, known
                # only now.
                directory.write_manifest(self._rescored_manifest(num_lines))
                aggregator = measure(directory.path, env=self._env)
                directory.write_metrics(msgspec.json.encode(aggregator.metrics()))
                self.warnings += aggregator.warnings
        counting.end()
        return report

    def repeat(
        self, num_repeats: int, *, watch: Callable[[Repeats], None] | None = None
    ) -> RepeatReport:
        """Score every line several times and return how far verifiers agree with themselves.

        Neither scores nor judges' answers are stored, and known answers of judges are asked for
        again. `watch` is called as scores arrive.
        """
        repeats = Repeats(num_repeats, self._asks_models)
        for number in range(1, num_repeats + 1):
            for batch in self._rescored(None, repeat=number):
                repeats.add(batch, is_first=number == 1)
                if watch is not None:
                    watch(repeats)
            if number == 1:
                repeats.check()
        return repeats.report()

    def models_asked(self) -> list[str]:
        """Return the roles whose model scoring may ask."""
        declared = {
            role
            for registration in self._environments.values()
            for role in declared_roles(registration.environment)
        }
        return sorted(declared & self._judges.sources.keys())

    def _asks_models(self, env: str) -> bool:
        """Return whether a verifier may ask models; assumed of servers, which do not tell."""
        registry = Registry((self._env,) if self._env else ())
        registration = self._environments.get(env) or find_recorded(registry, env, self._run)
        if issubclass(registration.environment, RemoteEnvironment):
            return True
        return any(
            role in self._judges.sources for role in declared_roles(registration.environment)
        )

    def _rescored(
        self, directory: RunDirectory | None, *, repeat: int = 0
    ) -> Iterator[list[Rescored]]:
        batches = rescore_run(
            self._run,
            self._environments,
            env=self._env,
            env_args=self._env_args,
            row_fields=self._row_fields,
            judges=self._judges,
            keeps_lines=directory is not None,
            out=None if directory is None else directory.path,
            warn=self.warnings.append,
            engine=self._engine,
            repeat=repeat,
        )
        return iterate_async(batches)

    def _opened_out(self, stack: ExitStack) -> RunDirectory | None:
        if self._out is None:
            return None
        directory = stack.enter_context(new_run_directory(self._out, self._judges.scrubber()))
        directory.write_manifest(self._rescored_manifest({}))
        # The new run expects these attempts too, and its waiting conversations can still be scored.
        if self._run.is_dir():
            for failure in _records(self._run / FAILURES, Failure):
                directory.append_failure(failure)
            for rollout in _records(self._run / GENERATIONS, Rollout):
                directory.append_generation(rollout)
            copy_verdicts(self._run, directory.path, directory.scrubber)
        tokens = tokens_file(self._run)
        if tokens.is_file():
            for line in rollout_lines(tokens):
                directory.append_tokens(line.data)
        return directory

    def _rescored_manifest(self, num_lines: Mapping[str, int]) -> Manifest:
        return rescored_manifest(
            self._manifest,
            self._environments,
            env_args=self._env_args,
            judges=self._judges,
            num_lines=num_lines,
        )


def _row_fields(task_files: Sequence[Path]) -> dict[str, JSONObject]:
    fields: dict[str, JSONObject] = {}
    for item in read_row_fields(task_files):
        if isinstance(item, RowProblem):
            raise TasksError(str(item))
        # Rollouts of NeMo Gym name their row by its position in the file, or by an id.
        fields[f"#{item.task_index}"] = fields[item.id] = item.fields
    return fields


def _write(directory: RunDirectory, item: Rescored) -> None:
    if item.error is None:
        directory.append_rollout(item.line)
        return
    # Without a score it is a waiting conversation of the new run, which can be scored later.
    directory.append_generation(item.line)
    reply = item.error
    error = ErrorRecord(
        error_class=reply.error_class, phase="verify", message=reply.message, frames=reply.frames
    )
    key = msgspec.structs.asdict(item.key)
    directory.append_failure(Failure(schema_version=SCHEMA_VERSION, **key, error=error))


def _records(path: Path, kind: type[T]) -> Iterator[T]:
    return read_structs(path, msgspec.json.Decoder(kind)) if path.is_file() else iter(())


class Pending(msgspec.Struct):
    """The result of `score_pending`."""

    num_scored: int = 0
    num_failed: int = 0
    num_crashed: int = 0
    """Conversations left unscored because the run's process died while they were in flight."""


async def score_pending(
    run: Path,
    *,
    env: str | None = None,
    judges: Judges | None = None,
    leave: Callable[[str], None] | None = None,
    engine: Engine | None = None,
) -> Pending:
    """Score the finished conversations of a run that have no score, and append the results.

    Scoring must match the run's identity: if the version of an environment, or the model or the
    parameters of a role, have changed, all stay unscored. A run without such conversations is not
    touched, and may be read-only. Crashed attempts are skipped: only `gym collect --retry-crashed`
    retries them. `env` is the code of an environment; `leave` is called with the reason if the
    conversations must stay unscored, which is an error without `leave`.

    Raises:
        UsageError: A line, an environment or a role is wrong.
        RunMismatchError: The run was made with other settings.
        RunDirectoryError: Another process writes the run, or it cannot be written.
    """
    judges = judges or Judges()
    registry = Registry((env,) if env else ())
    directory = RunDirectory(run, judges.scrubber())
    if not (run / GENERATIONS).is_file():
        return Pending()  # skip reading which attempts are done
    done = directory.done()
    waiting = directory.pending(done)
    crashed = failed_attempts(run, only_crashed=True)[1] & waiting.keys() if waiting else ()
    waiting = {key: conversation for key, conversation in waiting.items() if key not in crashed}
    if not waiting:
        return Pending(num_crashed=len(crashed))
    with closing(directory):
        try:
            _check_identity(run, registry, {key.env for key in waiting}, judges)
            directory.lock()
            directory.mend()
        except (RunMismatchError, RunDirectoryError) as error:
            if leave is None:
                raise
            leave(f"{len(waiting)} conversations still wait for their score: {error}")
            return Pending(num_crashed=len(crashed))
        attempts = _pending_attempts(directory, registry, crashed)
        num_scored = num_failed = 0

        def append(outcome: Outcome) -> Outcome:
            if isinstance(outcome.record, Rollout):
                directory.append_rollout(outcome.record)
            else:
                directory.append_failure(outcome.record)
            return outcome

        verdicts = Verdicts(directory.path, scrubber=directory.scrubber)
        async with open_shared(judges, verdicts) as shared:
            score = run_attempts if engine is None else engine.run
            records = score(attempts, shared, concurrency=judges.concurrency, write=append)
            async with aclosing(records):
                async for record in records:
                    num_scored += isinstance(record, Rollout)
                    num_failed += isinstance(record, Failure)
        return Pending(num_scored, num_failed, len(crashed))


def _check_identity(run: Path, registry: Registry, names: set[str], judges: Judges) -> None:
    manifest = read_manifest(run)
    waiting = {name: find_recorded(registry, name, run).environment for name in sorted(names)}
    classes = dict(waiting)
    if (
        judges.named_roles and manifest is not None
    ):  # a role may belong to an environment not waiting
        for name in manifest.environments:
            classes[name] = find_recorded(registry, name, run, manifest).environment
    check_missing(judges.missing, waiting)
    check_declared(judges.sources, judges.named_roles, classes)
    if manifest is None:
        return
    recorded = manifest.environments
    recorded_settings: JSONObject = {
        "environments": {name: recorded[name].version for name in recorded}
    }
    settings: JSONObject = {"environments": {name: waiting[name].version for name in waiting}}
    if manifest.identity:
        roles = {role for environment in waiting.values() for role in declared_roles(environment)}
        sources = {role: source for role, source in judges.sources.items() if role in roles}
        settings["roles"] = role_identities(sources, judges.params)
        before = manifest.identity.get("roles")
        if isinstance(before, dict):
            recorded_settings["roles"] = {role: before[role] for role in before if role in roles}
        else:
            recorded_settings["roles"] = {}
    if changed_settings := differences(recorded_settings, settings):
        raise RunMismatchError(
            f"{run}: this run was made with other settings: {'; '.join(changed_settings)}. Use "
            f"those settings, or score with these in a new run: gym verify {run} --out DIR, then "
            "gym verify DIR --pending"
        )


def _pending_attempts(
    directory: RunDirectory, registry: Registry, crashed: Collection[AttemptKey]
) -> Iterator[Attempt]:
    # Read again under the lock: another process may have scored some of them meanwhile.
    done = directory.done()
    waiting = (
        directory.conversation(conversation)
        for key, conversation in directory.pending(done).items()
        if key not in crashed
    )
    for is_done, rollouts in ((False, waiting), (True, directory.scored_members(done))):
        for rollout in rollouts:
            registration = find_recorded(registry, rollout.env, directory.path)
            yield Attempt(
                registration.environment,
                environment_options(
                    registration.environment, registration.name, {}, rollout.env_options
                ),
                Verifier(registration.environment.version, registration.source_hash),
                None,
                rollout,
                rollout.group_size,
                is_done,
            )


class RewardChange(msgspec.Struct, kw_only=True):
    """One rollout whose reward changed."""

    env: str
    task_id: str
    attempt: int
    old_reward: float | None
    new_reward: float | None
    reason: str = ""


class Flips(msgspec.Struct, kw_only=True):
    """Rollouts whose reward changed, by direction."""

    num_changed: int = 0
    """All of them, including those with no direction because one verifier did not score them."""
    num_up: int = 0
    num_down: int = 0
    num_fail_to_pass: int = 0
    """Rollouts that pass only with the new reward; 0 without a pass threshold."""
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
    """The changes of one environment's rollouts."""

    num_others: int = 0
    """Rollouts with the same reward but a changed component or other number."""
    reasons: dict[str, Flips] = {}
    effects: dict[str, Effect] = {}
    """The effect on the numbers, by the names that gates use; components and other numbers that are
    absent did not change. `majority@K`, which would need both verifiers' answers of all rollouts,
    and the numbers of `Environment.metrics` are not included."""


class RescoringReport(Flips, kw_only=True):
    """The result of rescoring a file."""

    num_rescored: int = 0
    num_failed: int = 0
    num_not_rescored: int = 0
    """Rollouts that keep their score, since the world of their environment cannot be replayed."""
    mean_before: float | None = None
    """Mean of task means of the recorded rewards, over attempts that have both scores."""
    mean_after: float | None = None
    """Mean of task means of the new rewards, over the same attempts."""
    reasons: dict[str, int] = {}
    errors: dict[str, int] = {}
    changes: list[RewardChange] = []
    environments: dict[str, EnvironmentFlips] = {}
    """The changes by environment; environments without changes are left out."""


class RescoringCounter:
    """Counts the results of a rescoring in a report."""

    def __init__(self, report: RescoringReport, path: Path, env: str | None) -> None:
        self._report = report
        self._path, self._env = path, env
        self._scores: dict[str, PairedAttempts] = {}
        """By environment, the old and the new scores."""

    def add(self, batch: Sequence[Rescored]) -> None:
        """Count results."""
        report = self._report
        by_environment: dict[str, list[Rescored]] = {}
        for item in batch:
            if not item.is_rescored:
                report.num_not_rescored += 1
            elif item.error is not None:
                report.num_failed += 1
                text = f"{item.error.error_class}: {item.error.message}"
                report.errors[text] = report.errors.get(text, 0) + 1
            else:
                report.num_rescored += 1
            if item.new_numbers is not None or item.is_changed:
                self._count_change(item)
            by_environment.setdefault(item.key.env, []).append(item)
        for env, items in by_environment.items():
            if env not in self._scores:
                self._scores[env] = PairedAttempts(env)
            scores = self._scores[env]
            first_row, keys = len(scores.a), [item.key for item in items]
            old_numbers = [item.old_numbers for item in items]
            new_numbers = [item.new_numbers or item.old_numbers for item in items]
            for table, rewards, numbers in (
                (scores.a, [item.old_reward for item in items], old_numbers),
                (scores.b, [item.new_reward for item in items], new_numbers),
            ):
                table.extend(
                    [key.task_id for key in keys],
                    [key.attempt for key in keys],
                    reward=[math.nan if reward is None else reward for reward in rewards],
                )
                for kind in ("components", "metrics"):
                    table.extend_named(kind, first_row, [getattr(n, kind, None) for n in numbers])

    def end(self) -> None:
        """Fill in what needs all results: the means and, after changes, their effects."""
        report = self._report
        means = [scores.means() for _, scores in sorted(self._scores.items())]
        known_means = [pair for pair in means if pair is not None]
        if len(known_means) == 1:  # a mean over several environments would be meaningless
            [(report.mean_before, report.mean_after)] = known_means
        self._add_failures([env for env, flips in report.environments.items() if flips.num_changed])
        for env, flips in report.environments.items():
            if flips.num_changed:
                flips.effects = reward_effects(self._scores[env], self._facts(env))
            flips.effects |= number_effects(self._scores[env])

    @cached_property
    def _run(self) -> RunReading:
        return open_run(self._path, env=self._env)

    def _facts(self, env: str) -> EnvironmentFacts:
        return self._run.facts.get(env, EnvironmentFacts())

    def _count_change(self, item: Rescored) -> None:
        report, key = self._report, item.key
        flips = report.environments.setdefault(key.env, EnvironmentFlips())
        if not item.is_changed:
            flips.num_others += 1
            return
        reason = f"{item.old_reason or '-'} -> {item.new_reason or '-'}"
        report.reasons[reason] = report.reasons.get(reason, 0) + 1
        threshold = self._facts(key.env).success_threshold
        for counts in (report, flips, flips.reasons.setdefault(reason, Flips())):
            counts.add(item, threshold)
        if len(report.changes) < _MAX_CHANGES:
            change = RewardChange(
                **msgspec.structs.asdict(key),
                old_reward=item.old_reward,
                new_reward=item.new_reward,
                reason=reason,
            )
            report.changes.append(change)

    def _add_failures(self, environments: Sequence[str]) -> None:
        """Add the attempts that have no rollout, without a score before and after."""
        if not environments or self._run.failures is None:
            return
        failed: dict[str, set[tuple[str, int]]] = {env: set() for env in environments}
        for line in read_structs(self._run.failures, msgspec.json.Decoder(FailureLine)):
            if line.env in failed:
                failed[line.env].add((line.task_id, line.attempt))
        for env, keys in failed.items():
            self._scores[env].add_unscored(keys)


class Disagreement(msgspec.Struct, kw_only=True):
    """One rollout whose scores differ between repeats."""

    env: str
    task_id: str
    attempt: int
    rewards: list[float | None]
    """In the order of the repeats; None if the verifier failed."""
    spread: float


class EnvironmentAgreement(msgspec.Struct, kw_only=True):
    """How far the verifier of one environment agrees with itself."""

    asks_models: bool
    """Whether it may ask models or a server, so that scores can vary."""
    num_rollouts: int = 0
    num_disagreeing: int = 0
    """Rollouts whose rewards differ, or that were scored in some repeats only."""
    num_failed: int = 0
    agreement: float | None = None
    """The share of scored rollouts whose scores agree; None if no rollout has a score."""
    largest_spread: float = 0.0
    mean_rewards: list[float] = []
    """The mean over tasks in each repeat, of rollouts that all repeats scored."""
    within_variance: float | None = None
    """Of a rollout's reward over the repeats; averaged over rollouts that all repeats scored."""
    standard_error: float | None = None
    """Of one repeat's mean reward over tasks: the root mean square over repeats."""
    verifier_error: float | None = None
    """The verifier's part of that, if its errors are independent between tasks; if they are not,
    `mean_rewards` vary more than this."""
    verifier_share: float | None = None
    """The verifier's share of the variance of the mean, at most 1; None if there is no variance."""


class RepeatReport(msgspec.Struct, kw_only=True):
    """The result of scoring the same rollouts several times."""

    num_repeats: int
    num_rollouts: int = 0
    num_disagreeing: int = 0
    num_faulty: int = 0
    """Disagreements of verifiers that ask no model, and so should always agree."""
    num_failed: int = 0
    num_not_rescored: int = 0
    """Rollouts of environments whose world cannot be replayed; they are not scored again."""
    largest_spread: float = 0.0
    errors: dict[str, int] = {}
    disagreements: list[Disagreement] = []
    environments: dict[str, EnvironmentAgreement] = {}


class Repeats:
    """Collects the rewards of every repeat, in a few bytes each.

    `asks_models` returns whether the verifier of an environment asks models.
    """

    def __init__(self, num_repeats: int, asks_models: Callable[[str], bool]) -> None:
        self.num_scores = 0
        """Scores so far, including failures."""
        self._num_repeats = num_repeats
        self._asks_models = asks_models
        self._rewards: dict[str, AttemptTable] = {}
        """By environment, the rewards of all repeats one after another."""
        self._errors: Counter[str] = Counter()
        self._num_not_rescored = 0

    def add(self, batch: Sequence[Rescored], *, is_first: bool) -> None:
        """Add results of a repeat; lines that keep their score count in the first repeat only."""
        for item in batch:
            if not item.is_rescored:
                self._num_not_rescored += is_first
                continue
            self.num_scores += 1
            key, reward = item.key, item.new_reward
            if key.env not in self._rewards:
                self._rewards[key.env] = AttemptTable(key.env, {"reward": "d"})
            rewards = [math.nan if reward is None else reward]
            self._rewards[key.env].extend([key.task_id], [key.attempt], reward=rewards)
            if item.error is not None:
                self._errors[f"{item.error.error_class}: {item.error.message}"] += 1

    def check(self) -> None:
        """Raise an error if the first repeat has an attempt twice, before paying for another."""
        for _, rewards in sorted(self._rewards.items()):
            rewards.by_task()

    def report(self) -> RepeatReport:
        """Compare the results of all repeats."""
        report = RepeatReport(
            num_repeats=self._num_repeats,
            num_not_rescored=self._num_not_rescored,
            errors=dict(self._errors),
        )
        for env, rewards in sorted(self._rewards.items()):
            agreement = EnvironmentAgreement(asks_models=self._asks_models(env))
            _describe_noise(agreement, rewards, self._num_repeats)
            for task_id, attempts in _by_task(rewards):
                for attempt, rewards_of_attempt in attempts.items():
                    scored = [reward for reward in rewards_of_attempt if reward is not None]
                    agreement.num_rollouts += 1
                    if not scored:
                        agreement.num_failed += 1
                        continue
                    if len(set(rewards_of_attempt)) == 1:
                        continue
                    spread = max(scored) - min(scored)
                    agreement.num_disagreeing += 1
                    agreement.largest_spread = max(agreement.largest_spread, spread)
                    disagreement = Disagreement(
                        env=env,
                        task_id=task_id,
                        attempt=attempt,
                        rewards=rewards_of_attempt,
                        spread=spread,
                    )
                    if len(report.disagreements) < _MAX_DISAGREEMENTS:
                        report.disagreements.append(disagreement)
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


def _by_task(table: AttemptTable) -> Iterator[tuple[str, dict[int, list[float | None]]]]:
    """Yield the rewards of each task's attempts, in the order of the repeats."""
    tasks, attempts = table["task"], table["attempt"]
    order = np.lexsort((attempts, tasks))  # stable, so that repeats keep their order
    attempts, rewards = attempts[order], table["reward"][order]
    starts = np.searchsorted(tasks[order], np.arange(len(table.task_numbers) + 1)).tolist()
    for task_id, (start, end) in zip(table.task_numbers, itertools.pairwise(starts), strict=True):
        rewards_of: dict[int, list[float | None]] = {}
        scores = zip(attempts[start:end].tolist(), rewards[start:end].tolist(), strict=True)
        for attempt, reward in scores:
            rewards_of.setdefault(attempt, []).append(None if math.isnan(reward) else reward)
        yield task_id, rewards_of


def _describe_noise(
    agreement: EnvironmentAgreement, rewards: AttemptTable, num_repeats: int
) -> None:
    """Fill in the verifier's part of the error of the mean reward.

    A task's mean differs between repeats only because of its verifier.
    """
    task_means = [array("d") for _ in range(num_repeats)]
    task_variances, rollout_variances = array("d"), array("d")
    for _, attempts in _by_task(rewards):
        scored = [
            [reward for reward in rewards_of_attempt if reward is not None]
            for rewards_of_attempt in attempts.values()
        ]
        # A rollout that failed in one repeat would move the mean of that repeat only.
        complete = [
            rewards_of_attempt
            for rewards_of_attempt in scored
            if len(rewards_of_attempt) == num_repeats
        ]
        if not complete:
            continue
        by_repeat = [mean(rewards_of_attempt) for rewards_of_attempt in zip(*complete, strict=True)]
        for means, task_mean in zip(task_means, by_repeat, strict=True):
            means.append(task_mean)
        task_variances.append(variance(by_repeat))
        rollout_variances.extend(row_variances(np.array(complete)).tolist())
    if not task_variances:
        return
    agreement.mean_rewards = [mean(means) for means in task_means]
    agreement.within_variance = mean(rollout_variances)
    # The variance of a mean over tasks is the sum of their variances, divided by the square of
    # their number.
    variance_of_mean = mean(task_variances) / len(task_variances)
    agreement.verifier_error = math.sqrt(variance_of_mean)
    errors = [standard_error(means) for means in task_means]
    squares = [error**2 for error in errors if error is not None]
    if squares:
        square = mean(squares)
        agreement.standard_error = math.sqrt(square)
        # The variance of task means is the variance between tasks plus that within them (Miller
        # 2024, arXiv 2411.00640), which here is the verifier's.
        agreement.verifier_share = min(1.0, variance_of_mean / square) if square else None
