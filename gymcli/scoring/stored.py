"""Rescoring of stored rollouts: streamed, with the function that scored them, on all cores.

The first lines are scored in this process. When they show that the rest would take long, worker
processes get the raw lines and give back what changed; this process only reads and compares.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import msgspec

from gymcli.errors import AttemptError, RunError
from gymcli.registry import Registry, environment_options
from gymcli.scoring.context import score
from gymcli.scoring.rescored import AttemptErrorText, Rescored, kept, rescored, unscored
from gymcli.store.lines import Line
from gymcli.store.rollouts import RolloutReading, decode_rollout
from gymcli.types import Verifier

__all__ = ["RescoreJob", "rescore"]

_FIRST_LINES = 64
_CHUNK_BYTES = 1 << 20
_WORTH_A_POOL = 1.0
"""Seconds of work left from which starting processes (about half a second) pays."""


class RescoreJob(msgspec.Struct, frozen=True):
    """What a worker needs to know to score any line of a file."""

    reading: RolloutReading
    env_specs: tuple[str, ...] = ()
    env_args: Mapping[str, Mapping[str, str]] = {}
    """Options by environment, as given on the command line."""
    keeps_lines: bool = False
    """Give the rescored lines back, for a new run."""


def rescore(lines: Iterator[Line], job: RescoreJob, *, size: int) -> Iterator[Rescored]:
    """Rescore raw lines in order; `size` in bytes tells whether worker processes pay."""
    first = list(itertools.islice(lines, _FIRST_LINES))
    started = time.perf_counter()
    rescored = _rescore_chunk(first, job)
    elapsed = time.perf_counter() - started
    yield from rescored
    num_bytes = sum(len(line.data) for line in first)
    left = elapsed * (size - num_bytes) / max(num_bytes, 1)
    chunks = _chunks(lines)
    if left < _WORTH_A_POOL:
        for chunk in chunks:
            yield from _rescore_chunk(chunk, job)
    else:
        yield from _in_processes(chunks, job)


def _in_processes(chunks: Iterator[list[Line]], job: RescoreJob) -> Iterator[Rescored]:
    num_workers = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    waiting: deque[Future[list[Rescored]]] = deque()
    with ProcessPoolExecutor(num_workers, mp_context=context) as pool:
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_rescore_chunk, chunk, job))
                # Two chunks a worker are under way, so that memory does not grow with the file.
                if len(waiting) > 2 * num_workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BrokenProcessPool as error:
            raise RunError(
                "a process that rescored rollouts died, for want of memory or by its verifier; "
                "nothing was changed"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _chunks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    chunk: list[Line] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line.data)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _rescore_chunk(chunk: list[Line], job: RescoreJob) -> list[Rescored]:
    """Score the lines of one chunk; runs in a worker process as well."""

    async def run() -> list[Rescored]:
        return [await _rescore_line(line, job) for line in chunk]

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    # A notebook has a loop of its own, in which another cannot run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


async def _rescore_line(line: Line, job: RescoreJob) -> Rescored:
    rollout = decode_rollout(line.number, line.data, job.reading)
    found = _registry(job.env_specs).find(rollout.env)
    environment = found.environment
    rollout.env = found.name
    if environment.rescore == "recorded":
        return kept(line, rollout, keeps_line=job.keeps_lines)
    given = job.env_args.get(found.name, {})
    options = environment_options(environment, found.name, given, rollout.env_options)
    verifier = Verifier(environment.version, found.source_hash)
    try:
        scored = await score(environment, rollout, verifier=verifier, options=options)
    except AttemptError as error:
        text = AttemptErrorText(type(error).__name__, str(error))
        return unscored(rollout, text, keeps_line=job.keeps_lines)
    return rescored(
        rollout, scored, environment=environment, options=options, keeps_line=job.keeps_lines
    )


@functools.cache
def _registry(specs: tuple[str, ...]) -> Registry:
    """Keep one registry a process, so that a chunk does not look its environments up again."""
    return Registry(specs)
