"""Tests of `gymcli.collect` with several models, and of the results that it returns."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import UNSET

import gymcli
from gymcli.errors import BudgetReachedError, UsageError
from gymcli.library.measurement import MetricsReport
from gymcli.library.run_collection import with_own_folders
from gymcli.mock import MockServer
from gymcli.runner.collect_options import CollectOptions
from gymcli.store.manifest import read_manifest
from tests.builders import add_up, write_sums


class Guess:
    """A model in this process that always gives the same answer."""

    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        self.answer = answer

    async def complete(self, messages, *, tools=None, schema=None):
        return gymcli.Message(role="assistant", content=self.answer)


def collect(tasks, **options) -> MetricsReport | list[MetricsReport]:
    """Return what awaiting `gymcli.collect` returns."""

    async def run():
        return await gymcli.collect(tasks, **options)

    return asyncio.run(run())


def test_awaiting_collect_returns_the_result_of_the_run(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "run"
    result = collect(tasks, model="oracle", out=out, repeats=2)
    assert isinstance(result, MetricsReport)
    assert (result.run, result.model) == (str(out), UNSET)
    assert (result.num_scored, result.mean_reward) == (6, 1.0)
    assert (out / "metrics.json").exists()
    assert read_manifest(out).ended_at is not None


def test_a_result_needs_no_directory(tmp_path, working_folder, monkeypatch):
    tasks = write_sums(tmp_path / "t.jsonl", 3)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    result = collect(tasks, model="oracle")
    assert (result.run, result.num_scored) == ("", 3)
    assert {path.name for path in tmp_path.iterdir()} == {"t.jsonl", "temporary"}
    assert not any((tmp_path / "temporary").iterdir())


def test_several_models_have_a_result_each(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "runs"
    models = ["oracle", Guess("wrong", "-1"), Guess("also/wrong", "-2")]
    results = collect(tasks, model=models, out=out)
    assert [(result.model, result.run) for result in results] == [
        ("oracle", str(out / "oracle")),
        ("wrong", str(out / "wrong")),
        ("also/wrong", str(out / "also-wrong")),
    ]
    assert [result.mean_reward for result in results] == [1.0, 0.0, 0.0]
    assert {read_manifest(Path(result.run)).model for result in results} == {
        result.model for result in results
    }
    resumed = collect(tasks, model=models, out=out)
    assert resumed == results


def test_a_list_of_one_model_returns_a_list(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    [result] = collect(tasks, model=["oracle"])
    assert result.num_scored == 1


async def test_the_rollouts_of_several_models_come_as_they_end(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 4)
    records = gymcli.collect(tasks, model=["oracle", Guess("wrong", "-1")], repeats=2)
    assert (
        sorted([(record.model, record.reward) async for record in records])
        == [("oracle", 1.0)] * 8 + [("wrong", 0.0)] * 8
    )


async def test_models_share_concurrency_and_endpoints_can_be_listed(tmp_path):
    tasks = write_sums(tmp_path / "t.jsonl", 8)
    async with MockServer(add_up) as server:
        endpoints = [gymcli.Endpoint(base_url=server.base_url, model=name) for name in ("a", "b")]
        results = await gymcli.collect(tasks, model=endpoints, concurrency=2)
    assert [(result.model, result.mean_reward) for result in results] == [
        ("a", 1.0),
        ("b", 1.0),
    ]
    assert server.num_requests == 16


async def test_models_may_be_named_in_gym_toml(tmp_path, working_folder):
    tasks = write_sums(tmp_path / "t.jsonl", 1)
    async with MockServer(add_up) as server:
        table = f'base_url = "{server.base_url}"\nmodel = "served"\n'
        Path("gym.toml").write_text(f"[models.first]\n{table}[models.second]\n{table}")
        first, second = await gymcli.collect(tasks, model=["first", "second"], out="runs")
    assert (first.model, first.run) == ("first", "runs/first")
    assert read_manifest(Path(second.run)).model == "served"


async def test_models_share_a_budget_and_their_numbers_are_written(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 8), tmp_path / "runs"
    async with MockServer(add_up) as server:
        endpoints = [gymcli.Endpoint(base_url=server.base_url, model=name) for name in ("a", "b")]
        with pytest.raises(BudgetReachedError, match="--max-tokens-total 1 is reached"):
            await gymcli.collect(tasks, model=endpoints, out=out, max_tokens_total=1, concurrency=1)
    for name in ("a", "b"):
        assert (out / name / "metrics.json").exists()
        assert read_manifest(out / name).ended_at is None


async def test_leaving_the_rollouts_of_several_models_ends_their_runs(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 20), tmp_path / "runs"
    options = {"model": ["oracle", Guess("wrong", "-1")], "out": out, "concurrency": 1}
    async with aclosing(gymcli.collect(tasks, **options)) as records:
        async for _ in records:
            break
    results = await gymcli.collect(tasks, **options)
    assert [result.num_scored for result in results] == [20, 20]


def test_a_directory_that_cannot_be_written_ends_several_runs(tmp_path):
    tasks, out = write_sums(tmp_path / "t.jsonl", 3), tmp_path / "runs"
    models = ["oracle", Guess("wrong", "-1")]
    collect(tasks, model=models, out=out, limit=1)
    (out / "wrong" / "rollouts.jsonl").unlink()
    (out / "wrong" / "rollouts.jsonl").mkdir()
    with pytest.raises(gymcli.GymError, match=r"rollouts\.jsonl"):
        collect(tasks, model=models, out=out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": []}, "collect: model: the list is empty; name one model or more"),
        ({"model": ["oracle", "oracle"]}, "--model oracle: is named twice"),
        ({"model": ["oracle", 3]}, "collect: model: must be text"),
        (
            {"model": ["oracle"], "endpoint": gymcli.Endpoint(base_url="http://h", model="m")},
            "collect: endpoint: is for one model; put the endpoints into model=[...]",
        ),
        (
            {"model": ["oracle", "local"], "engine": "ray"},
            "--engine ray takes one --model and one benchmark",
        ),
    ],
)
def test_wrong_models_are_refused(options, message):
    with pytest.raises(UsageError) as caught:
        collect("arithmetic", **options)
    assert str(caught.value).startswith(message)


async def test_a_stream_is_iterated_or_awaited():
    records = gymcli.collect("arithmetic", model="oracle", limit=2)
    async for _ in records:
        break
    with pytest.raises(UsageError, match="its rollouts have been iterated"):
        await records


def test_the_runs_of_a_command_that_died_are_in_its_folders():
    """The supervisor knows the directory of the first run, whose number --fresh has chosen."""
    options = [
        CollectOptions(model=model, out=Path("runs"), fresh=True) for model in ("oracle", "local")
    ]
    resumed = with_own_folders(options, resumed=Path("runs-2/oracle"))
    assert [run.out for run in resumed] == [Path("runs-2/oracle"), Path("runs-2/local")]
    assert not any(run.fresh for run in resumed)
