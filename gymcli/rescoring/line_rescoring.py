"""Rescores stored lines in worker processes and reports what each new score changed.

A worker reads its part of a file itself, or is sent lines; either is a `Piece`. If a worker is lost
(memory, time or a crash), another one resumes at the first line without a result and sends each
reply before it scores the next line. This identifies the line at fault, and only that line stays
unscored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from gymcli.environment.contract import Environment
from gymcli.environment.registry import Registration, Registry, environment_options
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import AttemptError, GymError, VerifierCrashedError, VerifierTimeoutError
from gymcli.rollout.scoring import Workers
from gymcli.rollout.verifier_worker import (
    Channel,
    Definition,
    ErrorReply,
    Scorer,
    as_error,
    as_reply,
    call_verifier,
    prepare,
)
from gymcli.rollout.worker_pool import DONE, CodeReference, RequestKind
from gymcli.store.lines import Line, Part, iterate_parts
from gymcli.store.rollout_files import RolloutReading, decode_rollout, without_torn
from gymcli.types import AttemptKey, JSONObject, Rollout, Score, Timing, Verifier

_MIN_BYTES, _MAX_BYTES = 1 << 15, 1 << 22
"""The size of a part of a file."""
_NUM_SHARES = 4
"""A part is 1/4 of a worker's share of the rest, so that near the end no worker idles for long."""
_NUM_LINES = 16
"""Lines sent as one piece: few, so that workers share the lines of heavy verifiers."""

_SEND_SECONDS = 0.005
"""How long replies are batched: sending one takes longer than scoring a trivial line."""

_MAX_CALLS_BEFORE = 4


class VerifierNumbers(msgspec.Struct, array_like=True):
    """What a verifier returns in addition to the reward."""

    components: dict[str, float]
    metrics: dict[str, float]


class Rescored(msgspec.Struct, kw_only=True, array_like=True, omit_defaults=True):
    """The old and the new score of one line."""

    key: AttemptKey
    old_reward: float | None
    new_reward: float | None
    """None: the verifier failed with `error`."""
    old_reason: str = ""
    new_reason: str = ""
    old_numbers: VerifierNumbers | None = None
    """None if there are none."""
    new_numbers: VerifierNumbers | None = None
    """None if they equal the old ones."""
    error: ErrorReply | None = None
    is_rescored: bool = True
    line: bytes = b""

    @property
    def is_changed(self) -> bool:
        """Whether the new reward differs from the old one."""
        return self.is_rescored and self.old_reward != self.new_reward


def kept(line: Line, rollout: Rollout, *, keeps_line: bool) -> Rescored:
    """Return the result of a record that keeps its score, since its world cannot be replayed."""
    result = _of(rollout, rollout.reward)
    result.is_rescored = False
    if keeps_line:
        result.line = line.data if rollout.env_version else msgspec.json.encode(rollout)
    return result


def compared(before: Rollout, scored: Rollout | Score) -> Rescored:
    """Compare a new score with the one on record."""
    result = _of(before, scored.reward)
    result.new_reason = _reason(scored.details)
    if before.components != scored.components or before.metrics != scored.metrics:
        result.new_numbers = VerifierNumbers(scored.components, scored.metrics)
    return result


def unscored(before: Rollout, error: ErrorReply, *, keeps_line: bool) -> Rescored:
    """Return the result of a record whose verifier failed."""
    result = _of(before, None)
    result.error = error
    if keeps_line:
        result.line = msgspec.json.encode(before.unscored())
    return result


def _of(before: Rollout, new_reward: float | None) -> Rescored:
    has_numbers = before.components or before.metrics
    return Rescored(
        key=before.key,
        old_reward=before.reward,
        new_reward=new_reward,
        old_reason=_reason(before.details),
        old_numbers=VerifierNumbers(before.components, before.metrics) if has_numbers else None,
    )


def _reason(details: JSONObject) -> str:
    reason = details.get("reason")
    return reason if isinstance(reason, str) else ""


def new_line(
    line: bytes,
    before: Rollout,
    scored: Rollout,
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
) -> bytes:
    """Return the line of a record with a new score, or `line` unchanged if the score is the same.

    Only the tail of a gymcli line is encoded again: this halves the time and preserves fields that
    a newer version may have put before the tail. An empty `line` forces encoding the whole record.
    """
    scored.env_options = options.model_dump(mode="json", exclude_defaults=True)
    # Rollouts of other programs have no version: their replay is not compared word by word.
    scored.env_version = environment.version if before.env_version else ""
    old, new = _tail(before, before.timing), _tail(scored, scored.timing)
    heads = [(record.env_options, record.env_version) for record in (before, scored)]
    if heads[0] != heads[1] or not line.endswith(old):
        return msgspec.json.encode(scored)
    if _tail(before, scored.timing) == new:  # only the timing differs
        return line
    return line[: -len(old)] + new


_TAIL_FIELDS = Rollout.__struct_fields__[Rollout.__struct_fields__.index("timing") :]
"""The fields at the end of a line, from the first one that a new score changes."""


def _tail(rollout: Rollout, timing: Timing) -> bytes:
    # Fields with their defaults are omitted: all that precedes the tail is an empty "usage".
    tail = Rollout(**{name: getattr(rollout, name) for name in _TAIL_FIELDS})
    tail.timing = timing
    encoded = msgspec.json.encode(tail)
    # `,"` cannot occur inside a JSON string, where the quotation mark is escaped.
    return encoded[encoded.index(b',"timing":') :]


class RescoreJob(msgspec.Struct, frozen=True):
    """What a worker needs to score any line of a file."""

    reading: RolloutReading
    env_specs: tuple[str, ...] = ()
    env_args: Mapping[str, Mapping[str, str]] = {}
    """Options by environment, as given on the command line."""
    keeps_lines: bool = False
    """Return the rescored lines, for a new run."""
    env_names: frozenset[str] = frozenset()
    """The environments that the lines name."""
    repeat: int = 0
    """The number of this scoring, from 1, when a verifier is compared with itself; else 0. Each
    repeat has new processes with another hash seed, and with another number of earlier calls of
    the verifier."""


def calls_before(repeat: int) -> int:
    """Return how many warm-up calls of a verifier a repeat makes before it scores."""
    return (repeat - 1) % _MAX_CALLS_BEFORE if repeat else 0


class Piece(msgspec.Struct):
    """Lines that one worker scores: a part of a file, or the lines themselves."""

    part: Part | None = None
    lines: list[Line] = []
    num_done: int = 0
    """How many of the lines an earlier worker scored."""
    is_careful: bool = False
    """True after these lines cost a worker: each reply is sent before the next line is scored."""

    def read(self, *, num_before: int = 0) -> Iterator[Line]:
        """Yield the lines to score; line numbers of a part start after `num_before`."""
        if self.part is None:
            return islice(self.lines, self.num_done, None)
        return islice(without_torn(self.part.lines(num_before)), self.num_done, None)


class LineReply(msgspec.Struct, array_like=True, omit_defaults=True):
    """A worker's reply to one line."""

    result: Rescored | None = None
    error: ErrorReply | None = None
    """An error that ends the command."""


def rescore_file(file: Path, job: RescoreJob, workers: Workers) -> AsyncGenerator[list[Rescored]]:
    """Rescore an uncompressed file, which the workers read, as `rescore_lines` does."""
    num_shares = _NUM_SHARES * workers.verifiers.num_workers

    def size(num_left: int) -> int:
        return min(max(num_left // num_shares, _MIN_BYTES), _MAX_BYTES)

    pieces = (Piece(part) for part in iterate_parts(file, size))
    return _in_workers(pieces, job, workers)


def rescore_lines(
    lines: Iterator[Line], job: RescoreJob, workers: Workers
) -> AsyncGenerator[list[Rescored]]:
    """Rescore lines and yield the results in their order.

    Raises:
        UsageError: A line, an environment or an option is wrong.
    """
    chunks = iter(lambda: list(islice(lines, _NUM_LINES)), [])
    return _in_workers((Piece(lines=chunk) for chunk in chunks), job, workers)


async def _in_workers(
    pieces: Iterator[Piece], job: RescoreJob, workers: Workers
) -> AsyncGenerator[list[Rescored]]:
    """Rescore pieces, at most two queued for each worker, so that memory stays bounded."""
    registry = Registry(job.env_specs)
    environments = [registry.find(name).environment for name in sorted(job.env_names)]
    definition = Definition(
        "custom",
        CodeReference(__name__, "", line_scorer.__name__),
        msgspec.json.encode(job).decode(),
        calls_before=calls_before(job.repeat),
    )
    kind = RequestKind(
        msgspec.json.encode(definition),
        "verify",
        # A worker may score lines of any of the environments, so the highest limits apply.
        max((environment.verify_timeout for environment in environments), default=60.0),
        max((environment.verify_memory_mb for environment in environments), default=2048),
        "(verify_timeout)",
    )
    waiting: deque[_PieceTask] = deque()
    try:
        while True:
            while len(waiting) <= 2 * workers.verifiers.num_workers:
                piece = next(pieces, None)
                if piece is None:
                    break
                waiting.append(_PieceTask(piece, job, registry, kind, workers))
            if not waiting:
                return
            # In the order of the lines: results of later pieces wait in their queues.
            while (batch := await waiting[0].batches.get()) is not None:
                yield batch
            await waiting.popleft().task
    finally:
        # A line was wrong, or the caller stopped reading.
        for piece_task in waiting:
            piece_task.task.cancel()
        await asyncio.gather(*(piece_task.task for piece_task in waiting), return_exceptions=True)


class _PieceTask:
    """A piece that is being scored."""

    def __init__(
        self, piece: Piece, job: RescoreJob, registry: Registry, kind: RequestKind, workers: Workers
    ) -> None:
        self.batches: asyncio.Queue[list[Rescored] | None] = asyncio.Queue()
        """Results as they arrive, then None."""
        self._piece, self._job, self._registry = piece, job, registry
        self._error: ErrorReply | None = None
        self.task = asyncio.create_task(self._score(kind, workers))

    async def _score(self, kind: RequestKind, workers: Workers) -> None:
        try:
            while True:
                record = msgspec.json.encode(self._piece)
                try:
                    await workers.verifiers.run(kind, record, self._take)
                    break
                except (VerifierCrashedError, VerifierTimeoutError) as error:
                    if not self._piece.is_careful:
                        # Score the lines since the last reply again, to find the one at fault.
                        self._piece.is_careful = True
                        continue
                    # The process was lost after the last line, whose result has arrived.
                    if (line := next(self._piece.read(), None)) is None:
                        break
                    rollout = decode_rollout(line.number, line.data, self._job.reading)
                    registration, _ = _environment_of(rollout, self._job, self._registry)
                    rollout.env = registration.name
                    reply = as_reply(error)
                    self._add([unscored(rollout, reply, keeps_line=self._job.keeps_lines)])
            if self._error is not None:
                self._raise(self._error)
        finally:
            self.batches.put_nowait(None)

    def _take(self, lines: list[bytes]) -> None:
        results: list[Rescored] = []
        try:
            for line in lines:
                reply = msgspec.json.decode(line, type=LineReply)
                self._error = reply.error
                if reply.result is not None:
                    results.append(reply.result)
        finally:  # replies before one that cannot be read count
            self._add(results)

    def _add(self, results: list[Rescored]) -> None:
        self._piece.num_done += len(results)
        if results:
            self.batches.put_nowait(results)

    def _raise(self, reply: ErrorReply) -> None:
        """Raise the error of a line with its number in the file, which workers do not know."""
        part, num_before = self._piece.part, 0
        if part is not None:
            num_before = Part(part.path, 0, part.start).num_lines()
        for line in islice(self._piece.read(num_before=num_before), 1):
            rollout = decode_rollout(line.number, line.data, self._job.reading)
            _environment_of(rollout, self._job, self._registry)
        raise as_error(reply)


def line_scorer(job: str) -> Scorer:
    """Return the function that scores stored lines in a worker process, for a `RescoreJob`."""
    return LineScorer(msgspec.json.decode(job, type=RescoreJob)).score


class LineScorer:
    """Scores stored lines in a worker process."""

    def __init__(self, job: RescoreJob) -> None:
        self._job = job
        self._registry = Registry(job.env_specs)
        self._environments: dict[bytes, tuple[Registration, EnvironmentOptions]] = {}
        for name in job.env_names:  # import now, so that no verifier is charged for it
            with suppress(GymError):
                self._registry.find(name)

    async def score(self, record: bytes, channel: Channel) -> None:
        """Score the lines of a piece and reply to each."""
        piece = msgspec.json.decode(record, type=Piece)
        replies = bytearray()
        sent_at = time.perf_counter()
        try:
            for line in piece.read():
                if piece.is_careful or time.perf_counter() - sent_at > _SEND_SECONDS:
                    channel.send(replies)
                    replies.clear()
                    sent_at = time.perf_counter()
                reply = LineReply(await self._rescored(line, channel))
                replies += msgspec.json.encode(reply) + b"\n"
        except GymError as error:
            replies += msgspec.json.encode(LineReply(error=as_reply(error))) + b"\n"
        channel.send(replies + DONE + b"\n")

    async def _rescored(self, line: Line, channel: Channel) -> Rescored:
        job = self._job
        before = decode_rollout(line.number, line.data, job.reading)
        registration, options = self._look_up(before)
        environment = registration.environment
        is_renamed = before.env != registration.name
        before.env = registration.name
        if environment.rescore == "recorded":
            return kept(line, before, keeps_line=job.keeps_lines)
        started = time.perf_counter()
        try:
            [score] = await call_verifier(environment, options, before, channel)
        except AttemptError as error:
            return unscored(before, as_reply(error), keeps_line=job.keeps_lines)
        result = compared(before, score)
        if job.keeps_lines:
            verifier = Verifier(environment.version, registration.source_hash)
            scored = before.scored(score, verifier, time.perf_counter() - started)
            old_line = b"" if is_renamed else line.data
            result.line = new_line(old_line, before, scored, environment, options)
        return result

    def _look_up(self, rollout: Rollout) -> tuple[Registration, EnvironmentOptions]:
        key = msgspec.json.encode((rollout.env, rollout.env_options))
        if key not in self._environments:
            registration, options = _environment_of(rollout, self._job, self._registry)
            self._environments[key] = registration, options
            if registration.environment.rescore != "recorded":
                prepare(registration.environment, options)
        return self._environments[key]


def _environment_of(
    rollout: Rollout, job: RescoreJob, registry: Registry
) -> tuple[Registration, EnvironmentOptions]:
    """Find the environment of a record and the options to score it with."""
    registration = registry.find(rollout.env)
    environment = registration.environment
    if environment.rescore == "recorded":
        return registration, environment.Options()
    env_args = job.env_args.get(registration.name, {})
    return registration, environment_options(
        environment, registration.name, env_args, rollout.env_options
    )
