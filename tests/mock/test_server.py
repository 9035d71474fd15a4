"""The mock server over real connections."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec
import pytest

from gymcli.client import SCALAR_DIALECTS, Client, Endpoint
from gymcli.mock import MockAnswer, MockServer, fixed, scripted
from gymcli.mock.behaviours import Behaviour, echo
from gymcli.types import Message, Request

T = TypeVar("T")
Talk = Callable[[MockServer, aiohttp.ClientSession], Awaitable[T]]

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def talk(what: Talk[T], behaviour: Behaviour = echo, **options) -> T:
    """Open a server and a session, and do something with them."""

    async def run() -> T:
        async with MockServer(behaviour, **options) as server, aiohttp.ClientSession() as session:
            return await what(server, session)

    return asyncio.run(run())


async def post(session: aiohttp.ClientSession, server: MockServer, path: str, body: object):
    async with session.post(server.base_url + path, json=body) as response:
        return response.status, await response.json()


def test_server_gives_behaviours_one_view_of_both_dialects():
    """Messages, tools and parameters look the same, whichever dialect carried them."""
    seen: list[Request] = []

    def behave(request: Request) -> str:
        seen.append(request)
        return "noted"

    async def ask(server, session):
        system, user = {"role": "system", "content": "rules"}, CHAT["messages"][0]
        chat = {"model": "m", "messages": [system, user], "temperature": 0.5}
        await post(session, server, "/chat/completions", chat)
        responses = {"model": "m", "instructions": "rules", "input": "hello", "temperature": 0.5}
        await post(session, server, "/responses", responses)
        await post(session, server, "/responses", {**responses, "input": [user]})

    talk(ask, behave)
    assert [[m.text for m in request.messages] for request in seen] == [["rules", "hello"]] * 3
    assert all(request.params["temperature"] == 0.5 for request in seen)


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_server_gives_behaviours_the_conversations_of_reward_models(prefix):
    seen: list[Request] = []

    def behave(request: Request) -> str:
        seen.append(request)
        return str(len(seen))

    async def ask(server, session):
        messages = [CHAT["messages"][0], {"role": "assistant", "content": "hi"}]
        bodies = {
            "/score": {"model": "m", "text_1": "hello", "text_2": "hi", "priority": 1},
            "/pooling": {"model": "m", "messages": messages, "priority": 1},
            "/classify": {"model": "m", "messages": messages, "priority": 1, "stream": True},
        }
        address = server.base_url.removesuffix("/v1") + prefix
        answers = []
        for path, body in bodies.items():
            async with session.post(address + path, json=body) as response:
                answers.append((await response.json())["data"][0])
        return answers

    score, pooling, classify = talk(ask, behave)
    assert (score["score"], pooling["data"], classify["probs"]) == (1.0, [[0.0], [2.0]], [3.0])
    talks = [[(m.role, m.text) for m in request.messages] for request in seen]
    assert talks == [[("user", "hello"), ("assistant", "hi")]] * 3
    assert all(request.params["priority"] == 1 for request in seen)


def test_server_takes_a_text_in_place_of_a_conversation():
    def behave(request: Request) -> str:
        return str(len(request.messages[0].text))

    body = {"model": "m", "input": "hello"}
    status, payload = talk(lambda server, session: post(session, server, "/pooling", body), behave)
    assert (status, payload["data"][0]["data"][-1]) == (200, [5.0])


@pytest.mark.parametrize("dialect", SCALAR_DIALECTS)
def test_server_answers_a_client_of_reward_models(dialect):
    async def ask(server, session):
        endpoint = Endpoint(base_url=server.base_url, model="m", dialect=dialect, stream=True)
        messages = [Message(role="user", content="hello"), Message(role="assistant", content="hi")]
        async with Client(endpoint, concurrency=1) as client:
            return await client.answer(Request(messages=messages))

    answer = talk(ask, fixed("0.75"))
    assert (answer.message.text, answer.model) == ("0.75", "m")


def test_server_keeps_what_arrived():
    async def ask(server, session):
        await post(session, server, "/chat/completions", CHAT)
        return server.requests

    (received,) = talk(ask)
    assert received.path == "/v1/chat/completions"
    assert received.headers["content-type"] == "application/json"
    assert received.body == CHAT


def test_server_keeps_nothing_when_told():
    async def ask(server, session):
        await post(session, server, "/chat/completions", CHAT)
        return server.requests, server.num_requests

    assert talk(ask, keeps_requests=False) == ([], 1)


def test_server_counts_what_is_in_flight():
    async def ask(server, session):
        asked = [post(session, server, "/chat/completions", CHAT) for _ in range(3)]
        await asyncio.gather(*asked)
        async with session.get(server.base_url.replace("/v1", "/stats")) as response:
            return await response.json()

    stats = talk(ask, latency=0.05)
    assert stats == {"num_requests": 3, "in_flight": 0, "max_in_flight": 3}


def test_server_lists_its_model():
    async def ask(server, session):
        async with session.get(f"{server.base_url}/models") as response:
            return await response.json()

    assert [model["id"] for model in talk(ask)["data"]] == ["mock"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/embeddings", CHAT, 404),
        ("/chat/completions", {"model": "m"}, 400),
        ("/chat/completions", {"messages": [{"role": "king", "content": ""}]}, 400),
        ("/responses", {"input": 3}, 400),
        ("/score", {"text_1": "a"}, 400),
        ("/pooling", {"input": ["a"]}, 400),
        ("/classify", {}, 400),
        ("/responses", [], 400),
    ],
)
def test_server_refuses_what_is_no_request(path, body, status):
    got, payload = talk(lambda server, session: post(session, server, path, body))
    assert got == status
    assert payload["error"]["message"]


def test_server_reads_large_requests():
    """A prompt with images is easily beyond the 1 MiB that aiohttp allows a server."""

    async def ask(server, session):
        body = msgspec.json.encode({"model": "m", "input": "x" * 2**21})
        address = f"{server.base_url}/responses"
        async with session.post(address, data=io.BytesIO(body)) as response:
            return response.status

    assert talk(ask) == 200


def test_server_sends_raw_body_status_and_headers():
    answer = MockAnswer(body="half {", status=503, headers={"retry-after": "1"}, delay=0.01)

    async def ask(server, session):
        async with session.post(f"{server.base_url}/chat/completions", json=CHAT) as response:
            return response.status, response.headers["Retry-After"], await response.text()

    assert talk(ask, scripted([answer])) == (503, "1", "half {")


@pytest.mark.parametrize("stream", [False, True])
def test_server_resets_the_connection(stream):
    async def ask(server, session):
        body = {**CHAT, "stream": stream}
        async with session.post(f"{server.base_url}/chat/completions", json=body) as response:
            await response.read()

    with pytest.raises(aiohttp.ClientError):
        talk(ask, scripted([MockAnswer(text="x", fault="reset")]))


@pytest.mark.parametrize("stream", [False, True])
def test_server_stalls(stream):
    async def ask(server, session):
        body = {**CHAT, "stream": stream}
        timeout = aiohttp.ClientTimeout(total=0.1)
        async with session.post(
            f"{server.base_url}/chat/completions", json=body, timeout=timeout
        ) as response:
            await response.read()

    with pytest.raises(TimeoutError):
        talk(ask, scripted([MockAnswer(text="x", fault="stall")]))


def test_mock_server_fixture_serves_from_its_thread(mock_server):
    async def ask():
        async with aiohttp.ClientSession() as session:
            return await post(session, mock_server, "/chat/completions", CHAT)

    mock_server.behaviour = scripted(["from the thread"])
    status, payload = asyncio.run(ask())
    assert status == 200
    assert payload["choices"][0]["message"]["content"] == "from the thread"
