"""What the directory of a run holds of a plan's attempts when the run begins or is resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymcli.errors import CrashedAttemptError, RunMismatchError
from gymcli.runner.attempts import Attempt
from gymcli.runner.plan import RunPlan
from gymcli.runner.stopping import CUT_OFF
from gymcli.store.manifest import EnvironmentRecord, Manifest, read_manifest
from gymcli.store.rollout_files import FAILURES, Done, DoneTasks, read_structs
from gymcli.store.run_directory import RunDirectory, Waiting, rescoring_command
from gymcli.store.shards import check_same_shard
from gymcli.types import (
    AttemptKey,
    ErrorRecord,
    RecordHead,
    Rollout,
    TaskRow,
    is_other_source,
)

_NUM_NAMED = 3


class ResumeState(NamedTuple):
    """The state of a plan's attempts in a run directory when a run begins or is resumed."""

    manifest: Manifest
    """The plan's, with what earlier commands of the run have expected and recorded."""
    left: Counter[str] = Counter()
    """Planned attempts that are neither scored nor in `left_failed`, by environment."""
    done: DoneTasks = {}
    """The scored attempts of each task, planned or not."""
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
    selection: frozenset[AttemptKey] | None = None
    """The attempts, planned or scored, of the tasks that `--limit` or `--task` selects; None if
    the run holds no other tasks."""
    warnings: tuple[str, ...] = ()
    """Warnings about what is on record."""

    @property
    def num_scored(self) -> int:
        return sum(self.num_done.values())

    @property
    def num_left(self) -> int:
        return self.left.total()

    @property
    def most_attempts(self) -> int:
        """The most attempts on record of a task; 0 if there are none."""
        return max((task.attempts.bit_count() for task in self.done.values()), default=0)

    @property
    def removed_warning(self) -> str | None:
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


def new_state(plan: RunPlan) -> ResumeState:
    return ResumeState(plan.manifest, plan.num_planned)


def existing_state(plan: RunPlan) -> ResumeState:
    """Return the state of the plan's run, without changing its directory, if there is one.

    Raises:
        RunMismatchError: The directory holds another run.
    """
    if plan.path is None or not plan.path.is_dir():
        return new_state(plan)
    directory = RunDirectory(plan.path, plan.scrubber)
    directory.check_identity(plan.manifest.identity)
    return read_state(plan, directory)


def read_state(plan: RunPlan, directory: RunDirectory) -> ResumeState:
    """Compare a plan with the records of its run directory, task by task.

    Raises:
        RunMismatchError: The run is of other tasks or another shard, or the content of a task, or
            the size of its group, has changed since it was collected.
    """
    before = read_manifest(directory.path)
    if before is not None:
        check_same_shard(directory.path, before.shard, plan.manifest.shard)
    num_scored: Counter[tuple[str, str]] = Counter()
    done = directory.done(num_scored)
    state = _attempts_on_record(plan, directory, done)
    # The default name has no hash of the tasks, so files of the same name lead to one directory.
    if plan.options.out is None and done and len(state.removed_ids) == len(done):
        raise RunMismatchError(
            f"{directory.path}: holds a run of other tasks, none of which is in these files; "
            "choose another directory with --out"
        )
    warnings = [] if state.removed_warning is None else [state.removed_warning]
    manifest, selection = plan.manifest, None
    if before is not None:
        warnings += source_warnings(plan.manifest, num_scored, directory.path)
        manifest = resumed_manifest(plan.manifest, before, state)
        if plan.options.limit is not None or plan.options.task_ids:
            attempts = _selected_attempts(plan, done)
            selection = attempts if len(attempts) < manifest.num_expected else None
    return state._replace(manifest=manifest, selection=selection, warnings=tuple(warnings))


def _selected_attempts(plan: RunPlan, done: DoneTasks) -> frozenset[AttemptKey]:
    keys: set[AttemptKey] = set()
    for row in plan.rows():
        numbers = set(plan.numbers(row))
        scored = done.get((row.env, row.id))
        if scored is not None:
            numbers.update(filter(scored.has, range(scored.attempts.bit_length())))
        keys.update(AttemptKey(row.env, row.id, number) for number in numbers)
    return frozenset(keys)


def _attempts_on_record(plan: RunPlan, directory: RunDirectory, done: DoneTasks) -> ResumeState:
    pending = directory.pending(done)
    failed, crashed = failed_attempts(directory.path, only_crashed=not plan.options.no_retry)
    if plan.options.retry_crashed:
        failed, crashed = failed - crashed, set()
    if not (done or pending or failed or crashed):
        return new_state(plan)
    failed = failed | crashed
    # Scoring such a conversation may have killed the process, so it is not scored again either.
    pending = {key: conversation for key, conversation in pending.items() if key not in crashed}
    # Of all rows of the files: a task that `--limit` or `--task` leaves out is not removed.
    removed = _removed_tasks(plan.source.rows(), done, pending)
    sizes = {(key.env, key.task_id): line.group_size for key, line in pending.items()}
    broken = _broken_groups(plan, failed - pending.keys(), done)
    num_done: Counter[str] = Counter()
    waiting = []
    left_failed = set()
    for row in plan.rows():
        task = (row.env, row.id)
        scored = done.get(task)
        for number in plan.numbers(row):
            if scored is not None and scored.has(number):
                num_done[row.env] += 1
                continue
            if size := plan.survey.group_sizes[task]:
                before = 0 if scored is None else scored.group_size or scored.attempts.bit_count()
                _check_group(row, size, sizes.get(task, before))
            key = AttemptKey(*task, number)
            conversation = pending.get(key)
            # A failed attempt with a finished conversation is only scored, and asks the policy
            # nothing.
            if task in broken or (conversation is None and key in failed):
                left_failed.add(key)
            elif conversation is not None:
                waiting.append(conversation)
    return ResumeState(
        plan.manifest,
        plan.num_planned - num_done - Counter(key.env for key in left_failed),
        done=done,
        num_done=num_done,
        waiting=tuple(waiting),
        scored_members=directory.scored_members(done),
        removed_ids=tuple(sorted(task_id for _, task_id in removed)),
        num_others=_num_on_record(done, removed) - num_done,
        left_failed=frozenset(left_failed),
        num_crashed=len(left_failed & crashed),
    )


def _num_on_record(done: DoneTasks, removed: set[tuple[str, str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for task, scored in done.items():
        if task not in removed:
            counts[task[0]] += scored.attempts.bit_count()
    return counts


def _broken_groups(
    plan: RunPlan, failed: Iterable[AttemptKey], done: DoneTasks
) -> set[tuple[str, str]]:
    """Return the tasks whose group cannot be scored, since one attempt is not retried."""
    broken = set()
    for key in failed:
        task = (key.env, key.task_id)
        if plan.survey.group_sizes[task] and not (task in done and done[task].has(key.attempt)):
            broken.add(task)
    return broken


def remaining_attempts(
    plan: RunPlan,
    state: ResumeState,
    directory: RunDirectory | None,
    takes: Callable[[AttemptKey], bool] | None = None,
) -> Iterator[Attempt]:
    """Yield the attempts that are left: waiting conversations first, then all that are not done.

    Waiting conversations are read from the directory one by one. `takes` selects the attempts to
    yield; without it, all are.
    """
    settings, group_sizes = plan.settings, plan.survey.group_sizes
    omitted = set(state.left_failed)
    # First what only has to be scored: its requests to the policy are paid for.
    for waiting in state.waiting:
        omitted.add(waiting.key)
        if takes is None or takes(waiting.key):
            assert directory is not None, "a conversation waits in a directory"
            yield settings.recorded(directory.conversation(waiting))
    for rollout in state.scored_members:
        if takes is None or takes(rollout.key):
            yield settings.recorded(rollout)._replace(is_done=True)
    for row in plan.rows():
        scored = state.done.get((row.env, row.id))
        size = group_sizes[row.env, row.id]
        for number in plan.numbers(row):
            key = AttemptKey(row.env, row.id, number)
            if key in omitted or (scored is not None and scored.has(number)):
                continue
            if takes is None or takes(key):
                yield settings.attempt(row, number, group_size=size)


def _check_group(row: TaskRow, size: int, before: int) -> None:
    """Refuse to resume an incomplete group with another size; `before` is 0 for a new group."""
    if before in (0, size):
        return
    name = " ".join(row.id.split())
    raise RunMismatchError(
        f'{row.place}: {size} attempts of task "{name}" are to be scored together, but this run '
        f"began with {before}; use another --out, or --fresh for a new run"
    )


def _removed_tasks(
    rows: Iterator[TaskRow],
    done: Mapping[tuple[str, str], Done],
    pending: Mapping[AttemptKey, Waiting],
) -> set[tuple[str, str]]:
    """Return the scored tasks that no row has; refuse a row that changed since it was collected.

    Rows after those of all tasks on record are not read.
    """
    removed = set(done)
    waiting = {(key.env, key.task_id): line.task_hash for key, line in pending.items()}
    for row in rows:
        task = (row.env, row.id)
        scored = done.get(task)
        recorded_hash = waiting.get(task) if scored is None else scored.task_hash
        if recorded_hash is not None and recorded_hash != row.hash:
            name = " ".join(row.id.split())
            raise RunMismatchError(
                f'{row.place}: the content of task "{name}" has changed since it was collected; '
                "use another --out, or --fresh for a new run"
            )
        removed.discard(task)
        waiting.pop(task, None)
        if not (removed or waiting):
            break
    return removed


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
        num_in_all_shards = record.num_expected_of_all_shards
        if has_same_files:
            expected = max(expected, earlier.num_expected)
            num_in_all_shards = max(num_in_all_shards, earlier.num_expected_of_all_shards)
        # A command that scores nothing leaves the recorded code as it is.
        current = record.source_hash if is_scoring else earlier.source_hash
        hashes = dict.fromkeys((*earlier.earlier_source_hashes, earlier.source_hash))
        environments[name] = msgspec.structs.replace(
            record,
            source_hash=current,
            earlier_source_hashes=[
                source_hash for source_hash in hashes if source_hash not in ("", current)
            ],
            num_expected=expected,
            num_expected_of_all_shards=num_in_all_shards,
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
