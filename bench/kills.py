"""Kills `gym collect` at random moments, again and again, and looks for lost records.

A run is started against a `gym mock` with latency, killed by SIGKILL, resumed by the same command
and killed again, until a command ends by itself; then the next run starts, until all kills are
done. Two lanes of such runs work in parallel. Nine of ten kills come after the first request of
their command, one while it starts. Every second run has a slow judge, so that kills find finished
conversations that wait for their score.

After every kill the files are read, and this must hold:

- nothing lost: every line that was on disk after an earlier kill is still there, unchanged; the
  complete run has the attempts, conversations and rewards of an undisturbed one;
- nothing without its token ids: every conversation on disk has a line of ids for each of its calls;
- nothing twice: no attempt has two lines in rollouts.jsonl;
- nothing paid again: by the log of the mock, no later command asked the policy about an episode
  whose last answer was on disk, in rollouts.jsonl or generations.jsonl.

The script prints a table; the exit code is 1 if any of these does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.remains import Log, OnDisk, essence
from bench.runs import serving
from gymcli.types import Rollout

__all__ = ["main"]

GYM = [sys.executable, "-c", "from gymcli.supervisor import main; main()"]
"""The command under its supervisor. The kill hits the supervisor, and the run dies with it."""

EPISODES = Path(__file__).with_name("episodes.py").resolve()
NUM_LANES = 2
LATENCY = "uniform:0.02:0.1"
JUDGE_SECONDS = 0.3
START_UP_SHARE = 0.1
MAX_SECONDS_TO_KILL = 0.7
MAX_SECONDS_WITHOUT_KILL = 120.0


class Kind(NamedTuple):
    """An environment of the runs."""

    options: tuple[str, ...]
    num_rows: int
    """Factor for `--tasks`: shorter episodes need more rows for a run to last until its kills."""


ENVIRONMENTS = {"JudgedTalk": Kind(("--role", "judge=judge"), 1), "Computed": Kind((), 4)}


class Count(msgspec.Struct, kw_only=True):
    """What the kills of one environment's runs revealed."""

    num_runs: int = 0
    num_kills: int = 0
    num_starting: int = 0
    """Kills before the command sent its first request."""
    num_with_waiting: int = 0
    """Kills that found a finished conversation without its score."""
    num_with_torn: int = 0
    """Kills that left a line half written."""
    num_lines: int = 0
    """Lines that were on disk, summed over the kills."""
    num_lost: int = 0
    num_twice: int = 0
    num_without_ids: int = 0
    num_paid_again: int = 0
    problems: list[str] = []

    def add(self, other: Count) -> None:
        """Add the findings of another lane."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def is_clean(self) -> bool:
        """Whether no rule was broken."""
        lost = self.num_lost or self.num_without_ids
        return not (lost or self.num_twice or self.num_paid_again or self.problems)


class Lane:
    """A sequence of runs, each killed and resumed until one of its commands ends by itself."""

    def __init__(self, folder: Path, number: int, *, num_tasks: int, seed: int) -> None:
        self.counts = {name: Count() for name in ENVIRONMENTS}
        self._number = number
        self._folder = folder / f"lane-{number}"
        self._num_tasks = num_tasks
        self._random = random.Random(f"{seed} {number}")
        self._start_up_seconds = 0.5
        """How long the last command needed to send its first request."""
        self._undisturbed: dict[str, dict[str, Rollout]] = {}

    def kill_all(self, num_kills: int) -> None:
        """Kill this many processes, and let the last run end undisturbed."""
        self._folder.mkdir()
        script, log = self._folder / "script.jsonl", self._folder / "log.jsonl"
        judge = {"text": "[[GOOD]]", "delay": JUDGE_SECONDS}
        policy = [{"text": f"Answer {turn}."} for turn in range(2)]
        lines = ({"match": "Is this talk good?", "answers": [judge]}, {"answers": policy})
        script.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        options = ["--behaviour", f"script:{script}", "--latency", LATENCY, "--log", str(log)]
        options += ["--tokens", "vllm"]
        with serving(*options) as server:
            self._server, self._log = server, Log(log, server)
            for environment in ENVIRONMENTS:
                self._play(environment, f"undisturbed-{environment}", 0)
            # The lanes begin with different environments.
            for number in itertools.count(self._number):
                if num_kills <= 0:
                    break
                environment = list(ENVIRONMENTS)[number % len(ENVIRONMENTS)]
                num_kills -= self._play(environment, f"run-{number}", num_kills)

    def _play(self, environment: str, name: str, max_kills: int) -> int:
        """Finish one run with at most this many kills; return the number of kills."""
        # The undisturbed run, with no kills, is the reference of the others and not one of them.
        count = self.counts[environment]
        folder = self._prepared(environment, name)
        count.num_runs += bool(max_kills)
        before = OnDisk.read(folder / "run")
        num_kills = 0
        while True:
            exit_code = self._command(environment, folder, is_killed=num_kills < max_kills)
            after = OnDisk.read(folder / "run")
            self._compare(count, before, after)
            if exit_code is not None:
                break
            num_kills += 1
            count.num_kills += 1
            count.num_with_torn += bool(after.num_torn)
            count.num_lines += after.num_lines
            scored = {rollout.key for rollout in after.rollouts("rollouts.jsonl")}
            waiting = {rollout.key for rollout in after.rollouts("generations.jsonl")} - scored
            count.num_with_waiting += bool(waiting)
            before = after
        if exit_code:
            complaint = (folder / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
            count.problems.append(f"{environment} {name}: exit code {exit_code}: {complaint}")
        self._check_end(count, environment, after)
        return num_kills

    def _prepared(self, environment: str, name: str) -> Path:
        """Write the folder of a run: its tasks and its gym.toml."""
        folder = self._folder / name
        folder.mkdir()
        rows = (
            {"id": f"task-{number}", "prompt": f"This is task-{number}. Begin."}
            for number in range(self._num_rows(environment))
        )
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        (folder / "tasks.jsonl").write_bytes(lines)
        tables = (
            f'[models.{m}]\nbase_url = "{self._server.base_url}"' for m in ("policy", "judge")
        )
        (folder / "gym.toml").write_text("\n".join(tables) + "\n")
        return folder

    def _num_rows(self, environment: str) -> int:
        return self._num_tasks * ENVIRONMENTS[environment].num_rows

    def _command(self, environment: str, folder: Path, *, is_killed: bool) -> int | None:
        """Run the command; return its exit code, or None if it was killed."""
        command = [*GYM, "collect", "tasks.jsonl", "--env", f"{EPISODES}:{environment}"]
        command += ["--model", "policy", "--out", "run", "--seed", "0", "--concurrency", "8"]
        command += [*ENVIRONMENTS[environment].options, "--record-tokens", "--quiet"]
        with (
            (folder / "stderr").open("wb") as stderr,
            subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr
            ) as process,
        ):
            try:
                if not is_killed:
                    return process.wait(MAX_SECONDS_WITHOUT_KILL)
                self._wait_for_its_moment(process, self.counts[environment])
            except subprocess.TimeoutExpired as error:
                raise SystemExit(f"{folder.name} did not end") from error
            finally:
                process.kill()
            exit_code = process.wait()
            # A negative code is a signal. The process may also have ended just before the kill.
            return None if exit_code < 0 else exit_code

    def _wait_for_its_moment(self, process: subprocess.Popen[bytes], count: Count) -> None:
        """Wait until the process is to be killed or has ended."""
        started = time.monotonic()
        num_before = self._server.stats().num_requests
        if self._random.random() < START_UP_SHARE:
            self._wait(process, self._random.uniform(0, self._start_up_seconds))
        else:
            while self._server.stats().num_requests == num_before and process.poll() is None:
                time.sleep(0.01)
            self._start_up_seconds = time.monotonic() - started
            self._wait(process, self._random.uniform(0, MAX_SECONDS_TO_KILL))
        is_starting = self._server.stats().num_requests == num_before
        count.num_starting += is_starting and process.poll() is None

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
        until = time.monotonic() + seconds
        while process.poll() is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.01))

    def _compare(self, count: Count, before: OnDisk, after: OnDisk) -> None:
        """Compare what one command left with what it found."""
        count.num_lost += before.num_lost_by(after)
        names = ("rollouts.jsonl", "generations.jsonl")
        finished = {rollout.task_id for name in names for rollout in before.rollouts(name)}
        for exchange in self._log.read_on():
            # A judge may be asked again, if its verdict was not on disk at the kill.
            if exchange.model == "policy":
                named = re.search(r"task-\d+", exchange.text)
                count.num_paid_again += named is not None and named[0] in finished
        scored = [rollout.key for rollout in after.rollouts("rollouts.jsonl")]
        count.num_twice += len(scored) - len(set(scored))
        count.num_without_ids += after.num_without_ids

    def _check_end(self, count: Count, environment: str, end: OnDisk) -> None:
        """Compare a complete run with the undisturbed one."""
        found = {rollout.task_id: rollout for rollout in end.rollouts("rollouts.jsonl")}
        count.num_lost += self._num_rows(environment) - len(found)
        # The first run of each environment is the undisturbed one.
        whole = self._undisturbed.setdefault(environment, found)
        for task_id, rollout in found.items():
            if essence(rollout) != essence(whole[task_id]):
                count.problems.append(f"{environment}: {task_id} differs from the undisturbed run")


def kill_all(folder: Path, *, num_kills: int, num_tasks: int, seed: int) -> dict[str, Count]:
    """Divide the kills among the lanes; return their findings by environment."""
    lanes = [Lane(folder, number, num_tasks=num_tasks, seed=seed) for number in range(NUM_LANES)]
    shares = [len(range(number, num_kills, NUM_LANES)) for number in range(NUM_LANES)]
    with ThreadPoolExecutor(NUM_LANES) as pool:
        list(pool.map(Lane.kill_all, lanes, shares))
    total = {name: Count() for name in ENVIRONMENTS}
    for lane in lanes:
        for name, count in lane.counts.items():
            total[name].add(count)
    return total


COLUMNS = {
    "runs": "num_runs",
    "kills": "num_kills",
    "starting": "num_starting",
    "waiting": "num_with_waiting",
    "torn": "num_with_torn",
    "lines": "num_lines",
    "lost": "num_lost",
    "twice": "num_twice",
    "no ids": "num_without_ids",
    "paid again": "num_paid_again",
}


def table(counts: dict[str, Count], seconds: float) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'environment':<12}" + "".join(f"{title:>12}" for title in COLUMNS)
    for name, count in counts.items():
        values = (getattr(count, field) for field in COLUMNS.values())
        yield f"{name:<12}" + "".join(f"{value:>12}" for value in values)
    for count in counts.values():
        yield from count.problems
    num_kills = sum(count.num_kills for count in counts.values())
    yield f"{num_kills} kills in {seconds:.0f} s"


def main() -> int:
    """Kill, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=60, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts = kill_all(
            Path(folder), num_kills=options.kills, num_tasks=options.tasks, seed=options.seed
        )
    print(*table(counts, time.monotonic() - started), sep="\n")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(counts), indent=2))
    return os.EX_OK if all(count.is_clean for count in counts.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
