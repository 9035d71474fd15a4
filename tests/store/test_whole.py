"""A run that stands in its directory when it is whole, and not before."""

import os

import pytest

from gymcli.errors import RunDirectoryError, UsageError
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.manifest import Manifest
from gymcli.store.run_directory import (
    FAILURES,
    ROLLOUTS,
    UNFINISHED,
    VERDICTS,
    check_unused,
    whole_run,
)

LINE = b'{"schema_version":1}'


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def write(path, *, then=None, keeps_unfinished=True):
    check_unused(path)
    with whole_run(path, NOTHING_SECRET, keeps_unfinished=keeps_unfinished) as directory:
        directory.append_rollout_line(LINE)
        if then is not None:
            then(directory)
        directory.write_manifest(Manifest())


def stop(_):
    raise KeyboardInterrupt


def test_whole_run_shows_nothing_before_its_end(tmp_path):
    run = tmp_path / "runs" / "new"
    seen = []
    write(run, then=lambda _: seen.append(names(run)))
    assert seen == [[".lock", UNFINISHED]]
    assert names(run) == [ROLLOUTS, "run.json"]
    assert (run / ROLLOUTS).read_bytes() == LINE + b"\n"


def test_whole_run_is_done_again_after_one_that_was_broken_off(tmp_path):
    """But for verdicts, which were paid for; their torn end is cut off."""
    run = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        write(run, then=stop)
    assert names(run) == [UNFINISHED]
    (run / UNFINISHED / VERDICTS).write_bytes(b'{"key":"k"}\n{"key')
    (run / UNFINISHED / FAILURES).write_bytes(LINE)
    (run / ".lock").write_bytes(b"7 elsewhere\n")
    write(run)
    assert names(run) == [ROLLOUTS, "run.json", VERDICTS]
    assert (run / ROLLOUTS).read_bytes() == LINE + b"\n"
    assert (run / VERDICTS).read_bytes() == b'{"key":"k"}\n'


def test_whole_run_that_is_not_kept_leaves_nothing_and_takes_nothing(tmp_path):
    run = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        write(run, then=stop, keeps_unfinished=False)
    assert not run.exists()
    (run / UNFINISHED).mkdir(parents=True)
    (run / UNFINISHED / VERDICTS).write_bytes(b'{"key":"k"}\n')
    write(run, keeps_unfinished=False)
    assert names(run) == [ROLLOUTS, "run.json"]


def test_whole_run_ends_what_died_while_it_was_shown(tmp_path):
    run = tmp_path / "new"
    (run / UNFINISHED).mkdir(parents=True)
    (run / FAILURES).write_bytes(LINE)
    write(run)
    assert names(run) == [ROLLOUTS, "run.json"]


@pytest.mark.parametrize("keeps_unfinished", [True, False])
def test_whole_run_is_one_process_s_alone(tmp_path, keeps_unfinished):
    """One that comes too late leaves what the other writes alone."""

    def again(_):
        with pytest.raises(RunDirectoryError, match="another process is writing this run"):
            write(tmp_path / "new", keeps_unfinished=keeps_unfinished)

    write(tmp_path / "new", then=again)
    assert names(tmp_path / "new") == [ROLLOUTS, "run.json"]


def test_whole_run_whose_lines_are_lost_is_not_shown(tmp_path):
    run = tmp_path / "new"
    with pytest.raises(RunDirectoryError, match=r"rollouts\.jsonl: was cut off"):
        write(run, then=lambda directory: os.truncate(directory.path / ROLLOUTS, 0))
    assert names(run) == [UNFINISHED]


@pytest.mark.parametrize("kind", ["file", "other files", "a run", "a link"])
def test_check_unused_refuses_what_is_another_s(tmp_path, kind):
    path = tmp_path / "new"
    if kind == "file":
        path.touch()
    else:
        path.mkdir()
        if kind == "other files":
            (path / "thesis.tex").touch()
        elif kind == "a run":
            (path / UNFINISHED).mkdir()
            (path / "run.json").touch()
        else:
            (tmp_path / "elsewhere").mkdir()
            (path / UNFINISHED).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="new: exists already; --out takes a new directory"):
        check_unused(path)


def test_check_unused_takes_what_is_not_there_and_what_is_empty(tmp_path):
    check_unused(tmp_path / "new")
    check_unused(tmp_path)
