"""Many attempts at once: workers that pull from one iterator, and outcomes as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress

from gymcli.errors import FatalEndpointError
from gymcli.runner.attempts import (
    Attempt,
    Ended,
    Outcome,
    Shared,
    play_attempt,
    score_attempt,
    score_members,
)
from gymcli.types import Failure, Rollout

__all__ = ["run_attempts"]

_MIN_FATAL_IN_A_ROW = 10


async def run_attempts(
    attempts: Iterator[Attempt],
    shared: Shared,
    *,
    concurrency: int,
    keep: Callable[[Outcome], None],
) -> AsyncGenerator[Rollout | Failure]:
    """Run attempts at most `concurrency` at a time and give each record as it ends.

    Attempts are taken from the iterator in its order, so those of one task run next to each other
    and share the endpoint's prefix cache. `keep` writes an outcome down as soon as it is there,
    before it is given: what ended is kept even where nobody takes it any more. Attempts that are
    scored together end together, when the last of them is there; nothing else waits for that.

    Raises:
        FatalEndpointError: The endpoint refused before it ever answered, or many times in a row.

    """
    ended: asyncio.Queue[Outcome | None] = asyncio.Queue()
    # Bounds what waits to be taken, so that memory does not grow where the taker is slow. The
    # queue itself is not bounded: its end must fit in whenever the workers stop.
    room = asyncio.Semaphore(concurrency)
    groups = _Groups()

    async def give(outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            keep(outcome)
        for outcome in outcomes:
            await room.acquire()
            ended.put_nowait(outcome)

    async def work() -> None:
        for attempt in attempts:
            one = await play_attempt(attempt, shared)
            if one.outcome is not None:
                await give([one.outcome])
            if attempt.group_size:
                members = groups.add(one)
                await give(await score_members(members, shared) if members else [])
            elif one.outcome is None:
                await give([await score_attempt(one, shared)])

    async def work_all() -> None:
        try:
            await _all_of(work() for _ in range(concurrency))
            for members in groups.left():
                await give(await score_members(members, shared))
        finally:
            ended.put_nowait(None)

    fuse = _Fuse(max(_MIN_FATAL_IN_A_ROW, 2 * concurrency))
    working = asyncio.create_task(work_all())
    try:
        while (outcome := await ended.get()) is not None:
            room.release()
            fuse.check(outcome)
            yield outcome.record
        await working
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


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


class _Fuse:
    """Ends a run that has no prospect: nothing was answered yet, or nothing is any more.

    In the middle of a run one refusal proves little, and a server that restarts comes back; so
    many in a row are waited for there.
    """

    def __init__(self, max_in_a_row: int) -> None:
        self._max_in_a_row = max_in_a_row
        self._num_in_a_row = 0
        self._has_answered = False

    def check(self, outcome: Outcome) -> None:
        """Take notice of an outcome.

        Raises:
            FatalEndpointError: There is no use in going on.

        """
        self._has_answered = self._has_answered or outcome.was_answered
        if not outcome.is_own:
            return
        if outcome.fatal is None:
            self._num_in_a_row = 0
            return
        self._num_in_a_row += 1
        if not self._has_answered:
            raise FatalEndpointError(str(outcome.fatal)) from outcome.fatal
        if self._num_in_a_row == self._max_in_a_row:
            raise FatalEndpointError(
                f"{outcome.fatal} ({self._num_in_a_row} attempts in a row met this; run the same "
                "command to go on)"
            ) from outcome.fatal
