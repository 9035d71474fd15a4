"""Tests that every server listens only to this machine unless it is told otherwise."""

import asyncio
import subprocess
import sys

import pytest

from gymcli.mock import MockServer
from gymcli.models.local_model import LocalServer, default_weights
from tests.builders import clean_environment
from tests.models.test_local import needs_model

OTHER_ADDRESS = "127.0.0.2"
"""On Linux another address of this machine, where a server on all addresses would answer."""


async def assert_listens_to_loopback_alone(base_url):
    port = int(base_url.removeprefix("http://127.0.0.1:").partition("/")[0])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await writer.wait_closed()
    with pytest.raises(OSError, match=r".+"):
        await asyncio.open_connection(OTHER_ADDRESS, port)


async def listens_as_told():
    async with MockServer() as server:
        await assert_listens_to_loopback_alone(server.base_url)


def test_mock_server_listens_to_loopback_alone():
    asyncio.run(listens_as_told())


def test_mock_command_listens_to_loopback_alone():
    command = [sys.executable, "-c", "from gymcli.cli import main; main()", "mock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment()) as process:
        try:
            base_url = process.stdout.readline().decode().strip()
            asyncio.run(assert_listens_to_loopback_alone(base_url))
        finally:
            process.terminate()


@needs_model
@pytest.mark.slow
async def test_embedded_model_listens_to_loopback_alone():
    async with LocalServer(default_weights()) as server:
        await assert_listens_to_loopback_alone(server.base_url)
