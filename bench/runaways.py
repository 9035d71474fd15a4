"""Shows that a task whose code runs away costs a run of 200 tasks only that task.

Each way to run away (an endless loop, a pattern with exponential backtracking, a crash, ...) is
tried in a tool and in a verifier. A row of the table is one `gym collect`. It is broken if another
task has no score, an attempt has no outcome, or the exit code is not 0.

    python -m bench.runaways [--way loop] [--place tool] [--concurrency 16] [--json FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.runaway import WAYS

__all__ = ["Row", "collected", "main"]

_BAD = 100
_ROOT = Path(__file__).resolve().parents[1]
_COMMAND = "from gymcli.supervisor import main; main()"
_PLACES = ("tool", "verifier")


class Row(NamedTuple):
    """The result of one run."""

    place: str
    way: str
    num_scored: int
    failures: str
    num_restarts: int
    exit_code: int
    seconds: float
    is_sound: bool
    """Whether all other tasks are scored and every attempt has one outcome."""


def collected(place: str, way: str, folder: Path, *, num_tasks: int, concurrency: int) -> Row:
    """Collect tasks of which one runs away; return the row."""
    tasks, out = folder / "tasks.jsonl", folder / "run"
    bad = min(_BAD, num_tasks // 2)
    rows = [
        {"id": str(number), "prompt": "Work.", **({"way": way} if number == bad else {})}
        for number in range(num_tasks)
    ]
    tasks.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    started = time.monotonic()
    run = subprocess.run(
        [
            *(sys.executable, "-c", _COMMAND, "collect", str(tasks)),
            *("--env", "bench.runaway:Runaway", "--env-arg", f"place={place}"),
            *("--model", "oracle", "--out", str(out), "--concurrency", str(concurrency)),
        ],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    scored = _ids(out / "rollouts.jsonl")
    failed = {line.task_id: str(line.error["class"]) for line in _lines(out / "failures.jsonl")}
    # An attempt that fails, is tried again after a restart and gets a score has one outcome.
    outcomes = [*scored, *(set(failed) - set(scored))]
    expected = {str(number) for number in range(num_tasks)}
    # Only the bad task may lack a score. It may have one, since some ways do no lasting harm.
    is_sound = (
        set(outcomes) == expected
        and len(scored) == len(set(scored))
        and {str(bad)} >= expected - set(scored)
        and run.returncode == 0
    )
    if not is_sound:
        print(run.stderr[-2000:], file=sys.stderr)
    names = ", ".join(name for key, name in failed.items() if key not in scored)
    num_restarts = run.stderr.count("restarting it")  # the supervisor's words
    return Row(place, way, len(scored), names, num_restarts, run.returncode, seconds, is_sound)


class _Line(msgspec.Struct):
    """The fields read from a record."""

    task_id: str
    error: dict[str, object] = {}


def _lines(path: Path) -> list[_Line]:
    if not path.exists():
        return []
    decode = msgspec.json.Decoder(_Line).decode
    return [decode(line) for line in path.read_bytes().splitlines()]


def _ids(path: Path) -> list[str]:
    return [line.task_id for line in _lines(path)]


def main() -> None:
    """Print the table; exit with 1 if a row is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--way", action="append", choices=sorted(WAYS))
    parser.add_argument("--place", action="append", choices=_PLACES)
    parser.add_argument("--num-tasks", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    head = ("place", "way", "scored", "failed", "restarts", "exit", "seconds", "")
    print("{:9} {:9} {:>6}  {:22} {:>8} {:>4} {:>7} {}".format(*head), flush=True)
    rows = []
    for place in asked.place or _PLACES:
        for way in asked.way or WAYS:
            with tempfile.TemporaryDirectory() as folder:
                row = collected(
                    *(place, way, Path(folder)),
                    num_tasks=asked.num_tasks,
                    concurrency=asked.concurrency,
                )
            rows.append(row)
            print(
                f"{row.place:9} {row.way:9} {row.num_scored:6}  {row.failures:22} "
                f"{row.num_restarts:8} {row.exit_code:4} {row.seconds:7.1f} "
                f"{'' if row.is_sound else 'BROKEN'}",
                flush=True,
            )
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.encode(rows))
    sys.exit(not all(row.is_sound for row in rows))


if __name__ == "__main__":
    main()
