"""Measures `gym verify` and `gym metrics` against parsing the same file with orjson.

The run is generated from a seed (`bench/recorded.py`) and is in the page cache. Each command runs
in its own process, and start-up counts. CPU is that of the process and its workers. The commands
take turns, so that other load on the machine affects all of them:

- `parse`: orjson parses every line of the file;
- `metrics`: `gym metrics --json` of the run, its time and its peak memory;
- `verify`: `gym verify` of the run with a trivial verifier, on one core and on two.

Ratios compare MB per CPU second; the speed-up compares MB per second on the clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import Figure, print_figures, save
from bench.recorded import ENVIRONMENT, write_run

__all__ = ["main", "measure"]

_NUM_TASKS = 250_000
_ATTEMPTS = 4
_NUM_TURNS = 3

_RUN = "from gymcli.supervisor import main; import sys; sys.argv[0] = 'gym'; main()"
_PARSE = "import sys, orjson\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)"


class Effort(msgspec.Struct):
    """The cost of one run of a command."""

    cpu_seconds: float
    wall_seconds: float
    peak_mb: float


def measure(scale: float = 1.0) -> list[Figure]:
    """Measure both commands over 1,000,000 rollouts times `scale`."""
    num_tasks = max(1, round(_NUM_TASKS * scale))
    with tempfile.TemporaryDirectory(prefix="gym-bench-") as folder:
        file = write_run(Path(folder) / "run", num_tasks=num_tasks, num_attempts=_ATTEMPTS)
        num_rollouts = num_tasks * _ATTEMPTS
        return _measure_metrics(file, num_rollouts) + _measure_verify(file, num_rollouts)


def _measure_metrics(file: Path, num_rollouts: int) -> list[Figure]:
    parsed, counted = [], []
    for _ in range(_NUM_TURNS):
        parsed.append(_parse(file))
        counted.append(_gym("metrics", "--json", str(file.parent)))
    ratios = [a.cpu_seconds / b.cpu_seconds for a, b in zip(parsed, counted, strict=True)]
    details = _details(file, num_rollouts, parse=parsed, metrics=counted)
    peaks = [effort.peak_mb for effort in counted]
    return [
        Figure(
            what="gym metrics, MB/s against parsing all with orjson",
            goal="≥ 0.8",
            limit=0.8,
            is_at_least=True,
            value=median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            details=details,
        ),
        Figure(
            what=f"gym metrics, peak memory over {num_rollouts:,} rollouts",
            goal="< 300 MB",
            limit=300.0,
            value=median(peaks),
            unit="MB",
            lowest=min(peaks),
            highest=max(peaks),
        ),
    ]


def _measure_verify(file: Path, num_rollouts: int) -> list[Figure]:
    command = ("verify", "--quiet", "--env", ENVIRONMENT, str(file.parent))
    parsed, alone, both = [], [], []
    for _ in range(_NUM_TURNS):
        parsed.append(_parse(file))
        alone.append(_gym(*command, num_cores=1))
        both.append(_gym(*command, num_cores=2))
    ratios = [a.cpu_seconds / b.cpu_seconds for a, b in zip(parsed, both, strict=True)]
    speed_ups = [a.wall_seconds / b.wall_seconds for a, b in zip(alone, both, strict=True)]
    return [
        Figure(
            what="gym verify, trivial verifier, MB/s a core against parsing all with orjson",
            goal="≥ 0.25",
            limit=0.25,
            is_at_least=True,
            value=median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            details=_details(file, num_rollouts, parse=parsed, verify=both),
        ),
        Figure(
            what="gym verify, speed-up on two cores",
            goal="≥ 1.6",
            limit=1.6,
            is_at_least=True,
            value=median(speed_ups),
            lowest=min(speed_ups),
            highest=max(speed_ups),
            details={
                "s on one core": median(effort.wall_seconds for effort in alone),
                "s on two": median(effort.wall_seconds for effort in both),
                "load": os.getloadavg()[0],
            },
        ),
    ]


def _details(
    file: Path, num_rollouts: int, **efforts: list[Effort]
) -> dict[str, float | str | list[float]]:
    details: dict[str, float | str | list[float]] = {
        "MB": file.stat().st_size / 1e6,
        "rollouts": float(num_rollouts),
    }
    for name, taken in efforts.items():
        seconds = median(effort.cpu_seconds for effort in taken)
        details[f"µs a rollout to {name}"] = 1e6 * seconds / num_rollouts
    return details


def _parse(file: Path) -> Effort:
    return _effort([sys.executable, "-c", _PARSE, str(file)])


def _gym(*arguments: str, num_cores: int | None = None) -> Effort:
    """Run a command of gym, on this many cores if the system supports it (Linux)."""
    cores = os.sched_getaffinity(0) if sys.platform == "linux" else None
    # A child inherits the affinity, so this process takes it for as long as the child runs.
    if cores is not None and num_cores is not None:
        os.sched_setaffinity(0, sorted(cores)[:num_cores])
    try:
        return _effort([sys.executable, "-c", _RUN, *arguments])
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)


def _effort(command: list[str]) -> Effort:
    """Run a process and return its cost, including the workers that it waits for."""
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{command[2:]} ended with exit code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # ru_maxrss is in bytes on macOS and in kilobytes on Linux.
    unit = 1e6 if sys.platform == "darwin" else 1024.0
    return Effort(cpu_seconds, wall_seconds, used.ru_maxrss / unit)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for 1,000,000 rollouts")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.scale)
    print_figures(figures)
    if arguments.json:
        save(figures, arguments.json)


if __name__ == "__main__":
    main()
