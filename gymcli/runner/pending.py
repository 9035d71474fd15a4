"""Scores the finished conversations of a run that still wait for their score."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from gymcli.registry import Registry, environment_options
from gymcli.role_models import check_declared
from gymcli.runner.attempts import Attempt, Outcome
from gymcli.runner.episodes import run_attempts
from gymcli.runner.judging import Judges, judging
from gymcli.runner.recorded import find_recorded
from gymcli.store.run import RunDirectory
from gymcli.store.verdicts import Verdicts
from gymcli.types import Failure, Rollout, Verifier

__all__ = ["Pending", "score_pending"]


class Pending(NamedTuple):
    """What became of the conversations that waited for their score."""

    num_scored: int = 0
    num_failed: int = 0


async def score_pending(
    run: Path, *, env: str | None = None, judges: Judges | None = None
) -> Pending:
    """Score the finished conversations of a run that wait for it, and append them.

    A run in which none waits is not touched, and may be read-only.

    Raises:
        UsageError: A line, an environment or a role is wrong.
        RunDirectoryError: Another process writes the run.

    """
    directory = RunDirectory(run)
    if not directory.pending(directory.done()):
        return Pending()
    directory.lock()
    try:
        directory.mend()
        return await _score(directory, Registry((env,) if env else ()), judges or Judges())
    finally:
        directory.close()


async def _score(directory: RunDirectory, registry: Registry, judges: Judges) -> Pending:
    def keep(outcome: Outcome) -> None:
        if isinstance(outcome.record, Rollout):
            directory.append_rollout(outcome.record)
        else:
            directory.append_failure(outcome.record)

    num_scored = num_failed = 0
    attempts = list(_attempts(directory, registry))
    waiting = {a.generation.env: a.environment for a in attempts if a.generation is not None}
    check_declared(judges.sources, (), waiting)
    async with judging(judges, Verdicts(directory.path)) as shared:
        outcomes = run_attempts(iter(attempts), shared, concurrency=judges.concurrency, keep=keep)
        async with aclosing(outcomes):
            async for record in outcomes:
                num_scored += isinstance(record, Rollout)
                num_failed += isinstance(record, Failure)
    return Pending(num_scored, num_failed)


def _attempts(directory: RunDirectory, registry: Registry) -> Iterator[Attempt]:
    """Give what waits, and the attempts that are scored already of groups that wait."""
    done = directory.done()
    waiting = directory.pending(done).values()
    for rollout in waiting:
        yield _attempt(rollout, registry, directory.path, is_done=False)
    for rollout in directory.mates(done, waiting):
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
