"""What the client sends and what it makes of a good answer, over real connections."""

import asyncio
import contextlib
import re

import msgspec
import pytest
import uvloop

from gymcli.errors import (
    RequestRefusedError,
)
from gymcli.mock import MockAnswer, MockServer, scripted
from gymcli.mock.behaviours import echo, in_order
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.types import Message, Request, Tries, Usage
from tests.models.asking import HELLO, KEY, TOOL, ask, ask_and_see, failure, hello


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
def test_answer_passes_over_interim_responses(fault, stream):
    """Two requests: the second one on the same connection."""

    async def run():
        behaviour = scripted([MockAnswer(text="hi", fault=fault)])
        async with MockServer(behaviour) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", stream=stream, max_attempts=1)
            async with Client(endpoint, concurrency=1) as client:
                return [(await client.answer(hello())).message.text for _ in range(2)]

    assert asyncio.run(run()) == ["hi", "hi"]


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
        # Nothing is taken out of a body, wherever it is cut.
        [EARLY + HEAD + BODY[: BODY.index(b"HTTP")], BODY[BODY.index(b"HTTP") :]],
    ],
)
def test_answer_takes_interim_responses_as_they_come(pieces, new_loop):
    """Of HTTP/1.0 or with `Connection: close` too, in one packet with the answer or before it."""
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
                    await asyncio.sleep(0.01)  # as a packet of its own
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


def test_answer_goes_through_the_proxy():
    """A plain-http proxy is asked for the whole address, so the mock server can be one."""

    async def run() -> MockServer:
        async with MockServer() as proxy:
            endpoint = Endpoint(
                base_url="http://model.invalid/v1",
                model="m",
                proxy=proxy.base_url.replace("http://", "http://me:hush@").removesuffix("/v1"),
            )
            async with Client(endpoint, concurrency=1) as client:
                await client.answer(HELLO)
            return proxy

    (received,) = asyncio.run(run()).requests
    assert received.headers["Host"] == "model.invalid"
    assert received.headers["Proxy-Authorization"].startswith("Basic ")


def test_answer_keeps_to_its_concurrency():
    async def run() -> int:
        async with MockServer(latency=0.01) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            async with Client(endpoint, concurrency=2) as client:
                await asyncio.gather(*(client.answer(HELLO) for _ in range(6)))
            return server.max_in_flight

    assert asyncio.run(run()) == 2


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
def test_answer_is_read_however_it_comes_and_its_connection_used_again(kind, is_at_once):
    """With its head or after it, and whatever that says of its type."""
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

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="m")
            async with Client(endpoint, concurrency=1) as client:
                texts = [(await client.answer(hello())).message.text for _ in range(3)]
            await left.wait()
            return texts

    left = asyncio.Event()
    assert asyncio.run(run()) == ["whole"] * 3
    assert num_connections == 1


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_answer_emulates_tools(dialect):
    """The endpoint sees no tools and writes text; the caller sees calls, each with its own id."""
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
    """With the tool choice "none" the model was not asked to write in the form of calls."""
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
    """Also where a message that was sent before is changed in place."""

    async def run(is_one: bool) -> list[object]:
        async with MockServer(echo) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", dialect=dialect)
            async with Client(endpoint, concurrency=1) as client:
                conversation = client.conversation()
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
def test_answer_of_responses_that_took_all_tokens_was_cut(name, num_tokens, finish):
    """As llama.cpp says it: completed."""
    behaviour = scripted([MockAnswer(text="It is", usage=Usage(completion_tokens=num_tokens))])
    request = Request(messages=HELLO.messages, params={name: 10})
    assert ask(behaviour, request, dialect="responses").finish_reason == finish
    assert ask(behaviour, request, dialect="chat").finish_reason == "stop"


@pytest.mark.parametrize("listed", [(), ("mood",)])
def test_conversation_sends_back_what_the_endpoint_wants_back(listed):
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

    async def run() -> list[list[dict]]:
        async with MockServer(lambda _: MockAnswer(body=body)) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", send_fields=listed)
            async with Client(endpoint, concurrency=1) as client:
                conversation = client.conversation()
                messages = list(HELLO.messages)
                for _ in range(3):
                    answer = await conversation.answer(Request(messages=messages))
                    messages.append(answer.message)
                await client.answer(Request(messages=messages))
            return [received.body["messages"] for received in server.requests][2:]

    in_conversation, of_others = asyncio.run(run())
    mood = {"mood": "good"} if listed else {}
    said = {"role": "assistant", "content": None, "tool_calls": [call], **details, **mood}
    assert in_conversation[1:] == [said, said]
    del call["extra_content"]
    assert of_others[1:] == [{"role": "assistant", "content": None, "tool_calls": [call]}] * 3


def test_answer_that_was_aborted_is_asked_for_again():
    aborted = MockAnswer(text="It", finish_reason="abort", usage=Usage(completion_tokens=3))
    answer = ask(in_order(aborted, "hi"), request := hello())
    assert answer.message.text == "hi"
    assert request.tries == Tries(retries={"ServerError": 1}, usage=Usage(completion_tokens=3))
