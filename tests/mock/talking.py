"""Talk to a mock server, as a client does or byte by byte."""

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec
import pytest
import uvloop

from gymcli.mock import MockServer, echo
from gymcli.mock.behaviours import Behaviour

T = TypeVar("T")
Talk = Callable[[MockServer, aiohttp.ClientSession], Awaitable[T]]

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
RESPONSES = {"model": "m", "input": "hello"}
PATHS = {"chat": "/chat/completions", "responses": "/responses"}
TOOL = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}


def chat(text: str, **fields: object) -> dict:
    """Return a chat request with one user message."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def body_for(dialect: str, text: str = "hello", *, has_tools: bool = False, **fields) -> dict:
    """Return a request with one user message in a dialect."""
    if dialect == "chat":
        tools = [{"type": "function", "function": TOOL}]
        body = chat(text, **fields)
    else:
        tools = [{"type": "function", **TOOL}]
        body = {"model": "m", "input": text, **fields}
    return {**body, "tools": tools} if has_tools else body


needs_dev_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs the disk that is always full"
)

LOOPS = {"asyncio": None, "uvloop": uvloop.new_event_loop}
"""Event loops of the server: the fixture runs on asyncio, the command on uvloop."""

on_both_loops = pytest.mark.parametrize("loop", LOOPS)


def run_on(loop: str, main: Coroutine[object, object, T]) -> T:
    """Run a coroutine on a loop of this kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main)


@contextlib.asynccontextmanager
async def talking(
    behaviour: Behaviour = echo, **options
) -> AsyncIterator[tuple[MockServer, aiohttp.ClientSession]]:
    """Open a server and a session."""
    async with MockServer(behaviour, **options) as server, aiohttp.ClientSession() as session:
        yield server, session


def talk(use: Talk[T], behaviour: Behaviour = echo, *, loop: str = "asyncio", **options) -> T:
    """Open a server and a session on a loop of this kind, and call a function with them."""

    async def run() -> T:
        async with talking(behaviour, **options) as (server, session):
            return await use(server, session)

    return run_on(loop, run())


async def post(session: aiohttp.ClientSession, server: MockServer, path: str, body: object):
    async with session.post(server.base_url + path, json=body) as response:
        return response.status, await response.json()


class Bytes(NamedTuple):
    """What came over one connection."""

    data: bytes
    ending: str
    """`closed`, `reset`, or `open` if nothing more came while we waited."""

    @property
    def head(self) -> str:
        return self.data.partition(b"\r\n\r\n")[0].decode().lower()

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]

    @property
    def content(self) -> bytes:
        """The body, joined if it came in chunks."""
        if "transfer-encoding: chunked" not in self.head:
            return self.body
        rest, joined = self.body, b""
        while b"\r\n" in rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            joined += rest[:length]
            rest = rest[length + 2 :]
        return joined


async def raw(server: MockServer, path: str, body: object, *, until: int | None = None) -> Bytes:
    """Send a request and read the answer: to the end, or until this many bytes have come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.site.port)
    content = msgspec.json.encode(body)
    head = f"POST /v1{path} HTTP/1.1\r\nHost: mock\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    data, ending = b"", "open"
    try:
        while until is None or len(data) < until:
            piece = await reader.read(2**16)
            if not piece:
                ending = "closed"
                break
            data += piece
    except ConnectionResetError:
        ending = "reset"
    finally:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
    return Bytes(data, ending)


def ask(base_url: str, text: str) -> str:
    """Ask from a test that is not async, and return the text of the answer."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        f"{base_url}/chat/completions", data=msgspec.json.encode(body), method="POST"
    )
    # Without this handler urllib asks the proxy that the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        return msgspec.json.decode(response.read())["choices"][0]["message"]["content"]
