"""Tests of servers in a thread, and of the `gym_mock` fixture for other projects."""

import urllib.request
from urllib.parse import urlsplit

import pytest

from gymcli.errors import UsageError
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.process import serving
from tests.mock.talking import ask

pytest_plugins = ["gymcli.mock.fixture"]


def test_gym_mock_starts_servers(gym_mock):
    first, second = gym_mock(), gym_mock("fixed:yes", latency="0.001", models=["m"], seed=3)
    assert ask(first.base_url, "hello") == "hello"
    assert ask(second.base_url, "hello") == "yes"
    assert [request.body["model"] for request in second.requests] == ["m"]
    assert (first.stats.num_requests, first.stats.by_status) == (1, {200: 1})


def test_gym_mock_takes_functions_and_faults(gym_mock):
    server = gym_mock(lambda request: MockAnswer(text="made"), faults=["500@broken"])
    assert ask(server.base_url, "hello") == "made"
    with pytest.raises(OSError, match="500"):
        ask(server.base_url, "broken")
    assert server.stats.faults == {"500": 1}


def test_gym_mock_names_what_is_wrong(gym_mock):
    with pytest.raises(UsageError, match='did you mean "stall"'):
        gym_mock(faults=["stal"])


def test_gym_mock_dies_and_logs(gym_mock, tmp_path):
    log = tmp_path / "log.jsonl"
    server = gym_mock(down_after="1r", down_for="0.01s", log=log)
    assert ask(server.base_url, "hello") == "hello"
    with pytest.raises(OSError, match=r"reset|refused|closed"):
        ask(server.base_url, "hello")
    assert log.read_bytes().startswith(b'{"started":')


def test_gym_mock_is_let_die_by_http(gym_mock):
    server = gym_mock()
    address = server.base_url.replace("/v1", "/down")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(address, method="POST"), timeout=30) as response:
        assert response.status == 200
    with pytest.raises(OSError, match="refused"):
        ask(server.base_url, "hello")


def test_serving_serves_while_the_block_lasts():
    with serving(MockServer()) as server:
        assert ask(server.base_url, "hello") == "hello"
    with pytest.raises(OSError, match="refused"):
        ask(server.base_url, "hello")


def test_serving_raises_what_the_server_raises():
    with serving(MockServer()) as server:
        taken = urlsplit(server.base_url).port
        with pytest.raises(OSError, match="in use"), serving(MockServer(port=taken)):
            raise AssertionError("two servers on one port")


def test_serving_ends_when_the_block_fails():
    with pytest.raises(KeyError), serving(MockServer()) as server:
        raise KeyError
    with pytest.raises(OSError, match="refused"):
        ask(server.base_url, "hello")
