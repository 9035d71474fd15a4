"""Tests of `gym envs`."""

import re
from pathlib import Path

import msgspec
import pytest

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


CAPABILITIES = {
    "information dependency": "example_multi_step",
    "proactive asking": "conversational_tool_use_simulation",
    "schema adherence": "structured_outputs",
    "meta-data instruction following": "instruction_following",
    "counterintuitive instruction following": "inverse_if",
    "information relevance": "lc_niah",
    "multiple intents": "workplace_assistant",
}


@pytest.mark.parametrize(("capability", "name"), CAPABILITIES.items())
def test_envs_finds_an_environment_for_each_capability(capability, name):
    listed = msgspec.json.decode(gym("envs", "--capability", capability, "--json").stdout)

    assert name in {one["name"] for one in listed}
    assert {one["capability"] for one in listed} == {capability}


def test_envs_chooses_by_every_property_that_is_given():
    done = gym("envs", "--structure", "Multi-Turn", "--domain", "games", "--json")
    listed = msgspec.json.decode(done.stdout)

    assert {one["name"] for one in listed} == {"blackjack", "sokoban"}
    assert gym("envs", "--task-type", "card game").stdout.splitlines()[1].startswith("blackjack")
    assert len(gym("envs", "--verification", "end-state").stdout.splitlines()) == 2


def test_envs_names_the_values_when_nothing_matches():
    done = gym("envs", "--capability", "flying")

    assert done.exit_code == 2
    assert "no environment has the capability 'flying'" in done.stderr
    assert "multiple intents" in done.stderr


def test_envs_refuses_a_choice_with_a_name():
    done = gym("envs", "mcqa", "--domain", "general")

    assert done.exit_code == 2
    assert "leave out mcqa" in done.stderr


def test_envs_json():
    listed = msgspec.json.decode(gym("envs", "--json").stdout)
    assert {one["name"] for one in listed} >= {"arithmetic", "mcqa"}
    one = msgspec.json.decode(gym("envs", "mcqa", "--json").stdout)
    assert one["name"] == "mcqa"


def test_envs_says_why_a_plug_in_cannot_be_had(tmp_path, monkeypatch):
    """A plug-in that fails to import has a row in the list, and the others are still shown."""
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
