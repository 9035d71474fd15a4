"""Finds one attempt on record: scored, or failed and why."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gymcli.store.rollout_files import RolloutReading, find_rollout
from gymcli.store.run_directory import FAILURES, ROLLOUTS, read_structs
from gymcli.types import Failure, Rollout

__all__ = ["find_record"]


def find_record(run: Path, task: str, *, env: str | None = None) -> Rollout | Failure | None:
    """Find the rollout of `TASK` or `TASK/ATTEMPT`, else its last failure, in a run or a file.

    Without an attempt, the lowest one that is scored.

    Raises:
        UsageError: The path or a line is wrong.

    """
    failures = run / FAILURES
    has_failures = run.is_dir() and failures.is_file()
    if (run / ROLLOUTS).is_file() or not has_failures:
        found = find_rollout(run, task, RolloutReading(str(run), env))
        if found is not None or not has_failures:
            return found
    last = None
    for failure in read_structs(failures, msgspec.json.Decoder(Failure)):
        names = (failure.task_id, f"{failure.task_id}/{failure.attempt}")
        if task in names and env in (None, failure.env):
            last = failure
    return last
