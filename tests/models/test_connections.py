"""Connections that time out, break, or cannot be trusted."""

import asyncio
import gzip
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gymcli.errors import (
    ConfigError,
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
)
from gymcli.mock import MockAnswer, MockServer, scripted
from gymcli.models.api_errors import is_fatal
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.types import Answer, Request
from tests.models.asking import HELLO, FakeTime, failure, hello


def test_answer_times_out_as_a_whole():
    stall = scripted([MockAnswer(fault="stall")])
    error = failure(stall, request := hello(), total_timeout=0.1, max_attempts=2)
    assert type(error) is EndpointTimeoutError
    assert str(error).endswith("no answer within 0.1 seconds")
    assert request.tries.retries == {"EndpointTimeoutError": 1}


def test_answer_times_out_when_a_stream_stands_still():
    stall = scripted([MockAnswer(text="x", fault="stall")])
    error = failure(stall, stream=True, idle_timeout=0.1, max_attempts=1)
    assert type(error) is EndpointTimeoutError
    assert str(error).endswith("the answer stood still for 0.1 seconds")


def test_answer_times_out_while_connecting():
    """A listener with a full queue answers no further connection."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for taken in (first, second):
            taken.setblocking(False)
            taken.connect_ex(listener.getsockname())
        base_url = "http://127.0.0.1:{1}".format(*listener.getsockname())
        error = failure_at(base_url, connect_timeout=0.1)
    assert type(error) is EndpointTimeoutError
    assert str(error).endswith("no connection within 0.1 seconds")
    assert not is_fatal(error)


def failure_at(base_url: str, **options) -> ModelError:
    """Ask an address in vain, once."""

    async def run() -> None:
        settings = {"base_url": base_url, "model": "m", "max_attempts": 1, **options}
        async with Client(Endpoint.model_validate(settings), concurrency=1) as client:
            await client.answer(HELLO)

    with pytest.raises(ModelError) as raised:
        asyncio.run(run())
    return raised.value


def test_answer_without_a_server():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = failure_at("http://127.0.0.1:{1}".format(*unused.getsockname()))
    assert type(error) is EndpointConnectionError
    assert "is the server running" in str(error)
    assert is_fatal(error)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that nobody has signed but itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "certificate.pem", folder / "key.pem"
    kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    place = ["-out", paths[0], "-keyout", paths[1]]
    subprocess.run([openssl, *kind, *name, *place], check=True, capture_output=True)
    return paths


def answer_over_tls(certificate: tuple[Path, Path], request: Request = HELLO, **options) -> Answer:
    """Ask a server that has this certificate."""
    body = b'{"choices": [{"message": {"content": "safe"}}]}'
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    async def run() -> Answer:
        async with raw_server(body, ssl=context) as address:
            settings = {"base_url": f"https://{address}", "model": "m", **options}
            endpoint = Endpoint.model_validate(settings)
            async with Client(endpoint, concurrency=1, sleep=FakeTime().sleep) as client:
                return await client.answer(request)

    return asyncio.run(run())


@asynccontextmanager
async def raw_server(
    body: bytes, *, headers: str = "", stays_open: bool = False, **options
) -> AsyncIterator[str]:
    """Serve one body to everybody, and give the address."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        length = "" if stays_open else f"Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{length}{headers}\r\n".encode() + body)
        if stays_open:
            open_ones.add(writer)
        else:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"{host}:{port}"
        for writer in open_ones:
            writer.close()
            await writer.wait_closed()


def test_answer_without_a_trusted_certificate(certificate):
    """Neither retried nor survived: a certificate does not mend itself."""
    with pytest.raises(EndpointConnectionError, match="ca_file") as raised:
        answer_over_tls(certificate, request := hello())
    assert request.tries.retries == {}
    assert is_fatal(raised.value)


def test_answer_trusts_the_authority_of_ca_file(certificate):
    assert answer_over_tls(certificate, ca_file=certificate[0]).message.text == "safe"


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_client_names_a_ca_file_that_cannot_be_used(tmp_path, text):
    path = tmp_path / "authority.pem"
    if text is not None:
        path.write_text(text)
    endpoint = Endpoint(base_url="https://host", model="m", ca_file=path)

    async def run() -> None:
        async with Client(endpoint, concurrency=1):
            pass

    with pytest.raises(ConfigError, match=r"ca_file .*authority\.pem: "):
        asyncio.run(run())


CHAT_STREAM = (
    b'data: {"choices": [{"delta": {"content": "whole"}, "finish_reason": "stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
RESPONSES_STREAM = (
    b'data: {"type":"response.completed","response":{"output":[{"type":"message",'
    b'"role":"assistant","content":[{"type":"output_text","text":"whole"}]}]}}\n\n'
)


@pytest.mark.parametrize(
    ("dialect", "stream"), [("chat", CHAT_STREAM), ("responses", RESPONSES_STREAM)]
)
def test_answer_of_a_stream_is_there_though_the_connection_stays_open(dialect, stream):
    async def run() -> Answer:
        head = "Content-Type: text/event-stream\r\n"
        async with raw_server(stream, headers=head, stays_open=True) as address:
            options = {"dialect": dialect, "stream": True, "max_attempts": 1}
            endpoint = Endpoint(base_url=f"http://{address}", model="m", **options)
            async with Client(endpoint, concurrency=1) as client, asyncio.timeout(30):
                return await client.answer(HELLO)

    assert asyncio.run(run()).message.text == "whole"


def test_answers_of_streams_that_end_share_a_connection():
    """The end of the body comes after the last event, in a packet of its own."""
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        for _ in range(3):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"(?i)length: (\d+)", head)[1]))
            kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            size = f"{len(CHAT_STREAM):x}\r\n".encode()
            writer.write(b"HTTP/1.1 200 OK\r\n" + kind + size + CHAT_STREAM + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        endpoint = Endpoint(base_url=f"http://{host}:{port}", model="m", stream=True)
        async with Client(endpoint, concurrency=1) as client:
            for _ in range(3):
                assert (await client.answer(hello())).message.text == "whole"
        await connections[0].wait_closed()
        server.close()

    asyncio.run(run())
    assert len(connections) == 1


def test_answer_reads_no_endless_body():
    """What is packed small may be large; reading stops at the limit."""
    packed = gzip.compress(b" " * (65 * 2**20), 1)

    async def run() -> None:
        async with raw_server(packed, headers="Content-Encoding: gzip\r\n") as address:
            endpoint = Endpoint(base_url=f"http://{address}", model="m", max_attempts=1)
            async with Client(endpoint, concurrency=1) as client:
                await client.answer(HELLO)

    with pytest.raises(InvalidAnswerError, match="longer than 64 MiB"):
        asyncio.run(run())


def test_answer_is_cancelled_at_once():
    async def run() -> float:
        async with MockServer(scripted([MockAnswer(fault="stall")])) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            async with Client(endpoint, concurrency=1) as client:
                started = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.answer(HELLO)
                return time.monotonic() - started

    assert asyncio.run(run()) < 2


def test_is_fatal_is_not_a_connection_that_broke():
    assert not is_fatal(failure(scripted([MockAnswer(fault="reset")]), max_attempts=1))
