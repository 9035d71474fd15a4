"""Tests of `gym check`."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.builders import FLAKY, gym, gym_line, write_sums

BROKEN = "tests.checks.broken:{}"


def test_check_one():
    done = gym("check", "mcqa", exit_code=0)
    head, *lines = done.stdout.splitlines()
    assert head.startswith("mcqa 3: 60 tasks (")
    found = {line[:11].strip(): line[12:20].strip() for line in lines}
    assert len(found) == 12
    assert found["oracle"] == "ok"
    assert found["tools"] == "n/a"
    assert "first option 0.20 (chance 0.16)" in done.stdout
    # On a slow machine it says how far it is.
    assert all(re.fullmatch(r"mcqa: \d+ records scored", line) for line in done.stderr.splitlines())


def test_check_one_that_fails():
    done = gym("check", BROKEN.format("Roleless"), exit_code=3)
    line = (
        'oracle      FAILED   60 of 60 tasks cannot be played or scored: Roleless needs the role "'
    )
    assert line in done.stdout
    assert " [t0, t1, t2, t3, t4, ...]\n" in done.stdout


def test_check_fails_for_a_role_that_is_not_declared():
    done = gym("check", BROKEN.format("Undeclared"), exit_code=3)
    words = 'Undeclared.stand_ins returns a model for the role "judge", which is not declared'
    assert words in done.stdout


@pytest.mark.parametrize("name", ["Packless", "LatePackless"])
def test_check_skips_what_needs_a_package_that_is_missing(name):
    done = gym("check", BROKEN.format(name), exit_code=0)
    assert "ready       skipped  Packless needs x: pip install 'gymcli[x]'\n" in done.stdout
    done = gym("check", BROKEN.format(name), "arithmetic", "--limit", "9", exit_code=0)
    assert done.stdout.splitlines()[1].endswith("  skipped")
    assert "ready: Packless needs x: pip install" in done.stdout


@pytest.mark.slow
def test_check_shows_what_is_skipped():
    done = gym("check", "example_single_tool_call", exit_code=0)
    assert "guessing    skipped  any call of the only tool is right\n" in done.stdout


@pytest.mark.slow
def test_check_several():
    names = ("arithmetic", "example_single_tool_call", BROKEN.format("Copying"))
    done = gym("check", *names, "--limit", "9", exit_code=3)
    head, sums, weather, broken, *rest = done.stdout.splitlines()
    assert head.split()[:7] == [
        "environment",
        "tasks",
        "oracle",
        "empty",
        "echo",
        "swapped",
        "guess",
    ]
    assert sums.split()[:6] == ["arithmetic", "9", "1.00", "0.00", "0.00", "0.00"]
    assert sums.endswith("  ok")
    assert weather.split()[2:8] == ["1.00", "0.00", "0.00", "-", "-", "-"]
    assert broken.endswith("  1 FAILED")
    assert rest == [
        "FAILED broken tasks: 1 rows are copies of others [a]",
        "skipped example_single_tool_call swapped, guessing: any call of the only tool is right",
    ]


def test_check_json():
    one = gym("check", "arithmetic", "--json", "--limit", "3", exit_code=0)
    report = msgspec.json.decode(one.stdout)
    assert (report["env"], report["num_tasks"]) == ("arithmetic", 3)
    two = gym("check", "arithmetic", BROKEN.format("Barren"), "--json", "--limit", "3", exit_code=3)
    reports = msgspec.json.decode(two.stdout)
    failed = [f["check"] for r in reports for f in r["findings"] if f["status"] == "failed"]
    assert failed == ["tasks"]


def test_check_with_tasks(tmp_path):
    path = write_sums(tmp_path / "t.jsonl", 7)
    done = gym("check", "arithmetic", "--tasks", path, "--limit", "5")
    assert f"arithmetic 2: 5 tasks ({path})" in done.stdout
    assert "tasks       ok       7 valid" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("arithmetik",), 'no environment "arithmetik"; did you mean "arithmetic"?'),
        (("--tasks", "t.jsonl"), "--tasks FILE: name the environment of these tasks"),
        (("arithmetic", "--tasks", "t.jsonl"), "t.jsonl: no such file"),
        (("arithmetic", "--limit", "0"), "--limit 0: must be 1 or more"),
        (("nowhere.py:None",), "nowhere.py: no such file"),
    ],
)
def test_check_used_wrongly(working_folder, arguments, reason):
    assert reason in gym("check", *arguments, exit_code=2).stderr


@pytest.mark.slow
def test_check_of_what_cannot_be_imported(tmp_path, monkeypatch):
    """A name that cannot be imported is wrong use; among all environments it is a failed check."""
    package = tmp_path / "riddles-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: riddles\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[gymcli.envs]\nriddles = riddles_of_nobody\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    gym("check", "riddles", exit_code=2)
    done = gym("check", "--limit", "2", exit_code=3)
    assert 'FAILED riddles ready: environment "riddles" cannot be imported' in done.stdout
    assert any(line.startswith("mcqa ") for line in done.stdout.splitlines())


def test_help_shows_the_exit_code():
    assert "  3    a gate or a check failed" in gym("--help").stdout
    for command in ("check", "init"):
        assert gym(command, "--help").stdout.startswith(f"Usage: gym {command}")


def test_check_of_a_file(working_folder):
    Path("flaky.py").write_text(FLAKY)
    write_sums(Path("t.jsonl"), 4, env="flaky")
    done = gym("check", "flaky.py:Flaky", "--tasks", "t.jsonl", exit_code=3)
    assert "empty       FAILED   the top reward in 4 of 4 tasks [sum-0, " in done.stdout
    assert f"\n{'':21}reply to sum-0: (empty)\n" in done.stdout
    assert f"\n{'':21}reply to sum-0: What is " in done.stdout
    # The oracle played well: to look at its rollout would show nothing wrong.
    assert "gym collect" not in done.stderr


def test_failed_check_says_how_to_look_at_it(working_folder):
    """The commands that are printed run as they are, and look at a run of the present code."""
    Path("wrong.py").write_text(FLAKY.replace("Flaky", "Wrong").replace("Score(1.0", "Score(0.5"))
    write_sums(Path("t.jsonl"), 4, env="wrong")
    for _ in range(2):
        done = gym("check", "wrong.py:Wrong", "--tasks", "t.jsonl", exit_code=3)
        say, collect, show = done.stderr.splitlines()
        assert say == "to look at one of these tasks:"
        assert " --task sum-0 " in collect
        gym_line(collect.removeprefix("gym "), exit_code=0)
        assert "reward        0.5\n" in gym_line(show.removeprefix("gym ")).stdout
    assert show == "gym show runs/check-2"
    assert "--role judge=oracle" in gym("check", BROKEN.format("Roleless")).stderr
    assert gym("check", "wrong.py:Wrong", "--tasks", "t.jsonl", "--json").stderr == ""
