"""Real Ray clusters on this machine: what a run on one gives, and what a death costs."""

import os
import signal
import stat
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from gymcli.mock import MockServer
from tests.commands.running import clean_environment, gym, gym_process
from tests.engines.worlds import records_of, write_tasks

pytest_plugins = ["gymcli.mock.fixture"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'gymcli[ray]'"),
]

OUT = Path("run")
ENV = "deadly.py:Deadly"


def collect(server: MockServer, *more: str | Path, out: Path = OUT) -> tuple[str | Path, ...]:
    """Give the arguments of a collection, without its engine."""
    where = ("--model", "m", "--base-url", server.base_url, "--out", out, "--quiet")
    return ("collect", "tasks.jsonl", "--env", ENV, *where, "--seed", "5", *more)


def first_line(process: subprocess.Popen, file: Path) -> str:
    """Wait until a file has a line, and return that; Ray needs the cores meanwhile."""
    while not (file.exists() and file.read_text().endswith("\n")):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.returncode is None
    return file.read_text().splitlines()[0]


def test_own_cluster_worker_killed_equals_local(tmp_path, monkeypatch, mock_server):
    """A cluster of its own; its processes, and its files, are gone with the command."""
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, 30)
    assert gym(*collect(mock_server, "--repeats", "2", out=Path("local"))).exit_code == 0
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
    assert len(processes) >= 2  # one of them in the place of the one that died
    assert str(os.getpid()) not in processes
    assert not folder.exists()


def test_joined_cluster_resumes_local_run_and_is_resumed(
    tmp_path, monkeypatch, mock_server, ray_address
):
    """Three commands write one run, in turns; a budget ends the second of them."""
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, 24)
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1", "--concurrency", "2")
    assert gym(*collect(mock_server, "--limit", "5")).exit_code == 0
    stopped = gym(*collect(mock_server, *ray, "--max-tokens-total", "60", "--grace", "60"))
    assert stopped.exit_code == 6, stopped.stderr
    there = records_of(OUT / "rollouts.jsonl")
    assert 5 < len(there) < 24
    assert gym(*collect(mock_server)).exit_code == 0
    assert len(records_of(OUT / "rollouts.jsonl")) == 24
    assert len(Path("played").read_text().splitlines()) == 24
    assert gym(*collect(mock_server, *ray)).exit_code == 0


@pytest.mark.parametrize("what", ["deadly", pytest.param("blocking", marks=pytest.mark.slow)])
def test_attempt_that_ends_every_worker_is_given_up_alone(
    tmp_path, monkeypatch, mock_server, ray_address, what
):
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, 6)
    Path(f"{what}-3").write_text("always")
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1")
    result = gym(*collect(mock_server, *ray, "--min-coverage", "0.5"))
    assert result.exit_code == 0, result.stderr
    assert len(records_of(OUT / "rollouts.jsonl")) == 5
    failures = records_of(OUT / "failures.jsonl")
    assert list(failures) == [("3", 0)]
    assert "3 Ray workers died" in failures["3", 0]["error"]["message"]


def test_interrupted_run_keeps_what_is_done(tmp_path, monkeypatch, ray_address, gym_mock):
    """Ctrl-C in the middle: those in flight are cut off after the grace, and are on record."""
    monkeypatch.chdir(tmp_path)
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


def test_failing_verifiers_and_refused_key(tmp_path, monkeypatch, ray_address, gym_mock):
    """What fails in a worker is recorded as here; what no attempt can pass ends the run."""
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, 4)
    ray = ("--engine", "ray", "--address", ray_address, "--workers", "1")
    Path("broken").touch()
    assert gym(*collect(gym_mock(), *ray)).exit_code == 4
    failures = records_of(OUT / "failures.jsonl")
    assert {record["error"]["class"] for record in failures.values()} == {"VerifierError"}
    assert len(records_of(OUT / "generations.jsonl")) == 4
    Path("broken").unlink()
    refused = gym(*collect(gym_mock(api_key="sk-right-0123456789"), *ray, out=Path("refused")))
    assert refused.exit_code == 4
    assert "no key was sent" in refused.stderr
    assert gym(*collect(gym_mock(), *ray)).exit_code == 0  # scores what waits, asks for nothing
    assert len(Path("played").read_text().splitlines()) == 4
