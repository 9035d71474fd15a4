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
from pathlib import Path

import msgspec

from gymcli.errors import AttemptError, RunError
from gymcli.registry import Registry, environment_options
from gymcli.scoring.context import score
from gymcli.store.lines import Line
from gymcli.store.rollouts import RolloutReading, decode_rollout, rollout_lines, rollouts_file
from gymcli.types import AttemptKey, JSONObject, Rollout, Verifier

__all__ = ["RescoreJob", "Rescored", "rescore", "verify"]

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


class Rescored(msgspec.Struct, kw_only=True):
    """What rescoring one line gave."""

    key: AttemptKey
    old_reward: float | None
    new_reward: float | None
    """None: the verifier failed, `error` says how."""
    old_reason: str = ""
    new_reason: str = ""
    error: AttemptErrorText | None = None
    is_rescored: bool = True
    line: bytes = b""

    @property
    def is_changed(self) -> bool:
        """Whether the reward is another one now."""
        return self.is_rescored and self.old_reward != self.new_reward


class AttemptErrorText(msgspec.Struct):
    """The class and text of the error that a verifier raised."""

    error_class: str
    message: str


def verify(
    run: str | Path,
    *,
    env: str | None = None,
    env_args: Mapping[str, Mapping[str, str]] | None = None,
    row_fields: Mapping[str, JSONObject] | None = None,
    keeps_lines: bool = False,
) -> Iterator[Rescored]:
    """Rescore a run directory or a rollout file, ours or NeMo Gym's, in the order of its lines.

    Long files are scored by processes, so a script that calls this needs the usual
    `if __name__ == "__main__":`.

    Args:
        run: The directory or file.
        env: The environment of lines that name none, or one given as code.
        env_args: Options by environment name, as texts; they override those on record.
        row_fields: Fields of task rows, for rollout files of others that lack them.
        keeps_lines: Give every line anew, with its new score.

    Raises:
        UsageError: A file, a line, an environment or an option is wrong.
        RunError: A worker process died.

    """
    path = rollouts_file(Path(run))
    job = RescoreJob(
        reading=RolloutReading(str(path), env, row_fields or {}),
        env_specs=(env,) if env is not None else (),
        env_args=env_args or {},
        keeps_lines=keeps_lines,
    )
    return rescore(rollout_lines(path), job, size=path.stat().st_size)


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
    result = Rescored(
        key=rollout.key,
        old_reward=rollout.reward,
        new_reward=rollout.reward,
        old_reason=_reason(rollout),
    )
    if environment.rescore == "recorded":
        result.is_rescored = False
        if job.keeps_lines:
            result.line = line.data if rollout.env_version else msgspec.json.encode(rollout)
        return result
    given = job.env_args.get(found.name, {})
    options = environment_options(environment, found.name, given, rollout.env_options)
    verifier = Verifier(environment.version, found.source_hash)
    try:
        scored = await score(environment, rollout, verifier=verifier, options=options)
    except AttemptError as error:
        result.new_reward = None
        result.error = AttemptErrorText(type(error).__name__, str(error))
        if job.keeps_lines:
            result.line = msgspec.json.encode(rollout.unscored())
        return result
    result.new_reward, result.new_reason = scored.reward, _reason(scored)
    if job.keeps_lines:
        scored.env_options = options.model_dump(mode="json", exclude_defaults=True)
        # Rollouts of other programs stay without: their replay is not compared word by word.
        scored.env_version = environment.version if rollout.env_version else ""
        result.line = msgspec.json.encode(scored)
    return result


@functools.cache
def _registry(specs: tuple[str, ...]) -> Registry:
    """Keep one registry a process, so that a chunk does not look its environments up again."""
    return Registry(specs)


def _reason(rollout: Rollout) -> str:
    reason = rollout.details.get("reason")
    return reason if isinstance(reason, str) else ""
