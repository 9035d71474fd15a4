"""Stored rollouts scored again: what changed of each, and the workers that read a file for it."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.errors import AttemptError, GymError, UsageError, VerifierError
from gymcli.registry import Found, Registry, environment_options
from gymcli.scoring.worker import Call, Definition, ErrorReply, call_verifier, error_reply, prepare
from gymcli.scoring.workers import Job, Subject, Workers, raised_again
from gymcli.store.blocks import Part, iterate_parts, part_lines
from gymcli.store.lines import Line
from gymcli.store.rollouts import RolloutReading, decode_rollout, without_torn
from gymcli.types import AttemptKey, JSONObject, Rollout, Score, Timing, Verifier

__all__ = [
    "AttemptErrorText",
    "Numbers",
    "RescoreJob",
    "Rescored",
    "Rescoring",
    "Scorers",
    "calls_before",
    "compared",
    "kept",
    "known_registry",
    "new_line",
    "rescore_elsewhere",
    "rescore_file",
    "rescore_lines",
    "unscored",
]

_FIRST_BYTES = 1 << 15
"""Of the first parts of a file, before it is known how long verifiers take."""
_MAX_BYTES = 1 << 23
_PART_SECONDS = 0.5
_NUM_SHARES = 4
"""Parts are that small a share of what is left, by worker: towards the end none waits long."""
_FAR_LINES = 16
"""Lines of a block that is scored elsewhere: those of heavy verifiers, which all are to share."""

_MAX_CALLS_BEFORE = 4
_CALLS_SECONDS = 2.5
"""After so many seconds no more calls are made before."""


class AttemptErrorText(msgspec.Struct):
    """The class and text of the error that a verifier raised."""

    error_class: str
    message: str


class Numbers(msgspec.Struct):
    """What a verifier gives beside the reward."""

    components: dict[str, float]
    metrics: dict[str, float]


class Rescored(msgspec.Struct, kw_only=True, array_like=True, omit_defaults=True):
    """What rescoring one line gave."""

    key: AttemptKey
    old_reward: float | None
    new_reward: float | None
    """None: the verifier failed, `error` says how."""
    old_reason: str = ""
    new_reason: str = ""
    numbers: tuple[Numbers, Numbers] | None = None
    """The old and the new ones; None where they are the same."""
    error: AttemptErrorText | None = None
    is_rescored: bool = True
    line: bytes = b""

    @property
    def is_changed(self) -> bool:
        """Whether the reward is another one now."""
        return self.is_rescored and self.old_reward != self.new_reward


class RescoreJob(msgspec.Struct, frozen=True):
    """What a worker needs to know to score any line of a file."""

    reading: RolloutReading
    env_specs: tuple[str, ...] = ()
    env_args: Mapping[str, Mapping[str, str]] = {}
    """Options by environment, as given on the command line."""
    keeps_lines: bool = False
    """Return the rescored lines, for a new run."""
    env_names: frozenset[str] = frozenset()
    """The environments that the lines name."""
    repeat: int = 0
    """Which scoring of the same lines it is, from 1 on, where verifiers are compared with
    themselves; 0 where they are not. Then lines are scored by new processes each time, which hash
    texts in another way, and which have called the verifier another number of times before."""


@functools.cache
def known_registry(specs: tuple[str, ...]) -> Registry:
    """Return one registry a process, which looks an environment up once."""
    return Registry(specs)


def calls_before(repeat: int) -> int:
    """Return how often a repeat calls a verifier for nothing, before it scores."""
    return (repeat - 1) % _MAX_CALLS_BEFORE


class LineReply(msgspec.Struct, array_like=True, omit_defaults=True):
    """What a worker says of a line, or at the end of its lines."""

    number: int
    """Of the line; in a part counted from 1."""
    result: Rescored | None = None
    """None: there are no more lines, or there is an error."""
    error: ErrorReply | None = None
    """Why the line ends the command."""
    seconds: float = 0.0
    """At the end: what all lines took."""


class Rescoring:
    """Scores stored lines in the process of a worker."""

    def __init__(self, method: str, job: RescoreJob) -> None:
        self._reads_parts = method == "rescore_part"
        self._job = job
        self._has_called = not job.repeat
        self._known: dict[bytes, tuple[Found, EnvironmentOptions]] = {}
        self._env: tuple[str, JSONObject] | None = None
        self._found: tuple[Found, EnvironmentOptions]

    async def score(self, record: bytes, call: Call) -> None:
        """Score a part of a file, or a list of lines, and reply to each line."""
        started = time.perf_counter()
        lines: Iterable[Line]
        if self._reads_parts:
            lines = without_torn(part_lines(msgspec.json.decode(record, type=Part), 0))
        else:
            lines = msgspec.json.decode(record, type=list[Line])
        number = 0
        try:
            for line in lines:
                number = line.number
                if not self._has_called:
                    await self._call_before(line, call)
                result = await self._rescored(line, call)
                call.reply(msgspec.json.encode(LineReply(number, result)))
        except GymError as error:
            end = LineReply(number, error=error_reply(error))
        else:
            end = LineReply(number, seconds=time.perf_counter() - started)
        call.reply(msgspec.json.encode(end))

    async def _call_before(self, line: Line, call: Call) -> None:
        """Score a line for nothing but that the verifier has been called, in a repeat once more."""
        self._has_called = True
        ends = time.perf_counter() + _CALLS_SECONDS
        for _ in range(calls_before(self._job.repeat)):
            await self._rescored(line, call)
            if time.perf_counter() >= ends:
                break

    async def _rescored(self, line: Line, call: Call) -> Rescored:
        job = self._job
        before = decode_rollout(line.number, line.data, job.reading)
        if (before.env, before.env_options) != self._env:
            self._env = before.env, before.env_options
            self._found = self._look_up(before)
        found, options = self._found
        environment = found.environment
        is_renamed = before.env != found.name
        before.env = found.name
        if environment.rescore == "recorded":
            return kept(line, before, keeps_line=job.keeps_lines)
        started = time.perf_counter()
        try:
            [score] = await call_verifier("verify", environment, options, before, call)
        except AttemptError as error:
            reply = error_reply(error)
            text = AttemptErrorText(reply.error_class, reply.text)
            return unscored(before, text, keeps_line=job.keeps_lines)
        result = compared(before, score)
        if job.keeps_lines:
            verifier = Verifier(environment.version, found.source_hash)
            scored = before.scored(score, verifier, time.perf_counter() - started)
            old_line = b"" if is_renamed else line.data
            result.line = new_line(old_line, before, scored, environment, options)
        return result

    def _look_up(self, rollout: Rollout) -> tuple[Found, EnvironmentOptions]:
        """Find the environment of a record with its options, and prepare it once.

        Raises:
            UsageError: There is none, or an option is wrong.

        """
        key = msgspec.json.encode((rollout.env, rollout.env_options))
        if key not in self._known:
            found, options = subject_of(rollout, self._job)
            if found.environment.rescore != "recorded":
                prepare(found.environment, options)
            self._known[key] = found, options
        return self._known[key]


def subject_of(rollout: Rollout, job: RescoreJob) -> tuple[Found, EnvironmentOptions]:
    """Find the environment of a record, and the options that it is scored with.

    Raises:
        UsageError: There is none, or an option is wrong.

    """
    found = known_registry(job.env_specs).find(rollout.env)
    environment = found.environment
    if environment.rescore == "recorded":
        return found, environment.Options()
    given = job.env_args.get(found.name, {})
    return found, environment_options(environment, found.name, given, rollout.env_options)


_REPLY = msgspec.json.Decoder(LineReply)


class _LinesJob(Job):
    """Lines that one worker scores: those of a part of a file, or given ones."""

    is_long = True

    def __init__(self, subject: Subject, job: RescoreJob, lines: Part | list[Line]) -> None:
        super().__init__(subject, msgspec.json.encode(lines))
        self.lines = lines
        self.num_bytes = (
            lines.end - lines.start
            if isinstance(lines, Part)
            else sum(len(line.data) for line in lines)
        )
        self.seconds = 0.0
        self.is_over = False
        self._job = job
        self._number = 0
        self._results: list[Rescored] = []
        self._error: GymError | None = None
        self._has_news = asyncio.Event()

    def take(self, reply: bytes) -> bool:
        found = _REPLY.decode(reply)
        self._number = found.number
        self._has_news.set()
        if found.result is not None:
            self._results.append(found.result)
            return False
        self.is_over, self.seconds = True, found.seconds
        if found.error is not None:
            self._error = raised_again(found.error)
        return True

    def fail(self, error: VerifierError) -> Job | None:
        self._has_news.set()
        try:
            left = self._left()
            line = next(left, None)
            if line is None:
                self.is_over = True
                return None
            rollout = decode_rollout(line.number, line.data, self._job.reading)
            rollout.env = subject_of(rollout, self._job)[0].name
            text = AttemptErrorText(type(error).__name__, str(error))
            self._results.append(unscored(rollout, text, keeps_line=self._job.keeps_lines))
            self._number = line.number
            if isinstance(self.lines, Part):
                self.lines = self.lines.without(self._number)
                self._number = 0
            else:
                self.lines = list(left)
            self.record = msgspec.json.encode(self.lines)
        except UsageError as found:
            # It has the number of the line in the part.
            self.is_over, self._error = True, found
            return None
        self.num_lost = 0
        return self

    def _left(self, num_before: int = 0) -> Iterator[Line]:
        """Yield the lines that are not done; those of a part are numbered after those before it."""
        if isinstance(self.lines, Part):
            lines = without_torn(part_lines(self.lines, num_before))
        else:
            lines, num_before = iter(self.lines), 0
        return (line for line in lines if line.number > num_before + self._number)

    async def batch(self) -> list[Rescored]:
        """Wait for results, or the end, and return those that are new."""
        await self._has_news.wait()
        if not self.is_over:
            self._has_news.clear()
        results, self._results = self._results, []
        return results

    def check(self) -> None:
        """See that every line was one that can be scored.

        Raises:
            GymError: A line, an environment or an option is wrong; it names the line in the file.

        """
        if self._error is None:
            return
        # The worker does not know the number of the line in the file, so that it is read again.
        num_before = 0
        if isinstance(self.lines, Part):
            num_before = Part(self.lines.path, 0, self.lines.start).num_lines()
        self._number -= 1
        for line in itertools.islice(self._left(num_before), 2):
            subject_of(decode_rollout(line.number, line.data, self._job.reading), self._job)
        raise self._error


class _Size:
    """How many bytes a worker gets at once: what it scores in half a second."""

    def __init__(self) -> None:
        self._bytes = float(_FIRST_BYTES)

    def learn(self, job: _LinesJob) -> None:
        """See how long lines took."""
        if job.seconds:
            self._bytes = job.num_bytes * _PART_SECONDS / job.seconds

    def of(self, num_left: int, num_workers: int) -> int:
        """Return the bytes of the next part."""
        most = max(num_left // (_NUM_SHARES * num_workers), _FIRST_BYTES)
        return int(max(1, min(self._bytes, most, _MAX_BYTES)))


async def rescore_file(
    file: Path, job: RescoreJob, workers: Workers
) -> AsyncGenerator[list[Rescored]]:
    """Rescore a plain file, which the workers read; yield results in the order of its lines.

    Raises:
        UsageError: A line, an environment or an option is wrong.

    """
    size = _Size()
    parts = iterate_parts(file, start=0, size=lambda left: size.of(left, workers.num_workers))
    async for batch in _rescored("rescore_part", parts, job, workers, size):
        yield batch


async def rescore_lines(
    lines: Iterator[Line], job: RescoreJob, workers: Workers
) -> AsyncGenerator[list[Rescored]]:
    """Rescore lines, and yield results in their order.

    Raises:
        UsageError: A line, an environment or an option is wrong.

    """
    size = _Size()
    chunks = _chunks(lines, lambda: size.of(_MAX_BYTES, 1))
    async for batch in _rescored("rescore_lines", chunks, job, workers, size):
        yield batch


def _chunks(lines: Iterator[Line], size: Callable[[], int]) -> Iterator[list[Line]]:
    chunk: list[Line] = []
    num_bytes = 0
    for line in lines:
        chunk.append(line)
        num_bytes += len(line.data)
        if num_bytes >= size():
            yield chunk
            chunk, num_bytes = [], 0
    if chunk:
        yield chunk


async def _rescored(
    method: Literal["rescore_part", "rescore_lines"],
    pieces: Iterator[Part] | Iterator[list[Line]],
    job: RescoreJob,
    workers: Workers,
    size: _Size,
) -> AsyncGenerator[list[Rescored]]:
    """Let workers score pieces ahead, two each, so that memory does not grow with the file."""
    registry = known_registry(job.env_specs)
    environments = [registry.find(name).environment for name in sorted(job.env_names)]
    subject = workers.add(
        Subject(
            Definition(method, job=msgspec.Raw(msgspec.json.encode(job))),
            "verify",
            max((one.verify_timeout for one in environments), default=60.0),
            max((one.verify_memory_mb for one in environments), default=2048),
        )
    )
    waiting: deque[_LinesJob] = deque()
    while True:
        while len(waiting) <= 2 * workers.num_workers:
            lines = next(pieces, None)
            if lines is None:
                break
            waiting.append(_LinesJob(subject, job, lines))
            workers.submit(waiting[-1])
        if not waiting:
            return
        first = waiting[0]
        if batch := await first.batch():
            yield batch
        elif first.is_over:
            size.learn(first)
            first.check()
            waiting.popleft()


class Scorers(Protocol):
    """Processes elsewhere that score blocks of lines."""

    @property
    def num_workers(self) -> int:
        """How many there are, from the first block on."""
        ...

    def begin(self, lines: list[Line], job: RescoreJob) -> Future[list[Rescored]]:
        """Begin to score lines; a VerifierError says that their process died again and again."""
        ...


async def rescore_elsewhere(
    lines: Iterator[Line], job: RescoreJob, scorers: Scorers
) -> AsyncGenerator[list[Rescored]]:
    """Rescore lines in other places than workers, and yield results in their order.

    Raises:
        UsageError: A line, an environment or an option is wrong.

    """
    waiting: deque[tuple[list[Line], Future[list[Rescored]]]] = deque()
    while True:
        while not waiting or len(waiting) <= 2 * scorers.num_workers:
            block = list(itertools.islice(lines, _FAR_LINES))
            if not block:
                break
            waiting.append((block, scorers.begin(block, job)))
        if not waiting:
            return
        block, future = waiting.popleft()
        try:
            results = await asyncio.wrap_future(future)
        except VerifierError as error:
            if len(block) > 1:  # the others of it are innocent
                waiting.extendleft(reversed([([one], scorers.begin([one], job)) for one in block]))
                continue
            rollout = decode_rollout(block[0].number, block[0].data, job.reading)
            rollout.env = subject_of(rollout, job)[0].name
            text = AttemptErrorText(type(error).__name__, str(error))
            results = [unscored(rollout, text, keeps_line=job.keeps_lines)]
        yield results


def kept(line: Line, rollout: Rollout, *, keeps_line: bool) -> Rescored:
    """Return a record that keeps its score, since its world cannot be replayed."""
    result = _of(rollout, rollout.reward)
    result.is_rescored = False
    if keeps_line:
        result.line = line.data if rollout.env_version else msgspec.json.encode(rollout)
    return result


def compared(before: Rollout, scored: Rollout | Score) -> Rescored:
    """Return what a new score changed of a record."""
    result = _of(before, scored.reward)
    result.new_reason = _reason(scored.details)
    if before.components != scored.components or before.metrics != scored.metrics:
        result.numbers = _numbers(before), _numbers(scored)
    return result


def new_line(
    line: bytes,
    before: Rollout,
    scored: Rollout,
    environment: type[Environment[Task]],
    options: EnvironmentOptions,
) -> bytes:
    """Return the line of a record with a new score; as it was where the score is the same.

    Where the line ends as one of ours does only its end is written anew: that takes half of the
    time, and keeps what a newer version may have put before it.

    Args:
        line: The line as it was; empty where nothing of it is to be kept.
        before: The record.
        scored: The record with its new score.
        environment: Its environment.
        options: Those that it was scored with.

    """
    scored.env_options = options.model_dump(mode="json", exclude_defaults=True)
    # Rollouts of other programs stay without: their replay is not compared word by word.
    scored.env_version = environment.version if before.env_version else ""
    old, new = _tail(before, before.timing), _tail(scored, scored.timing)
    has_same_head = (
        before.env_options == scored.env_options and before.env_version == scored.env_version
    )
    if not (has_same_head and line.endswith(old)):
        return msgspec.json.encode(scored)
    if _tail(before, scored.timing) == new:  # it took another time, which is no news
        return line
    return line[: -len(old)] + new


class _Tail(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The end of a line: what a new score changes, from the first of it on."""

    timing: Timing = msgspec.field(default_factory=Timing)
    retries: dict[str, int] = {}
    reward: float | None = None
    components: dict[str, float] = {}
    metrics: dict[str, float] = {}
    answer: str | None = None
    details: JSONObject = {}
    verifier: Verifier = msgspec.field(default_factory=Verifier)


def _tail(rollout: Rollout, timing: Timing) -> bytes:
    """Return the end of a record's line, from the comma before it.

    A comma and a quotation mark stand nowhere within a text: there the mark is escaped.
    """
    tail = _Tail(
        timing=timing,
        retries=rollout.retries,
        reward=rollout.reward,
        components=rollout.components,
        metrics=rollout.metrics,
        answer=rollout.answer,
        details=rollout.details,
        verifier=rollout.verifier,
    )
    return b"," + msgspec.json.encode(tail)[1:]


def unscored(before: Rollout, error: AttemptErrorText, *, keeps_line: bool) -> Rescored:
    """Return a record whose verifier failed."""
    result = _of(before, None)
    result.error = error
    if keeps_line:
        result.line = msgspec.json.encode(before.unscored())
    return result


def _of(before: Rollout, new_reward: float | None) -> Rescored:
    return Rescored(
        key=before.key,
        old_reward=before.reward,
        new_reward=new_reward,
        old_reason=_reason(before.details),
    )


def _reason(details: JSONObject) -> str:
    reason = details.get("reason")
    return reason if isinstance(reason, str) else ""


def _numbers(scored: Rollout | Score) -> Numbers:
    return Numbers(scored.components, scored.metrics)
