"""How a run ends before its work is done: nothing new, some time for what is in flight, the cut."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from gymcli.errors import (
    BudgetAttemptError,
    BudgetReachedError,
    CancelledAttemptError,
    FatalEndpointError,
    GymError,
    InterruptedRunError,
    Phase,
    UnfinishedAttemptError,
)
from gymcli.rollout.flight import Flight

__all__ = ["Stopping", "UnderWay"]

_VERIFY_SECONDS = 5.0
"""How long verifiers may still take where the endpoint is gone."""

_HURRIED_SECONDS = 2.0
"""How long an attempt that was cut off may take to close after a second signal."""


class Stopping:
    """Ends one run early, whatever the cause: a signal, a budget, an endpoint that is gone.

    The cause is the error that the run will end with. Once there is one, no attempt is started;
    those in flight have `grace` seconds to end by themselves and are then cut off, each with an
    error that says so. Its record is written then, and its environment closes afterwards.
    """

    def __init__(self, grace: float = 0.0) -> None:
        self.grace = grace
        self.cause: GymError | None = None
        self.num_elsewhere = 0
        """Attempts that are played or scored in other processes."""
        self._is_cut = False
        self._is_hurried = False
        self._in_flight: set[UnderWay] = set()
        self._closing: set[Flight] = set()
        """Attempts that have their record, and whose environments still close."""
        self._cut_at = math.inf
        self._timer: asyncio.Handle | None = None

    @property
    def num_in_flight(self) -> int:
        """Attempts that are played or scored now."""
        return len(self._in_flight) + self.num_elsewhere

    @property
    def seconds_left(self) -> float:
        """Until what is in flight is cut off; without end where nothing stops the run."""
        return 0.0 if self._is_cut else self._cut_at - asyncio.get_running_loop().time()

    def stop(
        self, cause: GymError, *, grace: float | None = None, is_hurried: bool = False
    ) -> None:
        """Start nothing from now on, and cut off what is in flight once the grace is over.

        May be called again: the graver cause and the earlier end count. It must be called in the
        thread of the run's event loop.

        Args:
            cause: The error that the run ends with.
            grace: Seconds for what is in flight; that of the run if not given.
            is_hurried: Environments get two seconds to close in place of `close_timeout`.

        """
        if is_hurried:
            self._is_hurried = True
            for flight in self._closing:
                flight.hurry(_HURRIED_SECONDS)
        if self.cause is None or _gravity(cause) > _gravity(self.cause):
            self.cause = cause
        if self._is_cut:
            return
        loop = asyncio.get_running_loop()
        # Never at once: a task that is running now could take the cut where nobody awaits it.
        moment = loop.time() + (self.grace if grace is None else grace)
        if moment < self._cut_at:
            self.close()
            self._cut_at = moment
            self._timer = loop.call_at(moment, self._cut)

    def from_thread(self) -> Callable[[GymError], None]:
        """Give what ends the run of this event loop at once, to be called in another thread."""
        loop = asyncio.get_running_loop()

        def stop(cause: GymError) -> None:
            with suppress(RuntimeError):  # the loop is closed, so the run is over
                loop.call_soon_threadsafe(partial(self.stop, cause, grace=0.0))

        return stop

    def under_way(self, phase: Callable[[], Phase]) -> UnderWay:
        """Give the block within which an attempt can be cut off.

        Args:
            phase: Says where the attempt is, when it is cut off.

        """
        return UnderWay(self, phase)

    def error(self, phase: Phase) -> UnfinishedAttemptError:
        """Give the error of an attempt that the end of the run cut off."""
        is_budget = isinstance(self.cause, BudgetReachedError)
        kind = BudgetAttemptError if is_budget else CancelledAttemptError
        return kind(f"the run was ended first: {self.cause}", phase=phase)

    def close(self) -> None:
        """Forget a cut that is still to come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._cut_at = None, math.inf

    def add_closing(self, flight: Flight) -> None:
        """Take an attempt that has its record while its environment still closes."""
        self._closing.add(flight)
        if self._is_hurried:
            flight.hurry(_HURRIED_SECONDS)

    async def closed(self) -> None:
        """Wait until every attempt that was cut off has closed its environment, or was left."""
        while self._closing:
            flight = next(iter(self._closing))
            await flight.gone()
            self._closing.discard(flight)

    def _cut(self) -> None:
        # An endpoint that is gone keeps no conversation from its score.
        spares = isinstance(self.cause, FatalEndpointError) and not self._is_cut
        self._is_cut = True
        self._timer = None
        for one in self._in_flight:
            if not (spares and one.is_verified):
                one.cut()
        if spares and self._in_flight:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_VERIFY_SECONDS, self._cut)


class UnderWay:
    """A context manager around the work on one attempt, or around each part of it, in one task.

    Raises:
        UnfinishedAttemptError: The end of the run cut the work off; in place of the cancellation
            that did so. A cancellation by anybody else passes.

    """

    __slots__ = ("_is_cut", "_num_before", "_phase", "_phase_at_cut", "_stopping", "_task")

    def __init__(self, stopping: Stopping, phase: Callable[[], Phase]) -> None:
        self._stopping = stopping
        self._phase = phase
        self._phase_at_cut: Phase = "setup"
        self._is_cut = False
        self._num_before = 0
        self._task: asyncio.Task[object] | None = None
        """Whose work it is, once that was begun."""

    @property
    def is_verified(self) -> bool:
        """Whether the attempt waits for its verifier, and for no model."""
        return self._phase() == "verify"

    def cut(self) -> None:
        """Cancel what the attempt waits for, unless it was cut before."""
        assert self._task is not None, "what was not entered is not in flight"
        if self._is_cut:
            return
        self._phase_at_cut = self._phase()
        self._is_cut = True
        self._task.cancel()

    def __enter__(self) -> Self:
        if self._stopping._is_cut:  # noqa: SLF001  # the two are one mechanism
            raise self._stopping.error(self._phase())
        if self._task is None:  # asked once: on Python 3.11 it is slow to say
            self._task = asyncio.current_task()
            assert self._task is not None, "attempts run in tasks"
        self._is_cut = False
        self._num_before = self._task.cancelling()
        self._stopping._in_flight.add(self)  # noqa: SLF001
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping._in_flight.discard(self)  # noqa: SLF001
        if not self._is_cut:
            return
        assert self._task is not None, "left before it was entered"
        num_left = self._task.uncancel()
        if isinstance(error, asyncio.CancelledError) and num_left <= self._num_before:
            raise self._stopping.error(self._phase_at_cut) from error


def _gravity(cause: GymError) -> int:
    """Rank what stops a run, as the exit codes are ranked: a signal, a budget, all else."""
    if isinstance(cause, InterruptedRunError):
        return 3
    return 2 if isinstance(cause, BudgetReachedError) else 1
