"""Tests of the mock server over real connections."""

import asyncio
import io
from pathlib import Path

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.mock import Faults, Latency, MockAnswer, TokenSampler, fixed, in_order, scripted
from gymcli.mock.behaviours import refusal_of
from gymcli.models.client import Client
from gymcli.models.endpoint import SCALAR_DIALECTS, Endpoint
from gymcli.types import Message, Request
from tests.builders import lines_of
from tests.mock.talking import CHAT, chat, needs_dev_full, post, talk, talking


async def test_server_gives_behaviours_one_view_of_both_dialects():
    """Messages, tools and parameters look the same in either dialect."""
    seen: list[Request] = []

    def behave(request: Request) -> str:
        seen.append(request)
        return "noted"

    async with talking(behave) as (server, session):
        system, user = {"role": "system", "content": "rules"}, CHAT["messages"][0]
        chat = {"model": "m", "messages": [system, user], "temperature": 0.5}
        await post(session, server, "/chat/completions", chat)
        responses = {"model": "m", "instructions": "rules", "input": "hello", "temperature": 0.5}
        await post(session, server, "/responses", responses)
        await post(session, server, "/responses", {**responses, "input": [user]})
    assert [[m.text for m in request.messages] for request in seen] == [["rules", "hello"]] * 3
    assert all(request.params["temperature"] == 0.5 for request in seen)


@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_server_gives_behaviours_the_conversations_of_reward_models(prefix):
    seen: list[Request] = []

    def behave(request: Request) -> str:
        seen.append(request)
        return str(len(seen))

    async with talking(behave) as (server, session):
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
        score, pooling, classify = answers
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
async def test_server_answers_a_client_of_reward_models(dialect):
    async with talking(fixed("0.75")) as (server, _session):
        endpoint = Endpoint(base_url=server.base_url, model="m", dialect=dialect, stream=True)
        messages = [Message(role="user", content="hello"), Message(role="assistant", content="hi")]
        async with Client(endpoint, concurrency=1) as client:
            answer = await client.answer(Request(messages=messages))
    assert (answer.message.text, answer.model) == ("0.75", "m")


async def test_server_keeps_what_arrived():
    async with talking() as (server, session):
        await post(session, server, "/chat/completions", CHAT)
        (received,) = server.requests
    assert received.path == "/v1/chat/completions"
    assert received.headers["content-type"] == "application/json"
    assert received.body == CHAT


async def test_server_keeps_nothing_when_told():
    async with talking(keeps_requests=False) as (server, session):
        await post(session, server, "/chat/completions", CHAT)
        assert (server.requests, server.num_requests) == ([], 1)


async def test_server_counts_what_is_in_flight():
    async with talking(
        lambda _: MockAnswer(text="hello"), faults=Faults.parse(["stall@stall"])
    ) as (server, session):
        held = [
            asyncio.ensure_future(post(session, server, "/chat/completions", chat("stall")))
            for _ in range(3)
        ]
        while server.in_flight < 3:
            await asyncio.sleep(0)
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        while server.in_flight:
            await asyncio.sleep(0)
        await post(session, server, "/chat/completions", CHAT)
        async with session.get(server.base_url.replace("/v1", "/stats")) as response:
            found = await response.json()
    assert 0 < found.pop("first_at") < found.pop("last_at")
    assert found == {
        "num_requests": 4,
        "in_flight": 0,
        "max_in_flight": 3,
        "num_unanswered": 3,
        "by_status": {"200": 1},
        "faults": {"stall": 3},
        "num_prompt_tokens": 8,
        "num_completion_tokens": 8,
    }


async def listed(server, session, **headers):
    """Ask for the models; return the status and their names."""
    async with session.get(f"{server.base_url}/models", headers=headers) as response:
        payload = await response.json()
        return response.status, [model["id"] for model in payload.get("data", [])]


def test_server_lists_its_models():
    assert talk(listed) == (200, ["mock"])
    assert talk(listed, models=["a", "b"]) == (200, ["a", "b"])


async def test_server_describes_one_model():
    async with talking(models=["org/a"]) as (server, session):
        found = []
        for name in ("org/a", "b"):
            async with session.get(f"{server.base_url}/models/{name}") as response:
                found.append((response.status, await response.json()))
        (status, model), (missing, payload) = found
    assert (status, model["id"], model["object"]) == (200, "org/a", "model")
    assert (missing, payload["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("tokens", [None, "vllm"])
async def test_server_asks_its_behaviour_for_each_choice(tokens):
    sampler = TokenSampler.parse(tokens, drift=0.0, weight_version="", seed=0)
    behaviour = in_order("one", "another", "third", refusal_of(400, "no more"))
    async with talking(behaviour, sampler=sampler) as (server, session):
        body = {**CHAT, "n": 2, "return_token_ids": True}
        [(_, payload), (status, refusal)] = [
            await post(session, server, "/chat/completions", body) for _ in range(2)
        ]
    choices = payload["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["one", "another"]
    # A raw answer takes the place of all choices.
    assert (status, refusal["error"]["message"]) == (400, "no more")
    assert server.num_requests == 2
    if tokens:
        sampled = [choice["token_ids"] for choice in choices]
        assert [one.sampled for one in server.tokens] == sampled
        assert payload["usage"]["completion_tokens"] == sum(map(len, sampled))
        assert payload["usage"]["prompt_tokens"] == len(payload["prompt_token_ids"])


async def test_content_faults_change_every_choice():
    async with talking(faults=Faults.parse(["unknown-finish"])) as (server, session):
        body = {**CHAT, "n": 2}
        (_, payload) = await post(session, server, "/chat/completions", body)
        faults = server.stats.faults
    assert [choice["finish_reason"] for choice in payload["choices"]] == ["mock_unknown"] * 2
    assert faults == {"unknown-finish": 1}


async def test_server_refuses_other_models_than_it_has():
    async with talking(models=["a", "b"]) as (server, session):
        (known, _), (unknown, payload) = [
            await post(session, server, "/chat/completions", {**CHAT, "model": name})
            for name in ("a", "c")
        ]
    assert (known, unknown) == (200, 404)
    assert payload["error"]["code"] == "model_not_found"
    assert "`c` does not exist" in payload["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "sk-sekret-key"}, 401),
        ({"Authorization": "Bearer sk-sekret-key"}, 200),
    ],
)
async def test_server_asks_for_its_key(headers, status):
    async with talking(api_key="sk-sekret-key") as (server, session):
        address = f"{server.base_url}/chat/completions"
        async with session.post(address, json=CHAT, headers=headers) as response:
            answered = response.status, await response.json()
        (answered, payload) = answered
        (models, _) = await listed(server, session, **headers)
    assert (answered, models) == (status, status)
    if status == 401:
        assert payload["error"]["code"] == "invalid_api_key"
        assert "sekret" not in str(payload)


async def test_server_takes_on_so_many_at_once():
    """The third request comes while two are in flight; it is refused, and counts as no load."""
    stalling = Faults.parse(["stall@stall"])
    async with talking(faults=stalling, max_in_flight=2) as (server, session):
        held = [
            asyncio.ensure_future(post(session, server, "/chat/completions", chat(f"stall {n}")))
            for n in range(2)
        ]
        while server.in_flight < 2:
            await asyncio.sleep(0)
        refused = await post(session, server, "/chat/completions", CHAT)
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        while server.in_flight:
            await asyncio.sleep(0)
        (refused, payload) = refused
        (again, _) = await post(session, server, "/chat/completions", CHAT)
        stats = server.stats
    assert (refused, again, stats.max_in_flight) == (429, 200, 2)
    assert payload["error"]["code"] == "rate_limit_exceeded"
    assert stats.by_status == {429: 1, 200: 1}


async def test_server_takes_on_so_many_a_minute():
    async with talking(requests_per_minute=1) as (server, session):
        assert [(await post(session, server, "/chat/completions", CHAT))[0] for _ in range(3)] == [
            200,
            429,
            429,
        ]


def run_of(specs: list[str], texts: list[str]) -> dict[str, list[int | None]]:
    """Ask texts one after another; return each text's statuses, with None for a reset."""

    async def ask(server, session):
        found: dict[str, list[int | None]] = {}
        for text in texts:
            try:
                status, _ = await post(session, server, "/chat/completions", chat(text))
            except aiohttp.ClientError:
                status = None
            found.setdefault(text, []).append(status)
        return found

    latency = Latency.parse("uniform:0:0.0001")
    return talk(ask, faults=Faults.parse(specs), seed=7, latency=latency)


@settings(max_examples=20)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=16), st.randoms(use_true_random=False))
def test_server_decides_faults_whatever_the_order(texts, random):
    specs = ["500=0.3", "reset=0.2", "429=0.2"]
    first = run_of(specs, texts)
    random.shuffle(texts)
    assert run_of(specs, texts) == first


async def test_server_logs_what_became_of_each_request(tmp_path):
    file = tmp_path / "log.jsonl"
    faults = Faults.parse(["reset@broken", "503@busy"])
    async with talking(faults=faults, log=file, api_key="sk-sekret-key") as (server, session):
        headers = {"Authorization": "Bearer sk-sekret-key"}
        address = f"{server.base_url}/chat/completions"
        for body in (
            chat("a sk-sekret-key " + "x" * 300),
            chat("broken"),
            chat("busy"),
            {"model": "m"},
        ):
            try:
                async with session.post(address, json=body, headers=headers) as response:
                    await response.read()
            except aiohttp.ClientError:
                continue
        lines = lines_of(file)
    found = [(line["status"], line["fault"], line["turn"], line["text"][:6]) for line in lines]
    assert found == [
        (200, None, 0, "a [red"),
        (None, "reset", 0, "broken"),
        (503, "503", 0, "busy"),
        (400, None, None, ""),
    ]
    assert len(lines[0]["text"]) < 210
    assert all(0 <= line["started"] <= line["ended"] for line in lines)
    assert {line["path"] for line in lines} == {"/v1/chat/completions"}
    assert len({line["body"] for line in lines}) == 4
    assert b"sekret" not in file.read_bytes()


def test_server_names_a_log_that_cannot_be_written(tmp_path):
    with pytest.raises(UsageError, match=r"--log .*no\.log: No such file or directory"):
        talk(listed, log=tmp_path / "none" / "no.log")


@needs_dev_full
def test_server_answers_on_when_its_log_is_full():
    async def ask(server, session):
        found = [await post(session, server, "/chat/completions", CHAT) for _ in range(2)]
        assert [status for status, _ in found] == [200, 200]
        assert server.stats.by_status == {200: 2}

    with pytest.raises(UsageError, match="--log /dev/full: cannot be written: No space left"):
        talk(ask, log=Path("/dev/full"))


async def test_server_names_what_a_behaviour_raises():
    def behave(request: Request) -> str:
        raise KeyError("mine")

    async with talking(behave) as (server, session):
        status, payload, stats = (
            *await post(session, server, "/chat/completions", CHAT),
            server.stats,
        )
    assert status == 500
    assert payload["error"]["message"] == "the mock's behaviour failed: KeyError: 'mine'"
    assert (stats.by_status, stats.num_unanswered) == ({500: 1}, 0)


async def test_server_needs_no_name_of_a_model():
    async with talking() as (server, session):
        assert (await post(session, server, "/chat/completions", {"messages": CHAT["messages"]}))[
            1
        ]["model"] == "mock"


async def test_server_counts_the_tokens_of_answers_alone():
    def behave(request: Request) -> MockAnswer | str:
        return "12345678" if request.messages[0].text == "four" else refusal_of(400, "no")

    async with talking(behave) as (server, session):
        for text in ("four", "refuse"):
            await post(session, server, "/chat/completions", chat(text))
        stats = server.stats
    assert (stats.num_prompt_tokens, stats.num_completion_tokens) == (2, 3)


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
        ("/responses", {"input": [{"content": "no role"}]}, 400),
    ],
)
def test_server_refuses_what_is_no_request(path, body, status):
    got, payload = talk(lambda server, session: post(session, server, path, body))
    assert got == status
    assert payload["error"]["message"]


async def test_server_reads_large_requests():
    """A prompt with images easily exceeds the 1 MiB that aiohttp allows by default."""
    async with talking() as (server, session):
        body = msgspec.json.encode({"model": "m", "input": "x" * 2**21})
        address = f"{server.base_url}/responses"
        async with session.post(address, data=io.BytesIO(body)) as response:
            assert response.status == 200


async def test_server_sends_raw_body_status_and_headers():
    answer = MockAnswer(body="half {", status=503, headers={"retry-after": "1"}, delay=0.01)
    async with (
        talking(scripted([answer])) as (server, session),
        session.post(f"{server.base_url}/chat/completions", json=CHAT) as response,
    ):
        assert (response.status, response.headers["Retry-After"], await response.text()) == (
            503,
            "1",
            "half {",
        )


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
