"""Tests of `gym init` and of the next steps that it prints."""

from pathlib import Path
from typing import get_args

import pytest

from gymcli.commands.init import Pattern
from tests.builders import gym, gym_line


@pytest.mark.slow
@pytest.mark.parametrize("pattern", get_args(Pattern))
def test_init_and_what_it_tells_to_do(working_folder, pattern):
    done = gym("init", "demo_env", "--pattern", pattern, exit_code=0)
    assert "wrote demo_env.py, test_demo_env.py and demo_env.jsonl (60 tasks)\n" in done.stderr
    check, collect = done.stdout.splitlines()
    assert check == "gym check demo_env.py:DemoEnv"
    assert done.stderr.splitlines()[-1].endswith(": python -m pytest test_demo_env.py")
    assert ("--role judge=oracle" in collect) == (pattern == "judge")
    assert ("--role user=oracle" in collect) == (pattern == "simulated-user")
    gym_line(check.removeprefix("gym "), exit_code=0)
    collected = gym_line(collect.removeprefix("gym "), exit_code=0)
    assert collected.stderr.splitlines()[-1].startswith("60/60 ")
    assert collected.stderr.splitlines()[-1].endswith(" mean reward 1.000")


def test_init_begins_with_a_single_step(working_folder):
    gym("init", "demo_env")
    assert 'Properties("single-step"' in Path("demo_env.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("x-y",), "error: x-y: is not a Python name; use one such as my_env\n"),
        (("demo", "--pattern", "chess"), "--pattern chess: is not one of single-step, "),
        ((), "gym init: needs NAME; usage: gym init NAME; gym init --help explains it"),
    ],
)
def test_init_used_wrongly(tmp_path, working_folder, arguments, reason):
    assert reason in gym("init", *arguments, exit_code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_init_twice(tmp_path, working_folder):
    gym("init", "demo_env")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    done = gym("init", "demo_env", "--pattern", "game", exit_code=2)
    assert "error: demo_env.py: already exists; nothing was written\n" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.glob("*.*")} == before
