"""A collection on its way: what it asks for, how it ends early, and what it then leaves."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from gymcli.errors import FatalEndpointError, UsageError
from gymcli.mock import MockServer
from gymcli.mock.behaviours import refusal_of
from gymcli.models.endpoint import Endpoint
from gymcli.runner.collection import Collection
from gymcli.runner.options import CollectOptions
from tests.commands.running import add_up, write_sums
from tests.runner.collecting import collect_all

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@pytest.mark.parametrize("of_row", LIMITS)
@pytest.mark.parametrize("given", LIMITS)
def test_a_token_limit_of_the_options_removes_those_of_the_row(tmp_path, of_row, given):
    row = {"env": "arithmetic", "prompt": "What is 1 + 1?", "answer": 2}
    params = {of_row: 900, "top_p": 0.5}
    tasks = tmp_path / "t.jsonl"
    tasks.write_bytes(msgspec.json.encode({**row, "params": params}))
    for asked, expected in (({given: 7}, {given: 7, "top_p": 0.5}), ({}, params)):
        collection = Collection(
            [tasks], CollectOptions(model="oracle", params=asked), has_directory=False
        )
        assert asyncio.run(collection.first_request()).params == expected


def test_an_interrupted_run_keeps_its_time(tmp_path):
    """It is added to by the next command, and the run has no end yet."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 8), tmp_path / "run"

    async def interrupted():
        async with MockServer(add_up) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m")
            options = CollectOptions(endpoint=endpoint, out=out, concurrency=1)
            async with Collection([tasks], options) as collection:
                async for _ in collection.run():
                    raise asyncio.CancelledError

    seconds = 0.0
    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(interrupted())
        manifest = msgspec.json.decode((out / "run.json").read_bytes())
        assert manifest["seconds"] > seconds
        assert "ended_at" not in manifest
        seconds = manifest["seconds"]
    collect_all(tasks, out=out)
    manifest = msgspec.json.decode((out / "run.json").read_bytes())
    assert manifest["seconds"] > seconds
    assert manifest["ended_at"] > manifest["started_at"]


def test_a_manifest_that_cannot_be_written_hides_no_error(tmp_path, caplog):
    tasks, out = write_sums(tmp_path / "t.jsonl", 2), tmp_path / "run"

    async def failing():
        async with Collection([tasks], CollectOptions(model="oracle", out=out)):
            (out / "run.json").unlink()
            (out / "run.json").mkdir()
            raise FatalEndpointError("it is gone")

    with pytest.raises(FatalEndpointError, match="it is gone"):
        asyncio.run(failing())
    assert "run.json: cannot be written" in caplog.text


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("secrets", "is_told"),
    [
        ({}, True),
        ({"api_key": "my-key"}, False),
        ({"headers": {"X-Key": "my-key"}}, False),
        ({"query": {"key": "my-key"}}, False),
    ],
)
def test_a_refusal_where_no_key_was_sent_says_how_to_send_one(tmp_path, status, secrets, is_told):
    tasks = write_sums(tmp_path / "t.jsonl", 1)

    async def refused():
        async with MockServer(lambda _: refusal_of(status, "no")) as server:
            endpoint = Endpoint(base_url=server.base_url, model="m", **secrets)
            options = CollectOptions(endpoint=endpoint)
            async with Collection([tasks], options, has_directory=False) as collection:
                async for _ in collection.run():
                    pass

    with pytest.raises(FatalEndpointError) as raised:
        asyncio.run(refused())
    assert str(raised.value).endswith("no key was sent: give --api-key-env VARIABLE") == is_told


def test_collect_names_an_environment_that_cannot_be_prepared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("unprepared").touch()
    tasks = write_sums(tmp_path / "t.jsonl", 1, env=None)
    options = CollectOptions(model="oracle", env="tests.runner.environments:Unclosed")
    with pytest.raises(UsageError, match="cannot be prepared: OSError: no door"):
        Collection([tasks], options)


def test_collect_keeps_a_conversation_whose_environment_does_not_close(tmp_path):
    """It failed, and needs no second conversation: the record is whole."""
    tasks = write_sums(tmp_path / "t.jsonl", 2, env=None)
    options = {"env": "tests.runner.environments:Unclosed", "out": tmp_path / "run"}
    records, server = collect_all(tasks, **options)
    assert {record.error.message for record in records} == {"OSError: the door is stuck"}
    again, second = collect_all(tasks, **options)
    assert (server.num_requests, second.num_requests) == (2, 0)
    assert [record.reward for record in again] == [1.0, 1.0]


def test_verifies_in_worker_is_accepted_with_one_warning(tmp_path):
    (tmp_path / "old.py").write_text(
        "from gymcli import Environment, Score, Task\n"
        "class Old(Environment[Task]):\n"
        '    """Say anything."""\n'
        "    verifies_in_worker = True\n"
        "    @classmethod\n"
        "    async def verify(cls, rollout, context):\n"
        "        return Score(1.0)\n"
    )
    tasks = tmp_path / "t.jsonl"
    tasks.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    options = CollectOptions(model="oracle", env=f"{tmp_path}/old.py:Old")
    told = Collection([tasks], options, has_directory=False).warnings
    assert [text for text in told if "verifies_in_worker has no effect any more" in text] == told
    assert len(told) == 1
