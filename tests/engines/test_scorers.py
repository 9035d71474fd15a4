"""Scoring on a real Ray cluster gives what scoring without one gives, whatever verifiers do."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from gymcli.engines import Cluster, RayEngine, RayScorers
from gymcli.engines.deaths import Deaths
from gymcli.engines.process import WorkerLostError
from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import EngineError
from gymcli.rollout.rescored import RescoreJob
from gymcli.runner.attempts import Attempt
from gymcli.runner.judging import Judges, judging
from gymcli.secrets import NOTHING_SECRET
from gymcli.store.lines import Line
from gymcli.store.rollout_files import RolloutReading
from gymcli.store.verdicts import Verdicts
from gymcli.types import Failure, Rollout, Verifier
from tests.commands.running import gym
from tests.engines.worlds import records_of, write_environments, write_tasks

on_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'gymcli[ray]'")

HEAVY = ("--env", "heavy.py:Heavy")
JUDGED = ("--env", "judged.py:Judged")


@pytest.mark.slow
@on_ray
def test_verify_on_ray_equals_local(tmp_path, monkeypatch, mock_server, ray_address):
    """A worker is killed in the middle, and one line each fails, dies, hangs and grows."""
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, 40)
    write_environments(tmp_path)
    where = ("--model", "m", "--base-url", mock_server.base_url, "--out", "run", "--quiet")
    assert gym("collect", "tasks.jsonl", *HEAVY, *where).exit_code == 0
    Path("cruel").touch()
    local = gym("verify", "run", *HEAVY, "--out", "local", "--json")
    assert local.exit_code == 0, local.stderr
    Path("lost").touch()
    Path("verified").unlink()
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "2")
    there = gym("verify", "run", *HEAVY, *ray, "--out", "there", "--json")
    assert there.exit_code == 0, there.stderr
    assert not Path("lost").exists()
    before, after = json.loads(local.stdout), json.loads(there.stdout)
    assert after["num_failed"] == 4
    assert after["num_rescored"] == 36
    # Those of verifiers that are called one by one name the class.
    before["errors"] = sorted(before["errors"].values())
    after["errors"] = sorted(after["errors"].values())
    key = ("task_id", "attempt")
    for report in (before, after):
        report["changes"].sort(key=lambda change: [change[name] for name in key])
    assert after == before
    assert records_of(Path("there/rollouts.jsonl")) == records_of(Path("local/rollouts.jsonl"))
    parents = {line.split()[1] for line in Path("verified").read_text().splitlines()}
    assert len(parents) >= 2  # one of them in the place of the one that died
    assert str(os.getpid()) not in parents


@pytest.mark.slow
@on_ray
def test_judges_and_groups_on_ray_equal_local(tmp_path, monkeypatch, mock_server, ray_address):
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, 6)
    write_environments(tmp_path)
    where = ("--model", "m", "--base-url", mock_server.base_url, "--quiet", "--repeats", "3")
    collect = ("collect", "tasks.jsonl", *JUDGED, *where)
    judge = ("--role", f"judge={mock_server.base_url}#j")
    gone = ("--role", "judge=http://127.0.0.1:9/v1#j", "--outage-deadline", "0")
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "2")
    assert gym(*collect, *judge, "--out", "local").exit_code == 0
    assert gym(*collect, *judge, *ray, "--out", "there").exit_code == 0
    assert records_of(Path("there/rollouts.jsonl")) == records_of(Path("local/rollouts.jsonl"))
    assert asked("there") == asked("local")
    assert len(asked("there")) == 18
    # Without its judge a run has conversations that wait, which `gym verify` scores there too.
    assert gym(*collect, *gone, *ray, "--out", "waits").exit_code == 4
    # The run ends as soon as its judge is known to be gone: how many were played till then varies.
    num_waiting = len(records_of(Path("waits/generations.jsonl")))
    assert num_waiting > 0
    pending = gym("verify", "waits", *JUDGED, *judge, *ray, "--pending")
    assert pending.exit_code == 0, pending.stderr
    assert f"{num_waiting} waiting conversations scored, 0 failed" in pending.stderr
    assert len(rewards("waits")) == num_waiting
    assert rewards("waits").items() <= rewards("local").items()
    # Lines that wait for a judge are rescored here, whatever the engine.
    assert gym("verify", "there", *JUDGED, *judge, *ray).exit_code == 0


def asked(run: str) -> dict[str, object]:
    """Give what judges answered, by key; none may be there twice."""
    lines = [json.loads(line) for line in Path(run, "verdicts.jsonl").read_text().splitlines()]
    verdicts = {line["key"]: line["message"] for line in lines}
    assert len(verdicts) == len(lines)
    return verdicts


def rewards(run: str) -> dict[tuple[str, int], float]:
    records = records_of(Path(run, "rollouts.jsonl"))
    return {key: record["reward"] for key, record in records.items()}


_OCCUPY = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
@ray.remote(num_cpus=1)
class Idle:
    def ready(self): pass
idle = [Idle.remote() for _ in range(2)]
ray.get([one.ready.remote() for one in idle])
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def occupied(address: str) -> Iterator[None]:
    """Let another have all cores of the cluster."""
    command = [sys.executable, "-c", _OCCUPY, address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        yield
        process.stdin.close()


@pytest.mark.slow
@on_ray
def test_cluster_without_a_free_core(ray_address):
    """It is waited for as long as that, and then said; nothing hangs."""
    job = RescoreJob(RolloutReading("rollouts.jsonl"))
    with occupied(ray_address):
        cluster = Cluster(ray_address, 1, start_seconds=0.5)
        with RayScorers(cluster, env=None, scrubber=NOTHING_SECRET) as scorers:
            begun = scorers.begin([Line(1, b"{}", is_complete=True)], job)
            with pytest.raises(EngineError, match="no Ray worker was started within"):
                begun.result()
        cluster = Cluster(ray_address, 1, start_seconds=0.5)
        engine = RayEngine(cluster, env=None, role_params={}, scrubber=NOTHING_SECRET)
        with pytest.raises(EngineError, match="no Ray worker was started within"):
            asyncio.run(all_of(engine))


async def all_of(engine: RayEngine) -> list[Rollout | Failure]:
    """Score one conversation."""
    environment = Environment[Task]
    rollout = Rollout(env="e", task_id="1", attempt=0)
    attempt = Attempt(environment, EnvironmentOptions(), Verifier(), None, rollout)
    async with judging(Judges(), Verdicts()) as shared:
        records = engine.run(iter([attempt]), shared, concurrency=1, keep=lambda outcome: outcome)
        return [record async for record in records]


@pytest.mark.parametrize(("num_workers", "most"), [(1, 5), (4, 8)])
def test_deaths_in_a_row_end_a_run(num_workers, most):
    deaths = Deaths(num_workers)
    lost = WorkerLostError("killed by the kernel")
    assert [deaths.add(lost) for _ in range(most)] == [None] * most
    deaths.forget()
    assert [deaths.add(lost) for _ in range(most)] == [None] * most
    cause = deaths.add(lost)
    assert isinstance(cause, EngineError)
    assert "killed by the kernel" in str(cause)
