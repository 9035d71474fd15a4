"""Collecting and rescoring from Python."""

import asyncio
from contextlib import aclosing

import msgspec
import pydantic
import pytest

import gymcli
from gymcli.mock import MockServer
from gymcli.runner.collection import Collection
from gymcli.runner.options import CollectOptions
from gymcli.types import Failure
from tests.commands.running import FLAKY, add_up, lines_of, write_sums
from tests.runner.collecting import collect_all


def test_collect_gives_every_rollout(tmp_path):
    records, server = collect_all(write_sums(tmp_path / "t.jsonl", 5), repeats=2)
    assert sorted((r.task_id, r.attempt, r.reward) for r in records) == [
        (f"sum-{n}", attempt, 1.0) for n in range(5) for attempt in range(2)
    ]
    assert {r.model for r in records} == {"m"}
    assert server.num_requests == 10


def test_collect_keeps_nothing_without_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collect_all(write_sums(tmp_path / "t.jsonl", 2))
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_collection_that_keeps_nothing_has_nothing_to_finish(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collection = Collection(["arithmetic"], CollectOptions(model="oracle"), has_directory=False)

    async def run():
        async with collection:
            num = len([record async for record in collection.run()])
            collection.finish(b"{}", 0.0)
            return num

    assert asyncio.run(run()) == collection.num_scored == 60
    assert list(tmp_path.iterdir()) == []


def test_collect_resumes_where_out_is_given(tmp_path):
    """What is done already is not given again, and the run's files are complete."""
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    assert len(collect_all(tasks, out=out)[0]) == 3
    assert collect_all(tasks, out=out)[0] == []
    assert len(lines_of(out / "rollouts.jsonl")) == 3
    assert msgspec.json.decode((out / "metrics.json").read_bytes())["num_scored"] == 3
    assert msgspec.json.decode((out / "run.json").read_bytes())["ended_at"] > 0


def test_collect_that_a_budget_ends_leaves_its_metrics(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 9), tmp_path / "run"
    with pytest.raises(gymcli.GymError, match="--max-tokens-total 1 is reached"):
        collect_all(tasks, out=out, concurrency=1, max_tokens_total=1)
    assert msgspec.json.decode((out / "metrics.json").read_bytes())["num_scored"] == 1
    assert "ended_at" not in msgspec.json.decode((out / "run.json").read_bytes())


def test_collect_takes_the_name_of_an_environment():
    async def run():
        return [r async for r in gymcli.collect("arithmetic", model="oracle", limit=3)]

    assert [r.reward for r in asyncio.run(run())] == [1.0] * 3


def test_collect_gives_failures_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "broken").touch()
    tasks = write_sums(tmp_path / "t.jsonl", 2, env="flaky")

    async def run():
        return [r async for r in gymcli.collect(tasks, model="oracle", env="flaky.py:Flaky")]

    failures = asyncio.run(run())
    assert all(isinstance(failure, Failure) for failure in failures)
    assert {(f.error.phase, f.error.error_class) for f in failures} == {("verify", "VerifierError")}


@pytest.mark.parametrize("closes", [True, False])
def test_collect_left_early_leaves_no_tasks_behind(tmp_path, mock_server, closes):
    """With and without `aclosing`; without, the loop closes the generator a moment later."""
    mock_server.behaviour, mock_server.latency = add_up, 0.01
    tasks = write_sums(tmp_path / "t.jsonl", 200)
    endpoint = gymcli.Endpoint(base_url=mock_server.base_url, model="m")

    async def take_one():
        records = gymcli.collect(tasks, endpoint=endpoint, concurrency=8)
        if closes:
            async with aclosing(records):
                await anext(records)
                return
        async for _ in records:
            break

    def others():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return [task for task in tasks if not task.done()]

    async def run():
        await take_one()
        if closes:
            assert not others()
        async with asyncio.timeout(10):
            while left := others():
                await asyncio.wait(left)

    asyncio.run(run())
    assert mock_server.num_requests < 50


def test_collect_left_early_keeps_what_ended(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 50), tmp_path / "run"

    async def run():
        async with MockServer(add_up) as server:
            endpoint = gymcli.Endpoint(base_url=server.base_url, model="m")
            records = gymcli.collect(tasks, endpoint=endpoint, concurrency=4, out=out)
            async with aclosing(records):
                return (await anext(records)).key

    key = asyncio.run(run())
    assert key.task_id in {line["task_id"] for line in lines_of(out / "rollouts.jsonl")}
    records, _ = collect_all(tasks, out=out)
    lines = lines_of(out / "rollouts.jsonl")
    assert len({line["task_id"] for line in lines}) == len(lines) == 50
    assert len(records) < 50


def test_collect_refuses_unknown_options():
    async def run():
        return [r async for r in gymcli.collect("arithmetic", model="oracle", speed=9)]

    with pytest.raises(pydantic.ValidationError, match="speed"):
        asyncio.run(run())


def test_collect_refuses_two_names_for_one_model():
    endpoint = gymcli.Endpoint(base_url="http://h", model="m")

    async def run():
        return [r async for r in gymcli.collect("arithmetic", model="n", endpoint=endpoint)]

    with pytest.raises(pydantic.ValidationError, match="the endpoint is one of m, not of n"):
        asyncio.run(run())


def test_collect_needs_an_endpoint():
    async def run():
        return [r async for r in gymcli.collect("arithmetic", model="m")]

    with pytest.raises(gymcli.GymError, match="the model m needs an endpoint"):
        asyncio.run(run())


def test_verify_gives_every_score_again(tmp_path):
    out = tmp_path / "run"
    collect_all(write_sums(tmp_path / "t.jsonl", 4), out=out)
    found = list(gymcli.verify(out))
    assert [item.key.task_id for item in found] == [
        line["task_id"] for line in lines_of(out / "rollouts.jsonl")
    ]
    assert not any(item.is_changed for item in found)
    assert [item.new_reward for item in found] == [1.0] * 4
