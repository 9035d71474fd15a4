"""Tests that an episode through LiteLLM's proxy, with the mock server behind it, is the same.

`make litellm` installs the proxy.
"""

import asyncio
import re
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

import gymcli
from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import num_turns
from gymcli.mock.process import serving
from gymcli.types import Request, Rollout
from tests.builders import clean_environment
from tests.processes import wait_until

pytestmark = pytest.mark.slow

VIRTUAL_ENVIRONMENT = Path(gymcli.__file__).parents[1] / ".venv-litellm"
KEY = "sk-of-the-test"
NUM_TASKS = 4


def count(request: Request) -> MockAnswer:
    """Play `example_session_state_mgmt`: add every number, read the counter, say its value."""
    prompt = next(message.text for message in request.messages if message.role == "user")
    numbers = [int(n) * (-1 if sign else 1) for sign, n in re.findall(r"(away )?(\d+)", prompt)]
    turn, thought = num_turns(request), "which step is the next one?"
    if turn < len(numbers):
        call = ("increment_counter", {"count": numbers[turn]})
        return MockAnswer(tool_calls=[call], reasoning=thought)
    if turn == len(numbers):
        return MockAnswer(text="Now I read it.", tool_calls=[("get_counter_value", {})])
    return MockAnswer(text=f"The counter: {request.messages[-1].text}", reasoning=thought)


@pytest.fixture(scope="module")
def server():
    with serving(MockServer(count)) as server:
        yield server


@pytest.fixture(scope="module")
def proxy_url(server, tmp_path_factory):
    """Yield the base URL of a proxy in front of the server."""
    if not (VIRTUAL_ENVIRONMENT / "ready").is_file():
        pytest.skip("LiteLLM is not installed in .venv-litellm; `make litellm` installs it")
    folder = tmp_path_factory.mktemp("proxy")
    parameters = {"model": "openai/m", "api_base": server.base_url, "api_key": "sk-none"}
    settings = {"model_list": [{"model_name": "m", "litellm_params": parameters}]}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    environment = {
        **clean_environment(),
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it downloads the list of prices
        "NO_PROXY": "127.0.0.1",
    }
    log = folder / "log.txt"
    command = [VIRTUAL_ENVIRONMENT / "bin/litellm", "--config", "config.yaml"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [*command, *address], cwd=folder, env=environment, stdout=file, stderr=file
        ) as process,
    ):
        try:
            wait_until(lambda: b"Uvicorn running" in log.read_bytes() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def play(base_url: str, dialect: str, stream: bool) -> list[Rollout]:
    async def run() -> list[Rollout]:
        endpoint = gymcli.Endpoint(
            base_url=base_url, model="m", api_key=KEY, dialect=dialect, stream=stream
        )
        tasks = "example_session_state_mgmt"
        return [r async for r in gymcli.collect(tasks, endpoint=endpoint, limit=NUM_TASKS)]

    return sorted(asyncio.run(run()), key=lambda rollout: rollout.task_id)


def conversation(rollout: Rollout) -> list[tuple]:
    return [
        (
            message.role,
            message.text,
            message.reasoning,
            [(call.name, call.arguments) for call in message.tool_calls],
        )
        for message in rollout.messages
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_episodes_through_the_proxy_are_the_same(server, proxy_url, dialect, stream):
    direct = play(server.base_url, dialect, stream)
    proxied = play(proxy_url, dialect, stream)
    assert [rollout.reward for rollout in direct] == [1.0] * NUM_TASKS
    assert [rollout.reward for rollout in proxied] == [1.0] * NUM_TASKS
    assert [conversation(rollout) for rollout in proxied] == [
        conversation(rollout) for rollout in direct
    ]
    assert [rollout.usage for rollout in proxied] == [rollout.usage for rollout in direct]
    assert [rollout.stop_reason for rollout in proxied] == ["done"] * NUM_TASKS
    assert not any(rollout.retries for rollout in proxied)
