"""The port of the mock server, which it can leave and take again."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self

from aiohttp import web

from gymcli.errors import UsageError
from gymcli.listening import quiet_about_clients

_BACKLOG = 4096
_SHUTDOWN = 0.1
"""Seconds that running requests get when the server ends."""
_LINGER = struct.pack("ii", 1, 0)
"""On, 0 seconds: closing sends a reset instead of an orderly end."""


def reset(transport: asyncio.Transport | None) -> None:
    """Break a connection, so that the other side sees a reset."""
    if transport is None or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    transport.abort()


class Listener:
    """An async context manager that listens while it is open and not down.

    The port stays reserved while the server is down: connections are refused, and no other server
    can take it.

    Port 0 picks a free one and keeps it.

    Raises:
        OSError: On entering, if the host is unknown or the port is taken.
        ExceptionGroup: On leaving, with the `UsageError` of a planned return that failed.
    """

    def __init__(
        self,
        handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        host: str,
        port: int,
    ) -> None:
        self.host = host
        self.port = port
        self.is_down = False
        self._handle = handle
        self._bound: socket.socket | None = None
        self._listening: asyncio.Server | None = None
        self._changing = asyncio.Lock()
        self._planned_fall: asyncio.Task[None] | None = None
        self._planned_rise: asyncio.Task[None] | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.is_down = False
        # With cancellation: otherwise a stalled request would outlive its client, and hold its
        # place in flight.
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        async with AsyncExitStack() as stack:
            stack.enter_context(quiet_about_clients())
            stack.push_async_callback(self._close)
            self._bind()
            await self._listen()
            # Last, since it wraps exceptions raised inside it in a group.
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(self._stop_timers)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def fall(
        self, seconds: float | None = None, *, answering: asyncio.BaseTransport | None = None
    ) -> None:
        """Stop listening; reset all connections but `answering`; if down already, plan the return.

        It returns after `seconds`, or only when `rise` is called.
        """
        async with self._changing:
            _stop(self._planned_rise)
            if not self.is_down:
                self.is_down = True
                await self._leave()
                self._bind()
                for connection in self._server.connections:
                    if connection.transport is not answering:
                        reset(connection.transport)
            if seconds is not None:
                self._planned_rise = self._tasks.create_task(self._rise_after(seconds))

    async def rise(self) -> None:
        async with self._changing:
            _stop(self._planned_rise)
            if not self.is_down:
                return
            try:
                if self._bound is None:
                    self._bind()
                await self._listen()
            except OSError as error:
                place = f"{self.host}:{self.port}"
                raise UsageError(f"cannot listen on {place} again: {error.strerror}") from error
            self.is_down = False

    def fall_after(self, seconds: float, down_seconds: float | None) -> None:
        """Plan a fall after `seconds` that lasts `down_seconds`, regardless of earlier falls."""

        async def fall() -> None:
            await asyncio.sleep(seconds)
            await self.fall(down_seconds)

        _stop(self._planned_fall)
        self._planned_fall = self._tasks.create_task(fall())

    async def _rise_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.rise()

    def _stop_timers(self) -> None:
        _stop(self._planned_fall)
        _stop(self._planned_rise)

    def _bind(self) -> None:
        """Bind the port; until `_listen`, connections are refused."""
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            # Otherwise Linux lets another server bind the port until one of the two listens.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            bound.close()
            raise
        self._bound = bound
        self.port = bound.getsockname()[1]

    async def _listen(self) -> None:
        bound, self._bound = self._bound, None
        assert bound is not None, "listens without a port"
        try:
            # Otherwise earlier connections prevent this, now or at the next bind.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.listen(_BACKLOG)  # uvloop would not report that this failed
            loop = asyncio.get_running_loop()
            self._listening = await loop.create_server(self._server, sock=bound, backlog=_BACKLOG)
        except OSError:
            bound.close()
            raise

    async def _leave(self) -> None:
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            for _ in range(2):  # uvloop closes at the end of a loop iteration
                await asyncio.sleep(0)

    async def _close(self) -> None:
        await self._leave()
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN)


def _stop(timer: asyncio.Task[None] | None) -> None:
    """Cancel a timer, unless it has expired and is itself the caller."""
    if timer is not None and timer is not asyncio.current_task():
        timer.cancel()
