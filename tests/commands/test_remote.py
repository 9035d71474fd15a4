"""Tests of `--env NAME=http://...`: a run is collected, keeps its scores, and is rescored."""

from pathlib import Path

import pytest

from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text, num_turns
from gymcli.mock.process import serving
from tests.builders import gym, lines_of, write_rows
from tests.environment.remote_playing import TOOLS
from tests.environment.remote_server import ResourcesServer


def count(request):
    """Add the number in the prompt, then stop; every third task is answered wrongly."""
    if num_turns(request):
        return "Done."
    number = int(last_user_text(request).rstrip(".").split()[-1])
    return MockAnswer(tool_calls=[("increment_counter", {"count": number + (number % 3 == 0)})])


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect 200 tasks, which name an agent of NeMo Gym."""
    mock_server.behaviour = count
    rows = [
        {
            "id": str(n),
            "agent_ref": {"name": "counter_simple_agent"},
            "messages": [{"role": "user", "content": f"Add {n}."}],
            "tools": TOOLS,
            "initial_count": 0,
            "expected_count": n,
        }
        for n in range(200)
    ]
    write_rows("t.jsonl", rows)
    policy = ("--model", "m", "--base-url", mock_server.base_url, "--concurrency", "200")
    return ("collect", "t.jsonl", *policy, "--out", "run")


def test_collect_drives_two_hundred_episodes_on_a_server(ask):
    with serving(ResourcesServer()) as server:
        gym(*ask, "--env", f"counter={server.base_url}", exit_code=0)
        assert server.num_sessions == 200
    rewards = {
        int(line["task_id"]): line["reward"] for line in lines_of(Path("run/rollouts.jsonl"))
    }
    assert rewards == {n: float(n % 3 != 0) for n in range(200)}


def test_verify_keeps_what_cannot_be_asked_again(ask):
    with serving(ResourcesServer()) as server:
        gym(*ask, "--env", f"counter={server.base_url}", "--limit", "20")
        asked = gym("verify", "run", "--env", f"counter={server.base_url}")
    assert "0 rescored, 0 changed rewards (0 up, 0 down), 20 kept as recorded" in asked.stdout
    assert "20 kept as recorded" in gym("verify", "run").stdout
    bare = gym("verify", "run/rollouts.jsonl", exit_code=2)
    assert "--env counter=http://HOST:PORT" in bare.stderr


def test_verify_asks_a_stateless_server_again(ask):
    with serving(ResourcesServer(mode="stateless")) as server:
        gym(*ask, "--env", f"counter={server.base_url}", "--limit", "20")
        num_before = len(server.paths())
        asked = gym("verify", "run", "--env", f"counter={server.base_url}", "--out", "again")
        assert server.paths()[num_before:].count("/verify") == 20
        repeated = gym("verify", "run", "--env", f"counter={server.base_url}", "--repeat", "2")
        assert server.paths()[num_before:].count("/verify") == 60
    assert repeated.exit_code == 0, repeated.stderr
    assert "20 rollouts scored 2 times, 0 with different rewards\n" in repeated.stdout
    assert asked.exit_code == 0, asked.stderr
    assert "\n20 rescored, " in asked.stdout
    assert len(lines_of(Path("again/rollouts.jsonl"))) == 20


def test_verify_says_where_the_server_is_gone(ask):
    with serving(ResourcesServer()) as server:
        gym(*ask, "--env", f"counter={server.base_url}", "--limit", "2")
    gone = gym("verify", "run", "--env", f"counter={server.base_url}", exit_code=4)
    assert "is the server running" in gone.stderr


def test_collect_shows_a_lost_cookie_for_what_it_is(ask):
    with serving(ResourcesServer(cookies="ignored")) as server:
        done = gym(*ask, "--env", f"counter={server.base_url}", "--limit", "5")
    assert done.exit_code == 4
    assert "5 EpisodeError" in done.stdout
    for line in lines_of(Path("run/failures.jsonl")):
        assert "answered from a session other than" in line["error"]["message"]
