"""Measures how long it takes until a run has 16,000 requests in flight.

`gym mock` waits so long before it answers that every request has arrived by then, and records when
the first and the last one arrived. Server and client need a core each. No attempt may fail, and all
requests must be in flight at one moment. Memory is the peak of the client process.

For comparison, a bare loop with aiohttp sends the same requests, each in its own asyncio task.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench.figures import Figure, print_figures, save
from bench.nonces import nonce_of, write_tasks
from bench.runs import collecting, tally, write_settings
from bench.server import Server, serving
from gymcli.commands.open_files import MOST_OPEN_FILES, allow_open_files

__all__ = ["measure", "peak_megabytes"]

IN_FLIGHT = 16_000
LATENCY = 30.0
NUM_RUNS = 3
MAX_SECONDS = 600.0
ROOT = Path(__file__).resolve().parents[1]


class Run(NamedTuple):
    """The result of one client."""

    seconds: float
    """From the first request to the last one, by the server's clock."""
    num_errors: int
    """Attempts without a right answer."""
    max_in_flight: int
    megabytes: float


def peak_megabytes(process_id: int) -> float:
    """Return the peak memory of a process so far; 0 if it has ended."""
    try:
        text = Path(f"/proc/{process_id}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) / 1024 if found else 0.0


def watch(process: subprocess.Popen[bytes]) -> float:
    """Wait for the end of a process; return its peak memory."""
    started, peak = time.monotonic(), 0.0
    # /proc has no memory of a process that has ended, so the peak is read while it runs.
    while process.poll() is None:
        peak = max(peak, peak_megabytes(process.pid))
        if time.monotonic() - started > MAX_SECONDS:
            raise SystemExit(f"the client did not end within {MAX_SECONDS:.0f} seconds")
        time.sleep(0.1)
    return peak


def run_gym(num_tasks: int, latency: float) -> Run:
    """Run `gym collect` with all of its tasks in flight."""
    with tempfile.TemporaryDirectory() as temporary, serving("--latency", str(latency)) as server:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        write_settings(folder, server)
        with collecting(folder, concurrency=num_tasks) as run:
            megabytes = watch(run.process)
        return _counted(server, num_tasks - tally(run.run).num_right, megabytes)


def run_bare(num_tasks: int, latency: float) -> Run:
    """Run the bare loop in its own process."""
    with serving("--latency", str(latency)) as server:
        command = [sys.executable, "-m", "bench.in_flight", "--bare", server.base_url]
        command += ["--tasks", str(num_tasks)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            megabytes = watch(process)
            num_right = int(process.stdout.read() or 0)
        return _counted(server, num_tasks - num_right, megabytes)


def _counted(server: Server, num_errors: int, megabytes: float) -> Run:
    stats = server.stats()
    seconds = (stats.last_at or 0.0) - (stats.first_at or 0.0)
    return Run(seconds, num_errors, stats.max_in_flight, megabytes)


async def ask_bare(base_url: str, num_tasks: int) -> int:
    """Send all requests together, and return how many were answered correctly."""
    import aiohttp

    async def ask(number: int) -> bool:
        nonce = nonce_of(0, number)
        messages = [{"role": "user", "content": f"Say back: {nonce}"}]
        body = msgspec.json.encode({"model": "mock", "messages": messages})
        async with session.post(f"{base_url}/chat/completions", data=body) as response:
            return nonce.encode() in await response.read()

    # Each request needs a connection: more than the usual limit of open files, and than the 100
    # that aiohttp opens by default.
    allow_open_files(MOST_OPEN_FILES)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=MAX_SECONDS)
    ) as session:
        asked = [asyncio.create_task(ask(number)) for number in range(num_tasks)]
        return sum(await asyncio.gather(*asked))


def measure(scale: float = 1.0, *, num_runs: int = NUM_RUNS) -> list[Figure]:
    """Return the seconds until all requests were sent, the errors, and the memory."""
    num_tasks = max(1, round(IN_FLIGHT * scale))
    latency = max(1.0, LATENCY * scale)
    runs = [run_gym(num_tasks, latency) for _ in range(num_runs)]
    bare = run_bare(num_tasks, latency)
    seconds = [run.seconds for run in runs]
    # Requests that were never in flight with the others count as errors.
    num_missing = num_tasks - min(run.max_in_flight for run in runs)
    what = f"{num_tasks:,} in flight at once"
    details: dict[str, float | str | list[float]] = {
        "the barest loop, seconds": round(bare.seconds, 2),
        "its MB": round(bare.megabytes),
        "its errors": bare.num_errors,
    }
    return [
        Figure(
            what=f"{what}: all sent, seconds after the first",
            value=median(seconds),
            unit="s",
            lowest=min(seconds),
            highest=max(seconds),
            details=details,
        ),
        Figure(
            what=f"{what}: errors",
            goal="0",
            limit=0,
            value=sum(run.num_errors for run in runs) + num_missing,
            unit="",
            details={"most in flight": [float(run.max_in_flight) for run in runs]},
        ),
        Figure(
            what=f"{what}: peak memory",
            value=median(run.megabytes for run in runs),
            unit="MB",
            details={"kB a request": median(run.megabytes for run in runs) * 1024 / num_tasks},
        ),
    ]


def main() -> None:
    """Measure, or run the bare loop."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help=f"factor for {IN_FLIGHT} requests")
    parser.add_argument("--runs", type=int, default=NUM_RUNS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--bare", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--tasks", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare is not None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(ask_bare(options.bare, options.tasks)))
        return
    figures = measure(options.scale, num_runs=options.runs)
    print_figures(figures)
    if options.json is not None:
        save(figures, options.json)


if __name__ == "__main__":
    main()
