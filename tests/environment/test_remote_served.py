"""What a client of gymcli does where a server of gymcli answers, and where it answers nonsense."""

import pytest

from gymcli.environment.remote import remote_environment
from gymcli.environment.remote_session import OWN_KEY, SEED_HEADER
from gymcli.errors import EpisodeError, SetupError, VerifierError
from gymcli.types import Message
from tests.environment.remote_playing import counter_row, failure, on_server, played, scored
from tests.environment.remote_server import ResourcesServer
from tests.envs.episodes import says

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
        ({"opened": {"messages": 3}}, SetupError, "no answer of gym serve"),
        ({"stepped": {"reward": "high"}}, EpisodeError, "lacks what gym serve gives"),
        ({"verified": {}}, VerifierError, "lacks what gym serve gives"),
        ({"faults": {"/step": (503, '{"detail": "full"}')}}, EpisodeError, "status 503"),
        (
            {"faults": {"/verify": (500, '{"detail": "no"}')}},
            VerifierError,
            "play the attempt anew",
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
