"""Tests that a recorded session is replayed exactly."""

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest

from gymcli.errors import UsageError
from gymcli.mock import MockAnswer, MockServer, Recorder, scripted
from gymcli.mock.behaviours import Behaviour, read_script, refusal_of
from gymcli.models.client import Client
from gymcli.models.endpoint import Endpoint
from gymcli.types import Answer, Message, Request, Usage
from tests.builders import lines_of
from tests.mock.talking import CHAT, RESPONSES, chat, needs_dev_full, post

LOGPROBS = {"content": [{"token": "5", "logprob": -0.5, "bytes": [53], "top_logprobs": []}]}
SESSION = [
    MockAnswer(
        reasoning="2 and 3",
        tool_calls=[("add", '{"a": 2, "b": 3}'), ("add", '{"a": ')],
        call_ids=["call_x", "call_y"],
        usage=Usage(prompt_tokens=10, completion_tokens=7, cached_tokens=2, reasoning_tokens=3),
    ),
    MockAnswer(text="5", finish_reason="length", logprobs=LOGPROBS),
]
KEY = "sk-planted/secret"


def with_recording(
    path: Path, endpoint: Behaviour, talk, *, api_key: str | None = None, needs: str | None = None
):
    """Talk to a server that records another one; return the result and the recorded requests."""

    async def run():
        async with MockServer(endpoint, api_key=needs) as real:
            recorder = Recorder(path, real.base_url, api_key=api_key)
            async with MockServer(recorder=recorder) as server:
                return await talk(server), real.requests

    return asyncio.run(run())


async def played(server: MockServer, dialect: str, stream: bool) -> list[Answer]:
    """Have the conversation of SESSION."""
    endpoint = Endpoint(
        base_url=server.base_url, model="m", dialect=dialect, stream=stream, max_attempts=1
    )
    messages = [Message(role="user", content="What is 2 + 3?")]
    answers = []
    async with Client(endpoint, concurrency=1) as client:
        for _ in SESSION:
            answers.append(await client.answer(Request(messages=messages)))
            messages.append(answers[-1].message)
            messages += [
                Message(role="tool", tool_call_id=call.id, content="5")
                for call in answers[-1].message.tool_calls
            ]
    return answers


def again(path: Path, talk):
    async def run():
        async with MockServer(read_script(path)) as server:
            return await talk(server)

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_session_replays_exactly(tmp_path, dialect, stream):
    """It has tools with ids, reasoning, log probabilities and usage, streamed or not."""
    path = tmp_path / "session.jsonl"
    first, _ = with_recording(path, scripted(SESSION), lambda s: played(s, dialect, stream))
    assert [call.id for call in first[0].message.tool_calls] == ["call_x", "call_y"]
    assert first[0].message.reasoning == "2 and 3"
    assert first[0].usage == SESSION[0].usage
    assert (first[1].finish_reason, first[1].message.logprobs) == ("length", LOGPROBS)
    assert again(path, lambda s: played(s, dialect, stream)) == first
    for other in ("chat", "responses"):
        replayed = again(path, lambda s, other=other: played(s, other, stream))
        assert [one.message for one in replayed] == [one.message for one in first]


@pytest.mark.parametrize("stream", [False, True])
def test_items_of_responses_replay_word_for_word(tmp_path, stream):
    items = [
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "opaque"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]},
    ]
    path = tmp_path / "session.jsonl"

    async def ask(server):
        async with aiohttp.ClientSession() as session:
            body = {**RESPONSES, "stream": stream}
            async with session.post(f"{server.base_url}/responses", json=body) as response:
                last = (await response.read()).rpartition(b"data: ")[2]
            found = msgspec.json.decode(last)
            return (found["response"] if stream else found)["output"]

    with_recording(path, lambda _: MockAnswer(response_items=items), ask)
    assert again(path, ask) == items


def asking(*bodies: dict):
    """Return a function that sends chat requests and returns statuses and texts."""

    async def ask(server) -> list[tuple[int, str]]:
        async with aiohttp.ClientSession() as session:
            found = []
            for body in bodies:
                status, payload = await post(session, server, "/chat/completions", body)
                says = payload["choices"][0]["message"]["content"] if status == 200 else ""
                found.append((status, says or payload["error"]["message"]))
            return found

    return ask


def test_repeats_of_one_request_get_their_answers_in_turn(tmp_path):
    path = tmp_path / "session.jsonl"
    left = ["one", "two"]
    with_recording(path, lambda _: left.pop(0), asking(CHAT, CHAT))
    assert again(path, asking(CHAT, CHAT, CHAT)) == [(200, "one"), (200, "two"), (200, "one")]


def test_choices_are_recorded_one_by_one(tmp_path):
    path = tmp_path / "session.jsonl"
    left = ["one", "two"]

    async def ask(server):
        async with aiohttp.ClientSession() as session:
            _, payload = await post(session, server, "/chat/completions", {**CHAT, "n": 2})
            return [choice["message"]["content"] for choice in payload["choices"]]

    found, asked = with_recording(path, lambda _: left.pop(0), ask)
    assert found == ["one", "two"]
    assert [request.body for request in asked] == [CHAT, CHAT]
    assert again(path, ask) == found


def test_what_was_not_recorded_is_refused(tmp_path):
    path = tmp_path / "session.jsonl"
    with_recording(path, lambda _: "yes", asking(CHAT))
    [(status, words)] = again(path, asking(chat("hello there")))
    assert (status, words) == (400, "the recording has no answer for turn 0 after 'hello there'")


def test_only_refusals_that_no_retry_mends_are_recorded(tmp_path):
    path = tmp_path / "session.jsonl"
    answers = [
        refusal_of(429, "slow down", retry_after="7"),
        refusal_of(400, "too long"),
        MockAnswer(body="{"),
        "fine",
    ]
    found, _ = with_recording(
        path, lambda _: answers.pop(0), asking(CHAT, chat("long"), chat("half"), CHAT)
    )
    assert [status for status, _ in found] == [429, 400, 502, 200]
    assert "the recorded endpoint: the body is not JSON" in found[2][1]
    assert again(path, asking(CHAT, chat("long"))) == [(200, "fine"), (400, "too long")]


def test_waits_that_the_endpoint_asks_for_are_passed_on(tmp_path):
    async def ask(server):
        address = f"{server.base_url}/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(address, json=CHAT) as response:
            return response.headers["Retry-After"]

    slow = refusal_of(429, "slow down", retry_after="7")
    assert with_recording(tmp_path / "s.jsonl", lambda _: slow, ask)[0] == "7"


async def test_an_endpoint_that_is_gone_is_a_502(tmp_path):
    async with MockServer() as gone:
        address = gone.base_url
    recorder = Recorder(tmp_path / "s.jsonl", address)
    async with MockServer(recorder=recorder) as server:
        [(status, words)] = await asking(CHAT)(server)
    assert status == 502
    assert words.startswith("the recorded endpoint: ClientConnectorError: ")
    assert (tmp_path / "s.jsonl").read_bytes() == b""


def test_the_key_goes_to_the_endpoint_and_nowhere_else(tmp_path):
    path = tmp_path / "session.jsonl"

    def repeat_it(request: Request) -> MockAnswer | str:
        if request.messages[0].text == "refuse":
            return refusal_of(400, f"wrong use of {KEY}")
        return f"your key is {KEY}"

    found, requests = with_recording(
        path, repeat_it, asking(chat(f"I know {KEY}"), chat("refuse")), api_key=KEY, needs=KEY
    )
    assert found == [(200, "your key is [redacted]"), (400, "wrong use of [redacted]")]
    assert all(request.headers["Authorization"] == f"Bearer {KEY}" for request in requests)
    assert len(path.read_bytes().splitlines()) == 2
    assert KEY.encode() not in path.read_bytes()


async def test_no_part_of_the_key_is_left_where_a_text_is_cut(tmp_path):
    path, log = tmp_path / "session.jsonl", tmp_path / "log.jsonl"
    async with MockServer(lambda _: "fine", api_key=KEY) as real:
        recorder = Recorder(path, real.base_url, api_key=KEY)
        async with MockServer(recorder=recorder, log=log) as server:
            texts = ["x" * (end - 10) + KEY for end in (80, 200)]
            assert await asking(*map(chat, texts))(server) == [(200, "fine")] * 2
    for file in (path, log):
        assert file.read_bytes().count(b"xx[r") > 0
        assert KEY[:9].encode() not in file.read_bytes()


def test_recorder_looks_for_no_logins_and_no_proxies_of_its_own(tmp_path, monkeypatch):
    logins = tmp_path / "netrc"
    logins.write_text("machine 127.0.0.1 login me password planted\n")
    logins.chmod(0o600)
    monkeypatch.setenv("NETRC", str(logins))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    found, [received] = with_recording(tmp_path / "s.jsonl", lambda _: "yes", asking(CHAT))
    assert found == [(200, "yes")]
    assert "Authorization" not in received.headers


async def test_recorder_goes_through_the_proxy_that_it_is_given(tmp_path):
    """The mock server stands for a proxy: it answers a request for any host itself."""
    async with MockServer() as proxy:
        recorder = Recorder(
            tmp_path / "s.jsonl",
            "http://h.invalid/v1",
            proxy=f"http://127.0.0.1:{proxy.site.port}",
        )
        async with MockServer(recorder=recorder) as server:
            assert (await asking(CHAT)(server), [r.headers["Host"] for r in proxy.requests]) == (
                [(200, "hello")],
                ["h.invalid"],
            )


def test_streams_are_asked_for_as_one_body(tmp_path):
    async def ask(server):
        return await played(server, "chat", stream=True)

    _, requests = with_recording(tmp_path / "s.jsonl", scripted(SESSION), ask)
    assert all("stream" not in request.body for request in requests)


def test_lines_say_what_they_answer(tmp_path):
    path = tmp_path / "session.jsonl"
    with_recording(path, lambda _: "yes", asking(CHAT))
    [line] = lines_of(path)
    assert line["note"] == "turn 0 after 'hello'"
    assert line["answers"][0]["text"] == "yes"


def test_recorder_writes_over_nothing(tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"session\.jsonl: already exists; name a new file"):
        with_recording(path, lambda _: "x", asking())
    assert path.read_text() == "mine"


def test_recorder_takes_a_file_that_an_attempt_left_empty(tmp_path, mock_server):
    path = tmp_path / "session.jsonl"
    for _ in range(2):
        with pytest.raises(OSError, match="in use"):
            asyncio.run(
                entered(MockServer(port=mock_server.site.port, recorder=Recorder(path, "http://h")))
            )
    with_recording(path, lambda _: "yes", asking(CHAT))
    assert again(path, asking(CHAT)) == [(200, "yes")]


async def entered(server: MockServer) -> None:
    async with server:
        pass


@needs_dev_full
def test_what_cannot_be_recorded_is_passed_on_once_and_not_paid_for_again(tmp_path):
    found = []

    async def ask(server):
        found.extend(await asking(CHAT, CHAT)(server))

    num_asked = []
    with pytest.raises(UsageError, match="--record /dev/full: cannot be written: No space left"):
        with_recording(Path("/dev/full"), lambda _: num_asked.append(1) or "yes", ask)
    assert found[0] == (200, "yes")
    assert found[1][0] == 400
    assert "No space left" in found[1][1]
    assert len(num_asked) == 1


def test_recorder_names_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="No such file or directory"):
        with_recording(tmp_path / "none" / "s.jsonl", lambda _: "x", asking())
