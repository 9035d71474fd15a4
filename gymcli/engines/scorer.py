"""One worker that scores blocks of stored lines, in a process beside it that can be killed."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from gymcli.engines.code import Code
from gymcli.engines.known import check_same_code
from gymcli.engines.messages import Block, ScoredBlock
from gymcli.engines.sending import sent_error
from gymcli.engines.worker import opened_here
from gymcli.errors import GymError
from gymcli.registry import Registry
from gymcli.scoring import Rescored, RescoreJob, Workers, rescore_lines
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["Scorer", "ScoringJob"]


class ScoringJob(NamedTuple):
    """What all blocks have in common; pickled."""

    code: Code
    job: RescoreJob
    source_hashes: Mapping[str, str]
    """Of the environments that lines name, as the process of the command has them."""
    scrubber: Scrubber
    """Knows the secrets that verifiers do not get."""


class Scorer:
    """Scores blocks of lines, under the limits that hold without a cluster."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._loop = asyncio.Runner()
        self._job: RescoreJob | None = None
        self._workers: Workers | None = None
        self._scrubber = NOTHING_SECRET

    def open(self, data: bytes) -> bytes:
        """Get ready for blocks; returns an `Opened`."""
        scoring: ScoringJob = pickle.loads(data)  # noqa: S301  # both ends are ours
        opened = opened_here()
        try:
            self._open(scoring)
        except GymError as error:
            opened.error = sent_error(error)
        return msgspec.json.encode(opened)

    def _open(self, scoring: ScoringJob) -> None:
        specs = scoring.code.specs(self._stack)
        check_same_code(Registry(specs), scoring.source_hashes)
        self._scrubber = scoring.scrubber
        self._job = msgspec.structs.replace(scoring.job, env_specs=specs)

    def score(self, data: bytes) -> bytes:
        """Score the lines of a `Block`; returns a `ScoredBlock`."""
        block = msgspec.msgpack.decode(data, type=Block)
        scored = ScoredBlock()
        try:
            scored.results = self._loop.run(self._scored(block))
        except GymError as error:
            scored.error = sent_error(error)
        return msgspec.msgpack.encode(scored)

    async def _scored(self, block: Block) -> list[Rescored]:
        assert self._job is not None, "a worker is opened first"
        if block.repeat != self._job.repeat:
            await self._end_workers()  # a repeat has processes of its own
            self._job = msgspec.structs.replace(self._job, repeat=block.repeat)
        if self._workers is None:
            # One process beside this one: it has one core, and ends where that one is killed.
            self._workers = Workers(1, scrubber=self._scrubber)
        results = rescore_lines(iter(block.lines), self._job, self._workers)
        return [result async for batch in results for result in batch]

    async def _end_workers(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.close()

    def close(self) -> None:
        """End the process and delete what was written."""
        self._loop.run(self._end_workers())
        self._loop.close()
        self._stack.close()
