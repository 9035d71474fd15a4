"""Requests and answers on the wire; connections that time out, break, or are not trusted."""

import asyncio
import contextlib
import gzip
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import (
    ConfigError,
    ContextOverflowError,
    EndpointConnectionError,
    EndpointTimeoutError,
    InvalidAnswerError,
    ModelError,
    RequestRefusedError,
)
from gymcli.mock import MockAnswer, MockServer, scripted
from gymcli.mock.behaviours import echo, in_order
from gymcli.models.api_errors import is_fatal
from gymcli.models.client import Client, Conversation
from gymcli.models.endpoint import Endpoint
from gymcli.models.http import EventReader
from gymcli.types import Answer, Message, Request, Tries, Usage
from tests.models.asking import (
    HELLO,
    KEY,
    TOOL,
    FakeTime,
    ask,
    ask_and_see,
    failure,
    failure_at,
    hello,
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_answer_in_every_dialect(dialect, stream):
    script = scripted([MockAnswer(text="hi", reasoning="hm", tool_calls=[("add", {"a": 1})])])
    request = msgspec.structs.replace(hello(), tools=[TOOL])
    answer, server = ask_and_see(script, request, dialect=dialect, stream=stream)
    assert answer.message.text == "hi"
    assert answer.message.reasoning == "hm"
    assert [(c.name, c.arguments) for c in answer.message.tool_calls] == [("add", '{"a":1}')]
    assert answer.finish_reason == "tool_calls"
    assert answer.usage.completion_tokens > 0
    assert request.tries == Tries()
    (received,) = server.requests
    assert received.body.get("stream", False) is stream


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["interim-100", "interim-103"])
async def test_answer_passes_over_interim_responses(fault, stream):
    """The second request uses the same connection."""
    behaviour = scripted([MockAnswer(text="hi", fault=fault)])
    async with MockServer(behaviour) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m", stream=stream, max_attempts=1)
        async with Client(endpoint, concurrency=1) as client:
            assert [(await client.answer(hello())).message.text for _ in range(2)] == ["hi", "hi"]


INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
EARLY = b"HTTP/1.0 103 Early Hints\r\nLink: </a>\r\nConnection: close\r\n\r\n"
BODY = b'{"choices": [{"message": {"content": "HTTP/1.1 100"}, "finish_reason": "stop"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
    BODY
)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    "pieces",
    [
        [INTERIM + HEAD + BODY],
        [INTERIM, HEAD + BODY],
        [EARLY + HEAD + BODY],
        [EARLY, HEAD + BODY],
        [EARLY + INTERIM, EARLY + HEAD + BODY],
        [EARLY[:30], EARLY[30:-2], EARLY[-2:] + HEAD, BODY],
        # Nothing is removed from a body, wherever the packets split it.
        [EARLY + HEAD + BODY[: BODY.index(b"HTTP")], BODY[BODY.index(b"HTTP") :]],
    ],
)
def test_answer_takes_interim_responses_as_they_come(pieces, new_loop):
    """Also with HTTP/1.0 or `Connection: close`, in the answer's packet or before it."""
    ended = asyncio.Event()

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                await reader.readexactly(int(length[1]))
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)  # in a packet of its own
        writer.close()
        await writer.wait_closed()
        ended.set()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            endpoint = Endpoint(base_url=f"http://{host}:{port}", model="m", max_attempts=1)
            async with Client(endpoint, concurrency=1) as client:
                texts = [(await client.answer(hello())).message.text for _ in range(2)]
            await ended.wait()
            return texts

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()) == ["HTTP/1.1 100"] * 2


def test_answer_sends_key_headers_and_query():
    answer, server = ask_and_see(headers={"X-Team": "blue"}, query={"api-version": "1"})
    (received,) = server.requests
    assert answer.message.text == "hello"
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.headers["X-Team"] == "blue"
    assert received.headers["Content-Type"] == "application/json"
    assert "Cookie" not in received.headers


def test_answer_sends_no_key_it_was_not_given():
    _, server = ask_and_see(api_key=None)
    assert "Authorization" not in server.requests[0].headers


def test_answer_takes_an_authorization_header_in_place_of_the_key():
    _, server = ask_and_see(headers={"authorization": "Basic abcd"})
    assert server.requests[0].headers.getall("Authorization") == ["Basic abcd"]


def test_answer_never_sends_netrc(tmp_path, monkeypatch):
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login me password hush\ndefault login me password hush\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    _, server = ask_and_see(api_key=None)
    assert "Authorization" not in server.requests[0].headers


def test_answer_sends_large_prompts():
    request = Request(messages=[Message(role="user", content="x" * 2**21)])
    assert len(ask(request=request).message.text) == 2**21


async def test_answer_goes_through_the_proxy():
    """A plain-HTTP proxy gets the full address in the request, so a mock server can play it."""
    async with MockServer() as proxy:
        endpoint = Endpoint(
            base_url="http://model.invalid/v1",
            model="m",
            proxy=proxy.base_url.replace("http://", "http://me:hush@").removesuffix("/v1"),
        )
        async with Client(endpoint, concurrency=1) as client:
            await client.answer(HELLO)
        (received,) = proxy.requests
    assert received.headers["Host"] == "model.invalid"
    assert received.headers["Proxy-Authorization"].startswith("Basic ")


async def test_answer_keeps_to_its_concurrency():
    async with MockServer(latency=0.01) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        async with Client(endpoint, concurrency=2) as client:
            await asyncio.gather(*(client.answer(HELLO) for _ in range(6)))
        assert server.max_in_flight == 2


def test_answer_refuses_what_cannot_be_written():
    request = Request(messages=[Message(role="user", content="\ud800")])
    error = failure(echo, request)
    assert type(error) is RequestRefusedError
    assert "cannot be written as JSON" in str(error)


def test_answer_takes_a_plain_body_where_it_asked_for_a_stream():
    body = '{"choices": [{"message": {"content": "whole"}}]}'
    assert ask(scripted([MockAnswer(body=body)]), stream=True).message.text == "whole"


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "text/plain", None])
@pytest.mark.parametrize("is_at_once", [False, True])
async def test_answer_is_read_in_any_packets_and_its_connection_reused(kind, is_at_once):
    """The body may arrive with its head or after it, with any content type."""
    body = b'{"choices": [{"message": {"content": "whole"}}]}'
    head = b"HTTP/1.1 200 OK\r\n" + (f"Content-Type: {kind}\r\n".encode() if kind else b"")
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    pieces = [head + body] if is_at_once else [head, body[:9], body[9:]]
    num_connections = 0

    async def serve(reader, writer):
        nonlocal num_connections
        num_connections += 1
        while asked := await reader.read(2**16):
            if not asked.endswith(b"}"):
                continue
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
        writer.close()
        left.set()

    left = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="m")
        async with Client(endpoint, concurrency=1) as client:
            texts = [(await client.answer(hello())).message.text for _ in range(3)]
        await left.wait()
        assert texts == ["whole"] * 3
    assert num_connections == 1


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_answer_emulates_tools(dialect):
    """The endpoint sees no tools and writes text; the caller sees calls with distinct ids."""
    script = scripted(['{"tool": "add", "arguments": {"a": 1}}', '{"answer": "two"}'])
    request = msgspec.structs.replace(HELLO, tools=[TOOL])
    answer, server = ask_and_see(script, request, dialect=dialect, emulate_tools=True)
    assert "tools" not in server.requests[0].body
    (call,) = answer.message.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_0_0", "add", '{"a":1}')
    result = Message(role="tool", tool_call_id=call.id, content="2")
    request.messages = [*request.messages, answer.message, result]
    assert ask(script, request, dialect=dialect, emulate_tools=True).message.text == "two"


def test_answer_restores_nothing_where_no_tool_may_be_called():
    """With the tool choice "none", the model was not asked to write calls."""
    request = Request(messages=HELLO.messages, tools=[TOOL], params={"tool_choice": "none"})
    for text in ('{"answer": "raw"}', '{"tool": "add", "arguments": {}}'):
        message = ask(scripted([text]), request, emulate_tools=True).message
        assert (message.content, message.tool_calls) == (text, [])


def test_answer_emulates_nothing_without_tools():
    assert (
        ask(scripted(['{"answer": "raw"}']), emulate_tools=True).message.text == '{"answer": "raw"}'
    )


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_conversation_sends_what_single_requests_would(dialect):
    """Also if a message that was sent before is changed in place."""

    async def run(is_one: bool) -> list[object]:
        async with MockServer(echo) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", dialect=dialect)
            async with Client(endpoint, concurrency=1) as client:
                conversation = Conversation(client)
                messages = [Message(role="user", content="one")]
                for text in ("two", "three", "four"):
                    asked = Request(messages=messages, tools=[TOOL])
                    answer = await (conversation if is_one else client).answer(asked)
                    messages += [answer.message, Message(role="user", content=text)]
                    if text == "three":
                        messages[0].content = "one, changed"
            return [received.body for received in server.requests]

    assert asyncio.run(run(True)) == asyncio.run(run(False))


@pytest.mark.parametrize(("num_tokens", "finish"), [(9, "stop"), (10, "length")])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_responses_answer_that_used_all_tokens_was_cut(name, num_tokens, finish):
    """llama.cpp reports such an answer as completed."""
    behaviour = scripted([MockAnswer(text="It is", usage=Usage(completion_tokens=num_tokens))])
    request = Request(messages=HELLO.messages, params={name: 10})
    assert ask(behaviour, request, dialect="responses").finish_reason == finish
    assert ask(behaviour, request, dialect="chat").finish_reason == "stop"


@pytest.mark.parametrize("listed", [(), ("mood",)])
async def test_conversation_sends_back_what_the_endpoint_wants_back(listed):
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "add", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "s"}},
    }
    details = {"reasoning_details": [{"data": "x"}], "phase": "commentary"}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "mood": "good"}
    choice = {"message": {**message, **details}, "finish_reason": "tool_calls"}
    body = msgspec.json.encode({"choices": [choice]}).decode()
    async with MockServer(lambda _: MockAnswer(body=body)) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m", send_fields=listed)
        async with Client(endpoint, concurrency=1) as client:
            conversation = Conversation(client)
            messages = list(HELLO.messages)
            for _ in range(3):
                answer = await conversation.answer(Request(messages=messages))
                messages.append(answer.message)
            await client.answer(Request(messages=messages))
        in_conversation, of_others = [received.body["messages"] for received in server.requests][2:]
    mood = {"mood": "good"} if listed else {}
    said = {"role": "assistant", "content": None, "tool_calls": [call], **details, **mood}
    assert in_conversation[1:] == [said, said]
    del call["extra_content"]
    assert of_others[1:] == [{"role": "assistant", "content": None, "tool_calls": [call]}] * 3


def test_answer_that_was_aborted_is_asked_for_again():
    aborted = MockAnswer(text="It", finish_reason="abort", usage=Usage(completion_tokens=3))
    assert ask(in_order(aborted, "hi"), request := hello()).message.text == "hi"
    assert request.tries == Tries(retries={"ServerError": 1}, usage=Usage(completion_tokens=3))


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
    assert str(error).endswith("the answer stalled for 0.1 seconds")


def test_answer_times_out_while_connecting():
    """A listener with a full queue accepts no further connection."""
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


def test_answer_without_a_server():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = failure_at("http://127.0.0.1:{1}".format(*unused.getsockname()))
    assert type(error) is EndpointConnectionError
    assert "is the server running" in str(error)
    assert is_fatal(error)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """Write a self-signed certificate of 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the command openssl")
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
    """Serve one body to every request, and yield the address."""
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
    """It is not retried and ends the run, as waiting does not fix a certificate."""
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
async def test_answer_of_a_stream_is_there_though_the_connection_stays_open(dialect, stream):
    head = "Content-Type: text/event-stream\r\n"
    async with raw_server(stream, headers=head, stays_open=True) as address:
        options = {"dialect": dialect, "stream": True, "max_attempts": 1}
        endpoint = Endpoint(base_url=f"http://{address}", model="m", **options)
        async with Client(endpoint, concurrency=1) as client, asyncio.timeout(30):
            assert (await client.answer(HELLO)).message.text == "whole"


async def test_answers_of_streams_that_end_share_a_connection():
    """The end of the body comes in a packet after the last event."""
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

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    endpoint = Endpoint(base_url=f"http://{host}:{port}", model="m", stream=True)
    async with Client(endpoint, concurrency=1) as client:
        for _ in range(3):
            assert (await client.answer(hello())).message.text == "whole"
    await connections[0].wait_closed()
    server.close()
    assert len(connections) == 1


async def test_answer_reads_no_endless_body():
    """A small compressed body may be huge; reading stops at the limit."""
    packed = gzip.compress(b" " * (65 * 2**20), 1)
    async with raw_server(packed, headers="Content-Encoding: gzip\r\n") as address:
        endpoint = Endpoint(base_url=f"http://{address}", model="m", max_attempts=1)
        async with Client(endpoint, concurrency=1) as client:
            with pytest.raises(InvalidAnswerError, match="longer than 64 MiB"):
                await client.answer(HELLO)


class Endless(NamedTuple):
    """A body that an endpoint sends until the client closes the connection."""

    status: int
    content_type: str
    start: bytes
    piece: bytes


def failure_at_endless(endless: Endless, request: Request, **options) -> ModelError:
    """Return the error of a request that is answered with an endless body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {endless.status} Whatever\r\nContent-Type: {endless.content_type}\r\n\r\n"
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode() + endless.start)
            while True:
                writer.write(endless.piece)
                await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        endpoint = Endpoint(base_url=f"http://{host}:{port}", model="m", **options)
        async with server, Client(endpoint, concurrency=1, sleep=FakeTime().sleep) as client:
            await client.answer(request)

    with pytest.raises(ModelError) as raised:
        asyncio.run(run())
    return raised.value


@pytest.mark.parametrize(
    ("endless", "message"),
    [
        (Endless(200, "application/json", b'{"z": [', b"{}," * 2**14), "8,000,000 JSON values"),
        (Endless(200, "text/event-stream", b"", b"data: {}\n\n" * 2**12), "524,288 lines"),
        (Endless(200, "text/event-stream", b"", b":\n" * 2**12), "524,288 lines"),
        (Endless(200, "text/event-stream", b"data: ", b"x" * 2**16), "longer than 64 MiB"),
    ],
)
def test_answer_bounds_what_it_reads(endless, message):
    """60 MB of empty objects took 2 GB of memory; of empty events, ten seconds."""
    error = failure_at_endless(endless, hello(), max_attempts=1)
    assert type(error) is InvalidAnswerError
    assert message in str(error)


def test_answer_that_is_too_large_is_asked_for_again():
    many = '{"choices": [' + "{}," * 2**20 + "{}]}"
    request = hello()
    assert ask(in_order(MockAnswer(body=many), "fewer"), request).message.text == "fewer"
    assert request.tries.retries == {"InvalidAnswerError": 1}


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "text/event-stream"])
def test_answer_reads_only_the_start_of_a_refusal(content_type):
    start = b"data: " if content_type == "text/event-stream" else b""
    words = b"This model's maximum context length is 10 tokens."
    endless = Endless(400, content_type, start + words, b" error: error" * 2**12)
    error = failure_at_endless(endless, hello(), max_attempts=1)
    assert type(error) is ContextOverflowError
    assert "answered 400: This model's maximum context length is 10 tokens. error:" in str(error)


def test_answer_reads_long_answers():
    """These are decoded in a thread."""
    text = "word, " * 2**19
    assert ask(scripted([MockAnswer(text=text)])).message.text == text
    events = [{"choices": [{"delta": {"content": "word, " * 8}}]}] * 2**15
    events.append({"choices": [{"finish_reason": "stop"}]})
    stream = b"".join(b"data: %b\n\n" % msgspec.json.encode(event) for event in events)

    async def run() -> Answer:
        async with raw_server(stream, headers="Content-Type: text/event-stream\r\n") as address:
            endpoint = Endpoint(base_url=f"http://{address}", model="m", stream=True)
            async with Client(endpoint, concurrency=1) as client:
                return await client.answer(HELLO)

    assert asyncio.run(run()).message.text == text[: 6 * 2**18]


async def test_answer_counts_less_of_what_a_stream_does_not_keep():
    """A stream of 131,072 tokens with log-probabilities and counts in each event was refused."""
    event = b'data: {"choices": [{"delta": {"content": "a"}}], "usage": {"z": [%b{}]}}\n\n'
    events = event % (b"{}," * 2**10) * 2**10
    end = b'data: {"choices": [{"finish_reason": "stop"}]}\n\n'
    headers = "Content-Type: text/event-stream\r\n"
    async with raw_server(events + end, headers=headers) as address:
        endpoint = Endpoint(base_url=f"http://{address}", model="m", stream=True)
        async with Client(endpoint, concurrency=1) as client:
            assert (await client.answer(HELLO)).message.text == "a" * 2**10


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    "options",
    [{"total_timeout": 0.5}, {"idle_timeout": 0.5}, {"idle_timeout": 0.5, "stream": True}],
)
def test_answer_counts_no_time_in_which_the_loop_stood_still(options, new_loop):
    """A setup that computed for 8 s let every request with a shorter limit fail."""
    kind, body = "application/json", b'{"choices": [{"message": {"content": "whole"}}]}'
    if "stream" in options:
        kind, body = "text/event-stream", CHAT_STREAM

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"(?i)length: (\d+)", head)[1]))
        length = f"Content-Length: {len(body)}\r\nContent-Type: {kind}\r\n\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{length}".encode() + body[:9])
        await writer.drain()
        for _ in range(3):  # the client reads this before the loop is blocked
            await asyncio.sleep(0)
        time.sleep(1.0)  # block the loop
        # One more turn, in which timers run before the rest arrives.
        await asyncio.sleep(0)
        writer.write(body[9:])
        writer.close()

    async def run() -> Answer:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        endpoint = Endpoint(base_url=f"http://{host}:{port}", model="m", max_attempts=1, **options)
        async with server, Client(endpoint, concurrency=1) as client:
            return await client.answer(HELLO)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()).message.text == "whole"


async def test_answer_is_cancelled_at_once():
    async with MockServer(scripted([MockAnswer(fault="stall")])) as server:
        endpoint = Endpoint(base_url=server.base_url, model="m")
        async with Client(endpoint, concurrency=1) as client:
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.answer(HELLO)
            assert time.monotonic() - started < 2


def test_is_fatal_is_not_a_connection_that_broke():
    assert not is_fatal(failure(scripted([MockAnswer(fault="reset")]), max_attempts=1))


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\r\n\r\ndata:  b\r\r", [b"a", b" b"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\ndata: torn", [b"a", b"torn"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"", []),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_feed_reads_events(stream, events, size):
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert read(*chunks) == events


@given(
    st.lists(st.binary(min_size=1).filter(lambda data: not {10, 13} & set(data)), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_feed_does_not_care_how_the_stream_is_cut(data, end, cuts):
    stream = b"".join(b"data: " + item + end + end for item in data)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(places)]
    assert read(*chunks) == data


def test_feed_scans_a_long_line_once():
    """64 MB in pieces of 1 kB took hours when each piece rescanned the line."""
    reader = EventReader()
    piece = b"x" * 1024
    assert reader.feed(b"data: ") == []
    for _ in range(64 * 1024):
        assert reader.feed(piece) == []
    [event] = reader.finish()
    assert event == piece * 64 * 1024
