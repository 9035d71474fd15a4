"""The lock of a run directory: one holder, named if known, and released by its death."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from gymcli.errors import RunDirectoryError
from gymcli.store.locking import LOCK, RunLock

HOLD = """
import asyncio, os, sys
from pathlib import Path
from gymcli.rollout.worker_pool import ProcessPool, RequestKind
from gymcli.store.locking import RunLock

lock = RunLock(Path(sys.argv[1]))
lock.take()
forked = os.fork()
if not forked:
    os.close(1)
    sys.stdin.read()
    os._exit(0)

async def start():
    pool = ProcessPool("gymcli.rollout.verifier_worker", 1, variables=lambda: os.environ)
    pool.warm(RequestKind(b"{}", "", 60.0))
    return pool

started = asyncio.run(start()) if "worker" in sys.argv else None
print(os.getpid(), forked, flush=True)
sys.stdin.read()
"""
"""Holds a run until its stdin ends, with a forked child and a worker."""


@contextmanager
def holding(path, *more):
    """Yield a process that holds a run's lock, and the id of the child that it forked."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, path, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            forked = int(process.stdout.readline().split()[1])
            yield process, forked
        finally:
            process.kill()


def refusal(path):
    with pytest.raises(RunDirectoryError) as caught:
        RunLock(path).take()
    return str(caught.value)


def test_take_makes_the_directory_and_free_leaves_it_as_it_was(tmp_path):
    path = tmp_path / "runs" / "one"
    lock = RunLock(path)
    lock.take()
    assert [entry.name for entry in path.iterdir()] == [LOCK]
    lock.free()
    lock.free()
    assert list(path.iterdir()) == []
    lock.take()
    lock.free()


def test_take_names_the_process_that_holds_the_run(tmp_path):
    with holding(tmp_path) as (process, _):
        assert refusal(tmp_path) == (
            f"{tmp_path}: another process is writing this run (process {process.pid} on "
            f"{socket.gethostname()}); wait for it or use another --out"
        )


def test_take_after_the_holder_was_killed_while_its_children_live(tmp_path):
    """The children that a holder started or forked do not hold the lock."""
    with holding(tmp_path, "worker") as (process, forked):
        process.kill()
        process.wait()
        os.kill(forked, 0)
        assert (tmp_path / LOCK).read_text().startswith(f"{process.pid} ")
        lock = RunLock(tmp_path)
        lock.take()
        os.kill(forked, 0)
        lock.free()


def test_take_names_no_process_that_is_dead(tmp_path):
    """The holder of the folder's lock has not written its id yet; the file is an older holder's."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    (tmp_path / LOCK).write_text(f"{dead.pid} {socket.gethostname()}\n")
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert "another process is writing this run; wait" in refusal(tmp_path)
    os.close(folder)


@pytest.mark.parametrize(
    ("content", "holder"),
    [
        ("77 elsewhere\n", " (process 77 on elsewhere)"),
        ("", ""),
        ("\0\0\0", ""),
        ("one two three", ""),
        ("many elsewhere", ""),
        (f"{10**30} {socket.gethostname()}", ""),
    ],
)
def test_take_heeds_the_lock_of_another_machine(tmp_path, content, holder):
    """Network file systems share the lock of the file, but not that of the folder."""
    (tmp_path / LOCK).write_text(content)
    other = os.open(tmp_path / LOCK, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert f"another process is writing this run{holder}; wait for it" in refusal(tmp_path)
    os.close(other)
    lock = RunLock(tmp_path)
    lock.take()
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()} {socket.gethostname()}\n"
    lock.free()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_take_refuses_a_file_system_that_cannot_lock(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert "its file system cannot lock (" in refusal(tmp_path)
    monkeypatch.undo()
    lock = RunLock(tmp_path)
    lock.take()
    lock.free()


@pytest.mark.parametrize("path", ["file", "file/run", "n" * 300])
def test_take_says_that_a_directory_cannot_be_made(tmp_path, path):
    (tmp_path / "file").write_bytes(b"")
    assert f"{path}: cannot be created: " in refusal(tmp_path / path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_displaced_says_what_became_of_the_directory(tmp_path):
    lock = RunLock(tmp_path / "run")
    assert lock.displaced() is None
    lock.take()
    assert lock.displaced() is None
    (tmp_path / "run").rename(tmp_path / "moved")
    assert "run: was moved or replaced while it was being written; move it back" in lock.displaced()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).write_text("another's")
    lock.free()
    assert (tmp_path / "run" / LOCK).read_text() == "another's"


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe"])
def test_take_writes_into_no_file_but_its_own(tmp_path, kind):
    """A run may belong to somebody else, and its lock file may be a link."""
    (tmp_path / "victim").write_bytes(b"precious")
    run = tmp_path / "run"
    run.mkdir()
    if kind == "pipe":
        os.mkfifo(run / LOCK)
    else:
        (run / LOCK).symlink_to(tmp_path / ("victim" if kind == "link" else "gone"))
    assert (
        "run: cannot be written: .lock is not a regular file (a link, a pipe or a device)"
        in refusal(run)
    )
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "gone").exists()


def test_take_registers_its_fork_handler_once(tmp_path, monkeypatch):
    """A fork handler cannot be unregistered."""
    registered = []
    monkeypatch.setattr(os, "register_at_fork", lambda **calls: registered.append(calls))
    for _ in range(3):
        lock = RunLock(tmp_path)
        lock.take()
        lock.free()
    assert len(registered) <= 1
