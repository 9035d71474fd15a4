"""Rescoring of stored rollouts: streamed, with the function that scored them, on all cores.

What a verifier may do to its process, it may do here: hang in the middle of an operation, take all
memory, or end the process. So records are scored by worker processes, a chunk of lines at a time. A
chunk whose process died, or was killed because it hung, is scored anew line by line, and only the
line that does it again is unscored.

A few records that this very verifier has scored before, by the hash on their line, have shown that
they do no harm; they are scored in this process, which saves the start of another.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from gymcli.deadlines import Alarm
from gymcli.errors import AttemptError, VerifierError
from gymcli.registry import Registry, environment_options
from gymcli.scoring.isolation import Submitted, Workers
from gymcli.scoring.rescored import AttemptErrorText, Rescored, kept, rescored, unscored
from gymcli.scoring.verifying import score, want_of_memory
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.store.lines import Line
from gymcli.store.rollouts import RolloutReading, decode_rollout, line_environment
from gymcli.types import Verifier

__all__ = ["RescoreJob", "rescore"]

_FIRST_LINES = 64
_CHUNK_BYTES = 1 << 20
_WORTH_A_POOL = 1.0
"""Seconds of work left from which starting processes (about half a second) pays."""

_TURN_SECONDS = 10.0
"""After so many a worker gives what it has of its chunk."""

_KILL_SECONDS = 5.0
"""Beyond the limit of a verifier, until a worker that does not end it itself is killed."""


class RescoreJob(msgspec.Struct, frozen=True):
    """What a worker needs to know to score any line of a file."""

    reading: RolloutReading
    env_specs: tuple[str, ...] = ()
    env_args: Mapping[str, Mapping[str, str]] = {}
    """Options by environment, as given on the command line."""
    keeps_lines: bool = False
    """Give the rescored lines back, for a new run."""


def rescore(
    lines: Iterator[Line], job: RescoreJob, *, size: int, scrubber: Scrubber = NOTHING_SECRET
) -> Iterator[Rescored]:
    """Rescore raw lines in order.

    Args:
        lines: The lines.
        job: How they are scored.
        size: Bytes of all of them, which tells whether worker processes pay.
        scrubber: Knows the secrets that workers do not get.

    Raises:
        UsageError: A line, an environment or an option is wrong.

    """
    with Workers(scrubber=scrubber) as workers:
        yield from _rescored(lines, job, size, workers)


def _rescored(
    lines: Iterator[Line], job: RescoreJob, size: int, workers: Workers
) -> Iterator[Rescored]:
    first = list(itertools.islice(lines, _FIRST_LINES))
    pool = _Pool(workers, job)
    chunks = _chunks(lines)
    if not _is_scored_here(first, job):
        yield from pool.rescored(iter([first]))
        yield from pool.rescored(chunks)
        return
    started = time.perf_counter()
    results = _scored_here(first, job, workers)
    elapsed = time.perf_counter() - started
    yield from results
    num_bytes = sum(len(line.data) for line in first)
    if elapsed * (size - num_bytes) / max(num_bytes, 1) >= _WORTH_A_POOL:
        yield from pool.rescored(chunks)
        return
    for chunk in chunks:
        if _is_scored_here(chunk, job):
            yield from _scored_here(chunk, job, workers)
        else:
            yield from pool.rescored(iter([chunk]))


class _Started(NamedTuple):
    """A chunk of lines, of which a worker scores the first ones."""

    lines: list[Line]
    results: Submitted[list[Rescored]]


class _Pool:
    """Scores chunks of lines in workers, several at a time, and gives the results in order."""

    def __init__(self, workers: Workers, job: RescoreJob) -> None:
        self._workers = workers
        self._job = job

    def rescored(self, chunks: Iterator[list[Line]]) -> Iterator[Rescored]:
        """Score chunks.

        Raises:
            UsageError: A line, an environment or an option is wrong.

        """
        waiting: deque[_Started] = deque()
        for chunk in chunks:
            waiting.append(self._started(chunk))
            # Two chunks a worker are under way, so that memory does not grow with the file.
            if len(waiting) > 2 * (os.cpu_count() or 1):
                yield from self._ended(waiting.popleft())
        while waiting:
            yield from self._ended(waiting.popleft())

    def _started(self, lines: list[Line]) -> _Started:
        seconds = memory_mb = 0.0
        for name in {line_environment(line, self._job.reading) for line in lines}:
            environment = _registry(self._job.env_specs).find(name).environment
            seconds = max(seconds, environment.verify_timeout)
            memory_mb = max(memory_mb, environment.verify_memory_mb)
        results = self._workers.submit(
            _scored_there,
            lines,
            self._job,
            timeout=seconds + _KILL_SECONDS + (_TURN_SECONDS if len(lines) > 1 else 0.0),
            memory_mb=int(memory_mb),
            name="verify",
        )
        return _Started(lines, results)

    def _ended(self, started: _Started) -> Iterator[Rescored]:
        lines = started.lines
        while True:
            try:
                found = started.results.result()
            except VerifierError as error:
                yield from self._one_by_one(lines, error)
                return
            yield from found
            lines = lines[len(found) :]
            if not lines:
                return
            started = self._started(lines)

    def _one_by_one(self, lines: list[Line], error: VerifierError) -> Iterator[Rescored]:
        """Score lines whose process died, each by itself."""
        if len(lines) > 1:
            yield from self.rescored([line] for line in lines)
            return
        rollout = decode_rollout(lines[0].number, lines[0].data, self._job.reading)
        rollout.env = _registry(self._job.env_specs).find(rollout.env).name
        text = AttemptErrorText(type(error).__name__, str(error))
        yield unscored(rollout, text, keeps_line=self._job.keeps_lines)


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


def _is_scored_here(lines: list[Line], job: RescoreJob) -> bool:
    """Say whether lines do no harm to this process, or cannot be scored in any other."""
    if any(spec.startswith("__main__:") for spec in job.env_specs):
        return True
    registry = _registry(job.env_specs)
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
            return [await _rescore_line(line, job, alarm, workers) for line in lines]

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    # A notebook has a loop of its own, in which another cannot run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


def _scored_there(lines: list[Line], job: RescoreJob) -> list[Rescored]:
    """Score lines in the process of a worker, at least one and no more than fit in its turn."""
    ends = time.monotonic() + _TURN_SECONDS

    async def run() -> list[Rescored]:
        results = []
        with Alarm() as alarm:
            for line in lines:
                results.append(await _rescore_line(line, job, alarm, None))
                if time.monotonic() >= ends:
                    break
        return results

    return asyncio.run(run())


async def _rescore_line(
    line: Line, job: RescoreJob, alarm: Alarm, workers: Workers | None
) -> Rescored:
    """Score a line; without workers it is in one, and stays there.

    Raises:
        MemoryError: In a worker: the verifier needed more than there is.

    """
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
        scored = await score(
            environment,
            rollout,
            verifier=verifier,
            options=options,
            workers=workers,
            alarm=alarm,
            is_in_worker=workers is None,
        )
    except AttemptError as error:
        if workers is None and (lacking := want_of_memory(error)) is not None:
            raise lacking from error
        text = AttemptErrorText(type(error).__name__, str(error))
        return unscored(rollout, text, keeps_line=job.keeps_lines)
    return rescored(
        rollout, scored, environment=environment, options=options, keeps_line=job.keeps_lines
    )


@functools.cache
def _registry(specs: tuple[str, ...]) -> Registry:
    """Keep one registry a process, so that a chunk does not look its environments up again."""
    return Registry(specs)
