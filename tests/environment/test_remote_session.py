"""One conversation with a server: its cookies, and what servers of gymcli add."""

import asyncio

import aiohttp
import pytest

from gymcli.environment.remote import (
    MAX_ANSWER_BYTES,
    ServerSession,
    _broken,
    _waited,
    remote_environment,
)
from gymcli.errors import EpisodeError, SetupError, VerifierError
from gymcli.nemo_gym.wire import OWN_KEY, SEED_HEADER
from gymcli.types import Message
from tests.environment.remote_playing import counter_row, failure, on_server, played, scored
from tests.environment.remote_server import ResourcesServer
from tests.envs.episodes import says


def asked(server, path="get_counter_value", payload=None, seconds=5.0):
    async def episode(server):
        async with ServerSession(server.base_url) as session:
            return await session.ask(path, payload or {}, seconds=seconds, error_class=EpisodeError)

    return on_server(server, episode)


def test_post_gives_any_status():
    reply = asked(ResourcesServer(), "nowhere")
    assert (reply.status, reply.text) == (404, '{"detail":"Not Found"}')


def test_post_sends_large_bodies():
    """Rows with images take megabytes."""
    server = ResourcesServer()
    image = "x" * (3 * 2**20)
    assert asked(server, "seed_session", {"image": image}).status == 200
    assert server.bodies("/seed_session") == [{"image": image}]


def test_post_reads_an_answer_up_to_the_limit():
    server = ResourcesServer(faults={"/big": (200, b"x" * (MAX_ANSWER_BYTES + 1))})
    with pytest.raises(EpisodeError, match="longer than 64 MiB"):
        asked(server, "big", seconds=60.0)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "stays", "words"),
    [
        (b"", True, "no answer within 0.1 seconds"),
        (HEAD, True, "no answer within 0.1 seconds"),
        (HEAD + b'{"reward":', True, "no answer within 0.1 seconds"),
        (HEAD + b'{"reward":', False, "the connection broke: "),
        (b"", False, "the connection broke: "),
    ],
)
def test_post_ends_where_the_answer_does_not(said, stays, words):
    """It stalls before its first byte, or in the middle, or the connection breaks there."""

    async def run():
        leaving = asyncio.Event()

        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            await writer.drain()
            if stays:
                await leaving.wait()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            try:
                async with ServerSession(f"http://{host}:{port}") as session:
                    seconds = 0.1 if stays else 60.0
                    await session.ask("verify", {}, seconds=seconds, error_class=EpisodeError)
            finally:
                leaving.set()

    with pytest.raises(EpisodeError) as caught:
        asyncio.run(run())
    assert words in str(caught.value)


def test_waited_tells_connecting_from_answering():
    """Only an address that swallows packets meets the first limit, and takes all of it."""
    assert _waited(aiohttp.ConnectionTimeoutError(), 60.0) == "no connection within 10 seconds"
    assert _waited(TimeoutError(), 60.0) == "no answer within 60 seconds"


def test_broken_names_an_error_without_words():
    assert _broken(aiohttp.ClientError()) == "the connection broke: ClientError"


@pytest.mark.parametrize(
    "value",
    ["plain", "a.b", "bm90IGpzb24=.1.x", "W10=.1.x", "e30=.1.x", "eyJzZXNzaW9uX2lkIjoxfQ==.1.x"],
)
def test_cookies_of_other_servers_are_not_looked_into(value):
    """Whatever they hold, that they change from call to call says nothing."""

    async def episode(server):
        async with ServerSession(server.base_url) as session:
            for num_answers in range(3):
                server.other_cookie = f"{value}{num_answers}"
                reply = await session.ask("a", {}, seconds=5.0, error_class=EpisodeError)
                session.is_open = True
                assert reply.status == 404
            return session.has_cookies

    assert on_server(ResourcesServer(cookies="none"), episode)


def test_a_cookie_that_we_lose_is_noticed():
    """As if our jar were emptied in the middle of an episode."""

    async def episode(server):
        async with ServerSession(server.base_url) as session:
            await session.ask("seed_session", {}, seconds=5.0, error_class=EpisodeError)
            session.is_open = True
            session._client.cookie_jar.clear()
            await session.ask("get_counter_value", {}, seconds=5.0, error_class=EpisodeError)

    with pytest.raises(EpisodeError, match="a session other than the one that was opened"):
        on_server(ResourcesServer(), episode)


SPEC = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
}
OPENED = {"messages": [{"role": "user", "content": "Begin."}], "tools": [SPEC], "max_turns": 3}


class OwnServer(ResourcesServer):
    """Answers as `gym serve` does, with what it is told to."""

    def __init__(self, *, opened=OPENED, stepped=None, verified=None, **switches):
        super().__init__(**switches)
        self.answers = {
            "seed_session": opened,
            "step": {"stop_reason": "env_done"} if stepped is None else stepped,
            "verify": {"score": {"reward": 0.5, "details": {"n": 1}}}
            if verified is None
            else verified,
        }

    def routes(self):
        def answers(value):
            return lambda *_: ({OWN_KEY: value, "reward": 0.5},)

        routes = {("POST", f"/{path}"): answers(value) for path, value in self.answers.items()}
        return {**routes, ("POST", "/close"): lambda *_: ({},)}


def play(server, *messages):
    async def episode(server):
        environment = remote_environment("counter", server.base_url)
        rollout = await played(environment, counter_row(tools=None), *messages)
        return await scored(environment, rollout)

    return on_server(server, episode)


def failed(server):
    async def episode(server):
        environment = remote_environment("counter", server.base_url)
        return await failure(environment, counter_row(tools=None), says("hello"))

    return on_server(server, episode)


def test_the_server_tells_opening_tools_and_score():
    server = OwnServer()
    record = play(server, says("hello"))
    assert [m.text for m in record.messages] == ["Add 4, then read the counter.", "Begin.", "hello"]
    assert record.tools == [SPEC]
    assert (record.stop_reason, record.reward, record.details) == ("env_done", 0.5, {"n": 1})
    assert record.final_state["protocol"] == "gymcli"
    assert server.paths() == ["/seed_session", "/step", "/verify"], "a verdict ends the session"
    [said] = server.bodies("/verify")
    assert said == {
        OWN_KEY: {
            "messages": [{"role": "assistant", "content": "hello"}],
            "stop_reason": "env_done",
            "model": "scripted",
            "usage": {},
        }
    }


def test_the_number_of_turns_is_the_environments_own():
    again = {"messages": [{"role": "user", "content": "And?"}], "reward": 0.25}
    record = play(OwnServer(stepped=again), says("hello"))
    assert record.stop_reason == "max_turns"
    assert record.step_rewards == [0.25] * 3


def test_a_step_tells_what_no_step_answered():
    again = {"messages": [{"role": "user", "content": "And?"}]}
    server = OwnServer(stepped=again)
    thought = Message(role="assistant", reasoning="Hm.")
    play(server, says("a"), thought, says("b"))
    first, second = server.bodies("/step")
    assert [m["content"] for m in first[OWN_KEY]["messages"]] == ["a"]
    assert second[OWN_KEY]["messages"] == [
        {"role": "assistant", "reasoning": "Hm."},
        {"role": "assistant", "content": "b"},
    ]


def test_a_tool_without_a_description_is_shown_without_one():
    bare = {"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}
    assert play(OwnServer(opened={"tools": [bare]}), says("x")).tools == [bare]


def test_a_server_that_echoes_the_row_is_not_taken_for_one_of_gymcli():
    class Echoing(ResourcesServer):
        def routes(self):
            return {**super().routes(), ("POST", "/seed_session"): lambda _, row: (row,)}

    async def episode(server):
        environment = remote_environment("counter", server.base_url)
        row = counter_row()
        row.fields[OWN_KEY] = "a field"
        return await played(environment, row, says("hello"))

    server = Echoing()
    record = on_server(server, episode)
    assert record.final_state["protocol"] == "seed"
    assert server.paths() == ["/seed_session", "/verify", "/reverify_mode"]


def test_tool_errors_are_counted():
    stepped = {"stop_reason": "done", "tool_errors": {"unknown_tool": 2}}
    assert play(OwnServer(stepped=stepped), says("x")).tool_errors == {"unknown_tool": 2}


def test_the_seed_goes_along():
    seen = []

    class Watched(OwnServer):
        async def _answer(self, request, session_id, body):
            seen.append(request.headers.get(SEED_HEADER))
            return await super()._answer(request, session_id, body)

    record = play(Watched(), says("x"))
    assert set(seen) == {str(record.seed)}


@pytest.mark.parametrize(
    ("switches", "kind", "words"),
    [
        ({"opened": {"messages": 3}}, SetupError, "not an answer of gym serve"),
        ({"stepped": {"reward": "high"}}, EpisodeError, "lacks what gym serve returns"),
        ({"verified": {}}, VerifierError, "lacks what gym serve returns"),
        ({"faults": {"/step": (503, '{"detail": "full"}')}}, EpisodeError, "status 503"),
        (
            {"faults": {"/verify": (500, '{"detail": "no"}')}},
            VerifierError,
            "play the attempt again",
        ),
    ],
)
def test_nonsense_fails_the_attempt(switches, kind, words):
    error = failed(OwnServer(**switches))
    assert isinstance(error, kind)
    assert words in str(error)


def test_an_attempt_that_fails_closes_its_session():
    server = OwnServer(stepped={"reward": "high"})
    failed(server)
    assert server.paths() == ["/seed_session", "/step", "/close"]
