"""A plugin of pytest that writes every call of a NeMo Gym server's `verify` to a file.

It runs with NeMo Gym's own unit tests in its virtual environment, where gymcli is not installed.
"""

import functools
import json
import os
from pathlib import Path

import pytest
from nemo_gym.base_resources_server import BaseVerifyRequest, SimpleResourcesServer


@pytest.fixture(autouse=True)
def _recorded_calls(request, monkeypatch):
    # A class may inherit `verify`, which is replaced where it is defined.
    owners = {
        next(parent for parent in server.__mro__ if "verify" in vars(parent))
        for server in _servers(SimpleResourcesServer)
    }
    for owner in owners:
        monkeypatch.setattr(owner, "verify", _recording(owner.verify, request.node.name))


def _servers(parent):
    for server in parent.__subclasses__():
        yield server
        yield from _servers(server)


def _recording(verify, test):
    """Return a `verify` that appends its request, its configuration and its reward to the file."""

    @functools.wraps(verify)
    async def recording(server, *arguments, **named):
        values = (*arguments, *named.values())
        # Before the call, which may change them. Some tests pass a mock instead.
        bodies = [v.model_dump(mode="json") for v in values if isinstance(v, BaseVerifyRequest)]
        config = getattr(server, "config", None)
        # Only what the test sets, so that our defaults are compared with the server's.
        options = config.model_dump(mode="json", exclude_unset=True) if config else {}
        response = await verify(server, *arguments, **named)
        with Path(os.environ["RECORDED_CALLS"]).open("a") as file:
            for body in bodies:
                row = {"test": test, "config": options, "body": body, "reward": response.reward}
                file.write(json.dumps(row) + "\n")
        return response

    return recording
