"""Shows the memory of `gym collect` over 100,000 rollouts.

The resident memory of the process is read a few times a second while it runs against a `gym mock`;
the server's count of requests shows the progress. There are three figures: the start, after 2 % of
the rollouts (imports, connections and buffers are in memory by then); the middle; and the end, the
peak from the last answer until the process exits, which includes computing the metrics. The slope
is that of the least-squares line through all samples from the start to the last answer.

There are two shapes: `repeats` is 1000 tasks with 100 attempts each, `tasks` is 100,000 tasks with
one attempt each. The run remembers something about every task, because ids must be unique and means
are over tasks; the slope of `tasks` is the price of one. The exit code is 1 if the end of a shape
is more than 15 % above its start, or if not every rollout was scored.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import NamedTuple

import msgspec

from bench.nonces import write_tasks
from bench.runs import Collecting, Server, collecting, serving, write_settings
from gymcli.commands.console import print_table

MAX_GROWTH = 0.15
WARM_UP = 0.02
MAX_SECONDS = 3600.0


class Sample(NamedTuple):
    """The memory of the process at one moment."""

    num_requests: int
    megabytes: float


SHAPES = {"repeats": 100, "tasks": 1}
"""Shapes with their attempts per task."""


class Soak(msgspec.Struct, kw_only=True):
    """The measurements of one shape."""

    num_tasks: int
    num_rollouts: int
    """Planned rollouts."""
    num_scored: int
    seconds: float
    exit_code: int | None
    start: Sample
    middle: Sample
    end: Sample
    bytes_per_rollout: float
    """The slope from the start to the last answer."""
    samples: list[Sample]

    @property
    def growth(self) -> float:
        """The increase from start to end, as a share of the start."""
        return self.end.megabytes / self.start.megabytes - 1


def resident_megabytes(process_id: int) -> float | None:
    """Return the resident memory of a process; None if it has ended."""
    status = Path(f"/proc/{process_id}/status")
    try:
        text = status.read_text() if status.parent.parent.joinpath("self").exists() else None
    except (FileNotFoundError, ProcessLookupError):
        return None
    if text is None:  # macOS has no /proc
        command = ["ps", "-o", "rss=", "-p", str(process_id)]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return int(found[0]) / 1024 if found else None
    # A zombie, a process that has ended and was not waited for, has no VmRSS line.
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")]
    return int(sizes[0]) / 1024 if sizes else None


def watch(run: Collecting, server: Server, interval: float) -> Iterator[Sample]:
    """Yield samples until the process ends."""
    while run.process.poll() is None and time.monotonic() < run.started + MAX_SECONDS:
        num_requests = server.stats().num_requests
        megabytes = resident_megabytes(run.process.pid)
        if megabytes is not None:
            yield Sample(num_requests, megabytes)
        time.sleep(interval)


def soak(repeats: int, num_rollouts: int, *, concurrency: int, interval: float) -> Soak:
    """Collect the rollouts and watch the memory of the process."""
    num_tasks = max(1, num_rollouts // repeats)
    num_rollouts = num_tasks * repeats
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        with serving() as server:
            write_settings(folder, server)
            options = ("--repeats", str(repeats))
            with collecting(folder, concurrency=concurrency, options=options) as run:
                samples = list(watch(run, server, interval))
                ended = run.wait(MAX_SECONDS)
        file = run.run / "rollouts.jsonl"
        if not file.is_file():
            raise SystemExit(f"nothing was scored: {ended.last_words}")
        # Lines are only counted; `faults.py` checks what they contain.
        with file.open("rb") as lines:
            num_scored = sum(1 for _ in lines)
    steady = [one for one in samples if one.num_requests >= WARM_UP * num_rollouts]
    if not steady:
        raise SystemExit(f"no sample was taken after the start: {ended.last_words}")
    # A short run may have no sample before or after the last request.
    asked = [one for one in steady if one.num_requests < num_rollouts] or steady
    ending = [one for one in steady if one.num_requests >= num_rollouts] or steady[-1:]
    return Soak(
        num_tasks=num_tasks,
        num_rollouts=num_rollouts,
        num_scored=num_scored,
        seconds=ended.seconds,
        exit_code=ended.exit_code,
        start=steady[0],
        middle=next((one for one in steady if one.num_requests >= num_rollouts / 2), steady[-1]),
        end=max(ending, key=lambda one: one.megabytes),
        bytes_per_rollout=slope(asked) * 2**20,
        samples=samples,
    )


def slope(samples: Sequence[Sample]) -> float:
    """Return megabytes per rollout, by least squares; 0 if all samples have the same count."""
    places = [sample.num_requests for sample in samples]
    if len(set(places)) < 2:
        return 0.0
    return linear_regression(places, [sample.megabytes for sample in samples]).slope


def problems_of(found: Soak, *, any_growth: bool = False) -> list[str]:
    """Return the broken rules; with `any_growth` the memory may grow."""
    problems = []
    if found.num_scored != found.num_rollouts or found.exit_code != 0:
        problems.append(f"{found.num_scored} scored, exit code {found.exit_code}")
    if found.growth > MAX_GROWTH and not any_growth:
        problems.append(f"the memory grew by {found.growth:.0%}, more than {MAX_GROWTH:.0%}")
    return problems


def print_soaks(soaks: Mapping[str, Soak]) -> None:
    """Print a table with a row per shape."""
    head = ("shape", "tasks", "scored", "start", "middle", "end", "growth", "slope", "speed")
    cells = [
        (
            name,
            f"{found.num_tasks:,}",
            f"{found.num_scored:,}",
            f"{found.start.megabytes:.1f} MB",
            f"{found.middle.megabytes:.1f} MB",
            f"{found.end.megabytes:.1f} MB",
            f"{found.growth:+.1%}",
            f"{found.bytes_per_rollout:.0f} B a rollout",
            f"{found.num_scored / found.seconds:.0f}/s",
        )
        for name, found in soaks.items()
    ]
    print_table(head, cells)


def main() -> None:
    """Collect every shape and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rollouts", type=int, default=100_000, help="rollouts of each shape")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="run only this shape")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--interval", type=float, default=0.2, help="seconds between two samples")
    parser.add_argument("--any-growth", action="store_true", help="do not check the memory")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    soaks, problems = {}, []
    for name in options.shape or SHAPES:
        found = soaks[name] = soak(
            SHAPES[name],
            options.rollouts,
            concurrency=options.concurrency,
            interval=options.interval,
        )
        wrong = problems_of(found, any_growth=options.any_growth)
        problems += [f"{name}: {problem}" for problem in wrong]
    print_soaks(soaks)
    print("\n".join(problems), end="\n" if problems else "")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(soaks))
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
