"""Processes in which verifiers run: a queue in the parent, and what every worker is doing.

A worker gets one record, or a few where the last ones took little time. It replies to each as soon
as it is scored, so that its parent knows which one is under way and since when. A worker that is
late, dead or too large is killed with what it started; the record is unscored, and those after it
go to another worker. So no verifier is interrupted, and none is called twice for a record.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from gymcli import errors
from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.errors import GymError, VerifierCrashedError, VerifierError, VerifierTimeoutError
from gymcli.registry.find import FILE_MODULE_PREFIX
from gymcli.scoring.child import ChildProcess
from gymcli.scoring.isolation import START_SECONDS, IsolatedProcesses
from gymcli.scoring.worker import READY, Definition, ErrorReply, Method, Place, ScoreReply
from gymcli.secrets import NOTHING_SECRET, Scrubber

__all__ = ["Job", "ScoreJob", "Subject", "Workers", "place_of", "raised_again"]

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

_WATCH_SECONDS = 0.2
_SAVE_SECONDS = 1.0
"""Without a score for so long, a conversation is saved."""

_MAX_JOBS = 32
_JOBS_SECONDS = 0.05
"""A worker gets as many records at once as it would score in this time."""

_MAX_LOST = 3
"""Workers that may die over a record before they have begun with it."""

_MEGABYTE = 2**20


class Subject:
    """What the records of an environment and its options have in common."""

    def __init__(self, definition: Definition, name: str, seconds: float, memory_mb: int) -> None:
        self.definition = msgspec.json.encode(definition)
        self.name = name
        """What messages call it."""
        self.seconds = seconds
        """That a record may take."""
        self.memory_mb = memory_mb


class Job(ABC):
    """Something for one worker to do; its replies are lines."""

    is_long = False
    """It is many records; a worker gets nothing beside it."""

    def __init__(self, subject: Subject, record: bytes) -> None:
        self.subject = subject
        self.record = record
        self.num_lost = 0

    @property
    def is_dropped(self) -> bool:
        """Whether nobody waits for it any more."""
        return False

    @abstractmethod
    def take(self, reply: bytes) -> bool:
        """Take a reply; return whether it was the last one."""

    @abstractmethod
    def fail(self, error: VerifierError) -> Job | None:
        """End the record under way with an error; return the job that is left, if any."""

    def wait(self, now: float) -> None:
        """See that it has not ended."""
        del now


_REPLY = msgspec.json.Decoder(ScoreReply)


class ScoreJob(Job):
    """One record, or one group, whose caller waits for the scores."""

    def __init__(
        self, subject: Subject, record: bytes, save: Callable[[], None] | None, now: float
    ) -> None:
        super().__init__(subject, record)
        self.future: asyncio.Future[ScoreReply] = asyncio.get_running_loop().create_future()
        self._save = save
        self._began = now

    @property
    def is_dropped(self) -> bool:
        """Whether its caller was cancelled."""
        return self.future.done()

    def take(self, reply: bytes) -> bool:
        """Take the only reply."""
        found = _REPLY.decode(reply)
        if self.future.done():
            return True
        if found.error is None:
            self.future.set_result(found)
        else:
            self.future.set_exception(raised_again(found.error))
        return True

    def fail(self, error: VerifierError) -> None:
        """Raise the error where the scores are awaited."""
        if not self.future.done():
            self.future.set_exception(error)

    def wait(self, now: float) -> None:
        """Save the conversation where the score takes long."""
        if self._save is not None and now - self._began > _SAVE_SECONDS:
            save, self._save = self._save, None
            if not self.future.done():
                try:
                    save()
                except BaseException as error:  # noqa: BLE001  # raised where the score is awaited
                    self.future.set_exception(error)


def raised_again(reply: ErrorReply) -> GymError:
    """Return the error of a reply, to be raised here."""
    kind = getattr(errors, reply.error_class, VerifierError)
    return kind(reply.text)


class _Worker:
    """One worker process and the jobs that it has."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.jobs: deque[Job] = deque()
        self.is_ready = True
        """False while it loads an environment."""
        self.since = workers.now()
        """When it began with what is under way."""
        self.resident_bytes = 0
        """What it had after the last import."""
        self._known: set[Subject] = set()
        self._seconds = _JOBS_SECONDS
        """That a record took, of late."""
        self._numbers = workers.numbers
        self.child = ChildProcess(
            "gymcli.scoring.worker",
            variables=os.environ,
            take_lines=self._take_lines,
            end=lambda: workers.lost(self),
        )

    def share(self, num_waiting: int) -> int:
        """Return how many of the jobs that wait it should get."""
        fair = -(-num_waiting // self._workers.num_workers)
        return max(1, min(_MAX_JOBS, fair, int(_JOBS_SECONDS / max(self._seconds, 1e-6))))

    def takes_alone(self, job: Job) -> bool:
        """Return whether a job is many records, or the first of an environment."""
        return job.is_long or job.subject not in self._known

    def give(self, jobs: list[Job]) -> None:
        """Send jobs to an idle worker."""
        self.since = self._workers.now()
        self.jobs.extend(jobs)
        self.child.write(b"".join([self._request(job.subject, job.record) for job in jobs]))

    def warm(self, subject: Subject) -> None:
        """Let the worker load an environment."""
        self.since = self._workers.now()
        self.child.write(self._request(subject, b""))

    def _request(self, subject: Subject, record: bytes) -> bytes:
        number = self._numbers[subject]
        if subject in self._known:
            return b"[%d]\n%b\n" % (number, record)
        self._known.add(subject)
        self.is_ready = False
        return b"[%d,%b]\n%b\n" % (number, subject.definition, record)

    def _take_lines(self, lines: list[bytes]) -> None:
        now, num_ended = self._workers.now(), 0
        for line in lines:
            if line == READY:
                self.is_ready = True
                self.resident_bytes = self.child.resident_bytes()
            else:
                if self.jobs[0].take(line):
                    self.jobs.popleft()
                num_ended += 1
        if num_ended:
            self._seconds = 0.5 * (self._seconds + (now - self.since) / num_ended)
        self.since = now
        if not self.jobs:
            self._workers.pump_soon()


class Workers:
    """At most `num_workers` processes for verifiers, and as many for `context.isolated`.

    An async context manager. Nothing is started before `warm` or the first score.

    Args:
        num_workers: None: one for each core that this process may use.
        scrubber: Knows the secrets that isolated functions do not get; verifiers get all variables.
        now: The clock of the limits; one that stands still while the event loop is blocked.

    """

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        scrubber: Scrubber = NOTHING_SECRET,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_workers = num_workers or _usable_cores()
        """How many there may be."""
        self.now = now
        self.calls_before = 0
        """So often does a new worker call a verifier for nothing, where verifiers are compared with
        themselves."""
        self.numbers: dict[Subject, int] = {}
        """Of the subjects that workers know."""
        self.isolated = IsolatedProcesses(self.num_workers, scrubber)
        self._added: dict[tuple[bytes, str], Subject] = {}
        self._subjects: dict[tuple[str, type, int], tuple[Subject, EnvironmentOptions]] = {}
        self._queue: deque[Job] = deque()
        self._workers: list[_Worker] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._is_closed = False

    def warm(self, environment: type[Environment[Task]], options: EnvironmentOptions) -> None:
        """Start the first worker and let it load an environment; return at once."""
        if place_of(environment) is None or self._is_closed:
            return
        subject = self.subject("verify", environment, options)
        self._start(1)
        for worker in self._workers:
            if not worker.jobs:
                worker.warm(subject)

    def subject(
        self, method: Method, environment: type[Environment[Task]], options: EnvironmentOptions
    ) -> Subject:
        """Return what names a verifier to the workers, the same one each time."""
        key = (method, environment, id(options))
        if key not in self._subjects:
            text = options.model_dump_json()
            definition = Definition(
                method, place_of(environment), text, calls_before=self.calls_before
            )
            seconds, memory_mb = environment.verify_timeout, environment.verify_memory_mb
            subject = Subject(definition, f"{method} of {environment.__name__}", seconds, memory_mb)
            # The options are kept, so that their id stays their own.
            self._subjects[key] = self.add(subject), options
        return self._subjects[key][0]

    def add(self, subject: Subject) -> Subject:
        """Number a subject, unless an equal one has a number; return the one that has."""
        found = self._added.setdefault((subject.definition, subject.name), subject)
        self.numbers.setdefault(found, len(self.numbers))
        return found

    def submit(self, job: Job) -> None:
        """Let a worker do a job, as soon as one is free.

        Raises:
            VerifierError: The workers are closed.

        """
        if self._is_closed:
            raise VerifierError(f"{job.subject.name} was not called: the workers were closed")
        self._queue.append(job)
        self.pump_soon()

    def pump_soon(self) -> None:
        """Hand out jobs in the next turn of the loop, in which more may be there."""
        if not self._is_pumping and not self._is_closed:
            self._is_pumping = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if self._is_closed:
            return
        queue = self._queue
        if queue:
            self._start(1)
        for worker in self._workers:
            if worker.jobs:
                continue
            jobs: list[Job] = []
            num_jobs = worker.share(len(queue))
            while queue and len(jobs) < num_jobs and not (jobs and worker.takes_alone(queue[0])):
                job = queue.popleft()
                if not job.is_dropped:
                    jobs.append(job)
                if job.is_long:
                    break
            if jobs:
                worker.give(jobs)
        if self._timer is None and (queue or any(worker.jobs for worker in self._workers)):
            assert self._loop is not None, "it runs"
            self._timer = self._loop.call_later(_WATCH_SECONDS, self._watch)

    def _start(self, num_workers: int) -> None:
        """Start workers until there are so many."""
        while len(self._workers) < num_workers:
            self._workers.append(_Worker(self))

    def _watch(self) -> None:
        """Look at every job and worker, several times a second while there is a job."""
        self._timer = None
        now = self.now()
        for worker in list(self._workers):
            for job in worker.jobs:
                job.wait(now)
            if worker.jobs:
                self._look_at(worker, now)
        for job in self._queue:
            job.wait(now)
        if self._queue and all(worker.is_ready for worker in self._workers):
            self._start(min(self.num_workers, len(self._workers) + len(self._queue)))
        self._pump()

    def _look_at(self, worker: _Worker, now: float) -> None:
        """Replace a busy worker that is dead, late or too large."""
        worker.child.read()
        if not worker.jobs:
            return
        subject = worker.jobs[0].subject
        seconds = subject.seconds if worker.is_ready else START_SECONDS
        grown = worker.child.resident_bytes() - worker.resident_bytes
        if worker.child.has_ended():
            self.lost(worker)
        elif now - worker.since > seconds:
            limit = f"{seconds:g} seconds (verify_timeout)"
            if not worker.is_ready:
                limit = f"{seconds:g} seconds to be imported"
            self.lost(worker, VerifierTimeoutError(f"{subject.name} took longer than {limit}"))
        elif worker.is_ready and grown > subject.memory_mb * _MEGABYTE:
            limit = f"{subject.memory_mb} MB of memory (verify_memory_mb)"
            self.lost(worker, VerifierCrashedError(f"{subject.name} needed more than {limit}"))

    def lost(self, worker: _Worker, error: VerifierError | None = None) -> None:
        """End a worker, and give what is left of its jobs to others."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        was_in_call = worker.child.is_in_call()
        how = worker.child.kill()  # takes what it replied before
        jobs = worker.jobs
        if jobs:
            job = jobs.popleft()
            job.num_lost += 1
            left: Job | None = job
            if was_in_call or error is not None or job.num_lost >= _MAX_LOST:
                text = f"{job.subject.name}: its process died ({how})"
                left = job.fail(error or VerifierCrashedError(text))
            if left is not None:
                jobs.appendleft(left)
        self._queue.extendleft(reversed(jobs))
        jobs.clear()
        self.pump_soon()

    async def call(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a function as `IsolatedProcesses.call` does."""
        return await self.isolated.call(
            function, *args, timeout=timeout, memory_mb=memory_mb, imports=imports
        )

    async def close(self) -> None:
        """End all processes, busy ones in the middle of their call, and wait for that."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        workers, self._workers = self._workers, []
        jobs = list(self._queue)
        self._queue.clear()
        for worker in workers:
            jobs += worker.jobs
            if worker.jobs or not worker.is_ready:
                worker.child.kill()
        for job in jobs:
            job.fail(VerifierError(f"{job.subject.name} was not called: the workers were closed"))
        leaving = [worker.child.leave() for worker in workers]
        await asyncio.gather(self.isolated.close(), *leaving)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _usable_cores() -> int:
    """Count the cores that this process may use, where the system says that (Linux)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def place_of(environment: type[Environment[Task]]) -> Place | None:
    """Return where another process finds a class; None where it cannot."""
    name = environment.__module__
    found: object = sys.modules.get(name)
    for part in environment.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not environment or name == "__main__":
        return None
    is_file = name.startswith(FILE_MODULE_PREFIX)
    file = str(sys.modules[name].__file__) if is_file else ""
    return Place(name, file, environment.__qualname__)
