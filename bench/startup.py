"""Measures how long commands take to start, against a bare Typer application of two commands.

The applications take turns, so that other load on the machine affects all of them. The kernel
reports CPU and peak memory of each process when it ends; wall time is measured here. The figures
are medians, and the ratios compare CPU. The bare application is what a user writes first: two
commands and all defaults. `gym --help` is compared with its `--help`; a line that names a command
is compared with the help of one of its commands, for which Typer imports pydantic.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.figures import Figure, print_figures, save

__all__ = ["COMMANDS", "LIMIT", "MAX_MB", "NUM_RUNS", "measure"]

LIMIT = 1.3
MAX_MB = 40.0
NUM_RUNS = 21
_KB = 1024 if sys.platform == "darwin" else 1
"""Units of ru_maxrss in a kB: macOS reports bytes, Linux kB."""

_BARE = '''"""An application of two commands, as a user would write it."""

import typer

app = typer.Typer()


@app.command()
def greet(name: str, num_times: int = 1) -> None:
    """Greet somebody."""


@app.command()
def leave(name: str) -> None:
    """Say good-bye."""


if __name__ == "__main__":
    app()
'''
_BARE_HELP = "bare --help"
_BARE_COMMAND = "bare greet --help"
_GYM = "from gymcli.supervisor import main; main()"

COMMANDS: dict[str, Sequence[str]] = {
    "gym --help": ("--help",),
    "gym --version": ("--version",),
    "gym collect --help": ("collect", "--help"),
    "gym verify --help": ("verify", "--help"),
    "gym metrics --help": ("metrics", "--help"),
    "gym merge --help": ("merge", "--help"),
    "gym data --help": ("data", "--help"),
    "gym collect, a wrong option": ("collect", "--wrong"),
    "gym envs": ("envs",),
    "gym collect --dry-run": ("collect", "arithmetic", "--model", "oracle", "--dry-run"),
    "gym collect of one task": (
        *("collect", "arithmetic", "--model", "oracle", "--limit", "1", "--out", "run", "--fresh"),
        "--quiet",
    ),
}
"""The arguments of each line; CPU and memory of the first one have a goal."""

_MAX_MS = {"gym --help": 150.0, "gym collect of one task": 800.0}
"""The maximum wall time of a command on an idle machine."""


class Run(NamedTuple):
    """The cost of one process."""

    cpu_ms: float
    wall_ms: float
    peak_mb: float


def measure(scale: float = 1.0) -> list[Figure]:
    """Start every command in turn, several times; return its CPU against the bare application's."""
    num_runs = max(1, round(NUM_RUNS * scale))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bare.py").write_text(_BARE, encoding="utf-8")
        bare = [sys.executable, "bare.py"]
        lines = {_BARE_HELP: [*bare, "--help"], _BARE_COMMAND: [*bare, "greet", "--help"]} | {
            what: [sys.executable, "-c", _GYM, *arguments] for what, arguments in COMMANDS.items()
        }
        for line in lines.values():  # writes missing .pyc files and fills the page cache
            _run(line, folder)
        runs: dict[str, list[Run]] = {what: [] for what in lines}
        for _ in range(num_runs):
            for what, line in lines.items():
                runs[what].append(_run(line, folder))
    figures = [
        _figure(what, runs[what], runs[_BARE_HELP if is_own else _BARE_COMMAND])
        for what, is_own in ((what, line[0].startswith("-")) for what, line in COMMANDS.items())
    ]
    figures[0].goal, figures[0].limit = f"≤ {LIMIT}", LIMIT
    for what, limit in _MAX_MS.items():
        walls = [run.wall_ms for run in runs[what]]
        figures.append(_absolute(f"{what}, wall time on an idle machine", walls, limit, "ms"))
    peaks = [run.peak_mb for run in runs["gym --help"]]
    return [*figures, _absolute("gym --help, peak memory", peaks, MAX_MB, "MB")]


def _run(line: Sequence[str], folder: Path) -> Run:
    """Run a command to its end, in a folder without gym.toml or tasks."""
    # The folder is not the checkout, whose gymcli must be the one that is imported.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    started = time.perf_counter()
    process = subprocess.Popen(
        line,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):  # 2: the wrong option
        raise SystemExit(f"{' '.join(line[2:])} ended with {process.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    return Run(1000 * cpu, 1000 * wall, usage.ru_maxrss / _KB / 1024)


def _figure(what: str, runs: Sequence[Run], bare: Sequence[Run]) -> Figure:
    ratios = [own.cpu_ms / other.cpu_ms for own, other in zip(runs, bare, strict=True)]
    middle, of_bare = _median(runs), _median(bare)
    return Figure(
        what=f"CPU of {what}, against a bare Typer application",
        value=middle.cpu_ms / of_bare.cpu_ms,
        lowest=min(ratios),
        highest=max(ratios),
        details={
            "CPU ms": middle.cpu_ms,
            "wall ms": middle.wall_ms,
            "peak MB": middle.peak_mb,
            "bare CPU ms": of_bare.cpu_ms,
            "bare wall ms": of_bare.wall_ms,
            "bare peak MB": of_bare.peak_mb,
        },
    )


def _absolute(what: str, values: Sequence[float], limit: float, unit: str) -> Figure:
    return Figure(
        what=what,
        value=median(values),
        unit=unit,
        lowest=min(values),
        highest=max(values),
        goal=f"< {limit:g} {unit}",
        limit=limit,
    )


def _median(runs: Sequence[Run]) -> Run:
    return Run(*(median(values) for values in zip(*runs, strict=True)))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of runs")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.scale)
    print_figures(figures)
    if arguments.json is not None:
        save(figures, arguments.json)


if __name__ == "__main__":
    main()
