"""Measures how the peak memory of `gym collect` grows with the number of tasks.

The command runs as a user would run it, in its own process, against a mock server in another: first
a new run, then the same command again, which finds everything done. The peak is what the kernel
recorded for the process (VmHWM), including imports.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench.figures import Figure, print_figures, save
from bench.overhead import SHAPES, write_tasks
from bench.server import Server, serving

__all__ = ["LIMIT", "NUM_FEW", "NUM_MANY", "measure"]

LIMIT = 1.5
NUM_FEW = 2_000
NUM_MANY = 200_000
NUM_RUNS = 3
"""Runs with few tasks; many tasks take minutes and run once."""
_SHAPE = SHAPES["single-turn"]

_CLIENT = """
import atexit, shutil, sys
atexit.register(shutil.copyfile, "/proc/self/status", sys.argv.pop(1))
from gymcli.cli import main
main()
"""
"""The command, which copies its process status, with the peak memory, to a file as it exits."""


class Peaks(NamedTuple):
    """The most memory that the command held, in MB."""

    collecting: float
    resuming: float


def measure(scale: float = 1.0) -> list[Figure]:
    """Compare the peaks of few tasks and of many, for a new run and for one that is complete.

    Raises:
        SystemExit: The command failed, or there is no /proc (only Linux has it).
    """
    num_few, num_many = (max(1, round(number * scale)) for number in (NUM_FEW, NUM_MANY))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        script = folder / "script.jsonl"
        script.write_bytes(msgspec.json.encode({"answers": _SHAPE.answers}) + b"\n")
        with serving("--behaviour", f"script:{script}") as server:
            few = [_peaks(server, folder / f"few-{run}", num_few) for run in range(NUM_RUNS)]
            many = _peaks(server, folder / "many", num_many)
    what = f"peak memory of gym collect, {num_many:,} tasks against {num_few:,}"
    collecting = _figure(what, [peaks.collecting for peaks in few], many.collecting)
    what = "the same, of a run in which everything is done"
    resuming = _figure(what, [peaks.resuming for peaks in few], many.resuming)
    collecting.goal, collecting.limit = f"≤ {LIMIT}", LIMIT
    return [collecting, resuming]


def _figure(what: str, few: list[float], many: float) -> Figure:
    return Figure(
        what=what,
        value=many / median(few),
        lowest=many / max(few),
        highest=many / min(few),
        details={"few MB": few, "many MB": many},
    )


def _peaks(server: Server, folder: Path, num_tasks: int) -> Peaks:
    folder.mkdir()
    tasks = folder / "tasks.jsonl"
    write_tasks(tasks, _SHAPE, num_tasks)
    return Peaks(_peak(server, tasks, num_tasks), _peak(server, tasks, num_tasks))


def _peak(server: Server, tasks: Path, num_tasks: int) -> float:
    """Run the command, or run it again; return the peak memory of its process in MB."""
    status = tasks.with_name("status")
    options = ["--env", _SHAPE.env, "--model", "mock", "--base-url", server.base_url]
    options += ["--out", str(tasks.with_name("run")), "--quiet", "--json"]
    command = [sys.executable, "-c", _CLIENT, str(status), "collect", str(tasks), *options]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if ended.returncode:
        raise SystemExit(f"gym collect ended with {ended.returncode}")
    num_scored = msgspec.json.decode(ended.stdout)["num_scored"]
    if num_scored != num_tasks:
        raise SystemExit(f"gym collect scored {num_scored} tasks, not {num_tasks}")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("/proc/self/status has no peak memory (VmHWM)")
    return int(found[1]) / 1024


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the numbers of tasks")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    if not Path("/proc/self/status").is_file():
        parser.error("needs Linux: the peak memory is read from /proc")
    figures = measure(options.scale)
    print_figures(figures)
    if options.json is not None:
        save(figures, options.json)


if __name__ == "__main__":
    main()
