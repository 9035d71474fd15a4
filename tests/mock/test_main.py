"""`python -m gymcli.mock`, as a process of its own."""

import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec
import pytest

from gymcli.mock.__main__ import main


@contextmanager
def running(*options: str):
    """Start the process and give it with its address; end it if the test did not."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gymcli.mock", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def ask(base_url: str, text: str) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        f"{base_url}/chat/completions", data=msgspec.json.encode(body), method="POST"
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        return msgspec.json.decode(response.read())["choices"][0]["message"]["content"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_main_serves_until_a_signal(number):
    with running("--behaviour", "fixed:fine", "--latency", "0.01") as (process, base_url):
        assert base_url.startswith("http://127.0.0.1:")
        assert ask(base_url, "how is it?") == "fine"
        process.send_signal(number)
        assert process.wait(10) == 0


def test_main_stops_with_its_parent():
    with running("--with-parent") as (process, base_url):
        assert ask(base_url, "still there?") == "still there?"
        process.stdin.write("what is written does not matter\n")
        process.stdin.close()
        process.stdin = None
        assert process.wait(10) == 0


def test_main_refuses_an_unknown_behaviour(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["--behaviour", "mirror"])
    assert raised.value.code == 2
    assert "no behaviour 'mirror'" in capsys.readouterr().err


def test_main_names_a_port_that_is_taken(mock_server, capsys):
    port = urlsplit(mock_server.base_url).port
    with pytest.raises(SystemExit) as raised:
        main(["--port", str(port)])
    assert raised.value.code == 2
    assert f"cannot listen on port {port}: " in capsys.readouterr().err
