"""Rescoring of stored rollouts: streamed, with the function that scored them, on all cores.

What a verifier may do to its process, it may do here: hang in the middle of an operation, take all
memory, or end the process. So records are scored by worker processes.

A few records that this very verifier has scored before, by the hash on their line, have shown that
they do no harm; they are scored in this process, which saves the start of another. Where verifiers
are compared with themselves none are.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gymcli.deadlines import Alarm
from gymcli.scoring.isolation import Workers
from gymcli.scoring.parts import (
    Batch,
    RescoreJob,
    known_registry,
    rescore_line,
)
from gymcli.scoring.pool import FAR_LINES, Pool, Scorers, chunks
from gymcli.scoring.rescored import Rescored
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import Line
from gymcli.store.rollouts import decode_rollout
from gymcli.types import Verifier

__all__ = ["rescore", "rescore_batches"]

_FIRST_LINES = 64
_WORTH_A_POOL = 1.0
"""Seconds of work left from which starting processes (about half a second) pays."""


def rescore(
    lines: Iterator[Line], job: RescoreJob, *, size: int, scrubber: Scrubber = NOTHING_SECRET
) -> Iterator[Rescored]:
    """Give the results of `rescore_batches` one by one."""
    for batch in rescore_batches(lines, job, size=size, scrubber=scrubber):
        yield from batch


def rescore_batches(
    lines: Iterator[Line],
    job: RescoreJob,
    *,
    size: int,
    scrubber: Scrubber = NOTHING_SECRET,
    file: Path | None = None,
    elsewhere: Scorers | None = None,
) -> Iterator[Batch]:
    """Rescore raw lines in order, and give the results of lines that follow one another together.

    Args:
        lines: The lines.
        job: How they are scored.
        size: Bytes of all of them, which tells whether worker processes pay.
        scrubber: Knows the secrets that workers do not get.
        file: The file that holds just these lines, where workers may read it: it is not compressed,
            and all environments that its lines name are those of the job.
        elsewhere: What scores all of them, in place of processes of this machine.

    Raises:
        UsageError: A line, an environment or an option is wrong.

    """
    with Workers(scrubber=scrubber) as workers:
        if elsewhere is not None:
            blocks = chunks(lines, max_lines=FAR_LINES)
            yield from Pool(workers, job, elsewhere).rescored(blocks)
        else:
            yield from _rescored(lines, job, size, workers, file)


def _rescored(
    lines: Iterator[Line], job: RescoreJob, size: int, workers: Workers, file: Path | None
) -> Iterator[Batch]:
    first = list(itertools.islice(lines, _FIRST_LINES))
    pool = Pool(workers, job)

    def rest() -> Iterator[Batch]:
        if file is None or not first:
            return pool.rescored(chunks(lines))
        return pool.rescored_parts(file, num_before=first[-1].number)

    if not _is_scored_here(first, job):
        yield from pool.rescored(iter([first]))
        yield from rest()
        return
    started = time.perf_counter()
    results = _scored_here(first, job, workers)
    elapsed = time.perf_counter() - started
    yield results
    num_bytes = sum(len(line.data) for line in first)
    if elapsed * (size - num_bytes) / max(num_bytes, 1) >= _WORTH_A_POOL:
        yield from rest()
        return
    for chunk in chunks(lines):
        if _is_scored_here(chunk, job):
            yield _scored_here(chunk, job, workers)
        else:
            yield from pool.rescored(iter([chunk]))


def _is_scored_here(lines: list[Line], job: RescoreJob) -> bool:
    """Say whether lines do no harm to this process, or cannot be scored in any other."""
    if any(spec.startswith("__main__:") for spec in job.env_specs):
        return True
    if job.repeat:
        return not lines
    registry = known_registry(job.env_specs)
    for line in lines:
        rollout = decode_rollout(line.number, line.data, job.reading)
        found = registry.find(rollout.env)
        known = Verifier(found.environment.version, found.source_hash)
        if found.environment.rescore == "recorded":
            continue
        if not found.source_hash or rollout.verifier != known or found.name in job.env_args:
            return False
    return True


def _scored_here(lines: list[Line], job: RescoreJob, workers: Workers) -> list[Rescored]:
    """Score lines in this process."""

    async def run() -> list[Rescored]:
        with Alarm() as alarm:
            return [await rescore_line(line, job, alarm, workers) for line in lines]

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    # A notebook has a loop of its own, in which another cannot run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()
