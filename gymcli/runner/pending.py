"""Scores the finished conversations of a run that still wait for their score."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gymcli.environment.registry import Registry, environment_options
from gymcli.errors import RunDirectoryError, RunMismatchError
from gymcli.models.roles import check_declared, check_missing, declared_roles
from gymcli.runner.attempts import Attempt, Outcome
from gymcli.runner.episodes import run_attempts
from gymcli.runner.identity import role_identities
from gymcli.runner.judging import Judges, judging
from gymcli.runner.plan import failed_attempts
from gymcli.runner.verifying import find_recorded
from gymcli.store.manifest import differences, read_manifest
from gymcli.store.run_directory import GENERATIONS, RunDirectory
from gymcli.store.verdicts import Verdicts
from gymcli.types import AttemptKey, Failure, JSONObject, Rollout, Verifier

if TYPE_CHECKING:
    from gymcli.runner.ray_driver import RayEngine

__all__ = ["Pending", "score_pending"]


class Pending(NamedTuple):
    """What became of the conversations that waited for their score."""

    num_scored: int = 0
    num_failed: int = 0
    num_crashed: int = 0
    """Left alone: the process of the run died when they were played or scored."""


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
        leave: Where they must stay waiting, it takes the reason; without it that is an error.
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
        return Pending()  # without reading which attempts are done: each line is read again anyway
    done = directory.done()
    waiting = directory.pending(done)
    crashed = failed_attempts(run, only_crashed=True).crashed & waiting.keys() if waiting else ()
    waiting = {key: one for key, one in waiting.items() if key not in crashed}
    if not waiting:
        return Pending(num_crashed=len(crashed))
    with closing(directory):
        try:
            _check_settings(run, registry, {key.env for key in waiting}, judges)
            directory.lock()
            directory.mend()
        except (RunMismatchError, RunDirectoryError) as error:
            if leave is None:
                raise
            leave(f"{len(waiting)} conversations still wait for their score: {error}")
            return Pending(num_crashed=len(crashed))
        attempts = _attempts(directory, registry, crashed)
        pending = await _score(directory, attempts, judges, engine)
        return pending._replace(num_crashed=len(crashed))


def _check_settings(run: Path, registry: Registry, names: set[str], judges: Judges) -> None:
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


async def _score(
    directory: RunDirectory, attempts: Iterator[Attempt], judges: Judges, engine: RayEngine | None
) -> Pending:
    def keep(outcome: Outcome) -> Outcome:
        if isinstance(outcome.record, Rollout):
            directory.append_rollout(outcome.record)
        else:
            directory.append_failure(outcome.record)
        return outcome

    num_scored = num_failed = 0
    verdicts = Verdicts(directory.path, scrubber=directory.scrubber)
    async with judging(judges, verdicts) as shared:
        run = run_attempts if engine is None else engine.run
        outcomes = run(attempts, shared, concurrency=judges.concurrency, keep=keep)
        async with aclosing(outcomes):
            async for record in outcomes:
                num_scored += isinstance(record, Rollout)
                num_failed += isinstance(record, Failure)
    return Pending(num_scored, num_failed)


def _attempts(
    directory: RunDirectory, registry: Registry, crashed: Collection[AttemptKey]
) -> Iterator[Attempt]:
    """Yield what waits, and the attempts that are scored already of groups that wait."""
    done = directory.done()
    for key, waiting in directory.pending(done).items():
        if key not in crashed:
            rollout = directory.conversation(waiting)
            yield _attempt(rollout, registry, directory.path, is_done=False)
    for rollout in directory.mates(done):
        yield _attempt(rollout, registry, directory.path, is_done=True)


def _attempt(rollout: Rollout, registry: Registry, run: Path, *, is_done: bool) -> Attempt:
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
