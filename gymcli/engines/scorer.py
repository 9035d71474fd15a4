"""One worker that scores blocks of stored lines, in a process beside it that can be killed."""

from __future__ import annotations

import pickle
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

import msgspec

from gymcli.engines.code import Code
from gymcli.engines.known import check_same_code
from gymcli.engines.messages import Block, ScoredBlock
from gymcli.engines.sending import sent_error
from gymcli.engines.worker import opened_here
from gymcli.environment.registry import Registry
from gymcli.errors import GymError
from gymcli.rollout.event_loop import close, drive, new_event_loop
from gymcli.rollout.rescored import Rescored, RescoreJob, rescore_lines
from gymcli.rollout.template import forget_templates
from gymcli.rollout.verifier_workers import Workers
from gymcli.secrets import Scrubber

__all__ = ["Scorer", "ScoringJob"]

T = TypeVar("T")


class ScoringJob(NamedTuple):
    """What all blocks have in common; pickled."""

    code: Code
    job: RescoreJob
    source_hashes: Mapping[str, str]
    """Of the environments that lines name, as the process of the command has them."""
    scrubber: Scrubber
    """Knows the secrets that verifiers do not get."""


class Scorer:
    """Scores blocks of lines, under the limits that hold without a cluster.

    It has no async method itself: Ray would run all of its methods in an event loop.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._loop = new_event_loop()
        self._scoring: _Scoring | None = None

    def open(self, data: bytes) -> bytes:
        """Get ready for blocks; returns an `Opened`."""
        job: ScoringJob = pickle.loads(data)  # noqa: S301  # both ends are ours
        opened = opened_here()
        try:
            specs = job.code.specs(self._stack)
            check_same_code(Registry(specs), job.source_hashes)
            rescoring = msgspec.structs.replace(job.job, env_specs=specs)
            self._scoring = _Scoring(rescoring, job.scrubber)
        except GymError as error:
            opened.error = sent_error(error)
        return msgspec.json.encode(opened)

    def score(self, data: bytes) -> bytes:
        """Score the lines of a `Block`; returns a `ScoredBlock`."""
        assert self._scoring is not None, "a worker is opened first"
        block = msgspec.msgpack.decode(data, type=Block)
        scored = ScoredBlock()
        try:
            scored.results = self._run(self._scoring.score(block))
        except GymError as error:
            scored.error = sent_error(error)
        return msgspec.msgpack.encode(scored)

    def close(self) -> None:
        """End the process and delete what was written."""
        if self._scoring is not None:
            self._run(self._scoring.close())
        close(self._loop)
        self._stack.close()

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return drive(self._loop, self._loop.create_task(work))


class _Scoring:
    """One process beside this one: it has one core, and ends where that one is killed."""

    def __init__(self, job: RescoreJob, scrubber: Scrubber) -> None:
        self._job = job
        self._scrubber = scrubber
        self._workers: Workers | None = None

    async def score(self, block: Block) -> list[Rescored]:
        """Score the lines of a block."""
        if block.repeat != self._job.repeat:
            await self.close()  # a repeat has processes of its own
            forget_templates()
            self._job = msgspec.structs.replace(self._job, repeat=block.repeat)
        if self._workers is None:
            self._workers = Workers(1, scrubber=self._scrubber)
        results = rescore_lines(iter(block.lines), self._job, self._workers)
        return [result async for batch in results for result in batch]

    async def close(self) -> None:
        """End the process."""
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.close()
