"""Measures the cost of an environment on a server, against one in the process of `gym collect`.

The same tasks are collected from the same scripted model in two ways, which take turns: with the
environment in the process of `gym collect`, and with one that `gym serve` serves on loopback.
Client, server and model are processes of their own. Start-up does not count: the server is warm,
and the CPU of a run of a few tasks is subtracted from that of `gym collect`. The figures are the
CPU of a rollout, of the client and of client and server together, as a ratio to the one in process.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench.figures import Figure, print_figures, save
from bench.runs import GYM, serving

__all__ = ["measure"]

NUM_FEW = 50
NUM_TURNS = 3
ENV = "example_session_state_mgmt"
CALLS: list[dict[str, object]] = [{"tool_calls": [("increment_counter", {"count": 1})]}] * 4

SHAPES: tuple[tuple[str, str, list[dict[str, object]]], ...] = (
    ("a single-turn rollout", "mcqa", [{"text": "\\boxed{A}"}]),
    (
        "a rollout with 4 tool calls (5 requests)",
        ENV,
        [*CALLS, {"text": "The counter is 4."}],
    ),
)
"""For each kind of rollout its name, its environment, and the model's answers."""


class Cost(NamedTuple):
    """CPU of one rollout, in milliseconds."""

    client: float
    server: float = 0.0

    @property
    def both(self) -> float:
        return self.client + self.server


class Way(NamedTuple):
    """An environment in the process, or on the server with this process id."""

    env: str
    server_id: int | None = None


def measure(scale: float = 1.0) -> list[Figure]:
    """Return the cost of a served rollout against one in process, single-turn and with tools."""
    num_tasks = max(100, int(800 * scale))
    figures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, env, lines in SHAPES:
            costs = _costs(folder / env, env, lines, num_tasks)
            figures += _figures(what, costs)
    return figures


def _figures(what: str, turns: list[tuple[Cost, Cost]]) -> list[Figure]:
    clients = [served.client / local.client for local, served in turns]
    boths = [served.both / local.client for local, served in turns]
    local = median(local.client for local, _ in turns)
    client = median(served.client for _, served in turns)
    server = median(served.server for _, served in turns)
    details: dict[str, float | str | list[float]] = {
        "ms in process": local,
        "ms of the client": client,
        "ms of the server": server,
    }
    return [
        Figure(
            what=f"CPU of the client, {what} on a server, against in process",
            value=median(clients),
            lowest=min(clients),
            highest=max(clients),
            details=details,
        ),
        Figure(
            what=f"CPU of client and server, {what} on a server, against in process",
            value=median(boths),
            lowest=min(boths),
            highest=max(boths),
        ),
    ]


def _costs(
    folder: Path, env: str, script: list[dict[str, object]], num_tasks: int
) -> list[tuple[Cost, Cost]]:
    """Return the costs of each turn: in process, and on a server."""
    folder.mkdir()
    _write_tasks(folder, env, num_tasks)
    behaviour = folder / "script.jsonl"
    behaviour.write_bytes(msgspec.json.encode({"match": "Task", "answers": script}) + b"\n")
    with serving("--behaviour", f"script:{behaviour}") as model, _served(env) as (url, server_id):
        ways = (Way(env), Way(f"{env}={url}", server_id))
        # A warm-up, so that the servers have imported everything and the files are cached.
        for way in ways:
            _collected(folder, way, model.base_url, "few")
        turns = []
        for _ in range(NUM_TURNS):
            local, served = (_cost(folder, way, model.base_url, num_tasks) for way in ways)
            turns.append((local, served))
    return turns


def _cost(folder: Path, way: Way, base_url: str, num_tasks: int) -> Cost:
    few = _collected(folder, way, base_url, "few")
    many = _collected(folder, way, base_url, "many")
    # The difference of the two runs is the CPU of the additional rollouts, without start-up.
    share = 1000.0 / (num_tasks - NUM_FEW)
    return Cost((many.client - few.client) * share, (many.server - few.server) * share)


def _collected(folder: Path, way: Way, base_url: str, tasks: str) -> Cost:
    """Run `gym collect`; return its CPU seconds and the server's."""
    before = 0.0 if way.server_id is None else _cpu_of(way.server_id)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = folder / "run"
    command = [*GYM, "collect", f"{tasks}.jsonl", "--env", way.env, "--model", "mock"]
    options = ["--base-url", base_url, "--out", str(out), "--fresh", "--quiet", "--json"]
    subprocess.run([*command, *options], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    client = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return Cost(client, 0.0 if way.server_id is None else _cpu_of(way.server_id) - before)


def _cpu_of(process_id: int) -> float:
    """Return the CPU seconds of a running process (Linux)."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _served(env: str) -> Iterator[tuple[str, int]]:
    """Serve an environment during the block; yield its address and process id."""
    command = [*GYM, "serve", env, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise SystemExit(f"gym serve {env} did not start")
            yield url, process.pid
        finally:
            process.terminate()


def _write_tasks(folder: Path, env: str, num_tasks: int) -> None:
    if env == ENV:
        fields: dict[str, object] = {"initial_count": 0, "expected_count": 4}
    else:
        options = [{letter: f"option {letter}"} for letter in "ABCD"]
        fields = {"options": options, "expected_answer": "A"}
    for name, number in (("few", NUM_FEW), ("many", num_tasks)):
        rows = (
            {"id": str(n), "messages": [{"role": "user", "content": f"Task {n}."}], **fields}
            for n in range(number)
        )
        path = folder / f"{name}.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of tasks")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.scale)
    print_figures(figures)
    if arguments.json is not None:
        save(figures, arguments.json)


if __name__ == "__main__":
    main()
