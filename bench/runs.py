"""Runs `gym collect` and a mock server in their own processes, and counts the records of the run.

The scripts about faults, outages, storms and memory share it.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from bench.nonces import answers_own, foreign_nonces
from bench.server import GYM, Server, Stats, serving
from gymcli.mock import MockServer
from gymcli.types import Failure, Rollout

__all__ = [
    "GYM",
    "NONCES",
    "Collecting",
    "Ended",
    "EnvironmentName",
    "Server",
    "Stats",
    "Tally",
    "collecting",
    "counted",
    "records",
    "serving",
    "tally",
    "write_settings",
]

NONCES = Path(__file__).with_name("nonces.py").resolve()
"""The file with the environments."""

Record = TypeVar("Record", Rollout, Failure)
EnvironmentName: TypeAlias = Literal["Nonces", "NoncesWithTool"]


def write_settings(
    folder: Path, server: Server | MockServer, **options: str | float | bool
) -> None:
    """Write a gym.toml with the server as the model `mock`."""
    lines = ["[models.mock]", f'base_url = "{server.base_url}"']
    lines += [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in options.items()]
    (folder / "gym.toml").write_text("\n".join(lines) + "\n")


class Collecting(NamedTuple):
    """A running `gym collect` in its own folder."""

    process: subprocess.Popen[bytes]
    folder: Path
    started: float
    """As `time.monotonic` returned it."""

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.folder / "run"

    def wait(self, deadline: float) -> Ended:
        """Wait until it ends; kill it `deadline` seconds after its start."""
        exit_code: int | None
        try:
            exit_code = self.process.wait(max(0.0, self.started + deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            exit_code = None
        seconds = time.monotonic() - self.started
        lines = (self.folder / "stderr").read_text(errors="replace").strip().splitlines()
        return Ended(exit_code, seconds, lines[-1] if lines else "")


class Ended(NamedTuple):
    """How a `gym collect` ended."""

    exit_code: int | None
    """None if it was killed at the deadline."""
    seconds: float
    """From start to end."""
    last_words: str
    """The last line of stderr."""


@contextmanager
def collecting(
    folder: Path,
    *,
    concurrency: int = 64,
    environment: EnvironmentName = "Nonces",
    options: Iterable[str] = (),
) -> Iterator[Collecting]:
    """Run `gym collect` with the tasks.jsonl and gym.toml of a folder, for the block at most."""
    command = [*GYM, "collect", "tasks.jsonl", "--env", f"{NONCES}:{environment}", "--out", "run"]
    command += ["--model", "mock", "--concurrency", str(concurrency), "--json", *options]
    # Appended to, since several commands may run in a folder.
    with (
        (folder / "stdout").open("ab") as stdout,
        (folder / "stderr").open("ab") as stderr,
        subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=stderr) as process,
    ):
        try:
            yield Collecting(process, folder, time.monotonic())
        finally:
            if process.poll() is None:
                process.kill()


class Tally(msgspec.Struct, kw_only=True):
    """The contents of a run's files."""

    num_scored: int = 0
    num_right: int = 0
    """Rollouts with reward 1."""
    num_own: int = 0
    """Rollouts whose answer has the nonce of their task."""
    num_foreign: int = 0
    """Rollouts whose conversation has the nonce of another task."""
    num_twice: int = 0
    """Lines of an attempt that already had a line."""
    unscored: dict[str, int] = {}
    """Attempts by the error class of their last failure."""
    retries: dict[str, int] = {}
    """Retries on all lines, by error class."""

    @property
    def num_unscored(self) -> int:
        """Attempts on record that have no score."""
        return sum(self.unscored.values())


def tally(run: Path) -> Tally:
    """Count the records in a run's files."""
    total = Tally()
    scored = set()
    retries: Counter[str] = Counter()
    for rollout in records(run / "rollouts.jsonl", Rollout):
        total.num_twice += rollout.key in scored
        scored.add(rollout.key)
        total.num_right += rollout.reward == 1.0
        total.num_own += answers_own(rollout)
        own = str(rollout.task["nonce"])
        total.num_foreign += bool(foreign_nonces(rollout.messages, own=own))
        retries.update(rollout.retries)
    last = {}
    for failure in records(run / "failures.jsonl", Failure):
        last[failure.key] = failure.error.error_class
        retries.update(failure.retries)
    total.num_scored = len(scored)
    total.unscored = dict(Counter(name for key, name in last.items() if key not in scored))
    total.retries = dict(retries)
    return total


def records(path: Path, kind: type[Record]) -> Iterator[Record]:
    """Yield the records of a run's file; a missing file has none."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=kind)


def counted(counts: Mapping[str, int]) -> str:
    """Return counts in one line: `1 RateLimitError, 3 ServerError`."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"
