"""Scores blocks of stored lines in the workers of a Ray cluster, for verifiers that compute much.

Each worker takes the next block when it is done with one. A block that a worker had when it died is
scored by another; after the third death its lines are scored one by one, and one that was with
three workers as they died is unscored. Ray is imported with the first block.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import msgspec

from gymcli.engines.cluster import Cluster
from gymcli.engines.code import code_of
from gymcli.engines.deaths import (
    MAX_DEATHS,
    Deaths,
    check_opened,
    not_started,
)
from gymcli.engines.messages import Block, ScoredBlock
from gymcli.engines.process import Call, WorkerLostError, WorkerProcess
from gymcli.engines.scorer import Scorer, ScoringJob
from gymcli.engines.sending import raised_again
from gymcli.environment.registry import Registry
from gymcli.errors import GymError, UsageError, VerifierError
from gymcli.rollout.rescored import Rescored, RescoreJob
from gymcli.secrets import Scrubber
from gymcli.store.lines import Line

__all__ = ["RayScorers"]

_LOGGER = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
"""So often a thread that waits for a worker looks whether all is over."""

_CLOSE_SECONDS = 5.0


class RayScorers:
    """Workers of a Ray cluster that score blocks of lines; a context manager that ends them.

    Args:
        cluster: Where they run; it is started with the first block, and ended.
        env: What `--env` named.
        scrubber: Knows the secrets that verifiers do not get.

    """

    def __init__(self, cluster: Cluster, *, env: str | None, scrubber: Scrubber) -> None:
        self._cluster = cluster
        self._env = env
        self._scrubber = scrubber
        self._threads: list[threading.Thread] = []
        self._blocks: SimpleQueue[_Handed | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished: set[_Handed] = set()
        self._error: BaseException | None = None
        self._num_open = 0
        self._is_closed = False

    @property
    def num_workers(self) -> int:
        """Workers, from the first block on."""
        return self._cluster.num_workers

    def begin(self, lines: list[Line], job: RescoreJob) -> Future[list[Rescored]]:
        """Begin to score lines, whose results are asked for later.

        Args:
            lines: The lines.
            job: How they are scored; the same for all blocks but for the number of a repeat.

        Raises:
            EngineError: The cluster cannot be started or reached.
            UsageError: Ray makes nothing of its address.

        """
        if not self._threads:
            self._start(job)
        handed = _Handed(Block(lines=lines, repeat=job.repeat))
        with self._lock:
            if self._error is not None:
                raise self._error
            self._unfinished.add(handed)
        self._blocks.put(handed)
        return handed.future

    def _start(self, job: RescoreJob) -> None:
        self._cluster.start().result()
        self._deaths = Deaths(self.num_workers)
        registry = Registry(job.env_specs)
        hashes: dict[str, str] = {}
        for name in job.env_names:
            with suppress(UsageError):  # scored here, if anywhere
                hashes[name] = registry.find(name).source_hash
        self._job = pickle.dumps(ScoringJob(code_of(self._env), job, hashes, self._scrubber))
        for _ in range(self.num_workers):
            thread = threading.Thread(target=self._work, name="gymcli-ray-scorer", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        """Score with one worker after another; runs in a thread, for one of them at a time."""
        try:
            while not self._is_closed:
                process = self._cluster.worker(Scorer)
                try:
                    self._work_with(process)
                except WorkerLostError as error:
                    self._lost(error)
                finally:
                    process.kill()
        except BaseException as error:  # noqa: BLE001  # it is raised where results are asked for
            self._fail(error)

    def _work_with(self, process: WorkerProcess) -> None:
        opened = check_opened(self._waited(process.begin("open", self._job), is_opening=True))
        _LOGGER.info("Ray worker %s is ready", opened.place)
        self._count_open(1)
        try:
            while (handed := self._blocks.get()) is not None:
                self._score(handed, process)
        except WorkerLostError as error:
            if not self._is_closed:
                _LOGGER.warning("the Ray worker %s is lost: %s", opened.place, error)
            raise
        finally:
            self._count_open(-1)
        with suppress(TimeoutError, WorkerLostError):
            process.begin("close").wait(_CLOSE_SECONDS)

    def _count_open(self, number: int) -> None:
        with self._lock:
            self._num_open += number

    def _score(self, handed: _Handed, process: WorkerProcess) -> None:
        try:
            call = process.begin("score", msgspec.msgpack.encode(handed.block))
            data = self._waited(call)
        except WorkerLostError as error:
            handed.num_deaths += 1
            if handed.num_deaths < MAX_DEATHS:
                self._blocks.put(handed)
            else:
                text = f"verify: {MAX_DEATHS} Ray workers died in the middle of it"
                self._end(handed, VerifierError(f"{text}, the last of them so: {error}"))
            raise
        self._deaths.forget()
        scored = msgspec.msgpack.decode(data, type=ScoredBlock)
        self._end(handed, scored.results if scored.error is None else raised_again(scored.error))

    def _waited(self, call: Call, *, is_opening: bool = False) -> bytes:
        """Wait for a call.

        Raises:
            EngineError: No worker comes to start.
            WorkerLostError: The worker died, or all is over.

        """
        ends = time.monotonic() + self._cluster.start_seconds
        while not self._is_closed:
            if is_opening and not self._num_open and time.monotonic() > ends:
                raise not_started(self._cluster.start_seconds)
            with suppress(TimeoutError):
                return call.wait(_POLL_SECONDS)
        raise WorkerLostError("the command ended")

    def _end(self, handed: _Handed, ended: list[Rescored] | GymError) -> None:
        with self._lock:
            if handed not in self._unfinished:
                return
            self._unfinished.discard(handed)
        if isinstance(ended, GymError):
            handed.future.set_exception(ended)
        else:
            handed.future.set_result(ended)

    def _lost(self, error: WorkerLostError) -> None:
        """Count a death.

        Raises:
            EngineError: Workers die and nothing comes of it.

        """
        with self._lock:
            cause = None if self._is_closed else self._deaths.add(error)
        if cause is not None:
            raise cause

    def _fail(self, error: BaseException) -> None:
        """End all blocks with what no worker can pass."""
        with self._lock:
            self._error = self._error or error
            unfinished, self._unfinished = self._unfinished, set()
        for handed in unfinished:
            handed.future.set_exception(error)

    def __enter__(self) -> Self:
        """Give the workers."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the workers, and the cluster if it is our own."""
        self._is_closed = True
        for _ in self._threads:
            self._blocks.put(None)
        for thread in self._threads:
            thread.join()
        self._cluster.stop().result()


class _Handed:
    """A block that is handed out, until its results are there."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.future: Future[list[Rescored]] = Future()
        self.num_deaths = 0
        """Workers that died while they had it."""
