"""The plan of a run: its attempts in order, and the settings of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.environment.registry import environment_options, prepare, split_env_args
from gymcli.errors import (
    BudgetAttemptError,
    CancelledAttemptError,
    CrashedAttemptError,
    EndpointGoneError,
    RunMismatchError,
)
from gymcli.models.endpoint import merged_params
from gymcli.models.roles import ORACLE, check_declared
from gymcli.rollout.episode import EpisodeLimits, EpisodePlan
from gymcli.runner.attempts import Attempt
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.identity import declared_sources
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.rollout_files import FAILURES, Done, DoneTasks, read_structs
from gymcli.store.run_directory import RunDirectory, Waiting, rescoring_command
from gymcli.store.tokens import neutral_params
from gymcli.tasks.task_source import Survey, TaskSource
from gymcli.types import (
    AttemptKey,
    ErrorRecord,
    RecordHead,
    Rollout,
    TaskRow,
    Usage,
    Verifier,
    is_other_source,
)

_NUM_NAMED = 3


class ResumeState(NamedTuple):
    """The state of a plan's attempts in a run directory when a run begins or is resumed."""

    num_done: Mapping[str, int] = {}
    """Planned attempts that are scored, by environment."""
    waiting: tuple[Waiting, ...] = ()
    """Finished conversations of planned attempts that have no score yet."""
    scored_members: tuple[Rollout, ...] = ()
    """Scored conversations that are scored again with the other attempts of their task."""
    removed_ids: tuple[str, ...] = ()
    """Ids of scored tasks that the files no longer hold."""
    num_others: Mapping[str, int] = {}
    """Scored attempts of tasks in the files that this plan does not select, by environment."""
    left_failed: frozenset[AttemptKey] = frozenset()
    """Planned attempts that failed before and are not retried, with the rest of their groups."""
    num_crashed: int = 0
    """Attempts among `left_failed` during which the process of a run died."""

    @property
    def warning(self) -> str | None:
        """A warning if tasks were removed from the files."""
        if not self.removed_ids:
            return None
        # In quotation marks where there are blanks: a table's file may hold "q1" as " q1 ".
        named = ", ".join(
            task_id if task_id.split() == [task_id] else msgspec.json.encode(task_id).decode()
            for task_id in self.removed_ids[:_NUM_NAMED]
        )
        named += ", ..." if len(self.removed_ids) > _NUM_NAMED else ""
        num = len(self.removed_ids)
        verb = "task is" if num == 1 else "tasks are"
        return f"{num} scored {verb} no longer in the files and not expected: {named}"


def _check_group(row: TaskRow, size: int, before: int) -> None:
    """Refuse to resume an incomplete group with another size; `before` is 0 for a new group."""
    if before in (0, size):
        return
    shown = " ".join(row.id.split())
    raise RunMismatchError(
        f'{row.place}: {size} attempts of task "{shown}" are to be scored together, but this run '
        f"began with {before}; use another --out, or --fresh for a new run"
    )


def _unchanged_tasks(
    rows: Iterator[TaskRow],
    done: Mapping[tuple[str, str], Done],
    pending: Mapping[AttemptKey, Waiting],
) -> Iterator[tuple[str, str]]:
    """Yield the tasks of the files; refuse one whose content changed since it was scored."""
    waiting = {(key.env, key.task_id): one.task_hash for key, one in pending.items()}
    for row in rows:
        key = (row.env, row.id)
        scored = done.get(key)
        before = waiting.get(key) if scored is None else scored.task_hash
        if before is not None and before != row.hash:
            shown = " ".join(row.id.split())
            raise RunMismatchError(
                f'{row.place}: the content of task "{shown}" has changed since it was collected; '
                "use another --out, or --fresh for a new run"
            )
        yield key


CUT_OFF = frozenset(
    kind.__name__ for kind in (CancelledAttemptError, BudgetAttemptError, EndpointGoneError)
)
"""Errors of attempts that failed because of what ended the run; these are always retried."""


class _FailedLine(RecordHead, kw_only=True):
    env: str
    task_id: str
    attempt: int
    error: ErrorRecord


def failed_attempts(
    folder: Path, *, only_crashed: bool = False
) -> tuple[set[AttemptKey], set[AttemptKey]]:
    """Return the attempts that failed, and those during which the process died.

    `only_crashed` leaves the first set, which may be large, empty.
    """
    path = folder / FAILURES
    failed: set[AttemptKey] = set()
    crashed: set[AttemptKey] = set()
    if not path.is_file():
        return failed, crashed
    for line in read_structs(path, msgspec.json.Decoder(_FailedLine)):
        key = line.key
        # Lines are in order of time, and the last line of an attempt decides.
        if line.error.error_class == CrashedAttemptError.__name__:
            crashed.add(key)
        else:
            crashed.discard(key)
        if line.error.error_class in CUT_OFF:
            failed.discard(key)
        elif not only_crashed:
            failed.add(key)
    return failed, crashed


def resumed_manifest(plan: Manifest, before: Manifest, state: ResumeState) -> Manifest:
    """Return the manifest of a run that this plan resumes.

    A narrower selection (`--limit`, `--task`, fewer `--repeats`) never lowers the expected counts
    of the same files: an attempt that failed stays expected.
    """
    hashes_now, hashes_before = (
        {file.get("sha256") for file in manifest.tasks} for manifest in (plan, before)
    )
    has_same_files = hashes_now == hashes_before
    is_scoring = plan.num_expected > sum(state.num_done.values()) + len(state.left_failed)
    environments = {}
    for name in {**before.environments, **plan.environments}:
        earlier = before.environments.get(name, EnvironmentRecord())
        record = plan.environments.get(name, earlier)
        planned = record.num_expected if name in plan.environments else 0
        # Scored attempts that this plan does not select remain part of the run.
        expected = planned + state.num_others.get(name, 0)
        of_all_shards = record.num_expected_of_all_shards
        if has_same_files:
            expected = max(expected, earlier.num_expected)
            of_all_shards = max(of_all_shards, earlier.num_expected_of_all_shards)
        # A command that scores nothing leaves the recorded code as it is.
        current = record.source_hash if is_scoring else earlier.source_hash
        hashes = dict.fromkeys((*earlier.earlier_source_hashes, earlier.source_hash))
        environments[name] = msgspec.structs.replace(
            record,
            source_hash=current,
            earlier_source_hashes=[one for one in hashes if one not in ("", current)],
            num_expected=expected,
            num_expected_of_all_shards=of_all_shards,
        )
    num_expected = sum(record.num_expected for record in environments.values())
    return msgspec.structs.replace(
        plan,
        environments=environments,
        # A narrower selection is no setting of the whole run.
        benchmark=plan.benchmark if num_expected == plan.num_expected else before.benchmark,
        num_expected=num_expected,
        started_at=before.started_at,
        ended_at=before.ended_at,
        seconds=before.seconds,
    )


def source_warnings(
    plan: Manifest, num_scored: Mapping[tuple[str, str], int], run: Path
) -> list[str]:
    """Return a warning for each environment of which other code has scored a part of the run.

    `num_scored` counts the rollouts on record by environment and source hash.
    """
    warnings = []
    for name, record in plan.environments.items():
        num_by_hash = {source: num for (env, source), num in num_scored.items() if env == name}
        num_others = sum(
            num
            for source, num in num_by_hash.items()
            if is_other_source(record.source_hash, source)
        )
        if not num_others:
            continue
        way_out = "--fresh starts a new run"
        if record.rescore != "recorded":
            way_out = f"{rescoring_command(run, plan)} scores all by the present code; {way_out}"
        warnings.append(
            f"environment {name}: its code changed, but its version is still {record.version}: "
            f"other code scored {num_others:,} of the {sum(num_by_hash.values()):,} rollouts on "
            f"record. {way_out}"
        )
    return warnings


class RunPlan:
    """The attempts of a run, from a survey of its tasks; `spend` is called with answers' usage.

    Raises:
        UsageError: An option of an environment is wrong, a role has no model, or an environment
            cannot be played here.
    """

    def __init__(
        self,
        source: TaskSource,
        options: CollectOptions,
        found: Survey,
        model: str,
        *,
        spend: Callable[[Usage, float | None], None] | None = None,
    ) -> None:
        self._source = source
        self._options = options
        self._model = model
        self._spend = spend
        endpoint = options.endpoint
        has_prices = endpoint is not None and endpoint.cost(Usage()) is not None
        self._cost = endpoint.cost if endpoint is not None and has_prices else None
        self._limits = EpisodeLimits(
            options.max_episode_tokens, options.max_episode_cost, options.max_episode_time
        )
        environments = found.environments
        self.records_tokens = options.records_tokens
        """Whether the token ids of every call are recorded."""
        self.neutral_params = neutral_params("model") if options.records_tokens else {}
        """Request parameters that nobody else set: those with which no token is cut off.

        An endpoint is probed for its own ones before the first attempt.
        """
        self.roles = declared_sources(options, environments)
        classes = {name: item.environment for name, item in environments.items()}
        check_declared(self.roles, (*options.roles, *options.role_params), classes)
        given = split_env_args(options.env_args, environments.values())
        self.group_sizes = found.group_sizes
        self.env_options = {
            name: environment_options(item.environment, name, given[name], {})
            for name, item in environments.items()
        }
        self._recorded_options = {
            name: one.model_dump(mode="json", exclude_defaults=True)
            for name, one in self.env_options.items()
        }
        self._attempts: dict[str, Attempt] = {}
        """What all attempts in an environment share, by its name."""
        for name, item in environments.items():
            prepare(item, self.env_options[name])
            verifier = Verifier(item.environment.version, item.source_hash)
            self._attempts[name] = Attempt(
                item.environment, self.env_options[name], verifier, plan=None
            )

    def self_judgement(self) -> list[str]:
        """Return a warning for each role that the policy's model plays."""
        policy = self._options.endpoint
        own = self._options.model if policy is None else (policy.base_url, policy.model)
        played = {
            role: source if isinstance(source, str) else (source.base_url, source.model)
            for role, source in self.roles.items()
        }
        return [
            f"the {role} is the policy itself ({self._model}): its judgement of its own answers is "
            "not independent, and training on it would train both"
            for role, who in played.items()
            if who == own and who != ORACLE
        ]

    def first(self, env: str | None = None) -> EpisodePlan:
        """Return the plan of the first attempt, of an environment or of all."""
        rows = (row for row in self._source.selected() if env in (None, row.env))
        return self._episode(next(rows), 0)

    def rows(self) -> Iterator[tuple[TaskRow, int]]:
        """Yield every attempt, done or not; attempts of one row are adjacent."""
        repeats = self._options.repeats
        for row in self._source.selected():
            first = row.first_attempt * repeats
            for attempt in range(first, first + repeats):
                yield row, attempt

    def selection(self, done: DoneTasks) -> frozenset[AttemptKey]:
        """Return the attempts of the selected tasks that are planned or scored."""
        keys = set()
        for row, attempt in self.rows():
            keys.add(AttemptKey(row.env, row.id, attempt))
            scored = done.get((row.env, row.id))
            if scored is not None and attempt == row.first_attempt * self._options.repeats:
                numbers = range(scored.attempts.bit_length())
                keys.update(AttemptKey(row.env, row.id, n) for n in numbers if scored.has(n))
        return frozenset(keys)

    def find(self, key: AttemptKey) -> EpisodePlan | None:
        """Return the plan of one attempt; None if it is not selected."""
        for row, attempt in self.rows():
            if AttemptKey(row.env, row.id, attempt) == key:
                return self._episode(row, attempt)
        return None

    def resume_state(self, directory: RunDirectory, done: DoneTasks) -> ResumeState:
        """Compare this plan with the records of a run directory, task by task.

        Raises:
            RunMismatchError: A task's content, or the size of its group, has changed since it was
                collected.
        """
        options = self._options
        pending = directory.pending(done)
        failed, crashed = failed_attempts(directory.path, only_crashed=not options.no_retry)
        if options.retry_crashed:
            failed, crashed = failed - crashed, set()
        if not (done or pending or failed or crashed):
            return ResumeState()
        failed = failed | crashed
        # Scoring such a conversation may have killed the process, so it is not scored again either.
        pending = {key: one for key, one in pending.items() if key not in crashed}
        removed = set(done)
        # All rows of the files: a task that `--limit` or `--task` leaves out is not removed.
        removed.difference_update(_unchanged_tasks(self._source.rows(), done, pending))
        sizes = {(key.env, key.task_id): one.group_size for key, one in pending.items()}
        broken = set()  # groups that cannot be scored, since one attempt is not retried
        for key in failed - pending.keys():
            task = (key.env, key.task_id)
            if self.group_sizes[task] and not (task in done and done[task].has(key.attempt)):
                broken.add(task)
        num_done: Counter[str] = Counter()
        waiting = []
        left_failed = set()
        for row, attempt in self.rows():
            scored = done.get((row.env, row.id))
            if scored is not None and scored.has(attempt):
                num_done[row.env] += 1
                continue
            if size := self.group_sizes[row.env, row.id]:
                before = 0 if scored is None else scored.group_size or scored.attempts.bit_count()
                _check_group(row, size, sizes.get((row.env, row.id), before))
            key = AttemptKey(row.env, row.id, attempt)
            found = pending.get(key)
            # A failed attempt with a finished conversation is only scored, and asks the policy
            # nothing.
            if (row.env, row.id) in broken or (found is None and key in failed):
                left_failed.add(key)
            elif found is not None:
                waiting.append(found)
        num_on_record: Counter[str] = Counter()
        for task, scored in done.items():
            if task not in removed:
                num_on_record[task[0]] += scored.attempts.bit_count()
        return ResumeState(
            num_done=num_done,
            waiting=tuple(waiting),
            scored_members=directory.scored_members(done),
            removed_ids=tuple(sorted(task_id for _, task_id in removed)),
            num_others=num_on_record - num_done,
            left_failed=frozenset(left_failed),
            num_crashed=len(left_failed & crashed),
        )

    def attempts(
        self,
        state: ResumeState,
        done: Mapping[tuple[str, str], Done],
        directory: RunDirectory | None,
        takes: Callable[[AttemptKey], bool] | None = None,
    ) -> Iterator[Attempt]:
        """Yield the remaining attempts: waiting conversations first, then all that are not done.

        Waiting conversations are read from the directory one by one. `takes` selects the attempts
        to play; without it, all are played.
        """
        left_out = set(state.left_failed)
        # First what only has to be scored: its requests to the policy are paid for.
        for waiting in state.waiting:
            left_out.add(waiting.key)
            if takes is None or takes(waiting.key):
                assert directory is not None, "a conversation waits in a directory"
                yield self._recorded(directory.conversation(waiting))
        for rollout in state.scored_members:
            if takes is None or takes(rollout.key):
                yield self._recorded(rollout)._replace(is_done=True)
        repeats = self._options.repeats
        for row in self._source.selected():
            scored = done.get((row.env, row.id))
            size = self.group_sizes[row.env, row.id]
            first = row.first_attempt * repeats
            for attempt in range(first, first + repeats):
                key = AttemptKey(row.env, row.id, attempt)
                if key in left_out or (scored is not None and scored.has(attempt)):
                    continue
                if takes is None or takes(key):
                    yield self.attempt(row, attempt, group_size=size)

    def attempt(self, row: TaskRow, number: int, *, group_size: int) -> Attempt:
        """Return one attempt of a task; `group_size` is as in `Attempt`."""
        plan = self._episode(row, number)
        return self._attempts[row.env]._replace(plan=plan, group_size=group_size)

    def _recorded(self, rollout: Rollout) -> Attempt:
        attempt = self._attempts[rollout.env]
        return attempt._replace(generation=rollout, group_size=rollout.group_size)

    def _episode(self, row: TaskRow, attempt: int) -> EpisodePlan:
        options = self._options
        defaults = options.endpoint.params if options.endpoint else {}
        return EpisodePlan(
            row=row,
            attempt=attempt,
            environment=self._attempts[row.env].environment,
            options=self.env_options[row.env],
            env_options=self._recorded_options[row.env],
            model=self._model,
            params=merged_params(self.neutral_params, defaults, row.params, options.params),
            run_seed=options.seed or 0,
            sends_seed=options.seed is not None,
            max_turns=options.max_turns,
            records_tokens=self.records_tokens,
            limits=self._limits,
            cost=self._cost,
            spend=self._spend,
        )
