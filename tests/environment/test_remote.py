"""Environments of a resources server, in both dialects: requests, records and scores."""

import asyncio
import logging
import time

import aiohttp
import msgspec
import pytest

from gymcli.environment.remote import (
    MAX_ANSWER_BYTES,
    RemoteEnvironment,
    ServerSession,
    _broken,
    _waited,
    remote_environment,
    reverify_mode,
)
from gymcli.errors import EpisodeError, RunError, SetupError, UsageError, VerifierError
from gymcli.nemo_gym.wire import EXTENSION_KEY, SEED_HEADER
from gymcli.rollout.episode import play
from gymcli.types import Message, Rollout
from tests.environment.remote_playing import (
    ADD_AND_SAY,
    TOOLS,
    Counting,
    counter_row,
    failure,
    game_row,
    on_server,
    plan_of,
    played,
    scored,
)
from tests.environment.remote_server import GameServer, ResourcesServer
from tests.envs.episodes import calls, cut, says

NOWHERE = "http://127.0.0.1:9"


def counter(server, **members):
    environment = remote_environment("counter", server.base_url)
    for name, value in members.items():
        setattr(environment, name, value)
    return environment


def counted(server, *messages, row=None, **members):
    """Play and score a counter episode on a server."""

    async def episode(server):
        environment = counter(server, **members)
        rollout = await played(environment, row or counter_row(), *(messages or ADD_AND_SAY))
        return await scored(environment, rollout)

    return on_server(server, episode)


def failed(server, *messages, row=None, **members):
    """Return the error with which a counter episode fails."""

    async def episode(server):
        environment = counter(server, **members)
        return await failure(environment, row or counter_row(), *(messages or ADD_AND_SAY))

    return on_server(server, episode)


def results(rollout):
    return [message.text for message in rollout.messages if message.role == "tool"]


def test_episode_runs_in_one_session():
    """Seed, tools and verify share one session; the score is that of the server."""
    server = ResourcesServer()
    rollout = counted(server)
    assert rollout.reward == 1.0
    assert rollout.metrics == {"final_count": 7.0}
    assert rollout.details == {}
    assert results(rollout) == ['{"success":true}', '{"count":7}']
    assert server.paths() == [
        "/seed_session",
        "/increment_counter",
        "/get_counter_value",
        "/verify",
        "/reverify_mode",
    ]
    assert {received.session_id for received in server.requests} == {"session-1"}
    assert rollout.final_state == {
        "protocol": "seed",
        "verify": {"reward": 1.0, "final_count": 7},
        "reverify_mode": "unknown",
    }


def test_episode_of_a_wrong_model_scores_0():
    assert counted(ResourcesServer(), says("No idea.")).reward == 0.0


async def test_forty_episodes_at_once_are_not_mixed_up():
    """Every episode finds its own counter, reports its own number, and is scored on it."""
    server = ResourcesServer()

    async def one(environment, number):
        row = counter_row(initial=1000 * number, expected=1001 * number, task_id=str(number))
        row.messages = [Message(role="user", content=f"Add {number}")]
        return await scored(environment, await play(plan_of(environment, row), Counting()))

    async with server as server:
        environment = counter(server)
        rollouts = await asyncio.gather(*(one(environment, number) for number in range(40)))
    assert [rollout.reward for rollout in rollouts] == [1.0] * 40
    said = [f'{{"count":{1001 * number}}}' for number in range(40)]
    assert [rollout.last_text for rollout in rollouts] == said
    assert server.num_sessions == 40
    sessions_of = {
        received.body["id"]: received.session_id
        for received in server.requests
        if received.path == "/seed_session"
    }
    for received in server.requests:
        if received.path == "/verify":
            assert sessions_of[received.body["id"]] == received.session_id


def test_session_lost_at_a_tool_call_fails_the_attempt():
    """A server that does not recognise its cookie opens a new session, which is detected."""
    error = failed(ResourcesServer(cookies="ignored"))
    assert isinstance(error, EpisodeError)
    assert "a session other than" in str(error)
    assert "/increment_counter" in str(error)


def test_session_lost_at_verify_fails_the_attempt():
    """Without tool calls, the verdict is the first answer from a new session."""
    error = failed(ResourcesServer(cookies="ignored"), says("Done."))
    assert isinstance(error, VerifierError)
    assert "CounterResourcesServer___counter" in str(error)


def test_session_opened_late_fails_the_attempt():
    """The cookie of `/seed_session` was lost; the first one to arrive is of another session."""
    error = failed(ResourcesServer(cookies="late"))
    assert isinstance(error, EpisodeError)
    assert "a session other than" in str(error)


def test_session_without_any_cookie_is_noted():
    """A server without cookies may need none: the low score stays, and details note it."""
    rollout = counted(ResourcesServer(cookies="none"))
    assert rollout.reward == 0.0
    assert rollout.details == {"session_cookie": "none"}
    assert results(rollout)[-1] == '{"count":0}'


def test_cookies_are_never_shown(caplog):
    """Neither errors nor the log contain the content of a cookie."""
    with caplog.at_level(logging.DEBUG):
        error = failed(ResourcesServer(cookies="ignored"))
        rollout = counted(ResourcesServer())
    shown = f"{error} {caplog.text} {msgspec.json.encode(rollout).decode()}"
    assert "eyJ" not in shown  # base64 of a JSON object begins so


def test_tool_answers_of_any_status_are_results():
    """The model sees the server's refusal; arguments are not checked by the client."""
    row = counter_row(tools=[*TOOLS, {"type": "function", "function": {"name": "gone"}}])
    asked = calls(("increment_counter", '{"count": "4"}'), ("gone", '{"self": 1, "name": 2}'))
    server = ResourcesServer()
    rollout = counted(server, asked, says("Oh."), row=row)
    refused, missing = results(rollout)
    assert '"int_type"' in refused
    assert missing == '{"detail":"Not Found"}'
    assert rollout.tool_errors == {}
    assert server.bodies("/gone") == [{"self": 1, "name": 2}]


def test_tool_answer_that_is_no_utf_8_is_read():
    server = ResourcesServer(faults={"/get_counter_value": (500, b"caf\xe9")})
    assert results(counted(server))[1] == "caf\ufffd"


@pytest.mark.parametrize("arguments", ["{", "[4]", '"{}"', "null"])
def test_tool_arguments_that_are_no_object_are_not_posted(arguments):
    server = ResourcesServer()
    rollout = counted(server, calls(("increment_counter", arguments)), says("Oh."))
    [result] = results(rollout)
    assert "increment_counter" in result
    assert sum(rollout.tool_errors.values()) == 1
    assert "/increment_counter" not in server.paths()


@pytest.mark.parametrize("name", ["verify", "seed_session", "step", "unheard_of", "../verify", ""])
def test_tool_that_the_row_does_not_declare_is_not_posted(name):
    server = ResourcesServer()
    rollout = counted(server, calls((name, "{}")), says("Oh."))
    assert results(rollout)[0].startswith("There is no tool")
    assert server.paths() == ["/seed_session", "/verify", "/reverify_mode"]


@pytest.mark.parametrize("name", ["verify", "reset", "close", "a/../verify", "..", ""])
def test_row_that_declares_an_address_of_the_protocol_is_refused(name):
    tools = [{"type": "function", "function": {"name": name}}]
    error = failed(ResourcesServer(), row=counter_row(tools=tools))
    assert isinstance(error, SetupError)
    assert repr(name) in str(error)


def test_tool_name_stays_one_segment_of_the_address():
    """No name that a row gives a tool leads to another address."""
    name = "verify?x=1#%2e%2e é"
    tools = [{"type": "function", "function": {"name": name}}]
    server = ResourcesServer()
    counted(server, calls((name, "{}")), says("Oh."), row=counter_row(tools=tools))
    assert server.paths()[1] == "/verify%3Fx%3D1%23%252e%252e%20%C3%A9"


def test_tools_without_any_in_the_row_are_none():
    """The model is shown no tools, and no call is posted."""
    server = ResourcesServer()
    asked = (calls(("increment_counter", '{"count": 4}')), says("Oh."))
    rollout = counted(server, *asked, row=counter_row(tools=None))
    assert rollout.tools == []
    assert results(rollout) == ["There is no tool 'increment_counter'. Available tools: none."]
    [row] = server.bodies("/seed_session")
    assert "tools" not in row["responses_create_params"]


def test_tool_call_that_breaks_fails_the_attempt_and_is_not_sent_again():
    server = ResourcesServer(faults={"/increment_counter": 1})
    error = failed(server)
    assert isinstance(error, EpisodeError)
    assert f"POST {server.base_url}/increment_counter: the connection broke" in str(error)
    assert server.paths().count("/increment_counter") == 1


def test_tool_call_that_takes_too_long_fails_the_attempt():
    """The effect of the call is unknown, so the episode cannot continue."""
    server = ResourcesServer(faults={"/increment_counter": "stall"})
    error = failed(server, tool_timeout=0.05)
    assert isinstance(error, EpisodeError)
    assert str(error).endswith("/increment_counter: no answer within 0.05 seconds")


def test_tool_calls_run_one_after_another():
    """As in the reference: a result may depend on the calls before it."""
    asked = calls(*[("increment_counter", '{"count": 1}'), ("get_counter_value", "{}")] * 3)
    rollout = counted(ResourcesServer(), asked, says("Done."))
    assert results(rollout)[1::2] == ['{"count":4}', '{"count":5}', '{"count":6}']


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ((500, '"RuntimeError()"'), 'status 500: "RuntimeError()"'),
        ((422, '{"detail": "no"}'), 'status 422: {"detail": "no"}'),
        ((307, ""), "status 307; redirects are not followed: it is empty"),
        ((200, "nothing"), "not a JSON object: nothing"),
        ((200, "[]"), "not a JSON object: []"),
    ],
)
def test_setup_that_the_server_refuses_fails(fault, words):
    server = ResourcesServer(faults={"/seed_session": fault})
    error = failed(server)
    assert isinstance(error, SetupError)
    assert str(error) == f"POST {server.base_url}/seed_session: {words}"


def test_setup_in_the_dialect_of_aviary_is_refused():
    server = ResourcesServer(faults={"/seed_session": (200, '{"env_id": "e", "obs": []}')})
    error = failed(server)
    assert isinstance(error, SetupError)
    assert "not supported" in str(error)


def test_setup_without_a_server_fails():
    error = asyncio.run(failure(remote_environment("counter", NOWHERE), counter_row(), says("Hi")))
    assert isinstance(error, SetupError)
    assert str(error).startswith(f"POST {NOWHERE}/seed_session: ")
    assert str(error).endswith("is the server running, and the address right?")


def test_setup_takes_too_long():
    server = ResourcesServer(faults={"/seed_session": "stall"})
    error = failed(server, call_timeout=0.05)
    assert isinstance(error, SetupError)
    assert "no answer within 0.05 seconds" in str(error)


def test_close_before_setup_does_nothing():
    environment = remote_environment("counter", NOWHERE)
    asyncio.run(environment(environment.Task()).close())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ((500, '"KeyError()"'), 'status 500: "KeyError()"'),
        (
            (200, '{"reward": 0.0, "_ng_failure_class": "judge_failed"}'),
            "the server's verifier failed: judge_failed",
        ),
        (
            (200, '{"reward": 0, "mask_sample": true, "failure_reason": "a full disk"}'),
            "its reward does not count: no kind named (a full disk)",
        ),
        ((200, '{"score": 1}'), 'no number "reward" (None)'),
        (1, "the connection broke"),
    ],
)
def test_verify_that_fails_leaves_the_attempt_unscored(fault, words):
    """There is no reward, and the message says that the conversation is lost."""
    error = failed(ResourcesServer(faults={"/verify": fault}))
    assert isinstance(error, VerifierError)
    assert words in str(error)
    assert "run the same command again" in str(error)


@pytest.mark.parametrize("mode", ["stateless", "unsupported", "unknown", None])
def test_reverify_mode_is_what_the_server_says(mode):
    expected = mode or "unknown"

    async def episode(server):
        return await reverify_mode(server.base_url)

    assert on_server(ResourcesServer(mode=mode), episode) == expected
    assert counted(ResourcesServer(mode=mode)).final_state["reverify_mode"] == expected


def test_reverify_mode_of_no_server():
    with pytest.raises(RunError, match=r"reverify_mode: .* is the server running"):
        asyncio.run(reverify_mode(NOWHERE))


def test_reverify_mode_that_breaks_costs_no_attempt():
    """The verdict has already arrived; the mode is then recorded as unknown."""
    rollout = counted(ResourcesServer(mode="stateless", faults={"/reverify_mode": 9}))
    assert rollout.reward == 1.0
    assert rollout.final_state["reverify_mode"] == "unknown"


async def test_verify_again_asks_without_a_session():
    """A class for rescoring posts the recorded row and response to a stateless server."""
    server = ResourcesServer(mode="stateless")
    async with server as server:
        environment = counter(server)
        assert not environment.waits_to_verify
        rollout = await scored(environment, await played(environment, counter_row(), *ADD_AND_SAY))
        read = msgspec.json.decode(msgspec.json.encode(rollout), type=Rollout)
        again = remote_environment("counter", server.base_url + "/", rescore="verify")
        assert again.waits_to_verify
        rescored = await scored(again, read)
    # This server has state after all, and a new session has another counter.
    assert (rescored.reward, rescored.metrics) == (0.0, {"final_count": 0.0})
    first, second = server.bodies("/verify")
    assert first == second
    assert server.requests[-1].session_id == "session-2"


def test_verify_without_a_recorded_answer_fails():
    environment = remote_environment("counter", NOWHERE)
    with pytest.raises(VerifierError, match="no answer of /verify"):
        asyncio.run(scored(environment, Rollout(env="counter")))


def test_remote_environment_is_a_class_of_its_own():
    environment = remote_environment("counter", " http://host:1/a/ ")
    assert issubclass(environment, RemoteEnvironment)
    assert environment.base_url == "http://host:1/a"
    assert environment.__doc__ == "counter: the resources server at http://host:1/a."
    assert (environment.version, environment.max_reward) == ("remote", None)
    assert environment.rescore == "recorded"
    assert RemoteEnvironment.base_url == ""


@pytest.mark.parametrize(
    "address",
    [
        "host:80",
        "ftp://host",
        "http://",
        "http://host:70000",
        "http://[::1",
        "http://user:secret@host",
        "http://host?key=secret",
        "http://host#part",
    ],
)
def test_remote_environment_refuses_what_is_no_address(address):
    with pytest.raises(UsageError, match="remote environment"):
        remote_environment("counter", address)


@pytest.mark.parametrize(
    "address", ["http://user:secret@host", "http://host:secret", "http://host?key=secret", "secret"]
)
def test_remote_environment_shows_no_secret_of_an_address(address):
    with pytest.raises(UsageError, match="the address of a remote environment") as raised:
        remote_environment("counter", address)
    assert "secret" not in str(raised.value)


def game(server, *messages, **plan):
    """Play and score a game."""

    async def episode(server):
        environment = remote_environment("game", server.base_url)
        return await scored(environment, await played(environment, game_row(), *messages, **plan))

    return on_server(server, episode)


def failed_game(server, *messages, **plan):
    async def episode(server):
        environment = remote_environment("game", server.base_url)
        environment.call_timeout = 5.0
        return await failure(environment, game_row(), *messages, **plan)

    return on_server(server, episode)


def test_game_is_played_step_by_step():
    """Without `/seed_session`, `/reset` is used; observations are user messages, rewards add up."""
    server = GameServer()
    rollout = game(server, says("1"), says("5"))
    assert [m.text for m in rollout.messages] == [
        "Let us play.",
        "Guess a number.",
        "1",
        "Wrong, try 1.",
        "5",
    ]
    assert rollout.num_prompt_messages == 2
    assert rollout.step_rewards == [0.5, 1.0]
    assert rollout.reward == 1.5
    assert rollout.stop_reason == "env_done"
    assert server.paths() == ["/seed_session", "/reset", "/step", "/step"]
    assert {received.session_id for received in server.requests} == {"session-1"}
    assert rollout.final_state == {
        "protocol": "gymnasium",
        "terminated": True,
        "truncated": False,
    }
    first, second = server.bodies("/step")
    # The row is sent unchanged, without the messages of the game.
    assert first["responses_create_params"] == {
        "input": [{"role": "user", "content": "Let us play."}]
    }
    assert [item["content"][0]["text"] for item in second["response"]["output"]] == ["5"]
    assert "_ng_step_request_id" not in first


def test_game_answers_tool_calls():
    rollout = game(GameServer(opening=None), calls(("peek", "{}")), says("5"))
    assert [(m.role, m.text) for m in rollout.responses][1] == ("tool", "5")
    assert rollout.responses[1].tool_call_id == "call_0"
    assert rollout.num_prompt_messages == 1
    assert rollout.step_rewards == [0.0, 1.0]


def test_game_has_ten_turns_unless_told_otherwise():
    assert game(GameServer(), says("1")).step_rewards == [0.5] * 10
    rollout = game(GameServer(), says("1"), max_turns=12)
    assert (rollout.stop_reason, rollout.reward) == ("max_turns", 6.0)


def test_game_of_a_cut_off_message_keeps_what_it_has():
    """The truncated message is not played; the reward is the sum so far."""
    rollout = game(GameServer(), says("1"), cut(says("ab")))
    assert (rollout.stop_reason, rollout.reward) == ("length", 0.5)


def test_game_that_shows_nothing_ends():
    """Without an observation or a tool output, the model has nothing to answer."""
    server = GameServer(faults={"/step": (200, '{"reward": 0.25}')})
    rollout = game(server, says("1"))
    assert (rollout.stop_reason, rollout.reward) == ("done", 0.25)


def test_game_reads_observations_that_are_no_text():
    body = '{"observation": {"x": 1}, "reward": null, "truncated": true, "info": null}'
    rollout = game(GameServer(faults={"/step": (200, body)}), says("1"))
    assert rollout.last_text == "1"
    assert rollout.messages[-1].text == '{"x":1}'
    assert rollout.stop_reason == "env_done"
    assert rollout.reward == 0.0


def test_game_on_a_server_that_seeds_as_well():
    """If `/seed_session` exists as well, an option selects the dialect."""
    server = GameServer(faults={"/seed_session": (200, "{}")})
    assert game(server, says("5"), protocol="gymnasium").reward == 1.0
    assert server.paths() == ["/reset", "/step"]


def test_game_step_is_not_sent_again():
    server = GameServer(faults={"/step": 1})
    error = failed_game(server, says("5"))
    assert isinstance(error, EpisodeError)
    assert "/step: the connection broke" in str(error)
    assert server.paths().count("/step") == 1


def test_game_step_that_the_server_knows_again_is_sent_again():
    server = GameServer(faults={"/step": 2}, info={"supports_step_idempotency": True})
    assert game(server, says("1"), says("5")).reward == 1.5
    first, again, last, second = (b["_ng_step_request_id"] for b in server.bodies("/step"))
    assert first == again == last != second


def test_game_step_is_tried_three_times():
    server = GameServer(faults={"/step": 9}, info={"supports_step_idempotency": True})
    assert isinstance(failed_game(server, says("1")), EpisodeError)
    assert server.paths().count("/step") == 3


def test_game_is_closed_where_the_server_wants_it():
    server = GameServer(info={"supports_explicit_close": True})
    rollout = game(server, says("5"))
    assert server.paths()[-1] == "/close"
    assert "close_error" not in rollout.final_state


def test_game_is_closed_after_a_failure():
    server = GameServer(info={"supports_explicit_close": True}, faults={"/step": (500, "oh")})
    assert str(failed_game(server, says("5"))).endswith("/step: status 500: oh")
    assert server.paths()[-1] == "/close"


def test_game_whose_close_fails_keeps_its_score():
    server = GameServer(info={"supports_explicit_close": True}, faults={"/close": (500, "oh")})
    rollout = game(server, says("5"))
    assert rollout.reward == 1.0
    assert rollout.final_state["close_error"].endswith("/close: status 500: oh")


def test_game_without_cookies_is_noted():
    """A server that loses its state usually fails; if it does not, details note it."""
    server = GameServer(
        cookies="none",
        faults={"/step": (200, '{"reward": 2, "terminated": true, "info": {"tool_outputs": 1}}')},
    )
    rollout = game(server, says("5"))
    assert rollout.reward == 2.0
    assert rollout.details == {"session_cookie": "none"}


def test_game_in_another_session_fails():
    error = failed_game(GameServer(cookies="ignored"), says("5"))
    assert isinstance(error, SetupError)
    assert "a session other than" in str(error)


@pytest.mark.parametrize("reward", ['"1"', "[1]"])
def test_game_step_without_a_number_fails(reward):
    body = f'{{"observation": "x", "reward": {reward}}}'
    error = failed_game(GameServer(faults={"/step": (200, body)}), says("5"))
    assert isinstance(error, EpisodeError)
    assert "returned the reward" in str(error)


def test_game_at_an_address_of_something_else():
    server = GameServer(faults={"/reset": (404, "<html>")})
    error = failed_game(server, says("5"))
    assert isinstance(error, SetupError)
    assert "neither /seed_session nor /reset" in str(error)


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
    """The server stalls before its first byte or in the middle, or the connection breaks there."""

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


async def test_time_in_which_the_loop_was_blocked_counts_against_no_request():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    async def respond(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asyncio.get_running_loop().call_soon(time.sleep, 0.9)
        await asyncio.sleep(1.0)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with ServerSession(f"http://{host}:{port}") as session:
            assert (
                await session.ask("verify", {}, seconds=0.7, error_class=EpisodeError)
            ).status == 200


def test_waited_tells_connecting_from_answering():
    """The limit for connecting takes effect only if an address drops packets."""
    assert _waited(aiohttp.ConnectionTimeoutError(), 60.0) == "no connection within 10 seconds"
    assert _waited(TimeoutError(), 60.0) == "no answer within 60 seconds"


def test_broken_names_an_error_without_words():
    assert _broken(aiohttp.ClientError()) == "the connection broke: ClientError"


@pytest.mark.parametrize(
    "value",
    ["plain", "a.b", "bm90IGpzb24=.1.x", "W10=.1.x", "e30=.1.x", "eyJzZXNzaW9uX2lkIjoxfQ==.1.x"],
)
async def test_cookies_of_other_servers_are_not_looked_into(value):
    """Cookies of others may change from call to call without a new session."""
    async with ResourcesServer(cookies="none") as server, ServerSession(server.base_url) as session:
        for num_answers in range(3):
            server.other_cookie = f"{value}{num_answers}"
            reply = await session.ask("a", {}, seconds=5.0, error_class=EpisodeError)
            session.is_open = True
            assert reply.status == 404
        assert session.has_cookies


def test_a_cookie_that_we_lose_is_noticed():
    """The test empties the client's cookie jar in the middle of an episode."""

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
    """Answers as `gym serve` does, with scripted content."""

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
            return lambda *_: ({EXTENSION_KEY: value, "reward": 0.5},)

        routes = {("POST", f"/{path}"): answers(value) for path, value in self.answers.items()}
        return {**routes, ("POST", "/close"): lambda *_: ({},)}


def play_counter(server, *messages):
    async def episode(server):
        environment = remote_environment("counter", server.base_url)
        rollout = await played(environment, counter_row(tools=None), *messages)
        return await scored(environment, rollout)

    return on_server(server, episode)


def request_failed(server):
    async def episode(server):
        environment = remote_environment("counter", server.base_url)
        return await failure(environment, counter_row(tools=None), says("hello"))

    return on_server(server, episode)


def test_the_server_tells_opening_tools_and_score():
    server = OwnServer()
    record = play_counter(server, says("hello"))
    assert [m.text for m in record.messages] == ["Add 4, then read the counter.", "Begin.", "hello"]
    assert record.tools == [SPEC]
    assert (record.stop_reason, record.reward, record.details) == ("env_done", 0.5, {"n": 1})
    assert record.final_state["protocol"] == "gymcli"
    assert server.paths() == ["/seed_session", "/step", "/verify"], "a verdict ends the session"
    [said] = server.bodies("/verify")
    assert said == {
        EXTENSION_KEY: {
            "messages": [{"role": "assistant", "content": "hello"}],
            "stop_reason": "env_done",
            "model": "scripted",
            "usage": {},
        }
    }


def test_the_number_of_turns_is_the_environments_own():
    again = {"messages": [{"role": "user", "content": "And?"}], "reward": 0.25}
    record = play_counter(OwnServer(stepped=again), says("hello"))
    assert record.stop_reason == "max_turns"
    assert record.step_rewards == [0.25] * 3


def test_a_step_sends_all_messages_without_an_answer():
    again = {"messages": [{"role": "user", "content": "And?"}]}
    server = OwnServer(stepped=again)
    thought = Message(role="assistant", reasoning="Hm.")
    play_counter(server, says("a"), thought, says("b"))
    first, second = server.bodies("/step")
    assert [m["content"] for m in first[EXTENSION_KEY]["messages"]] == ["a"]
    assert second[EXTENSION_KEY]["messages"] == [
        {"role": "assistant", "reasoning": "Hm."},
        {"role": "assistant", "content": "b"},
    ]


def test_a_tool_without_a_description_is_shown_without_one():
    bare = {"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}
    assert play_counter(OwnServer(opened={"tools": [bare]}), says("x")).tools == [bare]


async def test_a_server_that_echoes_the_row_is_not_taken_for_one_of_gymcli():
    class Echoing(ResourcesServer):
        def routes(self):
            return {**super().routes(), ("POST", "/seed_session"): lambda _, row: (row,)}

    server = Echoing()
    async with server as server:
        environment = remote_environment("counter", server.base_url)
        row = counter_row()
        row.fields[EXTENSION_KEY] = "a field"
        record = await played(environment, row, says("hello"))
    assert record.final_state["protocol"] == "seed"
    assert server.paths() == ["/seed_session", "/verify", "/reverify_mode"]


def test_tool_errors_are_counted():
    stepped = {"stop_reason": "done", "tool_errors": {"unknown_tool": 2}}
    assert play_counter(OwnServer(stepped=stepped), says("x")).tool_errors == {"unknown_tool": 2}


def test_the_seed_goes_along():
    seen = []

    class Watched(OwnServer):
        async def _answer(self, request, session_id, body):
            seen.append(request.headers.get(SEED_HEADER))
            return await super()._answer(request, session_id, body)

    record = play_counter(Watched(), says("x"))
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
    error = request_failed(OwnServer(**switches))
    assert isinstance(error, kind)
    assert words in str(error)


def test_an_attempt_that_fails_closes_its_session():
    server = OwnServer(stepped={"reward": "high"})
    request_failed(server)
    assert server.paths() == ["/seed_session", "/step", "/close"]
