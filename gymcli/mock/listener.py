"""Sends an answer, whole or not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self

from aiohttp import web

from gymcli.errors import UsageError
from gymcli.mock.faults import Cut
from gymcli.mock.request_log import Exchange

__all__ = ["Reply", "Site", "deliver", "reset"]


_MISSING = 64
"""Bytes that are announced and never come."""

_AT_ONCE = struct.pack("ii", 1, 0)
"""On, 0 seconds: closing sends a reset, not an orderly end."""


_INTERIM = {
    "interim-100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "interim-103": b"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\n",
}


class Reply(NamedTuple):
    """What is to be sent."""

    status: int
    headers: Mapping[str, str]
    pieces: Sequence[bytes]
    """One body, or the events of a stream."""
    is_stream: bool = False


def reset(transport: asyncio.Transport | None) -> None:
    """Break a connection, so that the other side sees a reset."""
    if transport is None or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


async def deliver(
    request: web.BaseRequest, reply: Reply, fault: Cut | None, exchange: Exchange
) -> web.StreamResponse:
    """Send a reply; note its status once it goes out."""
    if fault == "stall":
        await asyncio.Event().wait()
    if fault == "reset":
        return _broken(request)
    exchange.status = reply.status
    if interim := _INTERIM.get(fault or ""):
        assert request.transport is not None, "a lost connection cancels its handler"
        request.transport.write(interim)
    if interim or (fault == "open-stream" and not reply.is_stream):
        fault = None
    if fault is None and not reply.is_stream:
        return web.Response(body=reply.pieces[0], status=reply.status, headers=reply.headers)
    whole = b"".join(reply.pieces)
    if fault is None:
        # One write: the pieces are what a client has to put together, not their timing.
        return await _sent(request, reply, whole)
    if fault == "open-stream":
        await _begun(request, reply, whole, length=None)
        await asyncio.Event().wait()
    if fault == "half-json":
        half = _half_json(reply)
        return await _sent(request, reply, half, length=None if reply.is_stream else len(half))
    if fault == "wrong-length":
        response = await _begun(request, reply, whole, length=len(whole) + _MISSING)
        if request.transport is not None:
            request.transport.close()
        return response
    half = whole[: len(whole) // 2]
    response = await _begun(request, reply, half, length=None if reply.is_stream else len(whole))
    if fault == "stall-body":
        await asyncio.Event().wait()
    await _flushed(request)
    return _broken(request, response)


def _broken(
    request: web.BaseRequest, response: web.StreamResponse | None = None
) -> web.StreamResponse:
    reset(request.transport)
    return response or web.Response()


async def _sent(
    request: web.BaseRequest, reply: Reply, data: bytes, *, length: int | None = None
) -> web.StreamResponse:
    response = await _begun(request, reply, data, length=length)
    await response.write_eof()
    return response


async def _begun(
    request: web.BaseRequest, reply: Reply, data: bytes, *, length: int | None
) -> web.StreamResponse:
    """Send the head and some of the body; without a length it comes in chunks."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = length
    await response.prepare(request)
    await response.write(data)
    return response


async def _flushed(request: web.BaseRequest) -> None:
    """Wait until what was written has left this process."""
    transport = request.transport
    assert transport is not None, "a lost connection cancels its handler"
    transport.set_write_buffer_limits(high=0)
    for _ in range(2):  # uvloop writes at the end of a turn of the loop
        await asyncio.sleep(0)
    await request.writer.drain()


def _half_json(reply: Reply) -> bytes:
    """Give what ends in the middle of a JSON text: of the body, or of an event in the middle."""
    if not reply.is_stream:
        body = reply.pieces[0]
        return body[: len(body) // 2]
    middle = len(reply.pieces) // 2
    event = reply.pieces[middle]
    data = event.index(b"data: ") + len(b"data: ")
    cut = event[: (data + len(event)) // 2]
    return b"".join(reply.pieces[:middle]) + cut + b"\n\n"


_BACKLOG = 4096
_SHUTDOWN = 0.1
"""Seconds that a request under way has left when the server ends."""


class Site:
    """An async context manager that listens while it is open and not down.

    The port stays ours while nobody listens there: who connects is refused, and no other server
    can take it.

    Args:
        handle: What answers a request.
        host: Where to listen.
        port: 0 picks a free one, which is the port from then on.

    Raises:
        OSError: On entering, the host is unknown, or the port is taken.
        ExceptionGroup: On leaving, it could not return after a while, a `UsageError`.

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
        self._turn = asyncio.Lock()
        self._death: asyncio.Task[None] | None = None
        self._return: asyncio.Task[None] | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.is_down = False
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            self._bind()
            await self._listen()
            # Last: what is raised within it comes out in a group.
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(self._stop_timers)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.aclose()

    async def fall(
        self, seconds: float | None = None, *, spared: asyncio.BaseTransport | None = None
    ) -> None:
        """Stop listening and reset every connection; who falls while down says anew for how long.

        Args:
            seconds: When to be back; None: when `rise` says so.
            spared: The connection that asked for it, which is left alone.

        """
        async with self._turn:
            _stop(self._return)
            if not self.is_down:
                self.is_down = True
                await self._leave()
                self._bind()
                for connection in self._server.connections:
                    if connection.transport is not spared:
                        reset(connection.transport)
            if seconds is not None:
                self._return = self._tasks.create_task(self._rise_after(seconds))

    async def rise(self) -> None:
        """Listen again, on the same port.

        Raises:
            UsageError: It cannot; the place is down still.

        """
        async with self._turn:
            _stop(self._return)
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

    def fall_after(self, seconds: float, lasts: float | None) -> None:
        """Fall in so many seconds, for so many; other falls before do not change that."""

        async def fall() -> None:
            await asyncio.sleep(seconds)
            await self.fall(lasts)

        _stop(self._death)
        self._death = self._tasks.create_task(fall())

    async def _rise_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.rise()

    def _stop_timers(self) -> None:
        _stop(self._death)
        _stop(self._return)

    def _bind(self) -> None:
        """Take the port; until somebody listens, who connects is refused."""
        [found, *_] = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            # With it, Linux would let another server have the port until one of the two listens.
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
            # Without it, an open connection of before would be in the way, now or at the next bind.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.listen(_BACKLOG)  # uvloop says nothing where this fails
            loop = asyncio.get_running_loop()
            self._listening = await loop.create_server(self._server, sock=bound, backlog=_BACKLOG)
        except OSError:
            bound.close()
            raise

    async def _leave(self) -> None:
        """Stop listening, and give the port up."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            for _ in range(2):  # uvloop closes at the end of a turn of the loop
                await asyncio.sleep(0)

    async def _close(self) -> None:
        await self._leave()
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN)


def _stop(timer: asyncio.Task[None] | None) -> None:
    """Cancel what waits, but for a timer whose time it is: that is who asks."""
    if timer is not None and timer is not asyncio.current_task():
        timer.cancel()
