"""Scores a run again, or what of it waits for a score.

`Rescoring` says what changed and why, and writes a new run where one is wanted; `score_pending`
appends scores to the run itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from gymcli.environment.registry import Registry, environment_options, split_env_args
from gymcli.environment.remote import RemoteEnvironment
from gymcli.errors import RunDirectoryError, RunMismatchError, TasksError
from gymcli.models.roles import check_declared, check_missing, declared_roles
from gymcli.rollout.line_scoring import Rescored
from gymcli.runner.attempts import Attempt, Outcome, run_attempts
from gymcli.runner.identity import rescored_manifest, role_identities
from gymcli.runner.judges import Judges, open_shared
from gymcli.runner.measure import measure, open_run
from gymcli.runner.plan import failed_attempts
from gymcli.runner.rescoring_report import (
    RepeatReport,
    Repeats,
    RescoringCounter,
    RescoringReport,
)
from gymcli.runner.verifying import find_recorded, iterate_async, recorded_environments, rescore_run
from gymcli.store.manifest import Manifest, differences, read_manifest
from gymcli.store.rollout_files import FAILURES, GENERATIONS, read_structs, rollouts_file
from gymcli.store.run_directory import RunDirectory, check_unused, new_run_directory
from gymcli.store.tasks import RowProblem, read_row_fields
from gymcli.store.verdicts import Verdicts, copy_verdicts
from gymcli.types import (
    SCHEMA_VERSION,
    AttemptKey,
    ErrorRecord,
    Failure,
    JSONObject,
    Rollout,
    Verifier,
)

if TYPE_CHECKING:
    from gymcli.runner.ray_driver import RayEngine

__all__ = ["Pending", "Rescoring", "score_pending"]

T = TypeVar("T")


class Rescoring:
    """Rescoring of one run directory or rollout file.

    Args:
        run: The directory or file, ours or NeMo Gym's.
        env: The environment of lines that name none, or one given as code.
        env_args: `[ENV.]key` to value, as texts.
        task_files: Task rows that a rollout file of others lacks the fields of.
        judges: Who plays the roles that verifiers ask.
        out: A directory for the rescored run; it must be new or empty, and holds the run once that
            is whole. What an earlier try left in it is done again, but no judge is asked again.
        engine: What scores the lines whose verifiers wait for nobody; else this machine does.

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
        engine: RayEngine | None = None,
    ) -> None:
        self.warnings: list[str] = []
        """What the user should know; more may come while it runs."""
        self._judges = judges or Judges()
        self._run = run
        self._env = env
        self._out = out
        self._engine = engine
        rollouts_file(run)
        self._row_fields = _row_fields(task_files)
        self._manifest = read_manifest(run) if run.is_dir() else None
        self._found = recorded_environments(run, env)
        classes = {name: found.environment for name, found in self._found.items()}
        self.warnings += check_missing(self._judges.missing, classes)
        self._env_args = split_env_args(env_args or {}, self._found.values())
        if out is not None:
            check_unused(out)

    def run(self, *, watch: Callable[[RescoringReport], None] | None = None) -> RescoringReport:
        """Rescore every line and return what changed; `watch` is called as the report grows.

        Raises:
            UsageError: A line, an environment or an option is wrong.
            RunDirectoryError: `out` cannot be written.

        """
        report = RescoringReport()
        counting = RescoringCounter(report, lambda: open_run(self._run, env=self._env))
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
                self._close_out(directory, num_lines)
        counting.end()
        return report

    def repeat(
        self, num_repeats: int, *, watch: Callable[[Repeats], None] | None = None
    ) -> RepeatReport:
        """Score every line several times and return how far verifiers agree with themselves.

        Nothing is kept: neither scores nor what judges answer, and judges are asked what they have
        answered before. `watch` is called as scores come.

        Raises:
            UsageError: A line, an environment or an option is wrong, or an attempt is there twice.

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
        """Return the roles that have a model which scoring may ask."""
        declared = {
            role for found in self._found.values() for role in declared_roles(found.environment)
        }
        return sorted(declared & self._judges.sources.keys())

    def _asks_models(self, env: str) -> bool:
        """Return whether a verifier may ask models; of a server it is not known, so that it may."""
        registry = Registry((self._env,) if self._env else ())
        found = self._found.get(env) or find_recorded(registry, env, self._run)
        if issubclass(found.environment, RemoteEnvironment):
            return True
        return any(role in self._judges.sources for role in declared_roles(found.environment))

    def _rescored(
        self, directory: RunDirectory | None, *, repeat: int = 0
    ) -> Iterator[list[Rescored]]:
        batches = rescore_run(
            self._run,
            self._found,
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
        """Make the new run, with what it takes over: failures, what waits, judges' answers."""
        if self._out is None:
            return None
        directory = stack.enter_context(new_run_directory(self._out, self._judges.scrubber()))
        directory.write_manifest(self._rescored_manifest({}))
        if self._run.is_dir():
            for failure in _records(self._run / FAILURES, Failure):
                directory.append_failure(failure)
            for rollout in _records(self._run / GENERATIONS, Rollout):
                directory.append_generation(rollout)
            copy_verdicts(self._run, directory.path, directory.scrubber)
        return directory

    def _close_out(self, directory: RunDirectory, num_lines: Mapping[str, int]) -> None:
        """Write the end of the new run: its manifest and its metrics."""
        directory.write_manifest(self._rescored_manifest(num_lines))
        aggregator = measure(directory.path, env=self._env)
        directory.write_metrics(msgspec.json.encode(aggregator.metrics()))
        self.warnings += aggregator.warnings

    def _rescored_manifest(self, num_lines: Mapping[str, int]) -> Manifest:
        return rescored_manifest(
            self._manifest,
            self._found,
            env_args=self._env_args,
            judges=self._judges,
            num_lines=num_lines,
        )


def _row_fields(task_files: Sequence[Path]) -> dict[str, JSONObject]:
    """Read the fields of task rows, by id and by the index that NeMo Gym gives a row."""
    fields: dict[str, JSONObject] = {}
    for item in read_row_fields(task_files):
        if isinstance(item, RowProblem):
            raise TasksError(str(item))
        fields[f"#{item.task_index}"] = fields[item.id] = item.fields
    return fields


def _write(directory: RunDirectory, item: Rescored) -> None:
    if item.error is None:
        directory.append_rollout(item.line)
        return
    directory.append_generation(item.line)
    directory.append_failure(
        Failure(
            schema_version=SCHEMA_VERSION,
            env=item.key.env,
            task_id=item.key.task_id,
            attempt=item.key.attempt,
            error=ErrorRecord(
                error_class=item.error.error_class,
                phase="verify",
                message=item.error.message,
                frames=item.error.frames,
            ),
        )
    )


def _records(path: Path, kind: type[T]) -> Iterator[T]:
    return read_structs(path, msgspec.json.Decoder(kind)) if path.is_file() else iter(())


class Pending(NamedTuple):
    """What became of the conversations that waited for their score."""

    num_scored: int = 0
    num_failed: int = 0
    num_crashed: int = 0
    """Left alone: the process of the run died as they were played or scored."""


async def score_pending(
    run: Path,
    *,
    env: str | None = None,
    judges: Judges | None = None,
    leave: Callable[[str], None] | None = None,
    engine: RayEngine | None = None,
) -> Pending:
    """Score the finished conversations of a run that wait for it, and append them.

    They are scored as the run's identity says, so all stay waiting where an environment has
    another version now, or a role another model or other parameters. A run in which none waits is
    not touched, and may be read-only. Those of crashed attempts are left alone: only `gym collect
    --retry-crashed` tries them again.

    Args:
        run: The run directory.
        env: An environment given as code.
        judges: Who plays the roles.
        leave: Called with the reason where they must stay waiting; without it that is an error.
        engine: Where they are scored; without one in this process.

    Raises:
        UsageError: A line, an environment or a role is wrong.
        RunMismatchError: The run was made with other settings.
        RunDirectoryError: Another process writes the run, or it cannot be written.

    """
    judges = judges or Judges()
    registry = Registry((env,) if env else ())
    directory = RunDirectory(run, judges.scrubber())
    if not (run / GENERATIONS).is_file():
        return Pending()  # nothing waits: reading which attempts are done can be spared
    done = directory.done()
    waiting = directory.pending(done)
    crashed = failed_attempts(run, only_crashed=True).crashed & waiting.keys() if waiting else ()
    waiting = {key: one for key, one in waiting.items() if key not in crashed}
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
    """Compare what would score the conversations of environments with what the run says.

    Raises:
        UsageError: A required role has no model, or an option names a role that nobody has.
        RunMismatchError: A score would not be one of this run; the message says why.

    """
    manifest = read_manifest(run)
    waiting = {name: find_recorded(registry, name, run).environment for name in sorted(names)}
    classes = dict(waiting)
    if judges.given and manifest is not None:  # other environments may have the roles
        for name in manifest.environments:
            classes[name] = find_recorded(registry, name, run, manifest).environment
    check_missing(judges.missing, waiting)
    check_declared(judges.sources, judges.given, classes)
    if manifest is None:
        return
    recorded = manifest.environments
    there: JSONObject = {"environments": {name: recorded[name].version for name in recorded}}
    here: JSONObject = {"environments": {name: waiting[name].version for name in waiting}}
    if manifest.identity:
        roles = {role for environment in waiting.values() for role in declared_roles(environment)}
        asked = {role: source for role, source in judges.sources.items() if role in roles}
        here["roles"] = role_identities(asked, judges.params)
        before = manifest.identity.get("roles")
        if isinstance(before, dict):
            there["roles"] = {role: before[role] for role in before if role in roles}
        else:
            there["roles"] = {}
    if found := differences(there, here):
        raise RunMismatchError(
            f"{run}: this run was made with other settings: {'; '.join(found)}. Leave them as they "
            f"were, or score with these in a new run: gym verify {run} --out DIR, then gym verify "
            "DIR --pending"
        )


def _pending_attempts(
    directory: RunDirectory, registry: Registry, crashed: Collection[AttemptKey]
) -> Iterator[Attempt]:
    """Yield what waits, and the attempts that are scored already of groups that wait."""
    done = directory.done()
    for key, waiting in directory.pending(done).items():
        if key not in crashed:
            rollout = directory.conversation(waiting)
            yield _pending_attempt(rollout, registry, directory.path, is_done=False)
    for rollout in directory.scored_members(done):
        yield _pending_attempt(rollout, registry, directory.path, is_done=True)


def _pending_attempt(rollout: Rollout, registry: Registry, run: Path, *, is_done: bool) -> Attempt:
    found = find_recorded(registry, rollout.env, run)
    return Attempt(
        found.environment,
        environment_options(found.environment, found.name, {}, rollout.env_options),
        Verifier(found.environment.version, found.source_hash),
        None,
        rollout,
        rollout.group_size,
        is_done,
    )
