"""Real runs on full disks, with vanishing files, and in folders without write permission."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import gymcli
from gymcli.errors import RunDirectoryError
from gymcli.store.rollout_files import FAILURES, ROLLOUTS
from gymcli.types import Failure, Rollout
from tests.builders import (
    gym,
    gym_process,
    lines_of,
    unmeasured_environment,
    write_prompts,
    write_sums,
)
from tests.store.test_recovery import ended, finals

NUM_TASKS = 200

VANISHING = '''"""An environment in whose fifth episode something happens to the run."""

import itertools
import shutil
from pathlib import Path

from gymcli import Environment, Message, Rollout, Score, Task

RUN = Path("run")
TURNS = itertools.count(1)


def what():
    {what}


class Sum(Environment[Task]):
    """Say anything."""

    async def oracle(self, rollout):
        if next(TURNS) == 5:
            what()
        return Message(role="assistant", content="anything")

    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)
'''


def collect(folder, *options, run="run", limit=None, env="arithmetic"):
    """Collect in a new process; `limit` is the longest file that it may write."""
    command = gym_process(
        "collect", "t.jsonl", "--model", "oracle", "--quiet", "--env", env, "--out", run, *options
    )
    if limit is not None:
        import shlex

        command = ["bash", "-c", f"trap '' XFSZ; ulimit -f {limit}; exec {shlex.join(command)}"]
    return subprocess.run(
        command,
        cwd=folder,
        env=unmeasured_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def told(done):
    """Return the only error line that a command printed."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.fixture
def small_disk(tmp_path):
    """Yield a disk of 48 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(disk)]
    is_linux = sys.platform == "linux"
    if not is_linux or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk, and only on Linux")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_collect_on_a_disk_that_becomes_full(tmp_path, small_disk):
    """What was written stays valid; once there is room, the same command completes the run."""
    write_sums(tmp_path / "t.jsonl", NUM_TASKS)
    run = small_disk / "run"
    done = collect(tmp_path, run=run)
    assert done.returncode == 4
    assert "rollouts.jsonl: cannot be written: No space left on device" in told(done)
    assert "make room and run the same command again to resume" in told(done)
    before = lines_of(run / ROLLOUTS)
    assert 0 < len(before) < NUM_TASKS
    assert collect(tmp_path, run=run).returncode == 4
    assert lines_of(run / ROLLOUTS)[: len(before)] == before

    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    assert collect(tmp_path, run=run).returncode == 0
    assert lines_of(run / ROLLOUTS)[: len(before)] == before
    assert len(finals(run)) == NUM_TASKS


@pytest.mark.slow
def test_collect_where_files_may_not_be_long(tmp_path):
    """A limit on file sizes stands in for a full disk where none can be mounted."""
    write_sums(tmp_path / "t.jsonl", NUM_TASKS)
    done = collect(tmp_path, limit=8)
    assert done.returncode == 4
    assert "rollouts.jsonl: cannot be written: File too large" in told(done)
    before = (tmp_path / "run" / ROLLOUTS).read_bytes()
    assert before.endswith(b"\n")
    assert collect(tmp_path).returncode == 0
    assert (tmp_path / "run" / ROLLOUTS).read_bytes().startswith(before)
    assert len(finals(tmp_path / "run")) == NUM_TASKS


LOSSES = {
    "rollouts deleted": (
        '(RUN / "rollouts.jsonl").unlink()',
        "run/rollouts.jsonl: was deleted while it was being written; its content is lost",
    ),
    "rollouts emptied": (
        '(RUN / "rollouts.jsonl").write_text("")',
        "run/rollouts.jsonl: was truncated by another program while it was being written",
    ),
    "rollouts edited": (
        '(RUN / "new").write_text(""); (RUN / "new").rename(RUN / "rollouts.jsonl")',
        "run/rollouts.jsonl: was replaced while it was being written",
    ),
    "rollouts replaced": (
        '(RUN / "rollouts.jsonl").rename("kept"); (RUN / "rollouts.jsonl").write_text("")',
        "run/rollouts.jsonl: was moved or replaced while it was being written; move it back",
    ),
    "run deleted": ("shutil.rmtree(RUN)", "run: was deleted while it was being written"),
    "run renamed": ('RUN.rename("kept")', "run: was moved or replaced while it was being written"),
    "run replaced": (
        'RUN.rename("kept"); RUN.mkdir()',
        "run: was moved or replaced while it was being written; move it back and run the same",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_collect_whose_files_vanish(tmp_path, working_folder, loss):
    what, message = LOSSES[loss]
    write_prompts(tmp_path / "t.jsonl", 12)
    (tmp_path / "env.py").write_text(VANISHING.replace("{what}", what))
    done = collect(tmp_path, "--concurrency", "1", env="env.py:Sum")
    assert done.returncode == 4, done.stderr
    assert message in told(done)

    kept = tmp_path / "kept"
    if kept.exists():
        place = tmp_path / "run" / (ROLLOUTS if kept.is_file() else "")
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        kept.rename(place)
        assert len(finals(tmp_path / "run")) >= 4
    (tmp_path / "env.py").write_text(VANISHING.replace("{what}", "pass"))
    line = ("t.jsonl", "--model", "oracle", "--env", "env.py:Sum", "--out", "run")
    gym("collect", *line, exit_code=0)
    assert len(finals(tmp_path / "run")) == 12


WAITING = (
    VANISHING.replace("{what}", "shutil.rmtree(RUN)")
    .replace(
        "            what()\n", "            what()\n            await asyncio.Event().wait()\n"
    )
    .replace("import itertools", "import asyncio\nimport itertools")
)


@pytest.mark.slow
def test_collect_ends_an_attempt_whose_record_could_not_be_written(tmp_path):
    """No further write would reveal the error, and the attempt would last an hour."""
    write_prompts(tmp_path / "t.jsonl", 5)
    (tmp_path / "env.py").write_text(WAITING)
    done = collect(tmp_path, "--concurrency", "1", "--max-run-time", "300", env="env.py:Sum")
    assert done.returncode == 4, done.stderr
    assert "run: was deleted while it was being written" in told(done)
    assert "max-run-time" not in done.stderr


def test_collect_from_python_says_that_the_file_is_gone(tmp_path):
    tasks, run = write_sums(tmp_path / "t.jsonl", 5), tmp_path / "run"

    async def run_it():
        async for _ in gymcli.collect(tasks, model="oracle", out=run, concurrency=1):
            (run / ROLLOUTS).unlink(missing_ok=True)

    with pytest.raises(
        RunDirectoryError, match=r"rollouts\.jsonl: was deleted while it was being writ"
    ):
        asyncio.run(run_it())
    asyncio.run(ended(tasks, model="oracle", out=run))
    assert len(finals(run)) == 5


UNPRIVILEGED = """
import os, sys
import gymcli.cli, gymcli.runner, gymcli.envs.arithmetic, uvloop
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
sys.argv[1:] = sys.argv[2:]
gymcli.cli.main()
"""
"""Runs a command as a user who is subject to file permissions."""

FORBIDDEN = [
    (["collect", "t.jsonl", "--model", "oracle", "--out", "closed/run"], 4, "closed/run: cannot"),
    (
        ["collect", "t.jsonl", "--model", "oracle", "--out", "run"],
        4,
        "run: cannot be written: Permis",
    ),
    (
        ["collect", "t.jsonl", "--model", "oracle", "--log-file", "closed/log"],
        2,
        "closed/log: Perm",
    ),
    (["data", "pull", "t.jsonl", "-o", "closed/out.jsonl"], 2, "closed/out.jsonl: cannot be writ"),
    (
        ["verify", "run", "--out", "closed/new"],
        4,
        "closed/new: cannot be created: Permission denied",
    ),
    (["metrics", "run"], 0, ""),
]


def is_read_by_all(path):
    """Return whether other users may enter a folder and all its parents."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


@pytest.mark.skipif(
    os.getuid() == 0 and not is_read_by_all(Path(sys.base_prefix)),
    reason="the tests run as root, and other users cannot read this Python's modules",
)
@pytest.mark.parametrize(("arguments", "code", "message"), FORBIDDEN)
def test_commands_that_may_not_write(tmp_path, arguments, code, message):
    """A failed command leaves no partial file, and reading still works."""
    write_sums(tmp_path / "t.jsonl", 2)
    assert collect(tmp_path).returncode == 0
    closed = tmp_path / "closed"
    closed.mkdir()
    for folder in (closed, tmp_path / "run"):
        folder.chmod(0o555)
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        if folder.owner() == Path.home().owner() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, "gym", *arguments],
        cwd=tmp_path,
        env={**unmeasured_environment(), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert message in done.stderr
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_collect_under_a_clock_that_jumps(tmp_path, monkeypatch):
    """Only points in time are read from that clock; durations are not."""
    now = iter(range(2_000_000_000, 0, -1_000_000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    tasks, run = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    asyncio.run(ended(tasks, model="oracle", out=run, limit=2))
    asyncio.run(ended(tasks, model="oracle", out=run))
    for line in lines_of(run / ROLLOUTS):
        timing = line["timing"]
        assert timing.pop("started_at") > 0
        assert all(seconds >= 0 for seconds in timing.values())
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    assert manifest["seconds"] >= 0
    assert manifest["ended_at"] < manifest["started_at"]
    assert len(finals(run)) == 3


@pytest.mark.slow
def test_a_record_that_is_longer_than_a_line_costs_its_own_attempt(tmp_path):
    """It could not be read again; the run continues, and the next command retries the attempt."""
    tasks, run = write_prompts(tmp_path / "t.jsonl", 2), tmp_path / "run"
    (tmp_path / "long.py").write_text(
        VANISHING.replace("{what}", "pass").replace(
            'content="anything"', 'content="x" * ((1 << 27) if rollout.task_id == "t0" else 9)'
        )
    )
    records = asyncio.run(ended(tasks, model="oracle", env=f"{tmp_path}/long.py:Sum", out=run))
    given = {record.task_id: type(record) for record in records}
    assert given == {"t0": Failure, "t1": Rollout}, "the returned records are those on disk"
    assert [line["task_id"] for line in lines_of(run / ROLLOUTS)] == ["t1"]
    (failure,) = lines_of(run / FAILURES)
    assert failure["error"]["message"] == "the record is longer than the limit of 128 MB"
    assert (failure["task_id"], "messages" in failure) == ("t0", False)
