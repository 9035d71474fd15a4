"""Tests of joining or starting a Ray cluster: errors, timeouts, and signals meanwhile."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

import pytest

from gymcli.benchmarks.resolution import task_inputs
from gymcli.errors import EngineError, MissingPackageError, UsageError
from gymcli.library.run_collection import engine_of_run
from gymcli.ray.driver import JOIN_SECONDS, RayEngine, check_address
from gymcli.runner.collect_options import CollectOptions
from tests.builders import FLAKY, clean_environment, gym, gym_process

on_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'gymcli[ray]'")

TOO_LONG = 300.0
"""Seconds after which a process is taken to hang: far more than any machine needs."""

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}

ENV = ("--env", "flaky.py:Flaky")
COLLECT = ("collect", "tasks.jsonl", "--model", "oracle", *ENV)


@pytest.fixture(autouse=True)
def _stay_on_loopback(monkeypatch):
    """Keep Ray from replacing 127.0.0.1 with the machine's address in the network."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


class Silent:
    """Accepts connections on the loopback address and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._is_closed = False
        self._taken: SimpleQueue[socket.socket] = SimpleQueue()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while not self._is_closed:
            self._taken.put(self._listener.accept()[0])

    def taken(self) -> socket.socket:
        """Wait for the next connection."""
        connection = self._taken.get(timeout=TOO_LONG)
        connection.settimeout(TOO_LONG)
        return connection

    def close(self) -> None:
        """Stop accepting, and close all connections."""
        self._is_closed = True
        socket.create_connection(("127.0.0.1", self.port)).close()  # ends the thread
        self._thread.join()
        self._listener.close()
        while not self._taken.empty():
            self._taken.get().close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    """Yield a listener that is not a cluster and never answers."""
    listening = Silent()
    yield listening
    listening.close()


@pytest.mark.parametrize(
    "address", ["head:6379", "10.0.0.1:6379", "[::1]:6379", "ray://head:10001", "auto"]
)
def test_check_address(address):
    check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("", ":6379", "head:", "head:port", "head:0", "head:65536", "::1:6379", "[::1:6379"),
        *("ray://head", "ray://", "://head:1", "head:1/path", "user@head:1", "head:1\n"),
        *("local", "name", "service://name"),
    ],
)
def test_check_address_refuses_what_is_none(address):
    with pytest.raises(UsageError, match="such as HOST:6379"):
        check_address(address)


@on_ray
def test_malformed_address_ends_a_command_before_it_begins(tmp_path, monkeypatch):
    begin(tmp_path, monkeypatch)
    ray = ("--engine", "ray", "--address", "head:port")
    assert_refused(gym(*COLLECT, "--out", "other", *ray), 2, "head:port: is not the address")
    assert not Path("other").exists()
    assert_refused(gym("verify", "run", *ENV, *ray), 2, "head:port: is not the address")
    assert_refused(
        gym("verify", "run", "--pending", *ENV, *ray), 2, "head:port: is not the address"
    )


@pytest.mark.slow
@on_ray
def test_address_where_nothing_listens(tmp_path, monkeypatch):
    """One line names what, where and the way out, without Ray's own messages."""
    begin(tmp_path, monkeypatch)
    Path("broken").touch()
    gym(*COLLECT, "--out", "waits", exit_code=4)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # reserved, but not listening
        address = f"127.0.0.1:{held.getsockname()[1]}"
        ray = ("--engine", "ray", "--address", address)
        said = f"error: Ray at --address {address}: nothing listens at {address} (Connection refu"
        collected = gym(*COLLECT, "--out", "other", "--quiet", *ray)
        assert_refused(collected, 4, said)
        assert collected.stderr.count("\n") == 1
        assert "`ray start --head`" in collected.stderr
        assert_refused(gym("verify", "run", *ENV, *ray), 4, said)
        assert_refused(gym("verify", "waits", "--pending", *ENV, *ray), 4, said)


def assert_refused(result, exit_code: int, said: str) -> None:
    assert result.exit_code == exit_code, result.stderr
    assert said in result.stderr


def begin(folder: Path, monkeypatch) -> None:
    """Write an environment and a run of it."""
    monkeypatch.chdir(folder)
    Path("flaky.py").write_text(FLAKY)
    Path("tasks.jsonl").write_text('{"id": "1", "prompt": "Go."}\n')
    gym(*COLLECT, "--out", "run", "--quiet", exit_code=0)


@pytest.mark.slow
@on_ray
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_address_of_a_web_server(mock_server, scheme):
    """Only the timeout shows that it is not a cluster."""
    address = scheme + mock_server.base_url.removeprefix("http://").removesuffix("/v1")
    with pytest.raises(EngineError, match=f"--address {address}: .*; use the HOST:PORT"):
        join(address, seconds=3)


def join(address: str, *, seconds: int) -> None:
    """Join a cluster and leave it."""
    with RayEngine(address, 1, join_seconds=seconds) as engine:
        engine.start().result()


@on_ray
def test_address_of_an_unknown_host():
    with pytest.raises(EngineError, match="the host fe80::1%none is unknown"):
        join("[fe80::1%none]:6379", seconds=30)


@on_ray
def test_joining_is_over_in_time(silent):
    """The address accepts connections but never answers."""
    assert JOIN_SECONDS == 30
    with pytest.raises(EngineError, match="joining took longer than 1 seconds; use the HOST:PORT"):
        join(silent.address, seconds=1)


@on_ray
def test_joining_is_given_up_where_the_engine_is_closed(silent):
    """The process that waits for an answer ends, which closes its connection."""
    with RayEngine(silent.address, 1, join_seconds=int(TOO_LONG)) as engine:
        joining = engine.start()
        connection = silent.taken()
    with connection:
        assert isinstance(joining.exception(), EngineError)
        while connection.recv(1024):
            pass


@pytest.mark.slow
@on_ray
@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, (*COLLECT, "--out", "other")),
        (signal.SIGTERM, (*COLLECT, "--out", "other")),
        (signal.SIGINT, ("verify", "run", *ENV)),
        (signal.SIGTERM, ("verify", "waits", "--pending", *ENV)),
    ],
)
def test_a_signal_ends_a_command_that_waits_for_a_cluster(
    tmp_path, monkeypatch, silent, number, line
):
    """The first signal ends it, and the process that joins the cluster ends before the command."""
    begin(tmp_path, monkeypatch)
    Path("broken").touch()
    gym(*COLLECT, "--out", "waits", exit_code=4)
    process = started(*line, "--engine", "ray", "--address", silent.address)
    try:
        connection = silent.taken()
        process.send_signal(number)
        said = process.communicate(timeout=TOO_LONG)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == CODES[number], said
    assert said.splitlines()[-1].startswith(WORDS[number])
    assert "Traceback" not in said
    assert "GCS" not in said
    # The connection closes when the process that joins has ended.
    with connection:
        while connection.recv(1024):
            pass


def started(*line: str | Path) -> subprocess.Popen[str]:
    """Start a command in a separate process."""
    return subprocess.Popen(
        gym_process(*line),
        env={**clean_environment(), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@on_ray
@pytest.mark.slow
def test_a_signal_while_an_own_cluster_starts_leaves_nothing(tmp_path, monkeypatch):
    """No process and no folder is left."""
    begin(tmp_path, monkeypatch)
    Path("broken").touch()
    gym(*COLLECT, "--out", "waits", exit_code=4)
    process = started("verify", "waits", "--pending", *ENV, "--engine", "ray", "--workers", "1")
    try:
        while not (folders := folders_of_children(process.pid)):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
            assert process.returncode is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=TOO_LONG)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert said == "interrupted\n"
    assert not [folder for folder in folders if folder.exists()]


def folders_of_children(pid: int) -> set[Path]:
    """Return the folders of the clusters that the children of a process were started with."""
    asked = ["ps", "-A", "-ww", "-o", "ppid=,args="]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    words = [word for line in lines if line.split()[0] == str(pid) for word in line.split()]
    names = [word.partition("/gym-ray-")[2].partition("/")[0] for word in words]
    return {Path(f"/tmp/gym-ray-{name}") for name in names if name}


@on_ray
@pytest.mark.slow
def test_joining_with_a_wrong_token(ray_address, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    with pytest.raises(EngineError, match="; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN"):
        join(ray_address, seconds=30)


def test_collect_without_ray_says_how_to_get_it(tmp_path, working_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = gym("collect", "arithmetic", "--model", "oracle", "--engine", "ray", exit_code=2)
    assert "pip install 'gymcli[ray]'" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("more", [(), ("--pending",)])
def test_verify_without_ray_says_how_to_get_it(working_folder, monkeypatch, more):
    assert gym("collect", "arithmetic", "--model", "oracle", "--limit", "2", "--out", "run").output
    monkeypatch.setitem(sys.modules, "ray", None)
    result = gym("verify", "run", "--engine", "ray", *more, exit_code=2)
    assert "pip install 'gymcli[ray]'" in result.stderr
    gym("verify", "run/rollouts.jsonl", "--engine", "ray", exit_code=2)
    gym("verify", "run", "--workers", "2", exit_code=2)


def test_collection_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError):
        engine_of_run(task_inputs(["arithmetic"]), CollectOptions(model="oracle", engine="ray"))


@pytest.mark.parametrize("option", [("--address", "auto"), ("--workers", "2")])
def test_collect_options_of_a_cluster_without_one(working_folder, option):
    result = gym("collect", "arithmetic", "--model", "oracle", *option, exit_code=2)
    assert "--engine ray" in result.stderr


def test_collect_locally_imports_nothing_of_ray():
    code = (
        "import sys; from gymcli.cli import main; import gymcli.ray.driver\n"
        "sys.exit(any(name.partition('.')[0] == 'ray' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
