"""Tests of forked processes: they equal new ones, and none survives the process that started it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.rollout.fork_server import fork
from tests.processes import TOO_LONG, state_of, wait_until


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Write a module that evaluates the lines it gets; return the class that forks it."""
    (tmp_path / "telling.py").write_text(
        "import os, socket, subprocess, sys\n"
        "def main(handle):\n"
        "    channel = socket.socket(fileno=handle)\n"
        "    for line in channel.makefile('rb'):\n"
        "        channel.sendall(repr(eval(line)).encode() + b'\\n')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    # A fork server of an earlier test would be used again, with the module of that test.
    monkeypatch.setattr("gymcli.rollout.fork_server._servers", {})
    return Telling


class Telling:
    """A fork of the module, and the socket to it."""

    def __init__(self, variables=None):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(TOO_LONG)
        with theirs:
            self.fork = fork("telling", theirs.fileno(), 2, variables or os.environ)
        self.socket.sendall(self.fork.preface)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.socket.close()
        self.fork.kill()
        self.fork.ended.result(TOO_LONG)

    def ask(self, expression):
        self.socket.sendall(expression.encode() + b"\n")
        return eval(self.socket.makefile("rb").readline())


def test_a_fork_has_what_this_process_has_now(told, tmp_path, monkeypatch):
    with told() as first:
        monkeypatch.setenv("LATER", "\udc80")
        monkeypatch.syspath_prepend("later")
        (tmp_path / "there").mkdir()
        monkeypatch.chdir(tmp_path / "there")
        with told() as second:
            assert second.ask("os.getppid()") == first.ask("os.getppid()")
            assert second.ask("os.environ['LATER'], os.getcwd(), sys.path[0]") == (
                "\udc80",
                str(tmp_path / "there"),
                "later",
            )
            assert first.ask("os.environ.get('LATER'), sys.path[0]") == (None, str(tmp_path))
            assert second.ask("os.getsid(0) == os.getpid()")
            assert second.ask("sorted(os.listdir('/proc/self/fd'))")[:3] == ["0", "1", "2"]


def test_a_fork_in_a_directory_that_is_gone(told, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with told() as telling:
        assert telling.ask("1 + 1") == 2


def test_a_fork_with_fewer_variables_has_a_parent_without_them(told, monkeypatch):
    """The memory of its parent does not hold them either."""
    monkeypatch.setenv("PLANTED", "value-of-it")
    with told() as knowing:
        fewer = {name: value for name, value in os.environ.items() if name != "PLANTED"}
        with told(fewer) as other:
            assert other.ask("os.getppid()") != knowing.ask("os.getppid()")
            for process in (other.ask("os.getpid()"), other.ask("os.getppid()")):
                assert b"value-of-it" not in Path(f"/proc/{process}/environ").read_bytes()
            assert knowing.ask("os.environ['PLANTED']") == "value-of-it"


@pytest.mark.parametrize(
    ("expression", "code"),
    [("os._exit(3)", 3), ("sys.exit(4)", 4), ("os.kill(os.getpid(), 11)", -signal.SIGSEGV)],
)
def test_how_a_fork_ended(told, expression, code):
    with told() as telling:
        wait_until(lambda: telling.fork.process)
        assert telling.ask("os.getpid()") == telling.fork.process
        assert not telling.fork.ended.done()
        telling.socket.sendall(expression.encode() + b"\n")
        assert telling.fork.ended.result(TOO_LONG) == code


def test_children_of_a_fork_end_with_it(told):
    with told() as telling:
        left = telling.ask("subprocess.Popen(['sleep', '600']).pid")
        telling.socket.close()
        assert telling.fork.ended.result(TOO_LONG) == 0
    wait_until(lambda: not state_of(left))


def test_a_fork_whose_fork_server_was_killed(told):
    with told() as telling:
        process = telling.ask("os.getpid()")
        server = telling.ask("os.getppid()")
        os.kill(server, signal.SIGKILL)
        assert telling.fork.ended.result(TOO_LONG) == -signal.SIGKILL
        wait_until(lambda: not state_of(process))
        wait_until(lambda: not state_of(server))  # a server that is still dying would be used
        with told() as another:
            assert another.ask("1 + 1") == 2


PARENT = """
import os, socket, sys
from gymcli.rollout.fork_server import fork
from tests.processes import TOO_LONG, state_of, wait_until
ours, theirs = socket.socketpair()
forked = fork("telling", theirs.fileno(), 2, os.environ)
ours.sendall(forked.preface + b"os.getpid(), os.getppid()\\n")
print(ours.makefile("rb").readline().decode(), flush=True)
ours.sendall(b"10**10**8\\n")
sys.stdin.read()
if "crash" in sys.argv:
    os.abort()
"""


@pytest.mark.parametrize("how", ["kill", "crash", "end"])
def test_nothing_outlives_the_process_that_asked(told, tmp_path, how):
    """This includes a fork that computes without releasing the interpreter."""
    del told
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", PARENT, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
    ) as parent:
        processes = eval(parent.stdout.readline())
        assert all(map(state_of, processes))
        if how == "kill":
            parent.kill()
    wait_until(lambda: not any(map(state_of, processes)))
