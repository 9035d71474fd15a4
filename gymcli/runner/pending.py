"""Scores the finished conversations of a run that still wait for their score."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gymcli.registry import Registry, environment_options
from gymcli.runner.attempts import Attempt, Outcome, run_attempts
from gymcli.runner.recorded import find_recorded
from gymcli.store.run import GENERATIONS, RunDirectory
from gymcli.types import Failure, Rollout, Verifier

__all__ = ["Pending", "score_pending"]


class Pending(NamedTuple):
    """What became of the conversations that waited for their score."""

    num_scored: int = 0
    num_failed: int = 0


async def score_pending(run: Path, *, env: str | None = None) -> Pending:
    """Score the finished conversations of a run that wait for it, and append them.

    A run in which none ever waited is not touched, and may be read-only.

    Raises:
        UsageError: A line or an environment is wrong.
        RunDirectoryError: Another process writes the run.

    """
    if not (run / GENERATIONS).is_file():
        return Pending()
    directory = RunDirectory(run)
    directory.lock()
    num_scored = num_failed = 0
    try:
        directory.mend()
        waiting = directory.pending(directory.done())

        def keep(outcome: Outcome) -> None:
            if isinstance(outcome.record, Rollout):
                directory.append_rollout(outcome.record)
            else:
                directory.append_failure(outcome.record)

        registry = Registry((env,) if env else ())
        attempts = (_waiting_attempt(rollout, registry, run) for rollout in waiting.values())
        async for record in run_attempts(attempts, None, concurrency=1, keep=keep):
            num_scored += isinstance(record, Rollout)
            num_failed += isinstance(record, Failure)
    finally:
        directory.close()
    return Pending(num_scored, num_failed)


def _waiting_attempt(rollout: Rollout, registry: Registry, run: Path) -> Attempt:
    found = find_recorded(registry, rollout.env, run)
    return Attempt(
        found.environment,
        environment_options(found.environment, found.name, {}, rollout.env_options),
        Verifier(found.environment.version, found.source_hash),
        None,
        rollout,
    )
