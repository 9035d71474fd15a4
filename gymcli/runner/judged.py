"""Rescoring in this event loop, of verifiers that wait: for models, for a group, for a server."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple

from gymcli.environment.contract import Environment
from gymcli.environment.registry import Found, environment_options
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.rollout.rescored import (
    AttemptErrorText,
    Rescored,
    compared,
    kept,
    new_line,
    unscored,
)
from gymcli.runner.attempts import Attempt, Outcome, Shared
from gymcli.runner.episodes import run_attempts
from gymcli.store.lines import Line
from gymcli.store.rollouts import RolloutReading, decode_rollout
from gymcli.types import AttemptKey, Failure, Rollout, Verifier

__all__ = ["JudgedJob", "rescore_judged"]


class JudgedJob(NamedTuple):
    """How the lines of a file are rescored."""

    reading: RolloutReading
    find: Callable[[str], Found]
    env_args: Mapping[str, Mapping[str, str]] = {}
    keeps_lines: bool = False
    concurrency: int = 64


class _Before(NamedTuple):
    """A record as it was before it was scored again."""

    rollout: Rollout
    environment: type[Environment[Task]]
    options: EnvironmentOptions
    kept: Rescored | None
    """What it gives where its score stays as it is."""


async def rescore_judged(
    read_lines: Callable[[], Iterable[Line]],
    job: JudgedJob,
    opened: Callable[[], AbstractAsyncContextManager[Shared]],
) -> AsyncGenerator[list[Rescored]]:
    """Rescore raw lines, many at a time, and yield each as its score is there.

    Args:
        read_lines: Returns the lines from the start; twice, where records of a group do not tell
            its size.
        job: How they are rescored.
        opened: Opens what the verifiers may ask.

    """
    before: dict[AttemptKey, deque[_Before]] = {}
    sizes = functools.cache(lambda: _group_sizes(read_lines(), job))

    def group_size(rollout: Rollout, found: Found) -> int:
        if found.environment.rescore == "recorded" or not found.environment.scores_groups():
            return 0
        return rollout.group_size or sizes()[rollout.env, rollout.task_id]

    def attempts() -> Iterator[Attempt]:
        for line in read_lines():
            rollout = decode_rollout(line.number, line.data, job.reading)
            found = job.find(rollout.env)
            rollout.env = found.name
            one = _as_it_was(line, rollout, found, job)
            before.setdefault(rollout.key, deque()).append(one)
            yield Attempt(
                found.environment,
                one.options,
                Verifier(found.environment.version, found.source_hash),
                None,
                rollout.unscored(),
                group_size(rollout, found),
                keeps_score=one.kept is not None,
            )

    async with opened() as shared:
        outcomes = run_attempts(attempts(), shared, concurrency=job.concurrency, keep=_keep_nothing)
        async with aclosing(outcomes):
            async for record in outcomes:
                same_key = before[record.key]
                one = same_key.popleft()
                if not same_key:
                    del before[record.key]
                yield [one.kept or _compared(one, record, job)]


def _as_it_was(line: Line, rollout: Rollout, found: Found, job: JudgedJob) -> _Before:
    environment = found.environment
    if environment.rescore == "recorded":
        result = kept(line, rollout, keeps_line=job.keeps_lines)
        return _Before(rollout, environment, environment.Options(), result)
    given = job.env_args.get(found.name, {})
    options = environment_options(environment, found.name, given, rollout.env_options)
    return _Before(rollout, environment, options, None)


def _group_sizes(lines: Iterable[Line], job: JudgedJob) -> Counter[tuple[str, str]]:
    """Count the records of each task, where they are scored together and do not tell how many."""
    sizes: Counter[tuple[str, str]] = Counter()
    for line in lines:
        rollout = decode_rollout(line.number, line.data, job.reading)
        if not rollout.group_size and job.find(rollout.env).environment.scores_groups():
            sizes[job.find(rollout.env).name, rollout.task_id] += 1
    return sizes


def _compared(before: _Before, record: Rollout | Failure, job: JudgedJob) -> Rescored:
    if isinstance(record, Failure):
        error = record.error
        text = AttemptErrorText(error.error_class, error.message, error.frames)
        return unscored(before.rollout, text, keeps_line=job.keeps_lines)
    result = compared(before.rollout, record)
    if job.keeps_lines:
        # Nothing of the old line is kept: what roles took stands anywhere on it.
        result.line = new_line(b"", before.rollout, record, before.environment, before.options)
    return result


def _keep_nothing(outcome: Outcome) -> Outcome:
    """Leave the outcome to whoever asked for the rescoring."""
    return outcome
