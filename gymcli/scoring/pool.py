"""A pool of warm processes: a queue in the parent, and one request at a time for each process.

The parent therefore knows what a process is doing, and since when. A process that is late, dead or
too large is killed with everything it started, and only the request that it was doing fails.

On the socket, a process gets a definition once, `{...}`, and then requests, `NUMBER RECORD`, where
the number is that of the definition. It answers a definition with `READY`, and a request with any
number of lines and an empty one.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import operator
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from gymcli.errors import VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.registry.find import FILE_MODULE_PREFIX, module_of_file
from gymcli.scoring.child import ChildProcess

__all__ = ["READY", "Place", "ProcessPool", "Subject", "find_place", "load_place"]

READY = b"ready"
"""What a process answers when it has loaded a definition."""

_START_SECONDS = 60.0
"""Seconds that a process may take to start and to import what a definition names."""

_WATCH_SECONDS = 0.2
_SLOW_SECONDS = 1.0
_MEGABYTE = 2**20


class Place(NamedTuple):
    """Where another process finds a class or a function."""

    module: str
    file: str
    """Where the module was loaded from, if that was a file that no import finds; else empty."""
    qualname: str


def find_place(item: object) -> Place | None:
    """Return where another process finds a class or a function; None where it cannot."""
    module = getattr(item, "__module__", None) or ""
    qualname = getattr(item, "__qualname__", None) or ""
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not item or not qualname or module == "__main__":
        return None
    file = str(sys.modules[module].__file__) if module.startswith(FILE_MODULE_PREFIX) else ""
    return Place(module, file, qualname)


def load_place(place: Place) -> object:
    """Import a class or a function."""
    if place.file:
        module = module_of_file(Path(place.file), place.file)
    else:
        module = importlib.import_module(place.module)
    return operator.attrgetter(place.qualname)(module)


class Subject(NamedTuple):
    """What requests have in common."""

    definition: bytes
    """A JSON object, which a process is sent once."""
    name: str
    """What error messages call it."""
    seconds: float
    """How long a request may take between two lines of its reply."""
    memory_mb: float = math.inf
    """How much the resident memory of the process may grow."""
    option: str = ""
    """What sets `seconds`, for the error message."""


class _Job:
    """A request; `ended` gets the seconds that it took."""

    def __init__(
        self, subject: Subject, record: bytes, take: Callable[[list[bytes]], None]
    ) -> None:
        self.subject = subject
        self.record = record
        self.take = take
        self.ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def fail(self, error: VerifierError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class _Worker:
    """One process and the job that it does."""

    def __init__(self, pool: ProcessPool, module: str, variables: Mapping[str, str]) -> None:
        self._pool = pool
        self.job: _Job | None = None
        self.began = self.since = pool.now()
        """When it began with the job, and with the part of it that is under way."""
        self.is_ready = True
        """False while it loads a definition."""
        self.has_served = False
        self.resident_bytes = 0
        """Its memory after the last import."""
        self._numbers: dict[bytes, int] = {}
        self.child = ChildProcess(
            module,
            variables=variables,
            take_lines=self._take_lines,
            end=lambda: pool.lose(self),
        )

    def begin(self, job: _Job) -> None:
        self.job = job
        self.began = self.since = self._pool.now()
        self.load(job.subject)
        self.child.write(b"%d %b\n" % (self._numbers[job.subject.definition], job.record))

    def load(self, subject: Subject) -> None:
        if subject.definition not in self._numbers:
            self._numbers[subject.definition] = len(self._numbers)
            self.is_ready = False
            self.child.write(subject.definition + b"\n")

    def _take_lines(self, lines: list[bytes]) -> None:
        self.since = now = self._pool.now()
        if lines[0] == READY:
            self.is_ready = True
            self.resident_bytes = self.child.resident_bytes()
            lines = lines[1:]
        job = self.job
        if job is None or not lines:
            return
        self.has_served = True
        is_over = not lines[-1]
        job.take(lines[:-1] if is_over else lines)
        if not is_over:
            return
        self.job = None
        if not job.ended.done():
            job.ended.set_result(now - self.began)
        self._pool.pump()


class ProcessPool:
    """At most `num_workers` processes, started as they are needed and used in one event loop.

    Args:
        module: What the processes run: its `main` gets the handle of the socket.
        num_workers: How many there may be.
        variables: Returns their environment variables.
        now: The clock of the limits.

    """

    def __init__(
        self,
        module: str,
        num_workers: int,
        *,
        variables: Callable[[], Mapping[str, str]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_workers = num_workers
        self.now = now
        self._module = module
        self._variables = variables
        self._queue: deque[_Job] = deque()
        self._workers: list[_Worker] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def warm(self, subject: Subject) -> None:
        """Start the first process and let it load a definition; return at once."""
        if not self._is_closed:
            self._start(1)
            for worker in self._workers:
                if worker.job is None:
                    worker.load(subject)

    async def run(
        self,
        subject: Subject,
        record: bytes,
        take: Callable[[list[bytes]], None],
        *,
        when_slow: Callable[[], None] | None = None,
    ) -> float:
        """Let a process do a request, and return the seconds that it took.

        A process whose caller is cancelled is killed.

        Args:
            subject: What the request is about.
            record: The request, without a newline.
            take: Called with the lines of the reply as they come.
            when_slow: Called once if the request has not ended within a second.

        Raises:
            VerifierTimeoutError: It took too long.
            VerifierCrashedError: The process died, or needed too much memory.
            VerifierError: The pool is closed.

        """
        if self._is_closed:
            raise VerifierError(f"{subject.name} was not called: the workers were closed")
        self._start(1)
        job = _Job(subject, record, take)
        self._queue.append(job)
        self.pump()
        try:
            if when_slow is not None:
                await asyncio.wait((job.ended,), timeout=_SLOW_SECONDS)
                if not job.ended.done():
                    when_slow()
            return await job.ended
        except BaseException:
            if job in self._queue:
                self._queue.remove(job)
            for worker in [worker for worker in self._workers if worker.job is job]:
                self.lose(worker)
            raise

    def pump(self) -> None:
        """Let idle processes do what waits."""
        for worker in list(self._workers):
            if not self._queue:
                break
            if worker.job is None:
                worker.begin(self._queue.popleft())
        if self._timer is None and any(worker.job for worker in self._workers):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_WATCH_SECONDS, self._watch)

    def _start(self, num_workers: int) -> None:
        while len(self._workers) < min(num_workers, self.num_workers):
            self._workers.append(_Worker(self, self._module, self._variables()))

    def _watch(self) -> None:
        """Look at every busy process, several times a second."""
        self._timer = None
        for worker in list(self._workers):
            worker.child.read()
            if worker.job is not None:
                self._check(worker, worker.job.subject)
        if self._queue and all(worker.is_ready for worker in self._workers):
            self._start(len(self._workers) + len(self._queue))
        self.pump()

    def _check(self, worker: _Worker, subject: Subject) -> None:
        """Kill a process that is dead, late or too large."""
        limit, option = subject.seconds, subject.option
        if not worker.is_ready:
            limit, option = _START_SECONDS, "to be imported"
        if worker.child.has_ended():
            self.lose(worker)
        elif self.now() - worker.since > limit:
            text = f"{subject.name} took longer than {limit:g} seconds {option}".rstrip()
            self.lose(worker, VerifierTimeoutError(text))
        elif worker.is_ready and subject.memory_mb < math.inf:
            grown = worker.child.resident_bytes() - worker.resident_bytes
            if grown > subject.memory_mb * _MEGABYTE:
                limit_text = f"{subject.memory_mb:g} MB of memory (verify_memory_mb)"
                error = VerifierCrashedError(f"{subject.name} needed more than {limit_text}")
                self.lose(worker, error)

    def lose(self, worker: _Worker, error: VerifierError | None = None) -> None:
        """Kill a process, and fail the job that it still does after its last replies."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        how = worker.child.kill()
        job, worker.job = worker.job, None
        if job is not None and worker.has_served and worker.child.has_unread and not error:
            self._queue.appendleft(job)  # it died while it was idle
        elif job is not None:
            text = f"{job.subject.name}: its process died ({how})"
            job.fail(error or VerifierCrashedError(text))
        if self._queue:
            self._start(1)
            self.pump()

    async def close(self) -> None:
        """End all processes, busy ones in the middle of a request."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        workers, self._workers = self._workers, []
        for worker in workers:
            if worker.job is not None or not worker.is_ready:
                worker.child.kill()
            if worker.job is not None:
                name = worker.job.subject.name
                text = f"{name} was not called to its end: the workers were closed"
                worker.job.fail(VerifierError(text))
        while self._queue:
            job = self._queue.popleft()
            text = f"{job.subject.name} was not called: the workers were closed"
            job.fail(VerifierError(text))
        await asyncio.gather(*(worker.child.leave() for worker in workers))
