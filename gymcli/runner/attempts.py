"""Many attempts at once: workers that pull from one iterator, and outcomes as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gymcli.client import is_fatal, is_unreachable
from gymcli.environment import Environment, EnvironmentOptions, Task
from gymcli.errors import AttemptError, FatalEndpointError, ModelError
from gymcli.rollout import EpisodeFailedError, EpisodePlan, Policy, play
from gymcli.scoring import score
from gymcli.types import ErrorRecord, Failure, Rollout, Verifier

__all__ = ["Attempt", "Outcome", "run_attempt", "run_attempts"]

_MIN_FATAL_IN_A_ROW = 10


class Outcome(NamedTuple):
    """How one attempt ended: scored, or not scored and why."""

    record: Rollout | Failure
    generation: Rollout | None = None
    """The finished conversation of an attempt whose verifier failed; it is not asked for again."""
    was_answered: bool = False
    """The model said something in this attempt."""
    fatal: AttemptError | None = None
    """An error that every further attempt would most likely meet."""


class Attempt(NamedTuple):
    """One attempt to be run."""

    environment: type[Environment[Task]]
    options: EnvironmentOptions
    verifier: Verifier
    plan: EpisodePlan | None
    """None: the conversation is on record and only waits for its score."""
    generation: Rollout | None = None


async def run_attempt(attempt: Attempt, policy: Policy | None) -> Outcome:
    """Play and score one attempt; whatever goes wrong becomes its record."""
    rollout = attempt.generation
    is_played = attempt.plan is not None
    try:
        if attempt.plan is not None:
            rollout = await play(attempt.plan, policy)
        assert rollout is not None
        started = time.perf_counter()
        scored = await score(
            attempt.environment,
            rollout,
            verifier=attempt.verifier,
            options=attempt.options,
        )
        scored.timing.total_seconds += time.perf_counter() - started
    except EpisodeFailedError as failed:
        error = failed.error
        was_answered = any(message.role == "assistant" for message in failed.rollout.responses)
        fatal = error if is_fatal(error) or is_unreachable(error) else None
        return Outcome(_failure(failed.rollout, error), was_answered=was_answered, fatal=fatal)
    except AttemptError as error:
        assert rollout is not None
        waiting = rollout if is_played else None
        return Outcome(_failure(rollout, error), generation=waiting, was_answered=is_played)
    return Outcome(scored, was_answered=is_played)


async def run_attempts(
    attempts: Iterator[Attempt],
    policy: Policy | None,
    *,
    concurrency: int,
    keep: Callable[[Outcome], None],
) -> AsyncGenerator[Rollout | Failure]:
    """Run attempts at most `concurrency` at a time and give each record as it ends.

    Attempts are taken from the iterator in its order, so those of one task run next to each other
    and share the endpoint's prefix cache. `keep` writes an outcome down as soon as it is there,
    before it is given: what ended is kept even where nobody takes it any more.

    Raises:
        FatalEndpointError: The endpoint refused before it ever answered, or many times in a row.

    """
    ended: asyncio.Queue[Outcome | None] = asyncio.Queue()
    # Bounds what waits to be taken, so that memory does not grow where the taker is slow. The
    # queue itself is not bounded: its end must fit in whenever the workers stop.
    room = asyncio.Semaphore(concurrency)

    async def work() -> None:
        for attempt in attempts:
            outcome = await run_attempt(attempt, policy)
            keep(outcome)
            await room.acquire()
            ended.put_nowait(outcome)

    async def work_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            # What stops a worker stops the run: a full disk, a tasks file that is gone.
            raise errors.exceptions[0] from None
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


def _failure(rollout: Rollout, error: AttemptError) -> Failure:
    status = error.status if isinstance(error, ModelError) else None
    return Failure(
        schema_version=rollout.schema_version,
        task_id=rollout.task_id,
        task_hash=rollout.task_hash,
        attempt=rollout.attempt,
        env=rollout.env,
        env_version=rollout.env_version,
        env_options=rollout.env_options,
        seed=rollout.seed,
        error=ErrorRecord(
            error_class=type(error).__name__,
            phase=error.phase,
            message=str(error),
            status=status,
        ),
        messages=rollout.messages,
        model=rollout.model,
        usage=rollout.usage,
        timing=rollout.timing,
        retries=rollout.retries,
    )
