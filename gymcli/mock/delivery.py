"""Sends an answer, whole or not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiohttp import web

from gymcli.mock.faults import Cut
from gymcli.mock.stats import Exchange

__all__ = ["Reply", "deliver", "reset"]

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
