"""Tests of `gym view`: its address, its end, and what it refuses."""

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import msgspec
import pytest

from tests.builders import clean_environment, gym, gym_process
from tests.reporting.viewer_runs import rollout, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [rollout("a"), rollout("b")])


@contextmanager
def process(*arguments, **options):
    """Run `gym view` as a process; yield it and its address."""
    command = gym_process("view", *arguments)
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": clean_environment()}
    with subprocess.Popen(command, **{**given, **options}) as server:
        try:
            yield server
        finally:
            if server.poll() is None:
                server.kill()


def test_view_serves_until_it_is_told_to_end(run):
    with process(run, run, "--no-open") as server:
        address = server.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:")
        assert len(address.split("/")[3]) >= 32
        with urllib.request.urlopen(f"{address}api/list", timeout=60) as answer:
            assert msgspec.json.decode(answer.read())["num_rows"] == 2
        server.send_signal(signal.SIGINT)
        rest, errors = server.communicate(timeout=60)
    assert (server.returncode, rest) == (0, b"")
    assert errors.decode().splitlines() == [f"reading {run}"] * 2


def test_view_takes_the_port_that_is_given_and_says_when_it_is_taken(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = gym("view", run, "--port", str(port))
    assert refused.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}: " in refused.stderr.splitlines()[-1]
    with process(run, "--port", str(port), "--no-open") as server:
        assert server.stdout.readline().startswith(f"http://127.0.0.1:{port}/".encode())


def test_view_opens_a_browser_at_a_terminal(run, tmp_path):
    script = tmp_path / "browser.py"
    script.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])")
    pipe = tmp_path / "opened"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # opening it does not wait for a writer
    browser = f"{sys.executable} {script} {pipe} %s"
    variables = {**clean_environment(), "BROWSER": browser}
    ours, theirs = pty.openpty()
    try:
        with process(run, stdout=theirs, env=variables) as server:
            assert select.select([reader], [], [], 60)[0], "no browser was opened"
            opened = os.read(reader, 4096).decode()
            server.terminate()
            server.communicate(timeout=60)
        assert server.returncode == 0
        assert os.read(ours, 4096).decode().strip() == opened
    finally:
        os.close(reader)
        os.close(ours)
        os.close(theirs)
    assert opened.startswith("http://127.0.0.1:")


def test_view_says_what_is_wrong_in_a_line(run, tmp_path):
    (tmp_path / "empty").mkdir()
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(b"")
    for arguments, words in (
        ((tmp_path / "none",), "no such run directory"),
        ((tmp_path / "empty",), "holds no rollouts.jsonl"),
        ((bad,), "bad.jsonl:1: is not a rollout"),
        ((packed,), "is compressed"),
        ((run, run, run), "shows at most 2 runs, not 3"),
    ):
        refused = gym("view", *arguments)
        assert refused.exit_code == 2, arguments
        assert words in refused.stderr.splitlines()[-1]
    gym("view", run, "--port", "70000", exit_code=2)
    gym("view", exit_code=2)
