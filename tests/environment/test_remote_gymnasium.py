import pytest

from gymcli.environment.remote import remote_environment
from gymcli.errors import EpisodeError, SetupError
from tests.environment.remote_playing import failure, game_row, on_server, played, scored
from tests.environment.remote_server import GameServer
from tests.envs.episodes import calls, cut, says


def game(server, *messages, **plan):
    """Play a game and score it."""

    async def episode(server):
        environment = remote_environment("game", server.base_url)
        return await scored(environment, await played(environment, game_row(), *messages, **plan))

    return on_server(server, episode)


def failed(server, *messages, **plan):
    async def episode(server):
        environment = remote_environment("game", server.base_url)
        environment.call_timeout = 5.0
        return await failure(environment, game_row(), *messages, **plan)

    return on_server(server, episode)


def test_game_is_played_step_by_step():
    """No `/seed_session` means `/reset`; observations are user messages, rewards are summed."""
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
    # The row is sent as it was, without what the game said since.
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
    """What the endpoint cut off is not played; the sum so far is the reward."""
    rollout = game(GameServer(), says("1"), cut(says("ab")))
    assert (rollout.stop_reason, rollout.reward) == ("length", 0.5)


def test_game_that_shows_nothing_ends():
    """A step without observation, tool output or end leaves nothing to answer."""
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
    """Where `/seed_session` answers too, an option says which dialect it is."""
    server = GameServer(faults={"/seed_session": (200, "{}")})
    rollout = game(server, says("5"), protocol="gymnasium")
    assert rollout.reward == 1.0
    assert server.paths() == ["/reset", "/step"]


def test_game_step_is_not_sent_again():
    server = GameServer(faults={"/step": 1})
    error = failed(server, says("5"))
    assert isinstance(error, EpisodeError)
    assert "/step: the connection broke" in str(error)
    assert server.paths().count("/step") == 1


def test_game_step_that_the_server_knows_again_is_sent_again():
    server = GameServer(faults={"/step": 2}, info={"supports_step_idempotency": True})
    rollout = game(server, says("1"), says("5"))
    assert rollout.reward == 1.5
    first, again, last, second = (b["_ng_step_request_id"] for b in server.bodies("/step"))
    assert first == again == last != second


def test_game_step_is_tried_three_times():
    server = GameServer(faults={"/step": 9}, info={"supports_step_idempotency": True})
    assert isinstance(failed(server, says("1")), EpisodeError)
    assert server.paths().count("/step") == 3


def test_game_is_closed_where_the_server_wants_it():
    server = GameServer(info={"supports_explicit_close": True})
    rollout = game(server, says("5"))
    assert server.paths()[-1] == "/close"
    assert "close_error" not in rollout.final_state


def test_game_is_closed_after_a_failure():
    server = GameServer(info={"supports_explicit_close": True}, faults={"/step": (500, "oh")})
    error = failed(server, says("5"))
    assert str(error).endswith("/step: status 500: oh")
    assert server.paths()[-1] == "/close"


def test_game_whose_close_fails_keeps_its_score():
    server = GameServer(info={"supports_explicit_close": True}, faults={"/close": (500, "oh")})
    rollout = game(server, says("5"))
    assert rollout.reward == 1.0
    assert rollout.final_state["close_error"].endswith("/close: status 500: oh")


def test_game_without_cookies_is_noted():
    """The server loses its state, which here is fatal; where it is not, details say so."""
    server = GameServer(
        cookies="none",
        faults={"/step": (200, '{"reward": 2, "terminated": true, "info": {"tool_outputs": 1}}')},
    )
    rollout = game(server, says("5"))
    assert rollout.reward == 2.0
    assert rollout.details == {"session_cookie": "none"}


def test_game_in_another_session_fails():
    error = failed(GameServer(cookies="ignored"), says("5"))
    assert isinstance(error, SetupError)
    assert "another session" in str(error)


@pytest.mark.parametrize("reward", ['"1"', "[1]"])
def test_game_step_without_a_number_fails(reward):
    body = f'{{"observation": "x", "reward": {reward}}}'
    error = failed(GameServer(faults={"/step": (200, body)}), says("5"))
    assert isinstance(error, EpisodeError)
    assert "gave the reward" in str(error)


def test_game_at_an_address_of_something_else():
    server = GameServer(faults={"/reset": (404, "<html>")})
    error = failed(server, says("5"))
    assert isinstance(error, SetupError)
    assert "neither /seed_session nor /reset" in str(error)
