"""The sessions of a server, each identified by its token and closed when unused."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from typing import Self, TypeVar

from gymcli.environment.contract import Environment
from gymcli.environment.time_limit import LateError, gather_all, within
from gymcli.environment.tool import Task
from gymcli.errors import AttemptError, EnvironmentTimeoutError, EpisodeError, GymError, boundary
from gymcli.models.roles import RoleModels
from gymcli.serving.protocol import HttpStatusError
from gymcli.types import Rollout

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

_LONGEST_SLEEP = 30.0
"""Seconds between searches for unused sessions."""

_RETRY_AFTER = 5


class Session:
    """One episode: its environment with the record so far, and the endpoints of its roles."""

    def __init__(self, environment: Environment[Task], models: RoleModels) -> None:
        # Whoever knows the token may use the session, so it cannot be guessed.
        self.token = secrets.token_urlsafe(24)
        self.environment = environment
        self.models = models
        """Caches the answers to equal requests of this session."""
        self.is_gymcli_client = False
        """Whether its client is gymcli."""
        self.is_finished = False
        """Whether the environment ended the episode."""
        self.is_over = False
        self.used_at = 0.0
        self.lock = asyncio.Lock()
        """Locked while a request is answered."""

    @property
    def rollout(self) -> Rollout:
        return self.environment.rollout


class Sessions:
    """Every session of a server; an async context manager that closes them all."""

    def __init__(self, *, lifetime: float, max_sessions: int, clock: Callable[[], float]) -> None:
        self.lifetime = lifetime
        self._max_sessions = max_sessions
        self._clock = clock
        self._open: dict[str, Session] = {}  # least recently used first
        self._num_opening = 0
        self._expiring: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def __aenter__(self) -> Self:
        self._expiring = asyncio.create_task(self._expire_for_ever())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            with suppress(asyncio.CancelledError):
                await self._expiring
        await gather_all([self.end(session) for session in self._open.values()])

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[None]:
        """Reserve a place for a session that is being opened; refuse if the server is full."""
        if self._is_full():
            # The task that closes unused sessions may have run up to 30 seconds ago.
            await self.expire()
        if self._is_full():
            raise HttpStatusError(
                503,
                f"{self._max_sessions} sessions are open, the limit of this server; try again "
                "later, or start it with a higher --max-sessions",
                retry_after=_RETRY_AFTER,
            )
        self._num_opening += 1
        try:
            yield
        finally:
            self._num_opening -= 1

    def touch(self, session: Session) -> None:
        """Restart the lifetime of a session; add a new one."""
        session.used_at = self._clock()
        # Moved to the end, so that `expire` finds the unused sessions at the front.
        self._open.pop(session.token, None)
        self._open[session.token] = session

    def find(self, token: str | None) -> Session:
        """Return the session of a token; refuse if it is over."""
        if token is None:
            raise HttpStatusError(
                400,
                "no session: ask /seed_session or /reset first, and send the cookie that it sets "
                "with every request",
            )
        if not self.has(token):
            raise HttpStatusError(
                410,
                "this session is over: it was verified or closed, the server was restarted, or "
                f"it was unused for {self.lifetime:g} seconds (--session-lifetime)",
            )
        session = self._open[token]
        self.touch(session)
        return session

    @asynccontextmanager
    async def turn(self, session: Session) -> AsyncIterator[None]:
        """Serialize requests to one session; its lifetime counts from the end of each."""
        async with session.lock:
            # It may have ended while this request waited for its turn.
            if session.is_over:
                raise HttpStatusError(410, "this session is over")
            try:
                yield
            finally:
                if not session.is_over:
                    self.touch(session)

    def has(self, token: str | None) -> bool:
        session = self._open.get(token or "")
        # A session in use lives on, however long its request takes.
        return session is not None and (session.lock.locked() or not self._is_due(session))

    async def end(self, session: Session) -> None:
        """Close a session; an exception of its environment is logged."""
        # Removed before it is closed, so that no second request closes it again.
        if self._open.pop(session.token, None) is None:
            return
        session.is_over = True
        await close(session.environment)

    async def expire(self) -> None:
        due = list(takewhile(self._is_due, self._open.values()))
        for session in due:
            # A long request is still using it: its lifetime begins again, as in `turn`.
            if session.lock.locked():
                self.touch(session)
        # Concurrently, since each may be slow.
        await gather_all(self.end(session) for session in due if not session.lock.locked())

    def _is_full(self) -> bool:
        return len(self._open) + self._num_opening >= self._max_sessions

    def _is_due(self, session: Session) -> bool:
        return self._clock() - session.used_at > self.lifetime

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(min(max(self.lifetime, 1.0), _LONGEST_SLEEP))
            await self.expire()


async def close(environment: Environment[Task]) -> None:
    """Close an environment and log any exception."""
    if type(environment).close is Environment.close:
        return
    try:
        with boundary(EpisodeError):
            await run_limited(environment, "close", environment.close(), EnvironmentTimeoutError)
    except GymError as error:
        _LOGGER.warning("%s: close failed: %s", environment.rollout.env, error)


async def run_limited(
    environment: Environment[Task],
    method: str,
    call: Coroutine[object, object, T],
    error_class: type[AttemptError],
) -> T:
    """Await a call of an environment's method, within the limit set by its class."""
    limit = "step_timeout" if method == "final_state" else f"{method}_timeout"
    seconds: float = getattr(environment, limit)
    try:
        return await within(
            seconds, call, close_timeout=environment.close_timeout, now=environment.now
        )
    except LateError as late:
        raise error_class(f"{method} took longer than {seconds:g} seconds ({limit})") from late
