"""The driver's side of a run on workers: who has what, what is written, and what a death costs."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from gymcli.engines.cluster import Cluster
from gymcli.engines.deaths import (
    MAX_DEATHS,
    Deaths,
    check_opened,
    not_started,
)
from gymcli.engines.hand import Hand
from gymcli.engines.messages import EndedAttempt, NewVerdict, Orders, Report, Stop
from gymcli.engines.process import Call, WorkerLostError
from gymcli.engines.sending import (
    outcome_received,
    raised_again,
    sent_attempt,
    sent_error,
)
from gymcli.engines.units import Units
from gymcli.engines.worker import IDLE_SECONDS, Job, Worker
from gymcli.errors import EpisodeError, VerifierError
from gymcli.rollout.episode import Episode
from gymcli.runner.attempts import Attempt, Outcome, Shared, failure_of
from gymcli.runner.episodes import Fuse
from gymcli.types import Rollout

__all__ = ["Driving"]

_LOGGER = logging.getLogger(__name__)

_NUM_STEPS = 2
"""Steps of one worker under way: while one is reported, the worker is at the next."""

_CLOSE_SECONDS = 5.0


class Driving:
    """One run on the workers of a cluster, and the outcomes that wait to be taken."""

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        attempts: Iterator[Attempt],
        shared: Shared,
        keep: Callable[[Outcome], Outcome],
        concurrency: int,
    ) -> None:
        self.ended: asyncio.Queue[Outcome | None] = asyncio.Queue()
        """None is the end."""
        self.room = asyncio.Semaphore(concurrency)
        """Bounds what waits to be taken."""
        self.num_outages = 0
        self.outage_seconds = 0.0
        self._cluster = cluster
        self._job = job
        self._start_seconds = cluster.start_seconds
        self._shared = shared
        self._keep = keep
        self._fuse = Fuse(concurrency, shared.answered)
        self._units = Units(attempts)
        self._hands: set[Hand] = set()
        self._is_over = asyncio.Event()
        self._deaths = Deaths(cluster.num_workers)
        known = shared.roles.verdicts.known()
        self._known = msgspec.json.encode(
            [NewVerdict(key=key, message=message) for key, message in known]
        )
        self._verdicts: list[NewVerdict] = []

    async def do_all(self) -> None:
        """Run every attempt, or as many as are begun when the run is stopped."""
        self._look_whether_over()
        slots = {asyncio.create_task(self._slot()) for _ in range(self._cluster.num_workers)}
        over = asyncio.create_task(self._is_over.wait())
        working = {*slots, over}
        try:
            while not over.done() and working != {over}:
                done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            if not self._is_stopped and (cause := self._fuse.unanswered()):
                self._shared.stopping.stop(cause)
        finally:
            for task in (*slots, over):
                task.cancel()
            await asyncio.gather(*slots, over, return_exceptions=True)
            await self._close()
            self.ended.put_nowait(None)

    async def _close(self) -> None:
        """Let the workers that live close what they opened, for a moment, and end them."""
        closing = [hand.process.begin("close").result() for hand in self._hands if hand.is_open]
        if closing:
            tasks = [asyncio.ensure_future(one) for one in closing]
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for hand in self._hands:
            hand.process.kill()

    async def _slot(self) -> None:
        """Work with one process after another."""
        while not self._is_stopped:
            hand = Hand(self._cluster.worker(Worker))
            self._hands.add(hand)
            try:
                if await self._open(hand):
                    await self._work_with(hand)
                return
            except WorkerLostError as error:
                self._hands.discard(hand)
                hand.process.kill()
                self._tell_in_flight()
                await self._lost(hand, error)

    @property
    def _is_stopped(self) -> bool:
        return self._shared.stopping.cause is not None

    async def _open(self, hand: Hand) -> bool:
        """Get a worker ready; False where the run was stopped first.

        Raises:
            WorkerLostError: Its process died.
            EngineError: It does not come to start, or is another version of gymcli.
            GymError: What the worker met, such as an environment that is not there.

        """
        call = hand.process.begin("open", pickle.dumps(self._job), self._known)
        opening = asyncio.ensure_future(call.result())
        try:
            loop = asyncio.get_running_loop()
            ends = loop.time() + self._start_seconds
            while not opening.done():
                if self._is_stopped:
                    return False
                if loop.time() > ends and not any(other.is_open for other in self._hands):
                    raise not_started(self._start_seconds)
                await asyncio.wait([opening], timeout=IDLE_SECONDS)
            opened = check_opened(opening.result())
        finally:
            opening.cancel()
        _LOGGER.info("Ray worker %s is ready", opened.place)
        hand.place, hand.is_open = opened.place, True
        return True

    async def _work_with(self, hand: Hand) -> None:
        """Hand out and take back, until the run is stopped and nothing is under way there."""
        steps: deque[Call] = deque()
        while True:
            while len(steps) < _NUM_STEPS:
                orders = msgspec.json.encode(self._orders(hand))
                steps.append(hand.process.begin("step", orders))
            data = await steps.popleft().result()
            report = msgspec.json.decode(data, type=Report)
            await self._take(report, hand)
            if report.is_stopped and not report.num_under_way:
                return

    def _orders(self, hand: Hand) -> Orders:
        orders = Orders(num_written=hand.num_written)
        orders.verdicts = self._verdicts[hand.num_verdicts :]
        hand.num_verdicts = len(self._verdicts)
        stopping = self._shared.stopping
        if stopping.cause is not None:
            seconds = stopping.seconds_left
            if seconds < float("inf"):  # else a signal came, and the loop is about to hear of it
                orders.stop = Stop(cause=sent_error(stopping.cause), seconds=max(0.0, seconds))
            return orders
        for unit in self._units.take(hand.room(self._job.concurrency), is_idle=hand.is_idle):
            hand.add(unit)
            orders.units.append([sent_attempt(attempt) for attempt in unit.to_run()])
        return orders

    async def _take(self, report: Report, hand: Hand) -> None:
        """Write down what a worker reports, in the order in which it may depend on each other."""
        for data in report.saved:
            rollout = msgspec.json.decode(data, type=Rollout)
            hand.save(rollout)
            self._shared.save(rollout)
            hand.num_written += 1
        self._add_verdicts(report.verdicts)
        for spent in report.spent:
            if self._shared.roles.spend is not None:
                self._shared.roles.spend(spent.usage, spent.cost)
        self.num_outages = max(self.num_outages, report.num_outages)
        self.outage_seconds = max(self.outage_seconds, report.outage_seconds)
        hand.num_under_way = report.num_under_way
        hand.num_ended = len(report.ended)
        self._tell_in_flight()
        if report.ended:
            self._deaths.forget()
        await self._give([self._outcome(ended, hand) for ended in report.ended])
        if report.error is not None:
            raise raised_again(report.error)

    def _outcome(self, ended: EndedAttempt, hand: Hand) -> Outcome:
        hand.end(ended.key)
        return outcome_received(ended)

    def _tell_in_flight(self) -> None:
        num_under_way = sum(hand.num_under_way for hand in self._hands)
        self._shared.stopping.num_elsewhere = num_under_way

    def _add_verdicts(self, verdicts: list[NewVerdict]) -> None:
        """Keep what judges answered; of two workers that asked the same, the first answer."""
        kept = self._shared.roles.verdicts
        for verdict in verdicts:
            if kept.get(verdict.key) is None:
                kept.add(verdict.key, verdict.message, role=verdict.role, model=verdict.model)
                self._verdicts.append(verdict)

    async def _give(self, outcomes: list[Outcome]) -> None:
        kept = []
        for outcome in outcomes:
            kept.append(self._keep(outcome))
            cause = self._fuse.burnt_by(outcome)
            if cause is not None:
                self._shared.stopping.stop(cause, grace=0.0)
        self._look_whether_over()
        for outcome in kept:
            await self.room.acquire()
            self.ended.put_nowait(outcome)

    def _look_whether_over(self) -> None:
        if all(hand.is_idle for hand in self._hands) and (self._is_stopped or self._units.is_empty):
            self._is_over.set()

    async def _lost(self, hand: Hand, error: WorkerLostError) -> None:
        """Take back what a worker had when it died; give up what was with too many as they died.

        Where workers die and nothing comes of it, the run is stopped.
        """
        _LOGGER.warning("the Ray worker %s is lost: %s", hand.place or "?", error)
        cause = self._deaths.add(error)
        if cause is not None:
            self._shared.stopping.stop(cause)
        given_up: list[Outcome] = []
        for unit in hand.units:
            unit.num_deaths += 1
            if unit.num_deaths < MAX_DEATHS:
                self._units.put_back(unit)
            else:
                given_up += (_given_up(unit.attempts[key], error) for key in sorted(unit.left))
        hand.units.clear()
        await self._give(given_up)


def _given_up(attempt: Attempt, error: WorkerLostError) -> Outcome:
    """Give the outcome of an attempt that was with so many workers as they died."""
    text = (
        f"{MAX_DEATHS} Ray workers died while they had this attempt, the last of them so: {error}"
    )
    if attempt.plan is not None:
        return Outcome(failure_of(Episode(attempt.plan).rollout, EpisodeError(text)))
    assert attempt.generation is not None, "an attempt without a plan has a conversation"
    return Outcome(failure_of(attempt.generation, VerifierError(text)))
