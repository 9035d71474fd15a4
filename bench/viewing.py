"""Measures `gym view` over many rollouts: the cost of its answers, and the memory of its server.

The run is generated from a seed: 100,000 rollouts of 23 kB, 2.3 GB, which are in the page cache.
The server is its own process and receives the requests that the page sends. The cost of an answer
is the CPU time of the server (from /proc) against that of reading the file once without parsing it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from bench.figures import Figure, run_script
from gymcli.store.manifest import MANIFEST, EnvironmentRecord, Manifest
from gymcli.store.rollout_files import ROLLOUTS
from gymcli.types import (
    FunctionCall,
    Message,
    Rollout,
    Score,
    Timing,
    ToolCall,
    Usage,
    Verifier,
)

__all__ = ["NUM_ROLLOUTS", "measure", "write_long_run"]

NUM_ROLLOUTS = 100_000
MAX_MEMORY = 300.0
"""The maximum memory of the server in MB."""

_ATTEMPTS = 4
_TURN_CHARACTERS = 2_400
_NUM_TURNS = 8
_ENV = "long_talks"
_NEEDLE = "a needle in the hay"
_WORDS = (
    "the",
    "of",
    "and",
    "a",
    "in",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "with",
    "they",
    "be",
)

_SERVE = "from gymcli.cli import main; import sys; sys.argv[0] = 'gym'; main()"
_READ = """
import sys, time
started, memory = time.process_time(), bytearray(1 << 17)
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.readinto(memory):
        pass
print(time.process_time() - started)
"""


class Taken(NamedTuple):
    """The cost of an answer."""

    cpu_seconds: float
    wall_seconds: float
    num_bytes: int


def write_long_run(folder: Path, num_rollouts: int, *, seed: int = 0) -> Path:
    """Write a run of long conversations with tool calls; return its rollout file."""
    folder.mkdir(parents=True)
    random = Random(seed)
    hay = " ".join(random.choices(_WORDS, k=50_000))
    path = folder / ROLLOUTS
    with path.open("wb") as file:
        for number in range(num_rollouts):
            file.write(msgspec.json.encode(_rollout(number, random, hay)) + b"\n")
    record = EnvironmentRecord(version="1", max_reward=1.0, num_expected=num_rollouts)
    manifest = Manifest(model="m", environments={_ENV: record}, num_expected=num_rollouts)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return path


def _rollout(number: int, random: Random, hay: str) -> Rollout:
    task, attempt = divmod(number, _ATTEMPTS)
    messages = [Message(role="user", content=_cut(hay, random))]
    for turn in range(_NUM_TURNS // 2):
        function = FunctionCall("look_up", f'{{"word":"{random.choice(_WORDS)}"}}')
        call = ToolCall(f"call_{turn}", function)
        messages += [
            Message(role="assistant", content=_cut(hay, random), tool_calls=[call]),
            Message(role="tool", content=_cut(hay, random), tool_call_id=call.id),
        ]
    if number % 1000 == 7:  # one rollout in a thousand matches the filter by text
        messages[2].content = f"{_cut(hay, random)} {_NEEDLE}"
    answered = Rollout(
        schema_version=1,
        task_id=f"task-{task:06}",
        attempt=attempt,
        env=_ENV,
        env_version="1",
        messages=messages,
        num_prompt_messages=1,
        model="m",
        stop_reason="done",
        usage=Usage(prompt_tokens=random.randrange(9_000), completion_tokens=random.randrange(900)),
        timing=Timing(started_at=1.7e9, model_seconds=2.0, total_seconds=random.random() * 9),
    )
    reward = float(random.random() < (task % 11) / 10)
    score = Score(reward, answer=str(random.randrange(40)), details={"reason": "as expected"})
    return answered.scored(score, Verifier("1", "ab"), 0.01)


def _cut(hay: str, random: Random) -> str:
    start = random.randrange(len(hay) - _TURN_CHARACTERS)
    return hay[start : start + _TURN_CHARACTERS]


class Server:
    """A running `gym view`.

    Args:
        process: The process; its first line of output is the address.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        started = time.monotonic()
        assert process.stdout is not None
        self._pid = process.pid
        self._address = process.stdout.readline().strip()
        self.started = Taken(self._cpu_seconds(), time.monotonic() - started, 0)

    def ask(self, path: str, **given: object) -> Taken:
        """Send a request and read the answer; return its cost."""
        cpu, started = self._cpu_seconds(), time.monotonic()
        with urllib.request.urlopen(f"{self._address}{path}?{urlencode(given)}") as answer:
            data = answer.read()
        return Taken(self._cpu_seconds() - cpu, time.monotonic() - started, len(data))

    def peak_mb(self) -> float:
        """Return its peak memory."""
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
        return float(status.partition("VmHWM:")[2].split()[0]) / 1024

    def _cpu_seconds(self) -> float:
        stat = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        user, system = stat.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _viewing(run: Path) -> Iterator[Server]:
    command = [sys.executable, "-c", _SERVE, "view", str(run), "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


def measure(scale: float = 1.0) -> list[Figure]:
    """Measure over 100,000 rollouts times `scale`."""
    num_rollouts = max(_ATTEMPTS, round(NUM_ROLLOUTS * scale))
    with tempfile.TemporaryDirectory(prefix="gym-bench-") as temporary:
        file = write_long_run(Path(temporary) / "run", num_rollouts)
        read = [_reading_seconds(file)]
        with _viewing(file.parent) as server:
            key = {"env": _ENV, "task": f"task-{num_rollouts // _ATTEMPTS // 2:06}", "attempt": 1}
            taken = {
                "the index, until it listens": server.started,
                "the first page": _sum(server.ask(""), server.ask("api/list", limit=100)),
                "another page": server.ask("api/list", limit=100, offset=num_rollouts // 2),
                "sorted by reward": server.ask("api/list", limit=100, sort="-reward"),
                "the filter 0 < avg < 1": server.ask("api/list", limit=100, where="0 < avg < 1"),
                "a filter by text": server.ask("api/list", limit=100, containing=_NEEDLE),
                "a rollout": server.ask("api/rollout", **key),
                "its task": server.ask("api/task", **key),
                "the numbers": server.ask("api/metrics"),
            }
            peak = server.peak_mb()
        # Read once more after the answers: the lower time is that of a file in the page cache.
        read.append(_reading_seconds(file))
        megabytes = file.stat().st_size / 1e6
    reading = min(read)
    figures = [_figure(what, found, reading) for what, found in taken.items()]
    memory = Figure(
        what=f"gym view, peak memory over {num_rollouts:,} rollouts of {megabytes:,.0f} MB",
        goal=f"< {MAX_MEMORY:.0f} MB",
        limit=MAX_MEMORY,
        value=peak,
        unit="MB",
        details={"s of CPU to read the file": reading},
    )
    return [*figures, memory]


def _sum(*parts: Taken) -> Taken:
    cpu, wall, size = (sum(column) for column in zip(*parts, strict=True))
    return Taken(cpu, wall, int(size))


def _figure(what: str, taken: Taken, reading: float) -> Figure:
    return Figure(
        what=f"gym view, {what}, against reading the file",
        value=taken.cpu_seconds / reading,
        details={
            "s of CPU": taken.cpu_seconds,
            "s on the clock": taken.wall_seconds,
            "bytes": float(taken.num_bytes),
        },
    )


def _reading_seconds(file: Path) -> float:
    command = [sys.executable, "-c", _READ, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return max(float(done.stdout), 1e-6)


if __name__ == "__main__":
    run_script((__doc__ or "").split("\n", 1)[0], measure)
