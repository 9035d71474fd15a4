"""Worker processes that score stored lines, many at a time; the results come in order.

A chunk of lines whose process died, or was killed because it hung, is scored anew line by line, and
only the line that does it again is unscored.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from gymcli.errors import VerifierError
from gymcli.scoring.isolation import Submitted, Workers
from gymcli.scoring.parts import (
    TURN_SECONDS,
    Batch,
    PartResults,
    RescoreJob,
    known_registry,
    score_lines,
    score_part,
)
from gymcli.scoring.rescored import AttemptErrorText, Rescored, unscored
from gymcli.store.blocks import Part, iterate_parts, part_lines
from gymcli.store.lines import Line
from gymcli.store.rollouts import decode_rollout, line_environment, without_torn

__all__ = ["FAR_LINES", "Pool", "Scorers", "chunks"]

_CHUNK_BYTES = 1 << 20
_MAX_PART_BYTES = 1 << 24
"""Of a file that workers read themselves; to ask one costs about as much as scoring 100 lines."""
_MIN_PART_BYTES = 1 << 20
_NUM_SHARES = 4
"""Parts are that small a share of what is left, by worker: towards the end none waits long."""
FAR_LINES = 16
"""Lines of a block that is scored elsewhere: those of heavy verifiers, which all are to share."""
_KILL_SECONDS = 5.0
"""Beyond the limit of a verifier, until a worker that does not end it itself is killed."""

R = TypeVar("R", covariant=True)
S = TypeVar("S")
T = TypeVar("T")


class Scorers(Protocol):
    """Processes elsewhere that score blocks of lines."""

    @property
    def num_workers(self) -> int:
        """How many there are, from the first block on."""
        ...

    def begin(
        self, lines: list[Line], job: RescoreJob, *, timeout: float, memory_mb: int
    ) -> _Result[list[Rescored]]:
        """Begin to score lines as `score_lines` does, under limits as of `Workers.submit`."""
        ...


class _Result(Protocol[R]):
    """What a call under way gives; waiting for it raises what the call raised."""

    def result(self) -> R: ...


class _Started(NamedTuple):
    """A chunk of lines, of which a worker scores the first ones."""

    lines: list[Line]
    results: _Result[list[Rescored]]


class _StartedPart(NamedTuple):
    """A part of the file, of which a worker scores the first lines."""

    part: Part
    results: Submitted[PartResults]


class Pool:
    """Scores lines in workers, many at a time, and gives the results in order."""

    def __init__(self, workers: Workers, job: RescoreJob, elsewhere: Scorers | None = None) -> None:
        self._workers = workers
        self._job = job
        self._elsewhere = elsewhere

    def rescored(self, chunks: Iterator[list[Line]]) -> Iterator[Batch]:
        """Score chunks of lines.

        Raises:
            UsageError: A line, an environment or an option is wrong.

        """
        for started in self._ahead(chunks, self._started):
            yield from self._ended(started)

    def rescored_parts(self, file: Path, *, num_before: int) -> Iterator[Batch]:
        """Score all lines of a file but the first ones; the workers read it.

        Raises:
            UsageError: A line, an environment or an option is wrong.

        """
        start = Part(str(file), 0, sys.maxsize).without(num_before).start
        num_shares = _NUM_SHARES * self._workers.num_workers

        def size(num_left: int) -> int:
            return min(max(num_left // num_shares, _MIN_PART_BYTES), _MAX_PART_BYTES)

        parts = iterate_parts(file, start=start, size=size)
        for started in self._ahead(parts, self._started_part):
            num_before = yield from self._part_ended(started, num_before)

    def _ahead(self, pieces: Iterator[T], start: Callable[[T], S]) -> Iterator[S]:
        """Start the work on pieces, and give them in order.

        Two a worker are under way, so that memory does not grow with the file.
        """
        waiting: deque[S] = deque()
        for piece in pieces:
            waiting.append(start(piece))
            if len(waiting) > 2 * (self._elsewhere or self._workers).num_workers:
                yield waiting.popleft()
        yield from waiting

    def _started(self, lines: list[Line]) -> _Started:
        names = {line_environment(line, self._job.reading) for line in lines}
        seconds, memory_mb = self._limits(names)
        timeout = seconds + (TURN_SECONDS if len(lines) > 1 else 0.0)
        if self._elsewhere is not None:
            begin = self._elsewhere.begin
            return _Started(lines, begin(lines, self._job, timeout=timeout, memory_mb=memory_mb))
        results = self._workers.submit(
            score_lines, lines, self._job, timeout=timeout, memory_mb=memory_mb, name="verify"
        )
        return _Started(lines, results)

    def _started_part(self, part: Part) -> _StartedPart:
        seconds, memory_mb = self._limits(self._job.env_names)
        results = self._workers.submit(
            score_part,
            part,
            self._job,
            timeout=seconds + TURN_SECONDS,
            memory_mb=memory_mb,
            name="verify",
        )
        return _StartedPart(part, results)

    def _limits(self, names: Iterable[str]) -> tuple[float, int]:
        """Give the seconds and the megabytes that a verifier of these environments may take."""
        registry = known_registry(self._job.env_specs)
        environments = [registry.find(name).environment for name in names]
        seconds = max((one.verify_timeout for one in environments), default=0.0)
        memory_mb = max((one.verify_memory_mb for one in environments), default=0)
        return seconds + _KILL_SECONDS, memory_mb

    def _ended(self, started: _Started) -> Iterator[Batch]:
        lines = started.lines
        while True:
            try:
                found = started.results.result()
            except VerifierError as error:
                yield from self._one_by_one(lines, error)
                return
            yield found
            lines = lines[len(found) :]
            if not lines:
                return
            started = self._started(lines)

    def _part_ended(self, started: _StartedPart, num_before: int) -> Generator[Batch, None, int]:
        """Give the results of a part, and of what its worker left; returns the lines up to there.

        Raises:
            UsageError: A line, an environment or an option is wrong.

        """
        part = started.part
        while True:
            try:
                found = started.results.result()
            except VerifierError as error:
                lines = list(without_torn(part_lines(part, num_before)))
                yield from self._one_by_one(lines, error)
                return num_before + part.num_lines()
            yield from found.batches
            num_before += found.num_lines
            if found.ends == "all":
                return num_before
            part = part.without(found.num_lines)
            if found.ends == "odd":
                line = next(without_torn(part_lines(part, num_before)), None)
                if line is None:  # what its writer did not finish
                    return num_before
                yield from self.rescored(iter([[line]]))
                part = part.without(line.number - num_before)
                num_before = line.number
            started = self._started_part(part)

    def _one_by_one(self, lines: list[Line], error: VerifierError) -> Iterator[Batch]:
        """Score lines whose process died, each by itself."""
        if len(lines) > 1:
            yield from self.rescored([line] for line in lines)
            return
        for line in lines:
            rollout = decode_rollout(line.number, line.data, self._job.reading)
            rollout.env = known_registry(self._job.env_specs).find(rollout.env).name
            text = AttemptErrorText(type(error).__name__, str(error))
            yield [unscored(rollout, text, keeps_line=self._job.keeps_lines)]


def chunks(lines: Iterator[Line], *, max_lines: int = sys.maxsize) -> Iterator[list[Line]]:
    """Put lines that follow one another together, about a megabyte of them."""
    chunk: list[Line] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line.data)
        if size >= _CHUNK_BYTES or len(chunk) >= max_lines:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
