"""Shows what a run does while its endpoint is dead, and what remains if it never returns.

There are three commands. When a third of the requests have arrived, the `gym mock` of the first two
closes its socket and resets its connections:

- `returns`: the server listens again after 20 seconds. All attempts must be scored, exit code 0.
  The pause is the longest time in which no rollout ended;
- `never returns`: the command gives up with exit code 4, and the scored rollouts are on disk. Its
  pause is that before the end of the process, with a short `--outage-deadline`, and with
  `--default` once more with the default one;
- `the same later`: the same command with a new server on the same port. It must complete the run,
  keep every line, and request none of the scored rollouts again.

The exit code is 1 if any of these does not hold.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import msgspec

from bench.nonces import write_tasks
from bench.runs import Ended, Tally, collecting, counted, records, serving, tally, write_settings
from gymcli.commands.console import print_table
from gymcli.models.endpoint import Endpoint
from gymcli.types import Rollout

LATENCY = ("--latency", "uniform:0.05:0.15")
MAX_SECONDS = 600.0


class Phase(msgspec.Struct, kw_only=True):
    """The result of one command."""

    name: str
    tally: Tally
    exit_code: int | None
    seconds: float
    """From the start of the process to its end."""
    pause: float
    """The longest time in which no rollout ended, up to the end of the process."""
    last_words: str
    problems: list[str] = []


def phase_of(name: str, run: Path, ended: Ended, *, num_tasks: int, exit_code: int) -> Phase:
    """Return the result of a command that has just ended."""
    now = time.time()
    ends = sorted(
        rollout.timing.started_at + rollout.timing.total_seconds
        for rollout in records(run / "rollouts.jsonl", Rollout)
    )
    # A resumed run has rollouts of the earlier command, which say nothing about this one's pause.
    recent = [moment for moment in ends if moment > now - ended.seconds]
    found = tally(run)
    phase = Phase(
        name=name,
        tally=found,
        exit_code=ended.exit_code,
        seconds=ended.seconds,
        pause=max((after - before for before, after in pairwise([*recent, now])), default=0.0),
        last_words=ended.last_words,
    )
    if ended.exit_code != exit_code:
        phase.problems.append(f"exit code {ended.exit_code}, not {exit_code}: {ended.last_words}")
    if exit_code == 0 and found.num_scored < num_tasks:
        phase.problems.append(f"{num_tasks - found.num_scored} attempts are not scored")
    if found.num_twice or found.num_foreign or found.num_own < found.num_scored:
        phase.problems.append(
            f"{found.num_twice} attempts are scored twice, {found.num_foreign} conversations have "
            f"another task's nonce, {found.num_scored - found.num_own} lack their own"
        )
    return phase


def return_after(seconds: float, num_tasks: int) -> Phase:
    """Let the endpoint die in the middle of a run and come back."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        death = ("--down-after", f"{num_tasks // 3}r", "--down-for", f"{seconds:g}s")
        with serving(*LATENCY, *death) as server:
            write_settings(folder, server)
            with collecting(folder) as run:
                ended = run.wait(MAX_SECONDS)
        return phase_of(
            f"returns after {seconds:g} s", run.run, ended, num_tasks=num_tasks, exit_code=0
        )


def never_return(deadline: float | None, num_tasks: int) -> tuple[Phase, Phase]:
    """Let the endpoint die for good; then run the same command with a server that is back."""
    options = [] if deadline is None else ["--outage-deadline", f"{deadline:g}"]
    shown = f"{deadline:g} s" if deadline is not None else "the default"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        death = ("--down-after", f"{num_tasks // 3}r", "--down-for", "for-ever")
        with serving(*LATENCY, *death) as server:
            write_settings(folder, server)
            with collecting(folder, options=options) as run:
                ended = run.wait(MAX_SECONDS)
        given_up = phase_of(
            f"never returns, deadline {shown}", run.run, ended, num_tasks=num_tasks, exit_code=4
        )
        if not 0 < given_up.tally.num_scored < num_tasks:
            given_up.problems.append("it did not die in the middle")
        lines = (run.run / "rollouts.jsonl").read_bytes()
        with serving(*LATENCY, "--port", str(server.port)) as server:
            with collecting(folder, options=options) as run:
                ended = run.wait(MAX_SECONDS)
            num_requests = server.stats().num_requests
        later = phase_of("the same later", run.run, ended, num_tasks=num_tasks, exit_code=0)
        if not (run.run / "rollouts.jsonl").read_bytes().startswith(lines):
            later.problems.append("lines of rollouts.jsonl were lost or changed")
        num_left = num_tasks - given_up.tally.num_scored
        if num_requests != num_left:
            later.problems.append(
                f"{num_requests} requests for the {num_left} tasks that were left"
            )
    return given_up, later


def print_phases(phases: list[Phase]) -> None:
    """Print a table with a row per command, and below it the broken rules."""
    head = ("endpoint", "scored", "exit", "seconds", "pause", "unscored", "retries on record")
    cells = [
        (
            phase.name,
            str(phase.tally.num_scored),
            "-" if phase.exit_code is None else str(phase.exit_code),
            f"{phase.seconds:.1f}",
            f"{phase.pause:.1f}",
            counted(phase.tally.unscored),
            counted(phase.tally.retries),
        )
        for phase in phases
    ]
    print_table(head, cells)
    for phase in phases:
        if phase.exit_code == 4:
            print(f"{phase.name}: {phase.last_words}")
        for problem in phase.problems:
            print(f"{phase.name}: {problem}")


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--down-for", type=float, default=20.0, help="seconds")
    parser.add_argument("--outage-deadline", type=float, default=10.0, help="seconds")
    parser.add_argument("--default", action="store_true", help="also with the default deadline")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    phases = [return_after(options.down_for, options.tasks)]
    phases += never_return(options.outage_deadline, options.tasks)
    if options.default:
        phases += never_return(None, options.tasks)
    print_phases(phases)
    if not options.default:
        default = Endpoint.model_fields["outage_deadline"].default
        longer = phases[1].pause - options.outage_deadline
        print(
            f"with the default of {default:g} s the command gives up after {default + longer:.1f} s"
        )
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(phases))
    if any(phase.problems for phase in phases):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
