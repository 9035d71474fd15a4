"""Tests of `gym mock` as a process, and of its messages about wrong options."""

import signal
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from gymcli.mock import Faults, MockServer
from gymcli.mock.process import serving
from tests.builders import clean_environment, gym, gym_process, lines_of
from tests.mock.talking import ask

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def running(*options: str | Path, number: signal.Signals = signal.SIGTERM, **variables: str):
    """Start the process and yield it with its address; it ends well at a signal.

    If the test has ended the process, no signal is sent.
    """
    process = subprocess.Popen(
        gym_process("mock", *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), **variables},
    )
    try:
        yield process, process.stdout.readline().strip()
        process.send_signal(number)
        assert process.wait(30) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    finally:
        process.kill()
        process.communicate()


def get(address: str, *, method: str = "GET", **headers: str) -> dict:
    request = urllib.request.Request(address, method=method, headers=headers)
    with OPENER.open(request, timeout=30) as response:
        return msgspec.json.decode(response.read())


def stats(base_url: str) -> dict:
    return get(base_url.replace("/v1", "/stats"))


def test_mock_stops_while_a_request_stalls():
    with running("--fault", "stall") as (process, base_url):
        address = urlsplit(base_url)
        with socket.create_connection((address.hostname, address.port)) as waiting:
            body = b'{"model":"m","input":"wait"}'
            head = f"POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
            waiting.sendall(head.encode() + body)
            while not stats(base_url)["in_flight"]:
                pass
            process.terminate()
            assert process.wait(30) == 0


def test_mock_stops_with_its_parent():
    with running("--with-parent") as (process, base_url):
        assert ask(base_url, "still there?") == "still there?"
        process.stdin.write("what is written does not matter\n")
        process.stdin.close()
        process.stdin = None
        assert process.wait(30) == 0


def test_mock_heeds_its_options(tmp_path):
    log = tmp_path / "log.jsonl"
    options = ["--fault", "500@broken", "--model", "m", "--model", "n", "--log", log]
    options += ["--api-key-env", "MOCK_KEY"]
    with running(*options, number=signal.SIGHUP, MOCK_KEY="sekret") as (_, base_url):
        assert base_url.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{base_url}/models")
        models = get(f"{base_url}/models", Authorization="Bearer sekret")
        assert [model["id"] for model in models["data"]] == ["m", "n"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(base_url, "broken")
        assert stats(base_url)["by_status"] == {"401": 1}
        assert [line["status"] for line in lines_of(log)] == [401]


def test_mock_draws_by_its_seed():
    """Two processes with one seed refuse the same texts: `gym mock` and this one."""
    texts = [str(number) for number in range(16)]

    def refused(seed: int) -> list[bool]:
        with serving(MockServer(faults=Faults.parse(["500=0.5"]), seed=seed)) as server:
            return [is_refused(server.base_url, text) for text in texts]

    with running("--fault", "500=0.5", "--seed", "5") as (_, base_url):
        first = [is_refused(base_url, text) for text in texts]
    assert first == refused(5)
    assert first != refused(6)


def is_refused(base_url: str, text: str) -> bool:
    try:
        return ask(base_url, text) != text
    except urllib.error.HTTPError as error:
        error.close()
        return True


def test_mock_dies_and_is_brought_back():
    options = ("--down-after", "1r", "--down-for", "for-ever")
    with running(*options) as (process, base_url):
        assert ask(base_url, "first") == "first"
        with pytest.raises(OSError, match=r"reset|refused|closed"):
            ask(base_url, "second")
        with pytest.raises(OSError, match="refused"):
            ask(base_url, "third")
        process.send_signal(signal.SIGUSR1)
        while not is_listening(base_url):
            pass
        assert ask(base_url, "fourth") == "fourth"
        assert stats(base_url)["faults"] == {"down": 1}


def is_listening(base_url: str) -> bool:
    address = urlsplit(base_url)
    try:
        socket.create_connection((address.hostname, address.port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_mock_records_what_it_plays(tmp_path, mock_server: MockServer):
    path = tmp_path / "session.jsonl"
    mock_server.behaviour = lambda request: "from the endpoint"
    recording = ("--record", path, "--base-url", mock_server.base_url, "--api-key-env", "KEY")
    log = tmp_path / "log.jsonl"
    variables = {"KEY": "sk-planted", "HTTP_PROXY": "http://127.0.0.1:9"}
    with running(*recording, "--log", log, **variables) as (_, base_url):
        assert ask(base_url, "hello") == "from the endpoint"
        assert ask(base_url, "is it sk-planted?") == "from the endpoint"
    assert received_keys(mock_server) == ["Bearer sk-planted"] * 2
    for file in (path, log):
        assert len(lines_of(file)) == 2
        assert "sk-planted" not in file.read_text()
    options = ("--behaviour", f"script:{path}", "--latency", "0.01")
    with running(*options, number=signal.SIGINT) as (_, base_url):
        assert ask(base_url, "hello") == "from the endpoint"


def received_keys(server: MockServer) -> list[str]:
    return [received.headers["Authorization"] for received in server.requests]


def test_mock_names_a_key_that_cannot_be_sent(monkeypatch):
    monkeypatch.setenv("KEY", "sk-planted\nX: y")
    done = gym("mock", "--api-key-env", "KEY")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: --api-key-env KEY: its value cannot be sent in an HTTP header\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--behaviour mirror", "mirror: is not one of echo, fixed:TEXT, script:FILE.jsonl"),
        ("--behaviour scrpt:x", 'script:FILE.jsonl; did you mean "script"?'),
        ("--behaviour script:none.jsonl", "none.jsonl: cannot be read: No such file"),
        ("--fault stal=0.2", '--fault stal=0.2: no fault "stal"; did you mean "stall"?'),
        ("--fault 500=2", "--fault 500=2: the rate must be a number from 0 to 1"),
        ("--latency unifrom:0:1", 'no distribution "unifrom"; did you mean "uniform"?'),
        ("--down-after soon", "--down-after soon: expected 5s or 100r"),
        ("--down-for 5s", "--down-for 5s: needs --down-after"),
        ("--down-after 5s --down-for ever", "--down-for ever: expected 20s or for-ever"),
        ("--api-key-env NOT_THERE", "--api-key-env NOT_THERE: the variable is not set"),
        ("--record s.jsonl", "--record s.jsonl: needs --base-url, the endpoint to record"),
        ("--base-url http://h/v1", "--base-url: needs --record, the file to write"),
        (
            "--record s.jsonl --base-url h",
            "--base-url: the base URL must look like https://host/v1",
        ),
        (
            "--record s.jsonl --base-url http://h/v1 --behaviour fixed:x",
            "--record s.jsonl: cannot be combined with --behaviour fixed:x",
        ),
        ("--log none/log.jsonl", "--log none/log.jsonl: No such file or directory"),
    ],
)
def test_mock_names_what_is_wrong(options, complaint, tmp_path, working_folder):
    done = gym("mock", *options.split())
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert complaint in line
    assert list(tmp_path.iterdir()) == []


def test_mock_names_a_port_that_is_taken(mock_server: MockServer):
    port = urlsplit(mock_server.base_url).port
    done = gym("mock", "--port", str(port))
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")


def test_mock_warns_where_others_can_reach_it():
    """The log cannot be written, so that no port is opened."""
    done = gym("mock", "--host", "0.0.0.0", "--log", "none/log.jsonl", exit_code=2)
    warning, error = done.stderr.splitlines()
    assert warning == "warning: --host 0.0.0.0: other machines may reach the server"
    assert error.startswith("error: --log none/log.jsonl: ")
