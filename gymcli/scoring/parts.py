"""Scores stored lines in whatever process: given ones, or those of a part of their file."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable, Mapping

import msgspec

from gymcli.deadlines import Alarm
from gymcli.environment import EnvironmentOptions
from gymcli.errors import AttemptError, UsageError
from gymcli.registry import Found, Registry, environment_options
from gymcli.scoring.at_once import RowEnd, Verifiers, score_at_once
from gymcli.scoring.isolation import Workers
from gymcli.scoring.rescored import (
    AttemptErrorText,
    LineScores,
    Rescored,
    RescoredLines,
    kept,
    rescored,
    unscored,
)
from gymcli.scoring.verifying import score, want_of_memory
from gymcli.store.blocks import Part
from gymcli.store.lines import Line
from gymcli.store.rollouts import RolloutReading, decode_rollout, line_environment
from gymcli.types import Rollout, Score, Verifier

__all__ = [
    "TURN_SECONDS",
    "Batch",
    "PartResults",
    "RescoreJob",
    "known_registry",
    "rescore_line",
    "score_lines",
    "score_part",
]

TURN_SECONDS = 10.0
"""After so many a worker gives what it has of its lines."""

_MAX_CALLS_BEFORE = 4
_CALLS_SECONDS = TURN_SECONDS / 4
"""After so many no more calls are made before: a slow verifier would take most of its turn so."""

_NO_NUMBER = 0
"""A worker does not know the numbers of its lines: its parent says what is wrong with one."""

_MAX_ENDED_ROWS = 5
"""Rows of a part that may end at a line before the rest of the part is scored one by one."""

Batch = Iterable[Rescored]
"""The results of lines that follow one another."""


class RescoreJob(msgspec.Struct, frozen=True):
    """What a worker needs to know to score any line of a file."""

    reading: RolloutReading
    env_specs: tuple[str, ...] = ()
    env_args: Mapping[str, Mapping[str, str]] = {}
    """Options by environment, as given on the command line."""
    keeps_lines: bool = False
    """Give the rescored lines back, for a new run."""
    env_names: frozenset[str] = frozenset()
    """What the lines of a part may name; it ends before one that names another."""
    repeat: int = 0
    """Which scoring of the same lines it is, from 1 on, where verifiers are compared with
    themselves; 0 where they are not. Then lines are scored by new processes each time, which hash
    texts in another way, and which have called the verifier another number of times before."""


class PartResults(msgspec.Struct):
    """What a worker gives of a part."""

    batches: list[RescoredLines | list[Rescored]]
    num_lines: int
    """Lines that are done, blank ones among them."""
    ends: str
    """`all` are done; the `turn` is over; or the next line is `odd`: it cannot be scored here."""


@functools.cache
def known_registry(specs: tuple[str, ...]) -> Registry:
    """Keep one registry a process, so that a chunk does not look its environments up again."""
    return Registry(specs)


def score_lines(lines: list[Line], job: RescoreJob) -> list[Rescored]:
    """Score lines in the process of a worker, at least one and no more than fit in its turn."""
    ends = time.monotonic() + TURN_SECONDS

    async def run() -> list[Rescored]:
        results = []
        with Alarm() as alarm:
            if len(lines) > 1:
                await _call_before(lines[0], job, alarm)
            for line in lines:
                results.append(await rescore_line(line, job, alarm, None))
                if time.monotonic() >= ends:
                    break
        return results

    return asyncio.run(run())


async def _call_before(line: Line, job: RescoreJob, alarm: Alarm) -> None:
    """Score a line for nothing but that verifiers have been called, in a repeat once more."""
    ends = time.monotonic() + _CALLS_SECONDS
    for _ in range((job.repeat - 1) % _MAX_CALLS_BEFORE if job.repeat else 0):
        await rescore_line(line, job, alarm, None)
        if time.monotonic() >= ends:
            break


def score_part(part: Part, job: RescoreJob) -> PartResults:
    """Score the lines of a part in the process of a worker, no more than fit in its turn."""
    scoring = _Scoring(part, job)
    asyncio.run(scoring.run())  # what a coroutine gives is put into words at its end: all of it
    return scoring.results


class _OddLineError(Exception):
    """Raised at a line that the worker must leave to its parent."""


class _Scoring:
    """The scoring of one part."""

    def __init__(self, part: Part, job: RescoreJob) -> None:
        self._part = part
        self._job = job
        self._ends = time.monotonic() + TURN_SECONDS
        self.results = PartResults([], 0, "all")

    async def run(self) -> None:
        """Score line after line, as far as that goes."""
        with Alarm() as alarm:
            try:
                await self._call_before(alarm)
                if not await self._score_rows(alarm):
                    await self._score_one_by_one(alarm)
            except (_OddLineError, UsageError):
                self.results.ends = "odd"

    async def _score_rows(self, alarm: Alarm) -> bool:
        """Score row after row; False: lines are left, since it is late or many were odd."""
        num_ended = 0
        while num_ended < _MAX_ENDED_ROWS and not self._is_over():
            first = next(self._left().lines(), None)
            ended = "all" if first is None else await self._row(first, alarm)
            if ended == "all":
                return True
            if ended == "odd":
                num_ended += 1
                line = next(self._left().lines(), None)
                if line is None:  # the alarm rang after the last one
                    return True
                await self._alone(line, alarm)
        return False

    async def _call_before(self, alarm: Alarm) -> None:
        first = next(self._left().lines(), None) if self._job.repeat else None
        if first is not None:
            await _call_before(self._line(first), self._job, alarm)

    async def _score_one_by_one(self, alarm: Alarm) -> None:
        for line in self._left().lines():
            if self._is_over():
                self.results.ends = "turn"
                return
            await self._alone(line, alarm)

    def _left(self) -> Part:
        return self._part.without(self.results.num_lines)

    def _is_over(self) -> bool:
        return self.results.num_lines > 0 and time.monotonic() >= self._ends

    async def _row(self, first: bytes, alarm: Alarm) -> RowEnd:
        """Score what is left, from the first line on, as far as it goes in a row.

        Raises:
            _OddLineError, UsageError: The first line cannot be scored here.

        """
        rollout = decode_rollout(_NO_NUMBER, first, self._job.reading)
        found = self._found(rollout.env)
        environment = found.environment
        if environment.rescore == "recorded" or found.name != rollout.env:
            return "odd"
        given = self._job.env_args.get(found.name, {})
        options = environment_options(environment, found.name, given, rollout.env_options)
        lines, verifiers = self._left().lines(), Verifiers(environment, options, alarm)
        row = _NewLines(found, options) if self._job.keeps_lines else LineScores(found.name)
        try:
            return await score_at_once(rollout, lines, verifiers, row.take)
        finally:
            self._add(row.batch())

    async def _alone(self, data: bytes, alarm: Alarm) -> None:
        line = self._line(data)
        self._add([await rescore_line(line, self._job, alarm, None)])

    def _line(self, data: bytes) -> Line:
        line = Line(_NO_NUMBER, data.strip(), is_complete=True)
        self._found(line_environment(line, self._job.reading))
        return line

    def _add(self, batch: RescoredLines | list[Rescored]) -> None:
        if batch:
            self.results.batches.append(batch)
            self.results.num_lines += len(batch)

    def _found(self, name: str) -> Found:
        found = known_registry(self._job.env_specs).find(name)
        if found.name not in self._job.env_names:
            raise _OddLineError
        return found


class _NewLines:
    """Takes the results of a row whose lines are wanted with their new scores."""

    def __init__(self, found: Found, options: EnvironmentOptions) -> None:
        self._batch: list[Rescored] = []
        self._environment = found.environment
        self._verifier = Verifier(found.environment.version, found.source_hash)
        self._options = options

    def take(self, line: bytes, before: Rollout, score: Score, seconds: float) -> None:
        scored = before.scored(score, self._verifier, seconds)
        environment, options = self._environment, self._options
        line = line.strip()
        result = rescored(before, scored, environment=environment, options=options, line=line)
        self._batch.append(result)

    def batch(self) -> list[Rescored]:
        return self._batch


async def rescore_line(
    line: Line, job: RescoreJob, alarm: Alarm, workers: Workers | None
) -> Rescored:
    """Score a line; without workers it is in one, and stays there.

    Raises:
        MemoryError: In a worker: the verifier needed more than there is.
        UsageError: The line is no rollout, or its environment or an option is wrong.

    """
    rollout = decode_rollout(line.number, line.data, job.reading)
    found = known_registry(job.env_specs).find(rollout.env)
    environment = found.environment
    is_renamed = rollout.env != found.name
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
    old_line = b"" if is_renamed else line.data
    return rescored(
        rollout,
        scored,
        environment=environment,
        options=options,
        line=old_line if job.keeps_lines else None,
    )
