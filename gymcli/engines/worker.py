"""One worker: an event loop in a process of its own, which runs while the driver calls a step.

Ray gives the calls of an actor that is not async to the main thread, one after another. Two steps
are always under way from the driver, so the loop stands still for no longer than it takes to hand
one report over and to take the next orders.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import traceback
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import NamedTuple, TypeVar

import msgspec

import gymcli
from gymcli.engines.code import Code
from gymcli.engines.known import Environments, TellingVerdicts
from gymcli.engines.messages import NewVerdict, Opened, Orders, Report, SentAttempt, SpentTokens
from gymcli.engines.sending import plan_received, raised_again, sent_error, sent_outcome
from gymcli.environment.registry import Registry
from gymcli.errors import GymError
from gymcli.models.roles import ModelSource
from gymcli.rollout.event_loop import Watchdog, close, drive, new_event_loop
from gymcli.runner.attempts import (
    Attempt,
    Ended,
    Outcome,
    Shared,
    play_attempt,
    score_attempt,
    score_members,
)
from gymcli.runner.judging import Judges, judging
from gymcli.runner.stopping import Stopping
from gymcli.types import Rollout, Usage

__all__ = ["IDLE_SECONDS", "Job", "Worker", "opened_here"]

T = TypeVar("T")

IDLE_SECONDS = 0.25
"""The longest step: a worker in which nothing happens says so then."""

_GATHERING_SECONDS = 0.02
"""The shortest step: what ends within it is reported together."""


class Job(NamedTuple):
    """What all attempts of a run have in common; pickled, since it holds keys."""

    code: Code
    judges: Judges
    policy: ModelSource | None
    concurrency: int
    """Attempts under way at once in this worker."""
    blocking_timeout: float
    """Seconds without a turn of the event loop after which the worker ends itself."""


class Worker:
    """Plays and scores attempts; each call is made by the driver, in the main thread."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._bench: _Bench | None = None

    def open(self, job: bytes, verdicts: bytes) -> bytes:
        """Get ready for attempts; gives an `Opened`."""
        opened = opened_here()
        self._bench = _Bench(pickle.loads(job))  # noqa: S301  # both ends are ours
        known = msgspec.json.decode(verdicts, type=list[NewVerdict])
        try:
            self._run(self._bench.open(known))
        except GymError as error:
            opened.error = sent_error(error)
        return msgspec.json.encode(opened)

    def step(self, orders: bytes) -> bytes:
        """Take `Orders`, work until something happened, and give a `Report` of it."""
        assert self._bench is not None, "a worker is opened first"
        told = msgspec.json.decode(orders, type=Orders)
        return msgspec.json.encode(self._run(self._bench.step(told)))

    def close(self) -> None:
        """Close what was opened."""
        if self._bench is not None:
            self._run(self._bench.close())
        close(self._loop)

    def _run(self, work: Coroutine[object, object, T]) -> T:
        watchdog = None if self._bench is None else self._bench.watchdog
        if watchdog is not None:
            watchdog.arm()
        try:
            return drive(self._loop, self._loop.create_task(work))
        finally:
            if watchdog is not None:
                watchdog.disarm()  # between two steps the loop stands still


def opened_here() -> Opened:
    """Give what this worker is."""
    place = f"{socket.gethostname()}:{os.getpid()}"
    return Opened(gymcli_version=gymcli.__version__, place=place)


class _Bench:
    """The attempts of one worker, and what happened since the last report."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.watchdog: Watchdog | None = None
        self._stack = AsyncExitStack()
        self._stopping = Stopping()
        self._verdicts = TellingVerdicts(self._tell_verdict)
        self._report = Report()
        self._has_happened = asyncio.Event()
        self._waiting: deque[tuple[Attempt, _Unit]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_saved = 0
        self._num_written = 0
        self._is_written = asyncio.Event()
        self._is_closing = False

    async def open(self, verdicts: list[NewVerdict]) -> None:
        """Open the models and find the environments."""
        self._verdicts.learn(verdicts)
        job = self._job
        files = self._stack.enter_context(ExitStack())
        self._environments = Environments(Registry(job.code.specs(files)))
        stack_file = files.enter_context(os.fdopen(os.dup(2), "w"))
        self.watchdog = await self._stack.enter_async_context(
            Watchdog(blocking_timeout=job.blocking_timeout, stack_file=stack_file)
        )
        shared = await self._stack.enter_async_context(
            judging(
                job.judges,
                self._verdicts,
                save=self._save,
                stopping=self._stopping,
                watchdog=self.watchdog,
                spend=self._spend,
            )
        )
        if job.policy is not None:
            shared = shared._replace(policy=await shared.roles.pool.client(job.policy))
        self._shared: Shared = shared

    async def close(self) -> None:
        """End what is under way, and close the models."""
        self._is_closing = True
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._stopping.closed()
        await self._stack.aclose()

    async def step(self, orders: Orders) -> Report:
        """Take orders and give the next report."""
        try:
            self._take(orders)
        except GymError as error:
            self._fail(error)
        if self._report.is_empty:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_happened.wait(), IDLE_SECONDS)
        await asyncio.sleep(_GATHERING_SECONDS)
        report, self._report = self._report, Report()
        self._has_happened.clear()
        report.num_under_way = len(self._tasks)
        report.is_stopped = self._stopping.cause is not None
        report.num_outages = self._shared.roles.pool.num_outages
        report.outage_seconds = self._shared.roles.pool.outage_seconds
        return report

    def _take(self, orders: Orders) -> None:
        self._verdicts.learn(orders.verdicts)
        self._num_written = orders.num_written
        self._is_written.set()
        self._is_written = asyncio.Event()
        if orders.stop is not None:
            self._stopping.stop(raised_again(orders.stop.cause), grace=orders.stop.seconds)
            self._leave_waiting()
        for sent in orders.units:
            attempts = [self._received(one) for one in sent]
            unit = _Unit(len(attempts))
            self._waiting += ((attempt, unit) for attempt in attempts)
        self._start()

    def _leave_waiting(self) -> None:
        """Leave attempts that were not begun; those that wait for them to be scored end now."""
        units = {id(unit): unit for _, unit in self._waiting}
        for _, unit in self._waiting:
            unit.num_left -= 1
        self._waiting.clear()
        for unit in units.values():
            if not unit.num_left and unit.ended:
                self._begin(self._score_unit(unit))

    def _received(self, sent: SentAttempt) -> Attempt:
        found, options = self._environments.find(sent)
        policy = self._shared.policy
        cost = None if policy is None else policy.endpoint.cost
        plan = None
        if sent.plan is not None:
            plan = plan_received(sent.plan, found, options, cost=cost, spend=self._spend)
        return Attempt(
            found.environment,
            options,
            sent.verifier,
            plan,
            sent.generation,
            sent.group_size,
            sent.is_done,
            sent.keeps_score,
        )

    def _start(self) -> None:
        """Begin attempts while there is room; after a stop none."""
        while self._waiting and len(self._tasks) < self._job.concurrency:
            self._begin(self._run(*self._waiting.popleft()))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_closing:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
        else:
            self._start()

    def _fail(self, error: BaseException) -> None:
        """Tell what ends the whole run: no attempt, but what they all share, or a bug."""
        if not isinstance(error, GymError):
            text = "".join(traceback.format_exception(error))
            error = GymError(f"a Ray worker met a bug of gymcli or of an environment:\n{text}")
        self._report.error = self._report.error or sent_error(error)
        self._has_happened.set()

    async def _run(self, attempt: Attempt, unit: _Unit) -> None:
        one = await play_attempt(attempt, self._shared)
        if one.outcome is not None:
            self._give([one.outcome])
        if one.is_saved and attempt.plan is not None:
            await self._written()
        unit.num_left -= 1
        if attempt.group_size:
            unit.ended.append(one)
            if not unit.num_left:
                await self._score_unit(unit)
        elif one.outcome is None:
            self._give([await score_attempt(one, self._shared)])

    async def _score_unit(self, unit: _Unit) -> None:
        members = sorted(unit.ended, key=lambda member: member.record.attempt)
        self._give(await score_members(members, self._shared))

    def _give(self, outcomes: Sequence[Outcome]) -> None:
        self._report.ended += map(sent_outcome, outcomes)
        if outcomes:
            self._has_happened.set()

    def _save(self, rollout: Rollout) -> None:
        self._num_saved += 1
        self._report.saved.append(msgspec.Raw(msgspec.json.encode(rollout)))
        self._has_happened.set()

    async def _written(self) -> None:
        """Wait until the driver has on disk what was saved so far."""
        number = self._num_saved
        while self._num_written < number:
            await self._is_written.wait()

    def _spend(self, usage: Usage, cost: float | None) -> None:
        # A copy: an episode adds later answers to its own.
        self._report.spent.append(SpentTokens(usage=msgspec.structs.replace(usage), cost=cost))
        self._has_happened.set()

    def _tell_verdict(self, verdict: NewVerdict) -> None:
        self._report.verdicts.append(verdict)
        self._has_happened.set()


class _Unit:
    """Attempts that came together: one, or all of a task that are scored together."""

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left
        """Those that are still to be played."""
        self.ended: list[Ended] = []
