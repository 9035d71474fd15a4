"""Shows what a refusal costs: of a single task, and of the key in the middle of a run.

Most rows are a `gym collect` whose first task is always refused, immediately, while every other
answer takes 50 ms; the command runs twice. Both times the refusal must cost only its own task: all
others are scored, exit code 0. If the refused task is the only one, nothing is scored: exit code 4.

In the last rows the key is refused from the middle of many tasks on. The run must end with exit
code 4, keep what was scored, and send few requests beyond the 20 refusals after which it gives up.

The exit code of the script is 1 if any of these does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.nonces import nonce_of, write_tasks
from bench.runs import Ended, Tally, collecting, counted, tally, write_settings
from gymcli.commands.console import print_table
from gymcli.mock import Behaviour, MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text
from gymcli.mock.fault_effects import key_refused, refusal_for
from gymcli.mock.faults import StatusFault
from gymcli.mock.process import serving
from gymcli.types import Request

KINDS: tuple[StatusFault, ...] = ("401", "403", "404", "405", "307")
CONCURRENCIES = (1, 64)
MAX_IN_A_ROW = 20
"""Refused tasks in a row after which a run ends although others were answered."""
DELAY = 0.05
MAX_SECONDS = 600.0


class Row(NamedTuple):
    """The result of one command."""

    name: str
    tally: Tally
    num_requests: int
    ended: Ended
    problems: list[str]


def refusing_first(kind: StatusFault) -> Behaviour:
    """Refuse the first task immediately, and answer all others correctly after a while."""
    nonce = nonce_of(0, 0)

    def behave(request: Request) -> MockAnswer:
        text = last_user_text(request)
        if nonce in text:
            return refusal_for(kind, "mock", text)
        return MockAnswer(text=text, delay=DELAY)

    return behave


def revoked_after(num: int) -> Behaviour:
    """Answer this many requests correctly, then refuse the key."""
    numbers = itertools.count()

    def behave(request: Request) -> MockAnswer:
        return MockAnswer(text=last_user_text(request)) if next(numbers) < num else key_refused()

    return behave


def run_rows(
    name: str, behaviour: Behaviour, *, num_tasks: int, concurrency: int, num_runs: int
) -> list[Row]:
    """Run one command this many times, and return a row for each."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder / "tasks.jsonl", num_tasks)
        with serving(MockServer(behaviour, keeps_requests=False)) as server:
            write_settings(folder, server)
            for number in range(num_runs):
                num_before = server.num_requests
                with collecting(folder, concurrency=concurrency) as run:
                    ended = run.wait(MAX_SECONDS)
                shown = f"{name}, concurrency {concurrency}, run {number + 1}"
                num_requests = server.num_requests - num_before
                rows.append(Row(shown, tally(run.run), num_requests, ended, []))
    return rows


def check(row: Row, *, num_scored: range, exit_code: int, max_requests: int) -> None:
    """Add the rules that a row breaks to its problems."""
    found = row.tally
    if found.num_scored not in num_scored:
        expected = f"{num_scored.start} to {num_scored.stop - 1}"
        row.problems.append(f"{found.num_scored} scored, not {expected}")
    if found.num_right != found.num_scored:
        row.problems.append(f"{found.num_scored - found.num_right} zeros")
    if row.ended.exit_code != exit_code:
        code, words = row.ended.exit_code, row.ended.last_words
        row.problems.append(f"exit code {code}, not {exit_code}: {words}")
    if row.num_requests > max_requests:
        row.problems.append(f"{row.num_requests} requests, more than {max_requests}")


def measure(num_tasks: int, num_many: int, kinds: Sequence[StatusFault]) -> list[Row]:
    """Run all commands and return their rows."""
    rows = []
    for kind, concurrency in itertools.product(kinds, CONCURRENCIES):
        made = run_rows(
            f"{kind} for the first task",
            refusing_first(kind),
            num_tasks=num_tasks,
            concurrency=concurrency,
            num_runs=2,
        )
        # The second run asks only for the refused task again.
        for row, max_requests in zip(made, (num_tasks, 1), strict=True):
            check(
                row,
                num_scored=range(num_tasks - 1, num_tasks),
                exit_code=0,
                max_requests=max_requests,
            )
        rows += made
    for kind in kinds:
        name = f"{kind} for the only task"
        made = run_rows(name, refusing_first(kind), num_tasks=1, concurrency=64, num_runs=1)
        check(made[0], num_scored=range(1), exit_code=4, max_requests=1)
        rows += made
    num_answers = num_many // 2
    for concurrency in CONCURRENCIES:
        [row] = run_rows(
            f"401 from request {num_answers + 1} of {num_many} on",
            revoked_after(num_answers),
            num_tasks=num_many,
            concurrency=concurrency,
            num_runs=1,
        )
        # Requests in flight when the run ends were sent before the last refusals arrived.
        most = num_answers + MAX_IN_A_ROW + 2 * concurrency
        # Answers without a score when the run ends are scored by the next command.
        scored = range(num_answers - concurrency, num_answers + 1)
        check(row, num_scored=scored, exit_code=4, max_requests=most)
        rows.append(row)
    return rows


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tasks", type=int, default=200, help="tasks if one is refused")
    parser.add_argument("--many", type=int, default=10_000, help="tasks if the key is refused")
    parser.add_argument("--kind", action="append", choices=KINDS, help="run only this refusal")
    options = parser.parse_args()
    rows = measure(options.tasks, options.many, options.kind or [*KINDS])
    cells = [
        (
            row.name,
            str(row.tally.num_scored),
            str(row.tally.num_scored - row.tally.num_right),
            str(row.num_requests),
            "-" if row.ended.exit_code is None else str(row.ended.exit_code),
            f"{row.ended.seconds:.1f}",
            counted(row.tally.unscored),
        )
        for row in rows
    ]
    print_table(("refused", "scored", "zeros", "requests", "exit", "seconds", "unscored"), cells)
    for row in rows:
        for problem in row.problems:
            print(f"{row.name}: {problem}")
    if any(row.problems for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
