"""Shows what each fault of an endpoint does to a run: the fault table.

Each row is a `gym collect` of 1000 tasks, 64 at once, against a `gym mock` with one fault at a rate
of 20 %, in separate processes. The mock echoes the prompt and each prompt has its own nonce, so
that every answer shows which task it belongs to (nonces.py). The columns:

- `scored` and `unscored by class`: together they must hold every task exactly once;
- `zeros`: scored rollouts with the reward 0. There must be none, since no answer was wrong;
- `own nonce`: scored rollouts whose answer has the nonce of their task. All must have it, except
  with faults that replace the text by a valid answer (`OTHER_WORDS`), which gets the reward 0.
  No conversation may hold another task's nonce;
- `requests` and `faults`, as the server counted them, and the retries on record;
- the exit code: 0 if at least 95 % are scored, else 4;
- seconds from start to end of the process, and their ratio to a run of the same tasks without
  faults. This gym.toml gives up a stalled request after 2 or 8 seconds; the defaults are far
  longer.

Two more rows: a single task always gets a 500, and every fault that may pass meets the same run,
with the rate in sum. The exit code is 1 if a row breaks a rule.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from bench.nonces import nonce_of, write_tasks
from bench.runs import (
    Ended,
    EnvironmentName,
    Stats,
    Tally,
    collecting,
    counted,
    serving,
    tally,
    write_settings,
)
from gymcli.commands.console import print_table
from gymcli.mock.faults import BURST_LENGTH, FaultKind

KINDS: tuple[str, ...] = get_args(FaultKind)
TOOL_CALL_KINDS = (
    "bad-arguments",
    "double-arguments",
    "array-arguments",
    "unknown-tool",
    "duplicate-ids",
)
STREAMED = ("open-stream",)
"""Faults that only a stream can have."""

OTHER_WORDS = ("null-content",)
MIN_COVERAGE = 0.95
IDLE_SECONDS = 2.0
TOTAL_SECONDS = 8.0
ONE_TASK = "one task always 500"
MIXED = "mixed"
"""All faults together that a client can get over: none of them may cost a rollout."""
_NOT_MIXED = (
    *("401", "403", "403-always", "404", "405", "307", "422-echo", "500-always", "huge"),
    *(*TOOL_CALL_KINDS, *OTHER_WORDS),
)
# Some faults repeat the prompt in their error. The client must not classify them by these words,
# which providers use in errors that no retry mends.
ABOUT = (
    "Prompt is too long. This model's maximum context length is 8 tokens. This server does not "
    "support it: insufficient_quota. "
)


class Case(NamedTuple):
    """One row of the table: the faults, and the environment that meets them."""

    name: str
    faults: tuple[str, ...]
    environment: EnvironmentName = "Nonces"
    is_streamed: bool = False


class Table(NamedTuple):
    """The settings of all rows."""

    num_tasks: int
    concurrency: int
    latency: str
    seed: int
    dialect: str
    stream: bool
    deadline: float


class Row(msgspec.Struct, kw_only=True):
    """The result of one case."""

    case: str
    tally: Tally
    stats: Stats
    exit_code: int | None
    seconds: float
    ratio: float = 1.0
    """Seconds, divided by those of the run without faults."""
    last_words: str = ""
    problems: list[str] = []
    """Broken rules."""


def run_case(case: Case, table: Table) -> Row:
    """Run one case in its own folder."""
    with tempfile.TemporaryDirectory() as folder:
        return _run_in(Path(folder), case, table)


def _run_in(folder: Path, case: Case, table: Table) -> Row:
    write_tasks(folder / "tasks.jsonl", table.num_tasks, seed=table.seed, about=ABOUT)
    faults = [part for fault in case.faults for part in ("--fault", fault)]
    with serving("--seed", str(table.seed), "--latency", table.latency, *faults) as server:
        write_settings(
            folder,
            server,
            dialect=table.dialect,
            stream=table.stream or case.is_streamed,
            idle_timeout=IDLE_SECONDS,
            total_timeout=TOTAL_SECONDS,
        )
        with collecting(folder, concurrency=table.concurrency, environment=case.environment) as run:
            ended = run.wait(table.deadline)
        stats = server.stats()
    row = Row(
        case=case.name,
        tally=tally(run.run),
        stats=stats,
        exit_code=ended.exit_code,
        seconds=ended.seconds,
        last_words=ended.last_words,
    )
    row.problems = problems_of(row, case, ended, table.num_tasks)
    return row


def problems_of(row: Row, case: Case, ended: Ended, num_tasks: int) -> list[str]:
    """Return the rules that a row broke."""
    found = row.tally
    if ended.exit_code is None:
        return ["it did not end"]
    problems = []
    num_absent = num_tasks - found.num_scored - found.num_unscored
    if num_absent:
        problems.append(f"{num_absent} attempts have no record: {ended.last_words}")
    if found.num_twice:
        problems.append(f"{found.num_twice} attempts have more than one score")
    if found.num_foreign:
        problems.append(f"{found.num_foreign} conversations hold another task's nonce")
    has_other_words = any(fault.partition("=")[0] in OTHER_WORDS for fault in case.faults)
    if found.num_own < found.num_scored and not has_other_words:
        problems.append(f"{found.num_scored - found.num_own} scored rollouts lack their nonce")
    if found.num_right != found.num_own:
        problems.append(f"{found.num_right} rewards of 1 for {found.num_own} right answers")
    expected = 0 if found.num_scored >= MIN_COVERAGE * num_tasks else 4
    if ended.exit_code != expected:
        problems.append(f"exit code {ended.exit_code}, not {expected}: {ended.last_words}")
    return problems


def cases_of(names: Sequence[str], rate: float, table: Table) -> list[Case]:
    """Return the cases of these kinds of faults, which may include `ONE_TASK`.

    Raises:
        ValueError: A name is unknown.
    """
    cases = []
    for name in names:
        if name == ONE_TASK:
            nonce = nonce_of(table.seed, table.num_tasks // 2)
            cases.append(Case(name, (f"500-always@{nonce}",)))
        elif name == MIXED:
            kinds = [kind for kind in KINDS if kind not in _NOT_MIXED]
            shares = [f"{kind}={rate_of(kind, rate / len(kinds)):.6g}" for kind in kinds]
            cases.append(Case(name, tuple(shares)))
        elif name not in KINDS:
            names = ", ".join((*KINDS, ONE_TASK, MIXED))
            raise ValueError(f"unknown fault {name!r}; choose from {names}")
        else:
            environment: EnvironmentName = "NoncesWithTool" if name in TOOL_CALL_KINDS else "Nonces"
            fault = f"{name}={rate_of(name, rate):.6g}"
            cases.append(Case(name, (fault,), environment, name in STREAMED))
    return cases


def rate_of(kind: str, share: float) -> float:
    """Return the rate at which this share of the requests gets a fault."""
    if kind != "429-burst":
        return share
    # Bursts of L requests that begin at rate r hit the share L r / (1 + (L - 1) r) of all requests.
    return share / (BURST_LENGTH - (BURST_LENGTH - 1) * share)


def measure(cases: Sequence[Case], table: Table) -> Iterator[Row]:
    """Yield a row for each case, and before the first of an environment one without a fault."""
    plain: dict[str, float] = {}
    for case in cases:
        environment = case.environment
        if environment not in plain:
            name = "no fault" if environment == "Nonces" else "no fault, a tool"
            row = run_case(Case(name, (), environment), table)
            plain[environment] = row.seconds
            yield row
        row = run_case(case, table)
        row.ratio = row.seconds / plain[environment]
        yield row


def print_rows(rows: Sequence[Row]) -> None:
    """Print the table, and below it the rules that were broken."""
    head = ("fault", "scored", "unscored", "zeros", "own nonce", "requests", "faults", "exit")
    cells = [
        (
            row.case,
            str(row.tally.num_scored),
            str(row.tally.num_unscored),
            str(row.tally.num_scored - row.tally.num_right),
            str(row.tally.num_own),
            str(row.stats.num_requests),
            str(sum(row.stats.faults.values())),
            "-" if row.exit_code is None else str(row.exit_code),
            f"{row.seconds:.1f}",
            f"{row.ratio:.1f}",
            counted(row.tally.unscored),
            counted(row.tally.retries),
        )
        for row in rows
    ]
    print_table((*head, "seconds", "ratio", "unscored by class", "retries on record"), cells)
    for row in rows:
        for problem in row.problems:
            print(f"{row.case}: {problem}")


class Report(msgspec.Struct, kw_only=True):
    """What `--json` writes."""

    table: Table
    rate: float
    rows: list[Row]


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", action="append", metavar="KIND", help="run only this fault")
    parser.add_argument("--rate", type=float, default=0.2, help="share of requests with a fault")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", default="uniform:0.02:0.06", help="of the mock server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dialect", choices=("chat", "responses"), default="chat")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--deadline", type=float, default=600.0, help="maximum seconds per row")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    table = Table(
        num_tasks=options.tasks,
        concurrency=options.concurrency,
        latency=options.latency,
        seed=options.seed,
        dialect=options.dialect,
        stream=options.stream,
        deadline=options.deadline,
    )
    try:
        names = options.only or (*KINDS, ONE_TASK, MIXED)
        cases = cases_of(names, options.rate, table)
    except ValueError as error:
        parser.error(str(error))
    rows = []
    for row in measure(cases, table):
        rows.append(row)
        print(f"{row.case}: {row.seconds:.1f} s", file=sys.stderr, flush=True)
    print_rows(rows)
    if options.json is not None:
        report = Report(table=table, rate=options.rate, rows=rows)
        options.json.write_bytes(msgspec.json.encode(report))
    if any(row.problems for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
