"""Scores of an installed NeMo Gym against ours: its unit tests, recorded rollouts and task rows.

`make nemo-gym` installs the wheel, whose files are read where they are. A reference that moves
changes a number or a difference here.
"""

import math
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import yaml

import gymcli
from gymcli.environment.registry import Registry
from gymcli.errors import GymError
from gymcli.nemo_gym.rows import read_prompt, read_rollout
from gymcli.tasks.task_files import RowProblem, read_tasks, with_shared_ids
from gymcli.tasks.task_row import TaskReading
from gymcli.types import JSONObject
from tests.builders import clean_environment
from tests.envs.episodes import scored

pytestmark = pytest.mark.slow

VIRTUAL_ENVIRONMENT = Path(gymcli.__file__).parents[1] / ".venv-nemo-gym"
MAX_SECONDS = 300.0
"""The limit of the unit tests of one server."""


class UnitTests(NamedTuple):
    """The calls of `verify` in the unit tests of a server."""

    num_calls: int
    options: Mapping[str, str] = {}
    """Our options by the server's."""
    folders: Mapping[str, str] = {}
    """Our options that name a folder of the wheel."""
    differences: Mapping[str, str] = {}
    """Why our reward is another, by the name of the test."""


UNIT_TESTS = {
    "calendar": UnitTests(23),
    "circle_click": UnitTests(8),
    "circle_count": UnitTests(9),
    "example_single_tool_call": UnitTests(3),
    "example_tool_call_multireward": UnitTests(8),
    "lc_niah": UnitTests(
        10, {"overlap_metric_rule": "penalty", "overlap_grading_rule": "reward_mode"}
    ),
    # Their judge is a mock that agrees with the library.
    "math_with_judge": UnitTests(3),
    "mcqa": UnitTests(63, {"grading_mode": "grading_mode"}),
    "reasoning_gym": UnitTests(5),
    "single_step_tool_use_with_argument_comparison": UnitTests(
        12,
        {
            name: name
            for name in (
                "word_count_similarity_threshold",
                "floating_point_comparison_threshold",
                "parallel_tool_call_rewarding",
                "allow_subset",
                "allow_superset",
                "parallel_tool_call_reward_mode",
            )
        },
    ),
    "structured_outputs": UnitTests(38, {"xml_coerce_types": "xml_coerce_types"}),
    "workplace_assistant": UnitTests(
        2, folders={"data_dir": "resources_servers/workplace_assistant/csv_data"}
    ),
    "xlam_fc": UnitTests(9),
}
"""By server. The unit tests of other servers call no `verify`, or mock the judge that decides."""


class Recordings(NamedTuple):
    """The recorded rollouts of an environment."""

    num_rollouts: int
    folders: tuple[str, ...]
    """Patterns of the names of servers and environments."""
    options: Mapping[str, object] = {}
    """Options of our environment."""
    differences: Mapping[str, str] = {}
    """Why our reward is another, by file and line."""


RECORDINGS = {
    "calendar": Recordings(10, ("calendar",)),
    "circle_click": Recordings(10, ("circle_click",)),
    "circle_count": Recordings(10, ("circle_count",)),
    "example_multi_step": Recordings(5, ("example_multi_step",)),
    "example_multi_turn": Recordings(5, ("example_multi_turn_gymnasium",)),
    "example_session_state_mgmt": Recordings(5, ("example_session_state_mgmt",)),
    "example_single_tool_call": Recordings(5, ("example_single_tool_call",)),
    "example_tool_call_multireward": Recordings(5, ("example_tool_call_multireward",)),
    "instruction_following": Recordings(10, ("instruction_following",)),
    # Recorded before `ngram16` became the default.
    "lc_niah": Recordings(5, ("lc_niah",), {"penalty": "lcs"}),
    # A comparison that every file has takes ten seconds, which is the usual limit.
    "math_with_judge": Recordings(
        85, ("math_with_judge", "*_math"), {"use_judge": False, "library_timeout": 50.0}
    ),
    "mcqa": Recordings(
        10,
        ("mcqa",),
        differences={
            "resources_servers/mcqa/data/example_rollouts.jsonl:3": "recorded with an older row"
        },
    ),
    "reasoning_gym": Recordings(25, ("reasoning_gym", "*_reasoning_gym")),
    "single_step_tool_use_with_argument_comparison": Recordings(
        5, ("single_step_tool_use_with_argument_comparison",)
    ),
    "string_match": Recordings(5, ("string_match",)),
    "xlam_fc": Recordings(5, ("xlam_fc",)),
}
"""By environment. Records of others need what the wheel lacks: a deck, a room, a database, a
judge, or the rows that were played."""

NO_TASKS = {
    "benchmarks/aegis_v4_safety/data/aegis_v4_safety_benchmark.jsonl": "prompt is made elsewhere",
    "resources_servers/finance_sec_search/data/example_questions.jsonl": "prompt is made elsewhere",
    "resources_servers/math_formal_lean/data/minif2f_valid.jsonl": "it is empty",
    "resources_servers/openair_congestion/data/fixtures/sample_provided.jsonl": "a test's fixture",
    "responses_api_agents/stirrup_agent/data/example.jsonl": "prompt is made elsewhere",
}
"""Why a task file cannot be read."""


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder of the installed packages."""
    if not (VIRTUAL_ENVIRONMENT / "ready").is_file():
        pytest.skip("NeMo Gym is not installed in .venv-nemo-gym; `make nemo-gym` installs it")
    [folder] = VIRTUAL_ENVIRONMENT.glob("lib/python3.*/site-packages")
    return folder


@pytest.mark.parametrize("server", UNIT_TESTS)
def test_unit_tests_of_a_server_have_the_same_rewards(site, tmp_path, server):
    expected = UNIT_TESTS[server]
    calls = recorded_calls(site, server, tmp_path / "calls.jsonl")
    differences = {}
    for call in calls:
        options = our_options(server, call["config"])
        options |= {name: site / folder for name, folder in expected.folders.items()}
        reward = reward_of(server, call["body"], options)
        if not is_equal(reward, call["reward"]):
            differences[call["test"]] = (call["reward"], reward)
    assert len(calls) == expected.num_calls
    assert differences.keys() == expected.differences.keys(), differences


@pytest.mark.parametrize("server", ["lc_niah", "single_step_tool_use_with_argument_comparison"])
def test_options_have_the_defaults_of_the_server(site, server):
    text = (site / f"resources_servers/{server}/configs/{server}.yaml").read_text()
    [servers] = [
        part["resources_servers"]
        for part in yaml.safe_load(text).values()
        if "resources_servers" in part
    ]
    options = our_options(server, servers[server])
    defaults = Registry().find(server).environment.Options()
    assert options == {name: getattr(defaults, name) for name in options} != {}


@pytest.mark.parametrize("env", RECORDINGS)
def test_recorded_rollouts_have_the_same_rewards(site, env):
    expected = RECORDINGS[env]
    num_rollouts, differences = 0, {}
    for folder in expected.folders:
        for file in sorted(site.glob(f"*/{folder}/data/*rollouts*.jsonl")):
            tasks = tasks_beside(file, site / "resources_servers" / env / "data")
            for number, line in enumerate(rows_of(file), start=1):
                if "response" not in line:
                    continue  # inputs or aggregates of the recording
                num_rollouts += 1
                task = tasks.get(prompt_of(line), {})
                reward = reward_of(env, line, expected.options, row_fields=task)
                if not is_equal(reward, line["reward"]):
                    place = f"{file.relative_to(site)}:{number}"
                    differences[place] = (line["reward"], reward)
    assert num_rollouts == expected.num_rollouts
    assert differences.keys() == expected.differences.keys(), differences


def test_transitions_can_be_read(site):
    """Their rewards are those of worlds that cannot be replayed, so they are kept as recorded."""
    files = site.glob("*/aviary*/data/example_rollouts.jsonl")
    rollouts = [read_rollout(line, env="aviary") for file in files for line in rows_of(file)]
    assert len(rollouts) == 20
    assert all(rollout.num_prompt_messages > 0 for rollout in rollouts)
    assert {rollout.responses[0].role for rollout in rollouts} == {"assistant"}


def test_task_rows_can_be_read(site):
    files = [file for file in site.glob("*/*/data/**/*.jsonl") if "rollouts" not in file.name]
    unread = {str(file.relative_to(site)) for file in files if not can_be_read(file)}
    assert unread == NO_TASKS.keys()
    assert site / "resources_servers/nemo_user_sim/data/example.jsonl" in files


def recorded_calls(site: Path, server: str, file: Path) -> list[dict]:
    """Run the unit tests of a server; return the calls of its `verify`."""
    # Without a file of options, pytest would use those of this project.
    options = ["-c", os.devnull, "--rootdir", site, "-o", "asyncio_mode=auto", "-W", "ignore"]
    options += ["-p", "verify_recorder", "-p", "no:cacheprovider"]
    tests = f"resources_servers/{server}/tests"
    done = subprocess.run(
        [VIRTUAL_ENVIRONMENT / "bin" / "python", "-m", "pytest", *options, tests],
        cwd=site,
        env={
            **clean_environment(),
            # Tests import the modules of their server by bare names, such as `app`.
            "PYTHONPATH": f"{Path(__file__).parent}:{site / 'resources_servers' / server}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RECORDED_CALLS": os.fspath(file),
        },
        timeout=MAX_SECONDS,
        capture_output=True,
        text=True,
        # A test of another subject may need what the wheel lacks.
        check=False,
    )
    assert file.is_file(), done.stdout + done.stderr
    return list(rows_of(file))


def our_options(server: str, config: JSONObject) -> dict[str, object]:
    """Return our options of a server's configuration."""
    # One server nests its options.
    config = {**config, **config.get("tool_call_comparator_config", {})}
    names = UNIT_TESTS[server].options
    return {ours: config[name] for name, ours in names.items() if config.get(name) is not None}


def rows_of(file: Path) -> Iterator[JSONObject]:
    for line in file.read_bytes().splitlines():
        yield msgspec.json.decode(line)


def prompt_of(row: JSONObject) -> str:
    """Return the texts and pictures of a prompt, which a recording has in common with its task."""
    pieces = []
    for message in read_prompt(row.get("responses_create_params", {})).messages:
        parts = message.content if isinstance(message.content, list) else []
        pictures = [part["image_url"]["url"] for part in parts if "image_url" in part]
        pieces += [message.role, message.text.strip(), *pictures]
    return "\n".join(pieces)


def tasks_beside(file: Path, default: Path) -> dict[str, JSONObject]:
    """Return the fields of the task rows next to a recording, else of the server, by prompt."""
    files = [task_file for folder in (default, file.parent) for task_file in folder.glob("*.jsonl")]
    return {
        prompt_of(row): {
            name: row[name] for name in row.keys() - {"responses_create_params", "agent_ref"}
        }
        for task_file in files
        if "rollouts" not in task_file.name
        for row in rows_of(task_file)
    }


def reward_of(env: str, line: JSONObject, options: Mapping[str, object], **fields) -> float | str:
    """Return our reward of a NeMo Gym rollout, or why there is none."""
    try:
        return scored(read_rollout(line, env=env, **fields), roles={}, **options).reward
    except (ValueError, GymError) as error:
        return f"{type(error).__name__}: {error}"


def is_equal(ours: float | str, theirs: float) -> bool:
    return not isinstance(ours, str) and math.isclose(ours, theirs, abs_tol=1e-9)


def can_be_read(file: Path) -> bool:
    """Return whether a file has tasks and no row that cannot be read."""
    items = with_shared_ids(
        lambda ids: list(read_tasks([file], TaskReading(default_env="any", shared_ids=ids)))
    )
    return bool(items) and not any(isinstance(item, RowProblem) for item in items)
