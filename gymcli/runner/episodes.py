"""Many attempts at once: workers that pull from one iterator, and outcomes as they come."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import suppress

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
    Ended,
    Outcome,
    Shared,
    cause_of,
    play_attempt,
    role_of,
    score_attempt,
    score_members,
)
from gymcli.types import Failure, Rollout

__all__ = ["Fuse", "run_attempts"]

_MAX_TASKS_IN_A_ROW = 20

_FIRST_TURN = 4.0
_LATER_TURNS = 1.0
"""Seconds in which workers start one after another. A connection is there some turns of the loop
after it was begun, and has 10 seconds: the first turn may take some of these, the others few."""


async def run_attempts(
    attempts: Iterator[Attempt],
    shared: Shared,
    *,
    concurrency: int,
    keep: Callable[[Outcome], Outcome],
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Rollout | Failure]:
    """Run attempts at most `concurrency` at a time and give each record as it ends.

    Attempts are taken from the iterator in its order, so those of one task run next to each other
    and share the endpoint's prefix cache. `keep` writes an outcome down as soon as it is there, and
    gives what was written, before it is given here: what ended is kept even where nobody takes it
    any more. Attempts that are scored together end together, when the last of them is there;
    nothing else waits for that.

    Where the run is stopped (`shared.stopping`), no more attempts are taken, and each that was
    taken still ends with a record.

    Raises:
        GymError: The cause, once every record is given, where the run was stopped.

    """
    work = _Work(attempts, shared, keep, concurrency, clock)
    working = asyncio.create_task(work.do_all())
    try:
        while (outcome := await work.ended.take()) is not None:
            yield outcome.record
        await working
    finally:
        shared.stopping.close()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await shared.stopping.closed()
    cause = shared.stopping.cause
    if cause is not None:
        raise cause from cause.__cause__


class _Work:
    """The workers of one run, and the outcomes that wait to be taken."""

    def __init__(
        self,
        attempts: Iterator[Attempt],
        shared: Shared,
        keep: Callable[[Outcome], Outcome],
        concurrency: int,
        clock: Callable[[], float],
    ) -> None:
        self.ended = _Ended(concurrency)
        self._attempts = attempts
        self._shared = shared
        self._keep = keep
        self._concurrency = concurrency
        self._groups = _Groups()
        self._fuse = Fuse(concurrency, shared.answered)
        self._clock = clock
        self._turned_at = clock()
        self._longest_turn = _FIRST_TURN
        self._num_begun = 0
        self._num_ended = 0

    async def do_all(self) -> None:
        """Run every attempt, then end the groups that never became complete."""
        try:
            await _all_of(self._do() for _ in range(self._concurrency))
            for members in self._groups.left():
                await self._give(await score_members(members, self._shared))
            if self._shared.stopping.cause is None and (cause := self._fuse.unanswered()):
                self._shared.stopping.stop(cause)
            assert self._num_ended == self._num_begun, (
                f"{self._num_begun} attempts were begun and {self._num_ended} have an outcome"
            )
        finally:
            self.ended.close()

    async def _do(self) -> None:
        """Run one attempt after another, until there are none or the run is stopped."""
        shared = self._shared
        await self._let_loop_turn()
        while shared.stopping.cause is None:
            attempt = next(self._attempts, None)
            if attempt is None:
                break
            self._num_begun += not attempt.is_done
            one = await play_attempt(attempt, shared)
            if one.outcome is not None:
                await self._give([one.outcome])
            if attempt.group_size:
                members = self._groups.add(one)
                await self._give(await score_members(members, shared) if members else [])
            elif one.outcome is None:
                await self._give([await score_attempt(one, shared)])

    async def _let_loop_turn(self) -> None:
        """Wait where thousands of workers start: what the first ones began would time out unseen.

        All start in one turn of the loop otherwise, and it sees nothing until that is over.
        """
        while self._clock() - (turned_at := self._turned_at) > self._longest_turn:
            await asyncio.sleep(0)
            if self._turned_at == turned_at:  # the first of a turn starts in any case
                self._turned_at, self._longest_turn = self._clock(), _LATER_TURNS
                return

    async def _give(self, outcomes: list[Outcome]) -> None:
        kept = []
        self._num_ended += len(outcomes)
        for outcome in outcomes:
            kept.append(self._keep(outcome))
            cause = self._fuse.burnt_by(outcome)
            if cause is not None:
                self._shared.stopping.stop(cause, grace=0.0)
        for outcome in kept:
            await self.ended.give(outcome)


class _Ended:
    """Outcomes that wait to be taken: no more than so many, where the taker is slow.

    As a bounded queue, at a third of its cost: there is nearly always room, and nobody to wake.
    """

    def __init__(self, max_num: int) -> None:
        self._max_num = max_num
        self._outcomes: deque[Outcome] = deque()
        self._is_closed = False
        self._is_some = asyncio.Event()
        self._is_room = asyncio.Event()

    async def give(self, outcome: Outcome) -> None:
        """Add one, as soon as there is room."""
        while len(self._outcomes) >= self._max_num:
            self._is_room.clear()
            await self._is_room.wait()
        self._outcomes.append(outcome)
        if len(self._outcomes) == 1:
            self._is_some.set()

    def close(self) -> None:
        """Say that no more come."""
        self._is_closed = True
        self._is_some.set()

    async def take(self) -> Outcome | None:
        """Take the one that waits longest, as soon as there is any; None: no more come."""
        while not self._outcomes:
            if self._is_closed:
                return None
            self._is_some.clear()
            await self._is_some.wait()
        if len(self._outcomes) == self._max_num:
            self._is_room.set()
        return self._outcomes.popleft()


async def _all_of(working: Iterable[Coroutine[object, object, None]]) -> None:
    """Run workers until all have ended; what stops one stops all: a full disk, say."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in working:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class _Groups:
    """Attempts that wait for the others of their task."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], list[Ended]] = {}

    def add(self, ended: Ended) -> list[Ended]:
        """Take an attempt whose conversation is over; give its group once that is complete."""
        key = (ended.record.env, ended.record.task_id)
        members = self._members.setdefault(key, [])
        members.append(ended)
        if len(members) < ended.attempt.group_size:
            return []
        return sorted(self._members.pop(key), key=lambda member: member.record.attempt)

    def left(self) -> Iterator[list[Ended]]:
        """Give the groups that never became complete."""
        yield from self._members.values()


class Fuse:
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

    def burnt_by(self, outcome: Outcome) -> FatalEndpointError | None:
        """Take notice of an outcome; give why there is no use in going on, if there is none."""
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
            is_burnt = len(refused) > 1 and refused.total() >= self._concurrency
            return _ended_by(fatal) if is_burnt else None
        if len(refused) != _MAX_TASKS_IN_A_ROW:
            return None
        return _ended_by(fatal, f" ({len(refused)} tasks in a row met this)")

    def unanswered(self) -> FatalEndpointError | None:
        """Return what ends a run that scored nothing, where too few tasks were refused."""
        if self._first is None or self._is_scored:
            return None
        return None if role_of(self._first) in self._answered else _ended_by(self._first)


def _is_about_account(cause: BaseException | None) -> bool:
    """Say whether an error after answers holds for all: no key, no money, or no count of tokens."""
    if isinstance(cause, UnknownUsageError):
        return True
    return isinstance(cause, ModelError) and cause.status in (401, 402, 429)


def _ended_by(fatal: AttemptError, addition: str = "") -> FatalEndpointError:
    error = FatalEndpointError(f"{fatal}{addition}")
    error.__cause__ = fatal
    return error
