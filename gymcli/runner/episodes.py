"""Many attempts at once: workers that pull from one iterator, and outcomes as they come."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import aclosing, suppress

from gymcli.errors import (
    AttemptError,
    EndpointGoneError,
    FatalEndpointError,
    ModelError,
    UnknownUsageError,
)
from gymcli.models.api_errors import is_unreachable
from gymcli.runner.attempts import (
    POLICY,
    Attempt,
    Outcome,
    Shared,
    cause_of,
    play_attempt,
    role_of,
    score_attempt,
    score_members,
)
from gymcli.types import Failure, Rollout

__all__ = ["FailFast", "RunOutcomes", "run_attempts", "run_together"]

_MAX_TASKS_IN_A_ROW = 20

_FIRST_TURN = 4.0
_LATER_TURNS = 1.0
"""Seconds in which workers start one after another. A connection is there some turns of the loop
after it was begun, and has 10 seconds: the first turn may take some of these, the others few."""


async def run_attempts(
    attempts: Iterator[Attempt] | asyncio.Queue[Attempt | None],
    shared: Shared,
    *,
    concurrency: int,
    keep: Callable[[Outcome], Outcome],
    gives_up: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Rollout | Failure]:
    """Run attempts at most `concurrency` at a time and yield each record as it ends.

    Attempts are taken from the iterator in its order, so those of one task run next to each other
    and share the endpoint's prefix cache. `keep` writes an outcome down before its record is
    yielded: what ended is kept even if nobody takes it any more. Attempts that are scored together
    end together, when the last of them has; nothing else waits for that.

    Where the run is stopped (`shared.stopping`), no more attempts are taken, and each that was
    taken still ends with a record.

    Args:
        attempts: What is run; a queue ends with as many None as run at once.
        shared: What all attempts share.
        concurrency: How many run at once.
        keep: Writes an outcome down and returns it as it was written.
        gives_up: Stop the run where an endpoint refuses everything.
        clock: Tells the seconds in which many attempts start.

    Raises:
        GymError: The cause, once every record is yielded, where the run was stopped.

    """
    outcomes = RunOutcomes(shared, concurrency=concurrency, keep=keep, gives_up=gives_up)
    work = _Work(attempts, shared, outcomes, concurrency, clock)
    async with aclosing(outcomes.records(work.do_all())) as records:
        async for record in records:
            yield record


class RunOutcomes:
    """The outcomes of one run, each written down before it is yielded.

    Args:
        shared: What all attempts share; its run is stopped where it has no prospect.
        concurrency: How many attempts run at once; no more outcomes wait to be taken.
        keep: Writes an outcome down and returns it as it was written.
        gives_up: Stop the run where an endpoint refuses everything.

    """

    def __init__(
        self,
        shared: Shared,
        *,
        concurrency: int,
        keep: Callable[[Outcome], Outcome],
        gives_up: bool = True,
    ) -> None:
        self.num_ended = 0
        self._stopping = shared.stopping
        self._keep = keep
        self._fail_fast = FailFast(concurrency, shared.answered) if gives_up else None
        self._waiting: asyncio.Queue[Outcome | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(concurrency)

    async def add(self, outcomes: Iterable[Outcome]) -> None:
        """Write outcomes down, and wait until there is room for them."""
        kept = []
        for outcome in outcomes:
            self.num_ended += 1
            kept.append(self._keep(outcome))
            cause = None if self._fail_fast is None else self._fail_fast.check(outcome)
            if cause is not None:
                self._stopping.stop(cause, grace=0.0)
        for outcome in kept:
            await self._room.acquire()
            self._waiting.put_nowait(outcome)

    async def records(
        self, work: Coroutine[object, object, None]
    ) -> AsyncGenerator[Rollout | Failure]:
        """Do the work that adds the outcomes, and yield their records as they come.

        Raises:
            GymError: The cause, once every record is yielded, where the run was stopped.

        """
        stopping = self._stopping
        working = asyncio.create_task(work)
        working.add_done_callback(lambda _: self._waiting.put_nowait(None))
        try:
            while (outcome := await self._waiting.get()) is not None:
                self._room.release()
                yield outcome.record
            await working
            if (
                stopping.cause is None
                and self._fail_fast
                and (cause := self._fail_fast.unanswered())
            ):
                stopping.stop(cause)
        finally:
            stopping.close()
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            await stopping.closed()
        if stopping.cause is not None:
            raise stopping.cause from stopping.cause.__cause__


class _Work:
    """The attempts of one run."""

    def __init__(
        self,
        attempts: Iterator[Attempt] | asyncio.Queue[Attempt | None],
        shared: Shared,
        outcomes: RunOutcomes,
        concurrency: int,
        clock: Callable[[], float],
    ) -> None:
        self._attempts = attempts
        self._shared = shared
        self._outcomes = outcomes
        self._concurrency = concurrency
        self._groups: dict[tuple[str, str], list[tuple[Attempt, Rollout | Outcome]]] = {}
        """Attempts that wait for the others of their task, with which they are scored."""
        self._clock = clock
        self._turned_at = clock()
        self._longest_turn = _FIRST_TURN
        self._num_begun = 0

    async def do_all(self) -> None:
        """Run every attempt, then end the groups that never became complete."""
        await run_together(self._do() for _ in range(self._concurrency))
        for members in self._groups.values():
            await self._outcomes.add(await score_members(members, self._shared))
        assert self._outcomes.num_ended == self._num_begun, (
            f"{self._num_begun} attempts were begun, {self._outcomes.num_ended} have an outcome"
        )

    async def _do(self) -> None:
        """Run one attempt after another, until there are none or the run is stopped."""
        shared = self._shared
        await self._let_loop_turn()
        while shared.stopping.cause is None:
            if isinstance(self._attempts, asyncio.Queue):
                attempt = await self._attempts.get()
            else:
                attempt = next(self._attempts, None)
            if attempt is None:
                break
            self._num_begun += not attempt.is_done
            played = await play_attempt(attempt, shared)
            if isinstance(played, Outcome):
                await self._outcomes.add([played])
            elif not attempt.group_size:
                await self._outcomes.add([await score_attempt(attempt, played, shared)])
            if attempt.group_size:
                group = attempt.key.env, attempt.key.task_id
                members = self._groups.setdefault(group, [])
                members.append((attempt, played))
                if len(members) == attempt.group_size:
                    del self._groups[group]
                    members.sort(key=lambda member: member[0].key.attempt)
                    await self._outcomes.add(await score_members(members, shared))

    async def _let_loop_turn(self) -> None:
        """Wait where thousands of workers start: what the first ones began would time out unseen.

        All start in one turn of the loop otherwise, and it sees nothing until that is over.
        """
        while self._clock() - (turned_at := self._turned_at) > self._longest_turn:
            await asyncio.sleep(0)
            if self._turned_at == turned_at:  # the first of a turn starts in any case
                self._turned_at, self._longest_turn = self._clock(), _LATER_TURNS
                return


async def run_together(working: Iterable[Coroutine[object, object, None]]) -> None:
    """Run workers until all have ended; what stops one stops all: a full disk, say."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in working:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class FailFast:
    """Ends a run that has no prospect: an endpoint refuses all tasks, or the key from now on.

    A task that is refused proves nothing: many endpoints refuse a conversation for what it says, by
    the status of a bad key or model, and faster than they answer. So an endpoint that has answered
    nothing yet must refuse two different tasks, and as many attempts as run at once. One that has
    answered must say of 20 different tasks in a row that the key is refused or the account empty.
    An endpoint that cannot be reached any more is waited for by the client, until that gives it up.

    Args:
        concurrency: How many attempts run at once.
        answered: The roles whose endpoints have answered on record, `POLICY` among them.

    """

    def __init__(self, concurrency: int, answered: Collection[str]) -> None:
        self._concurrency = concurrency
        self._on_record = answered
        self._answered: set[str] = set()
        self._refused: dict[str, Counter[tuple[str, str]]] = {}
        """Attempts of each task that an endpoint refused, since it answered last."""
        self._first: AttemptError | None = None
        """The first refusal, until anything is scored."""
        self._is_scored = False

    def check(self, outcome: Outcome) -> FatalEndpointError | None:
        """Count an outcome; return why there is no use in going on, if there is none."""
        record, fatal = outcome.record, outcome.fatal
        cause = None if fatal is None else cause_of(fatal)
        answered = {role for role, use in record.role_usage.items() if use.num_calls}
        if outcome.was_answered:
            answered.add(POLICY)
        self._answered |= answered
        if not isinstance(cause, UnknownUsageError):  # which is about an answer
            for role in answered:
                self._refused.pop(role, None)
        self._is_scored = self._is_scored or isinstance(record, Rollout)
        if fatal is None or not outcome.is_own:
            return None
        if isinstance(cause, EndpointGoneError):
            return _ended_by(fatal)
        role = role_of(fatal)
        # The attempt that was answered may still go on.
        if isinstance(cause, ModelError) and cause.follows_answers and role not in self._answered:
            self._answered.add(role)
            self._refused.pop(role, None)
        if isinstance(cause, ModelError) and is_unreachable(cause):
            return None if role in self._answered else _ended_by(fatal)
        has_answered = role in self._answered or role in self._on_record
        if has_answered and not _is_about_account(cause):
            return None
        refused = self._refused.setdefault(role, Counter())
        refused[record.env, record.task_id] += 1
        if not has_answered:
            self._first = self._first or fatal
            is_refused = len(refused) > 1 and refused.total() >= self._concurrency
            return _ended_by(fatal) if is_refused else None
        if len(refused) != _MAX_TASKS_IN_A_ROW:
            return None
        return _ended_by(fatal, f" ({len(refused)} tasks in a row met this)")

    def unanswered(self) -> FatalEndpointError | None:
        """Return what ends a run that scored nothing, where too few tasks were refused."""
        if self._first is None or self._is_scored:
            return None
        return None if role_of(self._first) in self._answered else _ended_by(self._first)


def _is_about_account(cause: BaseException | None) -> bool:
    """Return whether an error after answers holds for all: no key, no money, no count of tokens."""
    if isinstance(cause, UnknownUsageError):
        return True
    return isinstance(cause, ModelError) and cause.status in (401, 402, 429)


def _ended_by(fatal: AttemptError, addition: str = "") -> FatalEndpointError:
    error = FatalEndpointError(f"{fatal}{addition}")
    error.__cause__ = fatal
    return error
