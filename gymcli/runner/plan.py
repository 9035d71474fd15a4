"""Every attempt of a run in its order, and what each of them is played and scored with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
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
from gymcli.models.roles import ORACLE, check_declared
from gymcli.rollout.episode import EpisodeLimits, EpisodePlan
from gymcli.runner.attempts import Attempt
from gymcli.runner.identity import declared_sources, merged_params
from gymcli.runner.options import CollectOptions
from gymcli.runner.survey import GroupSizes, Survey
from gymcli.runner.task_source import TaskSource
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.run_directory import FAILURES, Done, DoneTasks, Waiting, read_structs
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

__all__ = [
    "FailedAttempts",
    "Plan",
    "Standing",
    "carried_on",
    "compare",
    "failed_attempts",
    "source_warnings",
]


_NUM_NAMED = 3


class Standing(NamedTuple):
    """What of a plan is done already."""

    num_done: int = 0
    """Planned attempts that are scored."""
    waiting: tuple[Waiting, ...] = ()
    """Finished conversations of planned attempts that have no score yet."""
    mates: tuple[Rollout, ...] = ()
    """Conversations that are scored, of tasks whose other attempts wait to be scored with them."""
    gone: tuple[str, ...] = ()
    """Ids of scored tasks that the files no longer hold."""
    num_others: Mapping[str, int] = {}
    """Scored attempts that the files hold and this plan leaves out, by environment."""
    left_failed: frozenset[AttemptKey] = frozenset()
    """Planned attempts that failed before and are not tried again, with all that would be scored
    together with them."""
    num_crashed: int = 0
    """Those of them with which the process of a run died."""

    @property
    def warning(self) -> str | None:
        """What to say of tasks that are gone."""
        if not self.gone:
            return None
        named = ", ".join(" ".join(task_id.split()) for task_id in self.gone[:_NUM_NAMED])
        named += ", ..." if len(self.gone) > _NUM_NAMED else ""
        verb = "task is" if len(self.gone) == 1 else "tasks are"
        return f"{len(self.gone)} scored {verb} no longer in the files and not expected: {named}"


def compare(
    source: TaskSource,
    planned: Iterable[tuple[TaskRow, int]],
    done: DoneTasks,
    pending: Mapping[AttemptKey, Waiting],
    group_sizes: GroupSizes,
    failed: AbstractSet[AttemptKey] = frozenset(),
    crashed: AbstractSet[AttemptKey] = frozenset(),
) -> Standing:
    """Compare a plan with what a run has on record, task by task.

    Args:
        source: The tasks.
        planned: Every attempt of the plan.
        done: What is scored already.
        pending: What waits for its score.
        group_sizes: Planned attempts of each task that are scored together.
        failed: Attempts that are not tried again, unless they only wait for their score.
        crashed: Attempts that are neither tried again nor scored.

    Raises:
        RunMismatchError: A task was collected from a row with other content, or more or fewer
            of its attempts were to be scored together.

    """
    if not (done or pending or failed or crashed):
        return Standing()
    if crashed:
        failed = failed | crashed
        pending = {key: one for key, one in pending.items() if key not in crashed}
    gone = set(done)
    gone.difference_update(_unchanged(source.rows(), done, pending))
    sizes = {(key.env, key.task_id): one.group_size for key, one in pending.items()}
    num_done: Counter[str] = Counter()
    waiting = []
    left_failed = set()
    broken = _broken_groups(group_sizes, done, pending, failed)
    for row, attempt in planned:
        scored = done.get((row.env, row.id))
        if scored is not None and scored.has(attempt):
            num_done[row.env] += 1
            continue
        if size := group_sizes.of(row.env, row.id):
            before = 0 if scored is None else scored.group_size or scored.attempts.bit_count()
            _check_group(row, size, sizes.get((row.env, row.id), before))
        key = AttemptKey(row.env, row.id, attempt)
        found = pending.get(key)
        if (row.env, row.id) in broken or (found is None and key in failed):
            left_failed.add(key)
        elif found is not None:
            waiting.append(found)
    num_there: Counter[str] = Counter()
    for task, scored in done.items():
        if task not in gone:
            num_there[task[0]] += scored.attempts.bit_count()
    return Standing(
        num_done=num_done.total(),
        waiting=tuple(waiting),
        gone=tuple(sorted(task_id for _, task_id in gone)),
        num_others=num_there - num_done,
        left_failed=frozenset(left_failed),
        num_crashed=len(left_failed & crashed),
    )


def _broken_groups(
    group_sizes: GroupSizes,
    done: Mapping[tuple[str, str], Done],
    pending: Mapping[AttemptKey, Waiting],
    failed: AbstractSet[AttemptKey],
) -> set[tuple[str, str]]:
    """Give the tasks whose attempts will not be scored, as one of them is not tried again."""
    broken = set()
    for key in failed - pending.keys():
        task = (key.env, key.task_id)
        scored = done.get(task)
        if group_sizes.of(*task) and not (scored is not None and scored.has(key.attempt)):
            broken.add(task)
    return broken


def _check_group(row: TaskRow, size: int, before: int) -> None:
    """Refuse a group that is not whole yet and is planned in another size; 0 before: it is new."""
    if before in (0, size):
        return
    shown = " ".join(row.id.split())
    raise RunMismatchError(
        f'{row.place}: {size} attempts of task "{shown}" are to be scored together, and {before} '
        "of them were in this run; give another --out, or --fresh for a new run"
    )


def _unchanged(
    rows: Iterator[TaskRow],
    done: Mapping[tuple[str, str], Done],
    pending: Mapping[AttemptKey, Waiting],
) -> Iterator[tuple[str, str]]:
    """Give the tasks that the files hold; refuse one whose content changed since it was scored."""
    waiting = {(key.env, key.task_id): one.task_hash for key, one in pending.items()}
    for row in rows:
        key = (row.env, row.id)
        scored = done.get(key)
        before = waiting.get(key) if scored is None else scored.task_hash
        if before is not None and before != row.hash:
            shown = " ".join(row.id.split())
            raise RunMismatchError(
                f'{row.place}: task "{shown}" has other content than when it was collected; '
                "give another --out, or --fresh for a new run"
            )
        yield key


_CUT_OFF = frozenset(
    kind.__name__ for kind in (CancelledAttemptError, BudgetAttemptError, EndpointGoneError)
)


class _FailedLine(RecordHead, kw_only=True):
    """A line of failures.jsonl, as far as it says what failed."""

    env: str
    task_id: str
    attempt: int
    error: ErrorRecord


class FailedAttempts(NamedTuple):
    """Attempts whose last line in failures.jsonl says that they failed by themselves."""

    failed: AbstractSet[AttemptKey] = frozenset()
    """Of all classes; those that the end of a run cut off did not fail."""
    crashed: AbstractSet[AttemptKey] = frozenset()
    """Those with which the process of a run died."""


def failed_attempts(folder: Path, *, only_crashed: bool = False) -> FailedAttempts:
    """Read which attempts failed by themselves.

    Args:
        folder: The run directory.
        only_crashed: Leave `failed` empty, which may be large.

    Raises:
        RunFileError: A line is damaged.

    """
    path = folder / FAILURES
    failed: set[AttemptKey] = set()
    crashed: set[AttemptKey] = set()
    if not path.is_file():
        return FailedAttempts()
    for line in read_structs(path, msgspec.json.Decoder(_FailedLine)):
        key = line.key
        if line.error.error_class == CrashedAttemptError.__name__:
            crashed.add(key)
        else:
            crashed.discard(key)
        if line.error.error_class in _CUT_OFF:
            failed.discard(key)
        elif not only_crashed:
            failed.add(key)
    return FailedAttempts(failed, crashed)


def carried_on(plan: Manifest, before: Manifest, standing: Standing) -> Manifest:
    """Describe a run that this plan goes on with.

    A selection (`--limit`, `--task`, fewer `--repeats`) never makes less expected than the run
    planned before from the same files: an attempt that failed stays expected.
    """
    has_same_files = _hashes(plan) == _hashes(before)
    is_scoring = plan.num_expected > standing.num_done + len(standing.left_failed)
    environments = {}
    for name in {**before.environments, **plan.environments}:
        earlier = before.environments.get(name, EnvironmentRecord())
        record = plan.environments.get(name, earlier)
        planned = record.num_expected if name in plan.environments else 0
        expected = planned + standing.num_others.get(name, 0)
        of_all_shards = record.num_expected_of_all_shards
        if has_same_files:
            expected = max(expected, earlier.num_expected)
            of_all_shards = max(of_all_shards, earlier.num_expected_of_all_shards)
        current = record.source_hash if is_scoring else earlier.source_hash
        hashes = dict.fromkeys((*earlier.earlier_source_hashes, earlier.source_hash))
        environments[name] = msgspec.structs.replace(
            record,
            source_hash=current,
            earlier_source_hashes=[one for one in hashes if one not in ("", current)],
            num_expected=expected,
            num_expected_of_all_shards=of_all_shards,
        )
    return msgspec.structs.replace(
        plan,
        environments=environments,
        num_expected=sum(record.num_expected for record in environments.values()),
        started_at=before.started_at,
        ended_at=before.ended_at,
        seconds=before.seconds,
    )


def source_warnings(plan: Manifest, before: Manifest) -> list[str]:
    """Return a warning for each environment whose code differs from what scored the run so far."""
    found = []
    for name, record in plan.environments.items():
        earlier = before.environments.get(name, EnvironmentRecord()).source_hash
        if is_other_source(record.source_hash, earlier):
            found.append(
                f"environment {name}: its code changed after a part of this run was scored, but "
                f"its version is still {record.version}: the rest is scored by the new code. gym "
                "verify RUN --out DIR scores the whole run by it; --fresh starts a new run"
            )
    return found


def _hashes(manifest: Manifest) -> set[object]:
    return {file.get("sha256") for file in manifest.tasks}


class Plan:
    """What a run is to do.

    Args:
        source: The tasks.
        options: What is asked for.
        found: What the tasks need.
        model: The policy's name on record.
        spend: Told what every answer of the policy took.

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
        self.roles = declared_sources(options, environments)
        """The models beside the policy, of those roles that the environments have."""
        classes = {name: item.environment for name, item in environments.items()}
        check_declared(self.roles, (*options.roles, *options.role_params), classes)
        given = split_env_args(options.env_args, environments.values())
        self.group_sizes = found.group_sizes
        """Planned attempts of each task whose attempts are scored together."""
        self.env_options = {
            name: environment_options(item.environment, name, given[name], {})
            for name, item in environments.items()
        }
        self._recorded_options = {
            name: given_options.model_dump(mode="json", exclude_defaults=True)
            for name, given_options in self.env_options.items()
        }
        for name, item in environments.items():
            prepare(item, self.env_options[name])
        self._attempts = {
            name: Attempt(
                item.environment,
                self.env_options[name],
                Verifier(item.environment.version, item.source_hash),
                plan=None,
            )
            for name, item in environments.items()
        }
        """By environment, what is the same of all attempts."""

    def self_judgement(self) -> list[str]:
        """Warn of roles that the policy itself plays."""
        policy = self._options.endpoint
        own = self._options.model if policy is None else (policy.base_url, policy.model)
        played = {
            role: source if isinstance(source, str) else (source.base_url, source.model)
            for role, source in self.roles.items()
        }
        return [
            f"the {role} is the policy itself ({self._model}): what it says of its own answers is "
            "no independent measure, and training on it would train both"
            for role, who in played.items()
            if who == own and who != ORACLE
        ]

    def first(self) -> EpisodePlan:
        """Give the plan of the first attempt."""
        return self._episode(next(self._source.selected()), 0)

    def rows(self) -> Iterator[tuple[TaskRow, int]]:
        """Give every attempt, done or not; those of one row follow each other."""
        repeats = self._options.repeats
        for row in self._source.selected():
            first = row.first_attempt * repeats
            for attempt in range(first, first + repeats):
                yield row, attempt

    def find(self, key: AttemptKey) -> EpisodePlan | None:
        """Return the plan of one attempt; None where it is not selected."""
        for row, attempt in self.rows():
            if AttemptKey(row.env, row.id, attempt) == key:
                return self._episode(row, attempt)
        return None

    def attempts(
        self,
        standing: Standing,
        done: Mapping[tuple[str, str], Done],
        takes: Callable[[AttemptKey], bool] | None = None,
        *,
        read: Callable[[Waiting], Rollout],
    ) -> Iterator[Attempt]:
        """Yield what is left to do: waiting conversations first, then everything not done.

        Args:
            standing: What is left.
            done: What is scored.
            takes: Returns whether an attempt is to be played now; None: all are.
            read: Reads a conversation that waits, when it is its turn.

        """
        left_out = set(standing.left_failed)
        for waiting in standing.waiting:
            left_out.add(waiting.key)
            if takes is None or takes(waiting.key):
                yield self._recorded(read(waiting))
        for rollout in standing.mates:
            if takes is None or takes(rollout.key):
                yield self._recorded(rollout)._replace(is_done=True)
        is_new = not done
        for row, attempt in self.rows():
            scored = None if is_new else done.get((row.env, row.id))
            if scored is not None and scored.has(attempt):
                continue
            if left_out and AttemptKey(row.env, row.id, attempt) in left_out:
                continue
            if takes is not None and not takes(AttemptKey(row.env, row.id, attempt)):
                continue
            environment, options, verifier, *_ = self._attempts[row.env]
            size = self.group_sizes.of(row.env, row.id)
            yield Attempt(
                environment, options, verifier, self._episode(row, attempt), group_size=size
            )

    def _recorded(self, rollout: Rollout) -> Attempt:
        return self._attempts[rollout.env]._replace(
            generation=rollout, group_size=rollout.group_size
        )

    def _episode(self, row: TaskRow, attempt: int) -> EpisodePlan:
        options = self._options
        environment = self._attempts[row.env].environment
        return EpisodePlan(
            row=row,
            attempt=attempt,
            environment=environment,
            options=self.env_options[row.env],
            env_version=environment.version,
            env_options=self._recorded_options[row.env],
            model=self._model,
            params=merged_params(row.params, options.params),
            run_seed=options.seed or 0,
            sends_seed=options.seed is not None,
            max_turns=options.max_turns,
            limits=self._limits,
            cost=self._cost,
            spend=self._spend,
        )
