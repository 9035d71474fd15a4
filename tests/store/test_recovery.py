"""Resuming: whatever is cut off a run's files, the same command completes the run."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gymcli
from gymcli.errors import RunFileError
from gymcli.store.rollout_files import FAILURES, GENERATIONS, ROLLOUTS, VERDICTS
from tests.builders import lines_of, write_prompts, write_sums
from tests.runner.test_roles import JUDGED, collected, failing_at

TOGETHER = "tests.runner.environments:JudgedTogether"


def finals(run):
    """Return the reward and messages of each attempt."""
    lines = lines_of(run / ROLLOUTS)
    found = {
        (line["task_id"], line.get("attempt", 0)): (line.get("reward"), line["messages"])
        for line in lines
    }
    assert len(found) == len(lines), "an attempt is recorded twice"
    return found


def cut(run, copy, name, size):
    """Copy a run with one of its files truncated."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    with (copy / name).open("r+b") as file:
        file.truncate(size)


@pytest.fixture
def quick_disk():
    """Yield a folder in memory if possible, as thousands of syncs to a disk are slow."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


async def ended(*arguments, **options):
    return [record async for record in gymcli.collect(*arguments, **options)]


@pytest.mark.slow
def test_a_run_is_completed_wherever_its_rollouts_were_cut(quick_disk):
    tasks, run, copy = (quick_disk / name for name in ("t.jsonl", "run", "copy"))
    write_sums(tasks, 1)
    asyncio.run(ended(tasks, model="oracle", out=run))
    expected = finals(run)
    data = (run / ROLLOUTS).read_bytes()

    async def complete_all():
        # Each run starts a worker, so all sizes would take minutes: the last bytes and samples do.
        for size in sorted({*range(0, len(data), 41), *range(len(data) - 12, len(data) + 1)}):
            cut(run, copy, ROLLOUTS, size)
            records = await ended(tasks, model="oracle", out=copy)
            assert len(records) == (size < len(data) - 1), size
            assert finals(copy) == expected, size

    asyncio.run(complete_all())


def made_run(folder, env):
    """Return tasks and a finished run of them that has every kind of file."""
    tasks, run = write_prompts(folder / "t.jsonl", 3), folder / "run"
    options = {"env": env, "repeats": 2, "out": run}
    collected(tasks, judge=failing_at(3), **options)
    collected(tasks, **options)
    assert all((run / name).stat().st_size for name in (FAILURES, GENERATIONS, VERDICTS))
    return tasks, run


@pytest.fixture(scope="module")
def judged_run(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("judged"), JUDGED)


@pytest.fixture(scope="module")
def group_run(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("groups"), TOGETHER)


@pytest.mark.slow
@settings(max_examples=40)
@given(data=st.data())
def test_a_run_of_groups_is_completed_wherever_a_file_was_cut(group_run, tmp_path_factory, data):
    """Scores, conversations and verdicts of groups are in separate files."""
    tasks, run = group_run
    name = data.draw(st.sampled_from([ROLLOUTS, FAILURES, GENERATIONS, VERDICTS]))
    size = data.draw(st.integers(0, (run / name).stat().st_size))
    copy = tmp_path_factory.getbasetemp() / "group copy"
    cut(run, copy, name, size)
    _, policy, _ = collected(tasks, env=TOGETHER, repeats=2, out=copy)
    assert finals(copy) == finals(run)
    assert policy.requests == []


@pytest.mark.slow
@settings(max_examples=15)
@given(data=st.data())
def test_a_run_is_completed_whatever_ends_of_its_files_are_nul_bytes(
    judged_run, tmp_path_factory, data
):
    """After a power failure, files may have their length but not all of their content."""
    tasks, run = judged_run
    copy = tmp_path_factory.getbasetemp() / "nul copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    for name in (ROLLOUTS, FAILURES, GENERATIONS, VERDICTS):
        length = (copy / name).stat().st_size
        start = data.draw(st.integers(0, length))
        with (copy / name).open("r+b") as file:
            file.seek(start)
            file.write(b"\0" * (length - start))
    collected(tasks, env=JUDGED, repeats=2, out=copy)
    assert finals(copy) == finals(run)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        (ROLLOUTS, "delete the line: its attempt is collected again"),
        (GENERATIONS, "delete the line: its attempt is collected again"),
        (VERDICTS, "delete the line: the judge is asked again"),
    ],
)
def test_a_damaged_line_in_the_middle_is_named_with_the_way_out(
    judged_run, tmp_path, name, way_out
):
    tasks, run = judged_run
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\0" * len(lines[1]) + b"\n", *lines[2:]]))
    with pytest.raises(RunFileError, match=rf"{name}:2: is damaged: .*; {way_out}"):
        collected(tasks, env=JUDGED, repeats=2, out=tmp_path / "run")
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    collected(tasks, env=JUDGED, repeats=2, out=tmp_path / "run")
    assert finals(tmp_path / "run") == finals(run)
