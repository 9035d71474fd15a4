"""Tests of the work handed to Ray workers, runs on a real cluster, and the death of a worker."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.errors import EngineError
from gymcli.mock import MockServer
from gymcli.ray.driver import Assignment, Assignments, RayEngine, WorkerLostError
from gymcli.runner.attempts import Attempt, Outcome
from gymcli.runner.judges import Judges, open_shared
from gymcli.store.verdicts import Verdicts
from gymcli.types import Failure, Rollout, Verifier
from tests.builders import clean_environment, gym, gym_process
from tests.ray.ray_environments import records_of, write_environments, write_tasks

pytest_plugins = ["gymcli.mock.fixture"]

on_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'gymcli[ray]'")

OUT = Path("run")
ENV = "deadly.py:Deadly"
HEAVY = ("--env", "heavy.py:Heavy")
JUDGED = ("--env", "judged.py:Judged")


def attempt(task_id: str, number: int = 0, **more) -> Attempt:
    """Return an attempt with a recorded conversation."""
    rollout = Rollout(env="e", task_id=task_id, attempt=number)
    return Attempt(Environment[Task], EnvironmentOptions(), Verifier(), None, rollout, **more)


def ids(assignments: Assignments) -> list[str]:
    """Take all attempts that may run concurrently."""
    taken = iter(assignments.take, None)
    return ["".join(key.task_id for key in one.attempts) for one in taken]


def test_take_returns_a_group_whole_wherever_its_members_are():
    members = [attempt("g", n, group_size=2) for n in range(2)]
    assignments = Assignments([members[0], attempt("a"), members[1], attempt("b")])
    assert ids(assignments) == ["a", "gg", "b"]
    assert assignments.is_empty


def test_take_returns_an_incomplete_group_last():
    assert ids(Assignments([attempt("g", 0, group_size=2), attempt("a")])) == ["a", "g"]


def test_a_returned_attempt_is_handed_out_last_and_later_alone():
    assignments = Assignments(attempt(name) for name in "abcd")
    first, second = assignments.take(), assignments.take()
    assert first is not None
    assert second is not None
    # After two deaths it runs alone, so that a third would be caused by this attempt.
    first.num_deaths, second.num_deaths = 2, 1
    assignments.put_back(first)
    assignments.put_back(second)
    assert ids(assignments) == ["c", "d", "b"]
    assert not assignments.is_empty
    assert assignments.take_alone() is first
    assert assignments.take_alone() is None
    assert assignments.is_empty


def test_group_whose_worker_died_is_run_as_a_whole():
    """Its failed attempts are retried, and its scored ones are not."""
    done = attempt("g", 0, group_size=3, is_done=True)
    failed, left = (attempt("g", n, group_size=3) for n in (1, 2))
    assignments = Assignments([done, failed, left])
    group = assignments.take()
    assert group is not None
    assert group.num_left == 2
    group.outcomes.append(Outcome(Rollout(env="e", task_id="g", attempt=1)))
    assert group.num_left == 1
    assignments.put_back(group)
    assert group.num_left == 2
    assert list(group.attempts.values()) == [done, failed, left]


def test_an_attempt_that_lost_three_workers_fails():
    """A conversation on record stays unscored; a scored one keeps its score."""
    members = [attempt("g", n, group_size=2, is_done=n == 0) for n in range(2)]
    [outcome] = Assignment(members).given_up(WorkerLostError("killed by the kernel"))
    assert isinstance(outcome.record, Failure)
    assert outcome.record.attempt == 1
    assert (outcome.record.error.error_class, outcome.record.error.phase) == (
        "VerifierError",
        "verify",
    )
    assert "3 Ray workers died" in outcome.record.error.message
    assert "killed by the kernel" in outcome.record.error.message


def collect(server: MockServer, *more: str | Path, out: Path = OUT) -> tuple[str | Path, ...]:
    """Return the arguments of a collection without its engine."""
    where = ("--model", "m", "--base-url", server.base_url, "--out", out, "--quiet")
    return ("collect", "tasks.jsonl", "--env", ENV, *where, "--seed", "5", *more)


def first_line(process: subprocess.Popen, file: Path) -> str:
    """Wait until a file has a line and return it, leaving the cores to Ray meanwhile."""
    while not (file.exists() and file.read_text().endswith("\n")):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.returncode is None
    return file.read_text().splitlines()[0]


@on_ray
@pytest.mark.slow
def test_own_cluster_worker_killed_equals_local(tmp_path, working_folder, monkeypatch, mock_server):
    """The processes and the files of the command's own cluster end with it."""
    write_tasks(tmp_path, 30)
    gym(*collect(mock_server, "--repeats", "2", out=Path("local")), exit_code=0)
    Path("played").unlink()
    Path("deadly-11").write_text("once")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    on_ray = collect(mock_server, "--repeats", "2", "--engine", "ray", "--workers", "2", "--json")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        gym_process(*on_ray), env=clean_environment(), stdout=pipe, stderr=pipe
    ) as process:
        try:
            worker = first_line(process, Path("played")).split()[1]
            [log] = Path("/tmp").glob(f"gym-ray-*/ray/session_2*/logs/worker-*-{worker}.err")
            folder = log.parents[3]
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            printed, said = process.communicate()
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert printed.startswith(b"{")
    assert records_of(OUT / "rollouts.jsonl") == records_of(Path("local/rollouts.jsonl"))
    assert not (OUT / "failures.jsonl").exists()
    processes = {line.split()[1] for line in Path("played").read_text().splitlines()}
    assert len(processes) >= 2  # one replaced the one that died
    assert str(os.getpid()) not in processes
    assert not folder.exists()


@on_ray
@pytest.mark.slow
def test_joined_cluster_resumes_local_run_and_is_resumed(
    tmp_path, working_folder, mock_server, ray_address
):
    """Three commands write one run in turn; a budget ends the second."""
    write_tasks(tmp_path, 24)
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1", "--concurrency", "2")
    gym(*collect(mock_server, "--limit", "5"), exit_code=0)
    gym(*collect(mock_server, *ray, "--max-tokens-total", "60", "--grace", "60"), exit_code=6)
    assert 5 < len(records_of(OUT / "rollouts.jsonl")) < 24
    gym(*collect(mock_server), exit_code=0)
    assert len(records_of(OUT / "rollouts.jsonl")) == 24
    assert len(Path("played").read_text().splitlines()) == 24
    gym(*collect(mock_server, *ray), exit_code=0)


@on_ray
@pytest.mark.slow
@pytest.mark.parametrize("what", ["deadly", "blocking"])
def test_only_the_attempt_that_ends_every_worker_is_given_up(
    tmp_path, working_folder, mock_server, ray_address, what
):
    write_tasks(tmp_path, 6)
    Path(f"{what}-3").write_text("always")
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1")
    gym(*collect(mock_server, *ray, "--min-coverage", "0.5"), exit_code=0)
    assert len(records_of(OUT / "rollouts.jsonl")) == 5
    failures = records_of(OUT / "failures.jsonl")
    assert list(failures) == [("3", 0)]
    assert "3 Ray workers died" in failures["3", 0]["error"]["message"]


@on_ray
@pytest.mark.slow
def test_interrupted_run_keeps_what_is_done(
    tmp_path, working_folder, monkeypatch, ray_address, gym_mock
):
    """After Ctrl-C, attempts in flight are cut off when the grace is over, and recorded."""
    write_tasks(tmp_path, 40)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    server = gym_mock(latency="uniform:0.2:0.3")
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1", "--concurrency", "4")
    process = subprocess.Popen(
        gym_process(*collect(server, *ray, "--grace", "0")),
        env=clean_environment(),
        stderr=subprocess.PIPE,
    )
    try:
        first_line(process, OUT / "rollouts.jsonl")
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
    finally:
        process.kill()
    assert process.returncode == 130, said
    there = records_of(OUT / "rollouts.jsonl")
    cut_off = records_of(OUT / "failures.jsonl")
    assert len(there) < 40
    assert {record["error"]["class"] for record in cut_off.values()} == {"CancelledAttemptError"}
    assert not there.keys() & cut_off.keys()


@on_ray
@pytest.mark.slow
def test_failing_verifiers_and_refused_key(tmp_path, working_folder, ray_address, gym_mock):
    """A failure in a worker is recorded as in a local run; a refused key ends the run."""
    write_tasks(tmp_path, 4)
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1")
    Path("broken").touch()
    gym(*collect(gym_mock(), *ray), exit_code=4)
    failures = records_of(OUT / "failures.jsonl")
    assert {record["error"]["class"] for record in failures.values()} == {"VerifierError"}
    assert len(records_of(OUT / "generations.jsonl")) == 4
    Path("broken").unlink()
    refused = gym(
        *collect(gym_mock(api_key="sk-right-0123456789"), *ray, out=Path("refused")), exit_code=4
    )
    assert "no key was sent" in refused.stderr
    gym(*collect(gym_mock(), *ray), exit_code=0)  # only scores what waits
    assert len(Path("played").read_text().splitlines()) == 4


@on_ray
@pytest.mark.slow
def test_verify_on_ray_equals_local(tmp_path, working_folder, mock_server, ray_address):
    """One worker is killed; one line each fails, dies, hangs and takes too much memory."""
    write_tasks(tmp_path, 40)
    write_environments(tmp_path)
    where = ("--model", "m", "--base-url", mock_server.base_url, "--out", "run", "--quiet")
    gym("collect", "tasks.jsonl", *HEAVY, *where, exit_code=0)
    Path("cruel").touch()
    local = gym("verify", "run", *HEAVY, "--out", "local", "--json", exit_code=0)
    Path("lost").touch()
    Path("verified").unlink()
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "2")
    there = gym("verify", "run", *HEAVY, *ray, "--out", "there", "--json", exit_code=0)
    assert not Path("lost").exists()
    before, after = json.loads(local.stdout), json.loads(there.stdout)
    assert after["num_failed"] == 4
    assert after["num_rescored"] == 36
    # Verifiers that are called one at a time name the class.
    before["errors"] = sorted(before["errors"].values())
    after["errors"] = sorted(after["errors"].values())
    key = ("task_id", "attempt")
    for report in (before, after):
        report["changes"].sort(key=lambda change: [change[name] for name in key])
    assert after == before
    assert records_of(Path("there/rollouts.jsonl")) == records_of(Path("local/rollouts.jsonl"))
    parents = {line.split()[1] for line in Path("verified").read_text().splitlines()}
    assert len(parents) >= 2  # one replaced the one that died
    assert str(os.getpid()) not in parents


@on_ray
@pytest.mark.slow
def test_judges_and_groups_on_ray_equal_local(tmp_path, working_folder, mock_server, ray_address):
    write_tasks(tmp_path, 6)
    write_environments(tmp_path)
    where = ("--model", "m", "--base-url", mock_server.base_url, "--quiet", "--repeats", "3")
    collect = ("collect", "tasks.jsonl", *JUDGED, *where)
    judge = ("--role", f"judge={mock_server.base_url}#j")
    gone = ("--role", "judge=http://127.0.0.1:9/v1#j", "--outage-deadline", "0")
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "2")
    gym(*collect, *judge, "--out", "local", exit_code=0)
    gym(*collect, *judge, *ray, "--out", "there", exit_code=0)
    assert records_of(Path("there/rollouts.jsonl")) == records_of(Path("local/rollouts.jsonl"))
    assert asked("there") == asked("local")
    assert len(asked("there")) == 18
    # Without its judge a run has waiting conversations, which `gym verify` scores on Ray as well.
    gym(*collect, *gone, *ray, "--out", "waits", exit_code=4)
    # The run ends once its judge is known to be gone: how many were played by then varies.
    num_waiting = len(records_of(Path("waits/generations.jsonl")))
    assert num_waiting > 0
    pending = gym("verify", "waits", *JUDGED, *judge, *ray, "--pending", exit_code=0)
    assert f"{num_waiting} waiting conversations scored, 0 failed" in pending.stderr
    assert len(rewards("waits")) == num_waiting
    assert rewards("waits").items() <= rewards("local").items()
    # Lines that wait for a judge are rescored in this process, whatever the engine.
    gym("verify", "there", *JUDGED, *judge, *ray, exit_code=0)


def asked(run: str) -> dict[str, object]:
    """Return the answers of judges by key; fail on duplicates."""
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
    """Let another process hold all cores of the cluster."""
    command = [sys.executable, "-c", _OCCUPY, address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        yield
        process.stdin.close()


@on_ray
@pytest.mark.slow
def test_cluster_without_a_free_core(ray_address):
    """The command waits for the given time and then says so; it does not hang."""
    with (
        occupied(ray_address),
        RayEngine(ray_address, 1, env=None, start_seconds=0.5) as engine,
        pytest.raises(EngineError, match="no Ray worker was started within"),
    ):
        asyncio.run(all_of(engine))


async def all_of(engine: RayEngine) -> list[Rollout | Failure]:
    """Score one conversation."""
    rollout = Rollout(env="e", task_id="1", attempt=0)
    attempt = Attempt(Environment[Task], EnvironmentOptions(), Verifier(), None, rollout)
    async with open_shared(Judges(), Verdicts()) as shared:
        records = engine.run(iter([attempt]), shared, concurrency=1, write=lambda outcome: outcome)
        return [record async for record in records]
