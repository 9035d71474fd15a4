"""Runs every measurement that has a goal, one after the other: `python -m bench`, `make bench`.

Each runs in its own process, `python -m bench.NAME --scale S --json FILE`, so that none disturbs
another. Together they take about 15 minutes on two cores. The exit code is 1 if a goal is missed or
a measurement fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.figures import Figure, print_figures
from bench.profiling import print_profile
from bench.report import (
    Machine,
    Measured,
    read_report,
    summary,
    table,
    write_page,
    write_report,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
TABLE_PAGE = ROOT / "bench" / "README.md"
PAGE_RESULTS = PAGE.with_suffix(".json")

MEASUREMENTS: dict[str, float] = {
    "overhead": 1.0,
    "scheduling": 1.0,
    "in_flight": 1.0,
    "memory": 1.0,
    "conversations": 1.0,
    "parsing": 1.0,
    "startup": 1.0,
    "ray": 0.25,
    "serving": 1.0,
    "tokens": 1.0,
}
"""The scale of each measurement, chosen so that all of them take 15 minutes together."""


def measured(name: str, scale: float) -> Measured:
    """Run one measurement in its own process."""
    machine, started = Machine.here(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"bench.{name}", "--scale", str(scale)]
        ended = subprocess.run(
            [*command, "--json", str(file)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds = round(time.monotonic() - started, 1)
        sys.stderr.write(ended.stderr)
        # A script writes its file last, so a file means that the measurement is complete.
        if file.is_file():
            figures = msgspec.json.decode(file.read_bytes(), type=list[Figure])
            return Measured(machine=machine, seconds=seconds, figures=figures)
    words = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
    return Measured(machine=machine, seconds=seconds, problem=words[-1])


def main() -> None:
    """Measure, print the table, and write the files."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="run only this one")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all sizes")
    parser.add_argument("--json", type=Path, default=RESULTS, help="write the figures to this file")
    parser.add_argument(
        "--write", action="store_true", help="also update docs/ and bench/README.md"
    )
    parser.add_argument("--profile", action="store_true", help="profile what missed its goal")
    options = parser.parse_args()
    report: dict[str, Measured] = {}
    for name in options.only or MEASUREMENTS:
        print(f"\n# {name}", flush=True)
        report[name] = measured(name, MEASUREMENTS[name] * options.scale)
    figures = [figure for one in report.values() for figure in one.figures]
    print("\n# all")
    print_figures([msgspec.structs.replace(figure, details={}) for figure in figures])
    problems = [
        f"{name}: not measured: {one.problem}" for name, one in report.items() if one.problem
    ]
    print("\n".join(problems), end="\n" if problems else "")
    write_report(options.json, report)
    if options.write:
        # `--only` replaces what it measured; the pages keep the other figures.
        everything = read_report(PAGE_RESULTS) | report
        ordered = {name: everything[name] for name in MEASUREMENTS if name in everything}
        write_report(PAGE_RESULTS, ordered)
        write_page(PAGE, summary(ordered))
        write_page(TABLE_PAGE, table(ordered))
    missed = [n for n, one in report.items() if not all(figure.is_met for figure in one.figures)]
    for name in missed if options.profile else ():
        print_profile(name, MEASUREMENTS[name] * options.scale)
    if missed or problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
