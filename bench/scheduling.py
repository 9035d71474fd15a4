"""Measures how close a run comes to list scheduling, the ideal if only waiting takes time.

The wait of `gym mock` before an answer (a lognormal distribution) depends only on its seed and the
request's body, not on when the request arrives. List scheduling assigns the same waits, in the
order of the tasks, to the first of N places that is free. No client that takes tasks in order and
has N requests in flight is faster. The run is timed from the first request to the last answer, by
the server's log: starting the process does not count, everything between two answers does.

With more requests in flight than a core can keep busy, the CPU of a rollout sets the pace. Those
rows show rollouts a second, without a goal.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench.figures import Figure, print_figures, save
from bench.nonces import write_tasks
from bench.runs import collecting, tally, write_settings
from bench.server import MAX_SHARE, check_share, cpu_seconds, serving
from gymcli.mock import Exchange, Latency

__all__ = ["list_scheduling", "measure"]

LIMIT = 1.05
IN_FLIGHT = 512
NUM_TASKS = 20_000
NUM_RUNS = 3
LATENCY = "lognormal:0.2:0.5"
SEED = 1
OTHERS = {64: 1000, 2048: 8000, 16_000: 16_000}
"""Requests in flight and tasks of the rows without a goal."""

MAX_SECONDS = 600.0


class Run(NamedTuple):
    """One `gym collect`, compared with list scheduling of its requests."""

    seconds: float
    """From the first request to the last answer."""
    ideal: float
    """The makespan of list scheduling."""
    max_in_flight: int
    server_share: float
    """CPU time of the server, divided by `seconds`."""


def list_scheduling(waits: Sequence[float], num_places: int) -> float:
    """Return when the last wait ends if each begins at the first free place."""
    free_at = [0.0] * num_places
    for wait in waits:
        heapq.heapreplace(free_at, free_at[0] + wait)
    return max(free_at)


def waits_of(exchanges: Sequence[Exchange], latency: Latency, seed: int) -> list[float]:
    """Return the server's waits before the answers to these requests, in order."""
    seen: Counter[str] = Counter()
    waits = []
    for exchange in exchanges:
        # Equal bodies have different waits: the mock counts the occurrences of each.
        waits.append(latency.seconds(seed=seed, body=exchange.body, occurrence=seen[exchange.body]))
        seen[exchange.body] += 1
    return waits


def run_once(in_flight: int, num_tasks: int) -> Run:
    """Run `gym collect` once, with its own folder and server.

    Raises:
        SystemExit: An attempt was not scored.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        options = ("--latency", LATENCY, "--seed", str(SEED), "--log", folder / "log.jsonl")
        with serving(*options) as server:
            write_settings(folder, server)
            before = cpu_seconds(server.process_id)
            with collecting(folder, concurrency=in_flight) as run:
                ended = run.wait(MAX_SECONDS)
            stats, used = server.stats(), cpu_seconds(server.process_id) - before
        found = tally(run.run)
        if ended.exit_code != 0 or found.num_right != num_tasks:
            raise SystemExit(f"{found.num_right} of {num_tasks} right: {ended.last_words}")
        with (folder / "log.jsonl").open("rb") as lines:
            log = [msgspec.json.decode(line, type=Exchange) for line in lines]
    # The server logs a request when it has ended.
    log.sort(key=lambda exchange: exchange.started)
    waits = waits_of(log, Latency.parse(LATENCY), SEED)
    seconds = max(exchange.ended or 0.0 for exchange in log) - log[0].started
    ideal = list_scheduling(waits, in_flight)
    return Run(seconds, ideal, stats.max_in_flight, used / seconds)


def figure_of(in_flight: int, num_tasks: int, runs: Sequence[Run]) -> Figure:
    """Return the figure of several runs: the makespan, which has a goal, or rollouts a second."""
    ratios = [run.seconds / run.ideal for run in runs]
    share = max(run.server_share for run in runs)
    details: dict[str, float | str | list[float]] = {
        "tasks": num_tasks,
        "seconds": [round(run.seconds, 2) for run in runs],
        "list scheduling": round(median(run.ideal for run in runs), 2),
        "most in flight": max(run.max_in_flight for run in runs),
        "server's share": round(share, 2),
    }
    # Without a goal, a row in which the server set the pace is reported with a remark.
    if in_flight == IN_FLIGHT:
        check_share(share)
        return Figure(
            what=f"makespan, {in_flight:,} in flight at 200 ms, against list scheduling",
            goal=f"≤ {LIMIT}",
            limit=LIMIT,
            value=median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            details=details,
        )
    pace = ", the mock server set the pace" if share >= MAX_SHARE else ""
    speeds = [num_tasks / run.seconds for run in runs]
    return Figure(
        what=f"rollouts a second, {in_flight:,} in flight at 200 ms{pace}",
        value=median(speeds),
        unit="/s",
        lowest=min(speeds),
        highest=max(speeds),
        details={**details, "against list scheduling": median(ratios)},
    )


def measure(scale: float = 1.0, *, num_runs: int = NUM_RUNS) -> list[Figure]:
    """Return the makespan against list scheduling, and the speed with fewer and more in flight."""
    figures = []
    for in_flight, num_tasks in {IN_FLIGHT: NUM_TASKS, **OTHERS}.items():
        num_scaled = max(1, round(num_tasks * scale))
        num_turns = num_runs if in_flight == IN_FLIGHT else 1
        runs = [run_once(in_flight, num_scaled) for _ in range(num_turns)]
        figures.append(figure_of(in_flight, num_scaled, runs))
    return figures


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help=f"factor for {NUM_TASKS} tasks")
    parser.add_argument("--runs", type=int, default=NUM_RUNS, help="runs of the row with a goal")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures = measure(options.scale, num_runs=options.runs)
    print_figures(figures)
    if options.json is not None:
        save(figures, options.json)


if __name__ == "__main__":
    main()
