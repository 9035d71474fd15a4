"""Tests of `gym envs`."""

import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from gymcli.cli import app
from tests.builders import NO_ENDPOINT, gym


def shown(width, *arguments):
    """Return what `gym envs` prints to a terminal of a width, or to a pipe."""
    columns = None if width is None else str(width)
    environ = {**NO_ENDPOINT, "COLUMNS": columns}
    return CliRunner().invoke(app, ["envs", *arguments], env=environ)


@pytest.mark.parametrize("width", [60, 80])
def test_envs_lists_them_with_their_descriptions(width):
    done = shown(width)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "arithmetic                Add two numbers from 1 to 19."
    assert {"mcqa", "example_multi_step"} <= {line.split()[0] for line in lines}


@pytest.mark.parametrize("width", [300, None])
def test_envs_shows_properties_where_there_is_room(width):
    lines = shown(width).stdout.splitlines()
    cells = re.split("  +", lines[1])
    assert lines[0].split()[:4] == ["name", "description", "structure", "capability"]
    assert cells == [
        "arithmetic",
        "Add two numbers from 1 to 19.",
        "single-step",
        "arithmetic",
        "mathematics",
        "short",
        "exact match",
    ]


def test_envs_describes_one():
    done = gym("envs", "example_session_state_mgmt")
    fields = {line[:16].strip(): line[16:] for line in done.stdout.splitlines()}
    assert fields["tools"] == "increment_counter, get_counter_value"
    assert fields["options"] == "none"
    assert fields["structure"] == "stateful"
    assert fields["tasks"].startswith("60 in ")
    assert fields["needs"] == "no other package"


def test_envs_describes_rows_and_options():
    done = shown(80, "mcqa")
    fields = done.stdout.partition("fields of a row, besides its prompt\n")[2]
    fields, options = fields.split("options, as in --env-arg NAME=VALUE\n")
    assert "options: list of objects; required\n      Each item is one option" in fields
    assert "  expected_answer: text; required\n      The letter of the right option.\n" in fields
    assert "; default strict_single_letter_boxed How the letter" in " ".join(fields.split())
    assert options.startswith("  grading_mode: one of strict_single_letter_boxed, lenient_boxed,\n")
    assert "by default each row has its own." in options
    assert '  id: "mcqa-0"\n' in options.partition("example row\n")[2]

    found = msgspec.json.decode(gym("envs", "mcqa", "--json").stdout)
    assert list(found["options"]) == ["grading_mode"]
    assert found["fields"][1] == {
        "name": "expected_answer",
        "type": "text",
        "is_required": True,
        "default": None,
        "meaning": "The letter of the right option.",
    }
    assert (found["num_tasks"], found["example"]["id"], found["extra"]) == (60, "mcqa-0", None)


def test_envs_says_which_package_an_environment_needs():
    assert "needs           pip install 'gymcli[math]'\n" in gym("envs", "math_with_judge").stdout
    shown = gym("envs", "structured_outputs").stdout
    assert "needs           pip install 'gymcli[structured]', for XML\n" in shown


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
    assert shown(80, "--task-type", "card game").stdout.startswith("blackjack ")
    found = msgspec.json.decode(gym("envs", "--verification", "end-state", "--json").stdout)
    assert [one["name"] for one in found] == ["workplace_assistant"]


def test_envs_names_the_values_when_nothing_matches():
    done = gym("envs", "--capability", "flying", exit_code=2)

    assert "no environment has the capability 'flying'" in done.stderr
    assert "multiple intents" in done.stderr


def test_envs_refuses_a_choice_with_a_name():
    done = gym("envs", "mcqa", "--domain", "general", exit_code=2)

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
    done = gym("envs", exit_code=0)
    row = " ".join(done.stdout.partition("\nriddles ")[2].split())
    assert row.startswith('environment "riddles" cannot be imported: ModuleNotFoundError')
    assert "arithmetic" in done.stdout


def test_envs_describes_code(working_folder):
    from tests.builders import FLAKY

    Path("flaky.py").write_text(FLAKY)
    done = gym("envs", "flaky.py:Flaky")
    assert "description     Say anything.\n" in done.stdout
    assert "tasks           none\n" in done.stdout
