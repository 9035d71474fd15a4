"""Tests that answers of an endpoint are bounded, even if they are small before decompression."""

import asyncio
import gzip

import pytest

from gymcli.errors import EndpointConnectionError, InvalidAnswerError, RequestRefusedError
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.types import Message, Request

HEADS = {
    "answer": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
    "stream": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
    "refusal": b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n",
}


async def asked(answer):
    """Ask a server that always sends these bytes."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="m", max_attempts=1)
    async with server, Client(endpoint, concurrency=1) as client:
        await client.answer(Request(messages=[Message(role="user", content="Hello")]))


def test_compressed_body_counts_as_what_it_becomes(subtests):
    bomb = gzip.compress(bytes(80 * 2**20), 1)
    assert len(bomb) < 2**20
    length = f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    for kind, head in HEADS.items():
        # Of a refusal, only the start is read.
        error = RequestRefusedError if kind == "refusal" else InvalidAnswerError
        words = "400" if kind == "refusal" else "longer than 64 MiB"
        with subtests.test(kind), pytest.raises(error, match=words):
            asyncio.run(asked(head + length + bomb))


def test_headers_are_counted():
    headers = b"".join(b"X-%d: a\r\n" % number for number in range(100_000))
    with pytest.raises(EndpointConnectionError):
        asyncio.run(asked(HEADS["answer"] + headers + b"Content-Length: 0\r\n\r\n"))


def test_bodies_that_cannot_be_read_are_no_answers(subtests):
    bodies = (
        b"[" * 1_000_000,
        b'{"choices":' * 100_000,
        b'{"choices":[{"index":' + b"9" * 1_000_000 + b"}]}",
        b'{"choices":[{"message":{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}",
        b"\xff" * 1000,
        b"",
    )
    for body in bodies:
        length = f"Content-Length: {len(body)}\r\n\r\n".encode()
        with subtests.test(body[:40]), pytest.raises(InvalidAnswerError):
            asyncio.run(asked(HEADS["answer"] + length + body))
