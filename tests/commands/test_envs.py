"""`gym envs` through the front door."""

import re
from pathlib import Path

import msgspec

from tests.commands.running import gym


def test_envs_lists_them():
    done = gym("envs")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["name", "structure", "capability", "domain"]
    cells = re.split("  +", lines[1])
    assert cells == [
        "arithmetic",
        "single-step",
        "arithmetic",
        "mathematics",
        "short",
        "exact match",
    ]
    assert {line.split()[0] for line in lines} >= {"mcqa", "example_multi_step"}


def test_envs_describes_one():
    done = gym("envs", "example_session_state_mgmt")
    fields = {line[:16].strip(): line[16:] for line in done.stdout.splitlines()}
    assert fields["tools"] == "increment_counter, get_counter_value"
    assert fields["options"] == "none"
    assert fields["structure"] == "stateful"
    assert fields["tasks"].endswith("tasks.jsonl")
    assert "grading_mode: " in gym("envs", "mcqa").stdout


def test_envs_json():
    listed = msgspec.json.decode(gym("envs", "--json").stdout)
    assert {one["name"] for one in listed} >= {"arithmetic", "mcqa"}
    one = msgspec.json.decode(gym("envs", "mcqa", "--json").stdout)
    assert one["name"] == "mcqa"


def test_envs_says_why_a_plug_in_cannot_be_had(tmp_path, monkeypatch):
    """One that fails to import is a row of the list; the others are shown all the same."""
    package = tmp_path / "riddles-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: riddles\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[gymcli.envs]\nriddles = riddles_of_nobody\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = gym("envs")
    assert done.exit_code == 0
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("riddles")]
    assert "cannot be imported: ModuleNotFoundError" in row
    assert "arithmetic" in done.stdout


def test_envs_describes_code(tmp_path, monkeypatch):
    from tests.commands.running import FLAKY

    monkeypatch.chdir(tmp_path)
    Path("flaky.py").write_text(FLAKY)
    done = gym("envs", "flaky.py:Flaky")
    assert "description     Say anything.\n" in done.stdout
    assert "tasks           none\n" in done.stdout
