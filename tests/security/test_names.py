"""Tests that names in data are never paths, attributes or code: tools, tasks, models, roles."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import num_turns
from tests.builders import gym, lines_of
from tests.envs.episodes import calls, played, says, task_row
from tests.security.hostile import NAMES

PATHS = ("../../etc/x", "a/b", "/etc/x", "..", ".", "~", "con", "-rf", "--out=x", "x" * 10_000, "*")
PATHS += ("__class__", "{0.__class__}", "%s", "\x00", "a\nb", "$(touch owned)", "\\..\\x", "\u202e")

GUARDED = '''"""An environment that writes a file if a method that is not a tool is reached."""

from pathlib import Path

from gymcli import Context, Environment, Rollout, Score, Task, tool


class Guarded(Environment[Task]):
    """Call the tool."""

    @tool
    def look(self) -> str:
        """Look."""
        return "seen"

    def helper(self, **arguments: object) -> str:
        Path("reached").touch()
        return "reached"

    def _private(self, **arguments: object) -> str:
        return self.helper()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(float(len(rollout.tool_calls)))
'''


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@given(st.text(max_size=30) | st.sampled_from(NAMES))
def test_a_name_that_is_no_tool_reaches_nothing(name):
    """Whatever the name, the model is told that no such tool exists, and nothing is called."""
    if name == "get_weather":
        return
    row = task_row("example_single_tool_call", {"cities": ["Lima"]})
    rollout = played(row, calls((name, "{}")), says("done"))
    [answer] = [message for message in rollout.messages if message.role == "tool"]
    assert "no tool" in answer.text
    assert rollout.tool_errors == {"unknown_tool": 1}


def test_hostile_tool_names_reach_no_method(tmp_path, working_folder, mock_server):
    """The names go over the wire, as a model would send them."""
    (tmp_path / "guarded.py").write_text(GUARDED)
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "Go."}\n')
    names = [*NAMES, "helper", "look.__func__", "verify_group", "generate", "stand_ins"]
    named = [(name, {}) for name in names if name]

    def behave(request):
        return MockAnswer(tool_calls=named) if num_turns(request) == 0 else "done"

    mock_server.behaviour = behave
    endpoint = ("--base-url", mock_server.base_url, "--model", "m", "--out", "run")
    gym("collect", "tasks.jsonl", "--env", "guarded.py:Guarded", *endpoint, "--quiet", exit_code=0)
    [rollout] = lines_of(tmp_path / "run" / "rollouts.jsonl")
    assert rollout["tool_errors"] == {"unknown_tool": len(named)}
    assert not (tmp_path / "reached").exists()


def test_hostile_ids_and_models_write_nothing_but_the_run(tmp_path, working_folder, mock_server):
    """No id and no model becomes a path, and each id is found again."""
    rows = [{"id": name, "env": "arithmetic", "prompt": "1 + 1?", "answer": 2} for name in PATHS]
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    (tmp_path / "tasks.jsonl").write_bytes(lines)
    endpoint = ("--base-url", mock_server.base_url)
    known = set()
    for model in ("../../m", "/etc/m", "..", "m\x1b[2J", "x" * 1000):
        arguments = ("collect", "tasks.jsonl", *endpoint, "--model", model, "--quiet")
        gym(*arguments, exit_code=0)
        [run] = {path.name for path in (tmp_path / "runs").iterdir()} - known
        known.add(run)
        found = lines_of(tmp_path / "runs" / run / "rollouts.jsonl")
        assert {line["task_id"] for line in found} == set(PATHS)
        gym(*arguments, exit_code=0)
        assert len(lines_of(tmp_path / "runs" / run / "rollouts.jsonl")) == len(PATHS)
    written = {path.split("/")[0] for path in files_below(tmp_path)}
    assert written == {"tasks.jsonl", "runs"}
    depth = {path.count("/") for path in files_below(tmp_path / "runs")}
    assert depth == {0, 1}


@pytest.mark.parametrize("name", [*PATHS, "gymcli.envs.arithmetic", "os:system", "arithmetic.py:A"])
def test_an_environment_that_a_row_names_is_a_name_and_no_code(tmp_path, name):
    """Code and addresses can only come from the command line."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_bytes(msgspec.json.encode({"id": "a", "env": name, "prompt": "Go."}) + b"\n")
    gym("collect", tasks, "--model", "oracle", "--out", tmp_path / "run", exit_code=2)
    assert files_below(tmp_path) == {"tasks.jsonl"}


@pytest.mark.parametrize("name", ["http://127.0.0.1:1", "x=http://127.0.0.1:1", "owned.py:Owned"])
def test_a_row_cannot_name_a_server_or_a_file(tmp_path, working_folder, name):
    (tmp_path / "owned.py").write_text("from pathlib import Path\nPath('owned').touch()\n")
    row = {"id": "a", "agent_ref": {"name": name}, "prompt": "Go."}
    (tmp_path / "tasks.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    gym("collect", "tasks.jsonl", "--model", "oracle", exit_code=2)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", PATHS)
def test_a_role_that_nobody_has_is_a_mistake(tmp_path, name):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "env": "arithmetic", "prompt": "1 + 1?", "answer": 2}\n')
    out = tmp_path / "run"
    gym(
        "collect", tasks, "--model", "oracle", "--role", f"{name}=oracle", "--out", out, exit_code=2
    )
    assert files_below(tmp_path) == {"tasks.jsonl"}


@pytest.mark.parametrize("attempt", ["-1", "1e99", '"../x"', "99999999999999999999999999"])
def test_an_attempt_that_is_no_number_of_one_is_damage(tmp_path, attempt):
    run = tmp_path / "run"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "env": "arithmetic", "prompt": "1 + 1?", "answer": 2}\n')
    gym("collect", tasks, "--model", "oracle", "--out", run, "--quiet", exit_code=0)
    rollouts = run / "rollouts.jsonl"
    text = rollouts.read_text()
    assert '"attempt":0' in text
    rollouts.write_text(text.replace('"attempt":0', f'"attempt":{attempt}'))
    ended = gym("collect", tasks, "--model", "oracle", "--out", run, "--quiet", exit_code=2)
    assert "rollouts.jsonl:1" in ended.stderr
