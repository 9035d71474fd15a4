"""Compares the client, which finds an endpoint's limit by itself, with the best fixed concurrency.

The mock server refuses requests beyond its limit with 429, without a Retry-After header.
`gym collect --concurrency 256` does not know the limit. It is compared with the same command at
several smaller concurrencies, which a user would have to find by trial. Throughput is the number of
scored rollouts divided by the time from the first start to the last end on record, so that starting
the process does not count. The exit code is 1 if a rollout is lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.nonces import write_tasks
from bench.runs import collecting, records, serving, tally, write_settings
from gymcli.commands.console import print_table
from gymcli.types import Rollout

UNKNOWN = 256
MEAN_LATENCY = 0.075
LATENCY = ("--latency", "uniform:0.05:0.1")
MAX_SECONDS = 600.0


class Storm(NamedTuple):
    """A limit of the server."""

    name: str
    options: tuple[str, ...]
    capacity: float
    """The most requests a second that the server can answer."""
    fixed: tuple[int, ...]
    """The concurrencies to compare with."""


def storm_in_flight(limit: int) -> Storm:
    """Return a storm whose server answers this many requests together."""
    fixed = sorted({max(1, round(limit * factor)) for factor in (0.75, 1.0, 1.25, 1.5)})
    return Storm(
        f"{limit} in flight",
        ("--max-in-flight", str(limit)),
        limit / MEAN_LATENCY,
        tuple(fixed),
    )


def storm_per_minute(limit: int) -> Storm:
    """Return a storm whose server answers this many requests per minute."""
    # Little's law: requests in flight are the rate times the latency.
    needed = limit / 60 * MEAN_LATENCY
    fixed = sorted({max(1, round(needed * factor)) for factor in (0.75, 1.0, 1.25, 2.0)})
    return Storm(
        f"{limit} a minute", ("--requests-per-minute", str(limit)), limit / 60, tuple(fixed)
    )


class Try(msgspec.Struct, kw_only=True):
    """The result of one command."""

    concurrency: int
    num_tasks: int
    num_scored: int
    num_requests: int
    exit_code: int | None
    throughput: float
    """Scored rollouts a second."""


class Result(msgspec.Struct, kw_only=True):
    """The result of one storm."""

    name: str
    capacity: float
    unknown: Try
    fixed: list[Try]

    @property
    def best(self) -> Try:
        """The fixed one with the highest throughput."""
        return max(self.fixed, key=lambda one: one.throughput)

    @property
    def num_lost(self) -> int:
        """The number of rollouts without a score, over all commands."""
        return sum(one.num_tasks - one.num_scored for one in (self.unknown, *self.fixed))


def attempt(storm: Storm, concurrency: int, num_tasks: int) -> Try:
    """Run one command with its own folder and server."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        with serving(*LATENCY, *storm.options) as server:
            write_settings(folder, server)
            with collecting(folder, concurrency=concurrency) as run:
                ended = run.wait(MAX_SECONDS)
            num_requests = server.stats().num_requests
        found = tally(run.run)
        timings = [rollout.timing for rollout in records(run.run / "rollouts.jsonl", Rollout)]
        first = min((timing.started_at for timing in timings), default=0.0)
        last = max((one.started_at + one.total_seconds for one in timings), default=0.0)
    return Try(
        concurrency=concurrency,
        num_tasks=num_tasks,
        num_scored=found.num_scored,
        num_requests=num_requests,
        exit_code=ended.exit_code,
        throughput=found.num_scored / (last - first) if last > first else 0.0,
    )


def measure(storms: Sequence[Storm], seconds: float) -> Iterator[Result]:
    """Run each storm for about this many seconds per command."""
    for storm in storms:
        num_tasks = max(20, round(storm.capacity * seconds))
        yield Result(
            name=storm.name,
            capacity=storm.capacity,
            unknown=attempt(storm, UNKNOWN, num_tasks),
            fixed=[attempt(storm, concurrency, num_tasks) for concurrency in storm.fixed],
        )


def print_results(results: Sequence[Result]) -> None:
    """Print a table with a row per storm, and below it every fixed concurrency."""
    head = ("limit", "capacity", "unknown", "best fixed", "with", "ratio", "requests", "lost")
    cells = [
        (
            result.name,
            f"{result.capacity:.0f}/s",
            f"{result.unknown.throughput:.1f}/s",
            f"{result.best.throughput:.1f}/s",
            f"{result.best.concurrency}",
            f"{result.unknown.throughput / max(result.best.throughput, 1e-9):.2f}",
            f"{result.unknown.num_requests / result.unknown.num_tasks:.2f} a rollout",
            str(result.num_lost),
        )
        for result in results
    ]
    print_table(head, cells)
    for result in results:
        tries = ", ".join(f"{one.concurrency}: {one.throughput:.1f}/s" for one in result.fixed)
        print(f"{result.name}: {tries}")


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--in-flight", type=int, action="append", metavar="LIMIT")
    parser.add_argument("--per-minute", type=int, action="append", metavar="LIMIT")
    parser.add_argument("--seconds", type=float, default=15.0, help="rough time per command")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    is_given = bool(options.in_flight or options.per_minute)
    storms = [storm_in_flight(n) for n in options.in_flight or ([] if is_given else [4, 16, 48])]
    storms += [storm_per_minute(n) for n in options.per_minute or ([] if is_given else [3000])]
    results = []
    for result in measure(storms, options.seconds):
        results.append(result)
        print(f"{result.name}: measured", file=sys.stderr, flush=True)
    print_results(results)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(results))
    if any(result.num_lost for result in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
