"""Compares the makespan and CPU time of a run on Ray workers with one in a single process.

Both play the same tasks against the same mock server, in turns. Starting a cluster takes seconds,
which do not count: the makespan runs from the first request that the server sees to the last. CPU
time is measured twice: that of the command, which on Ray plays no episode and writes all records,
and that of the command with all processes below it, Ray's own and the workers. Both are sampled
ten times a second, which misses a little at their end; their start counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, print_figures, save
from bench.server import GYM, check_share, cpu_seconds, serving

__all__ = ["measure"]

_NUM_TASKS = 4000
_NUM_RUNS = 3
_SECONDS = 0.1
"""Latency of the mock server."""

_LOOK_SECONDS = 0.1

_CONCURRENCY = 64
_NUM_WORKERS = 2


class Run(NamedTuple):
    """The cost of one run."""

    makespan: float
    cpu_seconds: float
    """CPU of the command's process, and of the process that watches it."""
    all_cpu_seconds: float
    """CPU of these and of all processes below them."""


def measure(scale: float = 1.0) -> list[Figure]:
    """Compare runs on two Ray workers with runs in one process."""
    num_tasks = max(100, int(_NUM_TASKS * scale))
    local: list[Run] = []
    on_ray: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "tasks.jsonl"
        rows = (_row(number) for number in range(num_tasks))
        tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for number in range(_NUM_RUNS):
            local.append(_run(tasks, Path(folder) / f"local-{number}", ()))
            engine = ("--engine", "ray", "--workers", str(_NUM_WORKERS))
            on_ray.append(_run(tasks, Path(folder) / f"ray-{number}", engine))
    return [
        _figure("makespan on two Ray workers, against one process", "makespan", local, on_ray),
        _figure(
            "CPU of the command on Ray, against one process",
            "cpu_seconds",
            local,
            on_ray,
        ),
        _figure(
            "CPU of the command, Ray and its workers, against one process",
            "all_cpu_seconds",
            local,
            on_ray,
        ),
    ]


def _row(number: int) -> dict[str, object]:
    return {"id": str(number), "prompt": f"What is {number} + 1?", "answer": number + 1}


def _run(tasks: Path, out: Path, engine: tuple[str, ...]) -> Run:
    with ExitStack() as stack:
        server = stack.enter_context(serving("--latency", str(_SECONDS)))
        where = ["--model", "m", "--base-url", server.base_url, "--out", str(out)]
        command = [*GYM, "collect", str(tasks), "--env", "arithmetic", *where, *engine]
        command += ["--concurrency", str(_CONCURRENCY), "--quiet", "--seed", "1"]
        before = cpu_seconds(server.process_id)
        seconds, below = _cpu_of(command)
        used = cpu_seconds(server.process_id) - before
        stats = server.stats()
    assert stats.first_at is not None
    assert stats.last_at is not None
    makespan = stats.last_at - stats.first_at
    check_share(used / makespan)
    return Run(makespan, seconds, seconds + below)


def _cpu_of(command: list[str]) -> tuple[float, float]:
    """Run a command; return the CPU time of its own two processes, and of all processes below."""
    own: dict[int, float] = {}
    below: dict[int, float] = {}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        children = _children()
        # `gym` restarts the process that does the work if it dies: both are the command.
        main = [process.pid, *children.get(process.pid, [])]
        for process_id in (*main, *_below(process.pid, children)):
            with suppress(SystemExit):  # the process has just ended
                times = own if process_id in main else below
                times[process_id] = cpu_seconds(process_id)
        time.sleep(_LOOK_SECONDS)
    if process.returncode:
        raise SystemExit(f"the run failed: exit code {process.returncode}")
    return sum(own.values()), sum(below.values())


def _children() -> dict[int, list[int]]:
    """Return the ids of the children of each process of this machine."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    return children


def _below(process_id: int, children: dict[int, list[int]]) -> list[int]:
    """Return the ids of all descendants of a process."""
    found: list[int] = []
    waiting = [process_id]
    while waiting:
        started = children.get(waiting.pop(), [])
        found += started
        waiting += started
    return found


def _figure(what: str, field: str, local: list[Run], on_ray: list[Run]) -> Figure:
    bases = [getattr(run, field) for run in local]
    values = [getattr(run, field) for run in on_ray]
    ratios = [value / base for value, base in zip(values, bases, strict=True)]
    return Figure(
        what=what,
        value=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        details={"local_seconds": bases, "ray_seconds": values},
    )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of tasks")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.scale)
    print_figures(figures)
    if arguments.json is not None:
        save(figures, arguments.json)


if __name__ == "__main__":
    main()
