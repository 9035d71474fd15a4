"""What is written reaches the disk, and is whole there at any time."""

import errno
import os
import threading

import pytest

from gymcli.errors import RunDirectoryError
from gymcli.store.durability import Syncer, replace_file, sync_folder, unwritable


def test_syncer_calls_until_it_is_closed():
    calls = threading.Semaphore(0)
    syncer = Syncer(calls.release, seconds=0.001)
    syncer.start()
    syncer.start()
    for _ in range(3):
        assert calls.acquire(timeout=30)
    assert [thread.name for thread in threading.enumerate()].count("gymcli sync") == 1
    syncer.close()
    syncer.close()
    while calls.acquire(blocking=False):
        pass
    assert "gymcli sync" not in [thread.name for thread in threading.enumerate()]
    syncer.start()
    assert calls.acquire(timeout=30)
    syncer.close()


def test_replace_file_writes_anew_and_leaves_nothing_else(tmp_path):
    for data in (b"one", b"two"):
        replace_file(tmp_path / "run.json", data)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
            ("run.json", data)
        ]


def test_replace_file_writes_through_no_link(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    for name in ("run.json", f".run.json.{os.getpid()}.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    replace_file(tmp_path / "run.json", b"one")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert (tmp_path / "run.json").read_bytes() == b"one"


def test_replace_file_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunDirectoryError, match=r"run\.json: cannot be written: Is a directory"):
        replace_file(tmp_path / "run.json", b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_replace_file_keeps_the_old_one_where_the_new_one_does_not_reach_the_disk(
    tmp_path, monkeypatch
):
    replace_file(tmp_path / "run.json", b"one")

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunDirectoryError, match=r"No space left on device; .*make room and run"):
        replace_file(tmp_path / "run.json", b"two")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.json", b"one")]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_sync_folder_heeds_what_a_disk_says(tmp_path, monkeypatch, code):
    """Some file systems know no sync of folders; a disk that fails is another matter."""

    def refuse(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    if code == errno.EINVAL:
        assert sync_folder(tmp_path) is None
    else:
        with pytest.raises(OSError, match="Input/output error"):
            sync_folder(tmp_path)


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.ENOSPC, "make room and run the same command to go on"),
        (errno.EDQUOT, "make room and run the same command to go on"),
        (errno.EROFS, "make it writable and run the same command to go on, or give --out"),
        (errno.EIO, "run the same command to go on"),
    ],
)
def test_unwritable_names_the_way_out(tmp_path, code, way_out):
    error = unwritable(tmp_path, OSError(code, "because"))
    assert str(error) == (
        f"{tmp_path}: cannot be written: because; what was written before stays valid, {way_out}"
    )
