"""Runs `gym collect` against a mock server, both as processes of their own, and counts what came.

What the scripts about faults, outages, storms and memory share.
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
"""The file of the environments."""

Record = TypeVar("Record", Rollout, Failure)
EnvironmentName: TypeAlias = Literal["Nonces", "NoncesWithTool"]


def write_settings(
    folder: Path, server: Server | MockServer, **options: str | float | bool
) -> None:
    """Write a gym.toml that knows the server as the model `mock`."""
    lines = ["[models.mock]", f'base_url = "{server.base_url}"']
    lines += [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in options.items()]
    (folder / "gym.toml").write_text("\n".join(lines) + "\n")


class Collecting(NamedTuple):
    """A `gym collect` on its way in a folder of its own."""

    process: subprocess.Popen[bytes]
    folder: Path
    started: float
    """By `time.monotonic`."""

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.folder / "run"

    def wait(self, deadline: float) -> Ended:
        """Wait for its end; kill it after the deadline."""
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
    """None: it did not, and was killed."""
    seconds: float
    """From its start to its end."""
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
    """Run `gym collect` of `tasks.jsonl` of a folder, with its gym.toml, while the block lasts."""
    command = [*GYM, "collect", "tasks.jsonl", "--env", f"{NONCES}:{environment}", "--out", "run"]
    command += ["--model", "mock", "--concurrency", str(concurrency), "--json", *options]
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
    """With reward 1."""
    num_own: int = 0
    """Whose answer holds the nonce of its task."""
    num_foreign: int = 0
    """Whose conversation holds the nonce of another task."""
    num_twice: int = 0
    """Lines of an attempt that had a line already."""
    unscored: dict[str, int] = {}
    """By error class; of each attempt its last failure."""
    retries: dict[str, int] = {}
    """By error class, of all lines."""

    @property
    def num_unscored(self) -> int:
        """Attempts on record that have no score."""
        return sum(self.unscored.values())


def tally(run: Path) -> Tally:
    """Count what a run's files hold."""
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
    """Read the lines of a run's file; a file that was never written has none."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=kind)


def counted(counts: Mapping[str, int]) -> str:
    """Say counts in one line: `3 ServerError, 1 RateLimitError`."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"
