"""The examples of docs/mock.md run as shown, and its lists are complete."""

import inspect
import json
import re
import subprocess
from typing import get_args

import msgspec
import pytest

from gymcli.commands.mock import mock
from gymcli.mock import Exchange, MockAnswer, Stats
from gymcli.mock.behaviours import ScriptLine
from gymcli.mock.fault_effects import HUGE, UNKNOWN_FINISH, UNKNOWN_TOOL
from gymcli.mock.faults import BURST_LENGTH, ContentFault, DeliveryFault, StatusFault
from tests.builders import clean_environment, lines_of
from tests.docs.pages import blocks, output_of, page, table_names, write_blocks, write_gym

TEXT = page("mock.md")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the files of the page and a `gym` of this checkout."""
    for block, name in zip(blocks("json", TEXT), ("script.jsonl", "tasks.jsonl"), strict=True):
        (tmp_path / name).write_text(block[1])
    assert write_blocks(TEXT, "sh", "sh", tmp_path) == ["ci.sh"]
    assert write_blocks(TEXT, "python", "py", tmp_path) == ["test_sums.py"]
    write_gym(tmp_path / "bin")
    return tmp_path


def run_script(folder):
    environment = clean_environment()
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    return subprocess.run(
        ["sh", "ci.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_ci_script_runs(folder):
    done = run_script(folder)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((folder / "metrics.json").read_bytes())
    assert (metrics["num_scored"], metrics["mean_reward"]) == (2, 0.5)
    statuses = [line["status"] for line in lines_of(folder / "mock.jsonl")]
    assert sorted(statuses) == [200, 200, 500, 500]


@pytest.mark.slow
def test_ci_script_ends_where_the_mock_does_not_start(folder):
    (folder / "script.jsonl").unlink()
    done = run_script(folder)
    assert done.returncode != 0
    assert "script.jsonl: cannot be read" in done.stderr
    assert not (folder / "metrics.json").exists()


@pytest.mark.slow
def test_pytest_example_passes(folder):
    assert "1 passed" in output_of("python -m pytest test_sums.py", folder)


def test_faults_are_all_listed():
    assert table_names("fault | status | ", TEXT) == list(get_args(StatusFault))
    assert table_names("fault | what arrives ", TEXT) == list(get_args(DeliveryFault))
    assert table_names("fault | what it says ", TEXT) == list(get_args(ContentFault))


def test_numbers_are_those_of_the_code():
    assert f"the next {BURST_LENGTH - 1} requests" in TEXT
    assert f"{HUGE // 2**20} MiB" in TEXT
    assert f"`{UNKNOWN_FINISH}`" in TEXT
    assert f"`{UNKNOWN_TOOL}`" in TEXT


def test_script_has_the_keys_that_are_shown():
    assert set(table_names("key | what ", TEXT)) == set(MockAnswer.__struct_fields__)
    keys = {*table_names("key | which ", TEXT), "note", "answers"}
    assert keys == set(ScriptLine.__struct_fields__)


@pytest.mark.parametrize("kind", [Stats, Exchange])
def test_what_happened_has_the_names_that_are_shown(kind: type[msgspec.Struct]):
    part = TEXT.partition("## What happened")[2]
    assert set(kind.__struct_fields__) <= set(re.findall(r"`(\w+)`", part))


def test_options_are_all_named():
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(mock).parameters}
    assert "--fault" in options
    assert options - set(re.findall(r"--[a-z-]+", TEXT)) <= {"--port", "--seed"}
