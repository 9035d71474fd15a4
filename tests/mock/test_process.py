"""Servers in a thread."""

from urllib.parse import urlsplit

import pytest

from gymcli.mock import MockServer
from gymcli.mock.process import serving
from tests.mock.talking import ask


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
