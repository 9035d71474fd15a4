"""Tests of `gym runs`."""

import os
from pathlib import Path

import msgspec
import pytest

from gymcli.store.locking import RunLock
from tests.builders import HOSTILE, UNSAFE, add_up, gym, lines_of, write_sums


@pytest.fixture
def made(working_folder, recorded):
    """Make three runs: a, then deep/b with a seed, then c of other tasks by the oracle."""
    recorded(collect)


def collect(server):
    server.behaviour = add_up
    asked = (write_sums(Path("sums.jsonl"), 3), "--model", "m", "--base-url", server.base_url)
    of_oracle = ("mcqa", "--model", "oracle", "--limit", "2")
    commands = {"a": asked, "deep/b": (*asked, "--seed", "5"), "c": of_oracle}
    for number, (name, arguments) in enumerate(commands.items()):
        gym("collect", *arguments, "--out", f"runs/{name}", exit_code=0)
        change(f"runs/{name}/run.json", started_at=1_700_000_000.0 + number)


def change(path, **values):
    manifest = msgspec.json.decode(Path(path).read_bytes())
    Path(path).write_bytes(msgspec.json.encode({**manifest, **values}))


def test_runs_lists_the_newest_last(made):
    done = gym("runs", exit_code=0)
    assert done.stderr == ""
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == [
        *("run", "date", "model", "sampling", "scored"),
        *("arithmetic,", "95", "%", "mcqa,", "95", "%", "state"),
    ]
    assert [row[0] for row in rows] == ["runs/a", "runs/deep/b", "runs/c"]
    assert rows[0][1].startswith("2023-11-1")  # in local time
    assert rows[0][3:6] == ["m", "-", "3/3"]
    assert rows[1][3:7] == ["m", "seed", "5", "3/3"]
    assert rows[1][-2:] == ["-", "finished"]
    assert rows[2][3:7] == ["oracle", "-", "2/2", "-"]


def test_runs_of_one_folder_or_one_run(made):
    assert [line.split()[0] for line in gym("runs", "runs/deep").stdout.splitlines()] == [
        "run",
        "runs/deep/b",
    ]
    assert gym("runs", "runs/a").stdout.splitlines()[1].startswith("runs/a ")


def test_runs_json(made):
    report = msgspec.json.decode(gym("runs", "--json").stdout)
    first, second, third = report["runs"]
    assert (first["run"], first["state"], first["problem"]) == ("runs/a", "finished", None)
    assert (first["num_expected"], first["num_scored"], first["model"]) == (3, 3, "m")
    assert second["sampling"]["seed"] == 5
    mean = third["environments"]["mcqa"]
    assert mean["mean_reward"] == 1.0
    assert set(mean["interval"]) == {"low", "high", "level", "method"}
    assert third["started_at"] == 1_700_000_002.0


def test_a_seed_among_the_parameters_is_shown(made):
    change("runs/a/run.json", identity={"params": {"seed": 3, "top_p": 0.5}, "seed": None})
    assert gym("runs").stdout.splitlines()[1].split()[4:8] == ["seed", "3,", "top_p", "0.5"]
    first = msgspec.json.decode(gym("runs", "--json").stdout)["runs"][0]
    assert first["sampling"] == {"seed": 3, "top_p": 0.5}


def test_a_folder_of_runs_is_no_run(made):
    done = gym("metrics", "runs", exit_code=2)
    assert "runs: holds no rollouts.jsonl; gym runs runs lists the runs in it" in done.stderr


def test_runs_reads_metrics_that_are_current_and_counts_others(made):
    """Read: changed numbers are shown. Counted: they are not."""
    path = Path("runs/a/metrics.json")
    numbers = msgspec.json.decode(path.read_bytes())
    numbers["environments"]["arithmetic"]["mean_reward"] = 0.123
    path.write_bytes(msgspec.json.encode(numbers))
    assert " 0.123 " in gym("runs").stdout
    newer = path.stat().st_mtime_ns + 1_000_000_000
    os.utime("runs/a/rollouts.jsonl", ns=(newer, newer))
    Path("runs/c/metrics.json").unlink()
    Path("runs/deep/b/metrics.json").write_text("{")
    done = gym("runs")
    assert "0.123" not in done.stdout
    assert done.stdout.count(" 1.000 ") == 3
    assert done.stderr.startswith("3 runs were counted line by line")
    gym("metrics", "runs/c", "runs/deep/b")
    assert gym("runs").stderr.startswith("1 run was counted line by line")


def test_runs_lists_the_others_beside_a_run_whose_lock_cannot_be_opened(made):
    lock = Path("runs/a/.lock")
    lock.unlink(missing_ok=True)
    lock.symlink_to("run.json")
    done = gym("runs", exit_code=0)
    assert done.stdout.splitlines()[1].endswith(" damaged")
    assert done.stdout.count(" finished") == 2


def test_runs_says_what_is_wrong_with_a_run(made):
    Path("runs/a/run.json").write_text("{")
    Path("runs/c/metrics.json").unlink()
    Path("runs/c/rollouts.jsonl").write_text("{}\n{}\n")
    done = gym("runs", exit_code=0)
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["runs/a", "-", "-", "-", "-", "damaged"]
    assert lines[2].endswith(" finished")
    assert lines[3].split()[0] == "runs/c"
    assert lines[3].endswith(" damaged")
    assert lines[4].startswith("damaged: runs/a/run.json: is not a run's manifest")
    assert lines[5].startswith("damaged: runs/c/rollouts.jsonl:1: ")
    problems = [one["problem"] for one in msgspec.json.decode(gym("runs", "--json").stdout)["runs"]]
    assert problems[1] is None
    assert problems[0].startswith("runs/a/run.json: ")


def test_runs_says_which_are_running_or_stopped(made):
    change("runs/a/run.json", ended_at=None, num_expected=9)
    line = gym("runs").stdout.splitlines()[1]
    assert "  3/9  " in line
    assert line.endswith("  stopped")
    lock = RunLock(Path("runs/a"))
    lock.take()
    try:
        assert gym("runs").stdout.splitlines()[1].endswith("  running")
    finally:
        lock.free()


def test_runs_counts_environments_beyond_the_fourth(made):
    line = lines_of(Path("runs/a/rollouts.jsonl"))[0]
    names = [f"env-{number}" for number in range(6)]
    lines = [msgspec.json.encode({**line, "env": name}) + b"\n" for name in names]
    Path("runs/a/rollouts.jsonl").write_bytes(b"".join(lines))
    Path("runs/a/metrics.json").unlink()
    head, first, *_ = gym("runs").stdout.splitlines()
    assert head.count("95 %") == 4
    assert head.split()[-2:] == ["others", "state"]
    assert first.split()[-2] in "3456"


def test_runs_without_any(working_folder):
    done = gym("runs", exit_code=2)
    assert done.stderr.startswith("error: runs: there is no such folder")
    Path("file").touch()
    assert gym("runs", "file").stderr.startswith("error: file: is not a folder")
    Path("runs/.git").mkdir(parents=True)
    Path("runs/.git/run.json").touch()
    done = gym("runs")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("runs: no run is here")
    assert msgspec.json.decode(gym("runs", "--json").stdout) == {"runs": []}


def test_runs_shows_nothing_unescaped(made):
    """Names of folders, models and parameters may come from others."""
    identity = {"params": {HOSTILE: HOSTILE}}
    change("runs/a/run.json", model=HOSTILE, identity=identity)
    Path("runs/a").rename(f"runs/{HOSTILE.replace('/', '')}")
    for more in ((), ("--json",)):
        assert not set(UNSAFE) & set(gym("runs", *more, exit_code=0).output)
