"""Measures the cost of a late call in a long conversation against an early one.

Several conversations of a hundred equally long turns run in lockstep: none begins a turn before all
have finished the previous one. The CPU time of the process between two turns, divided by the number
of conversations, is the cost of one call with everything that `gym collect` does around it. The
ratio compares the last five turns with the first five. A late call should cost no more than an
early one, apart from its bytes: each request sends the whole conversation, which is joined and
which the kernel copies.

For comparison, a bare loop that encodes the whole conversation for each call is measured in the
same way. Each contestant and the mock server are processes of their own, and the contestants take
turns. The first conversations are a warm-up and do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import uvloop

from bench.figures import Figure, print_figures, save
from bench.server import Server, check_share, cpu_seconds, serving
from gymcli.tasks.task_source import TaskFile

__all__ = ["LIMIT", "NUM_TURNS", "measure"]

LIMIT = 1.5
NUM_TURNS = 100
NUM_AT_ONCE = 8
"""With more, late conversations outgrow the processor's cache, and the ratio would measure that."""
NUM_WAVES = 4
"""Waves of `NUM_AT_ONCE` conversations in one run, without the warm-up."""
NUM_RUNS = 3
NUM_COMPARED = 5
"""Turns that are compared, at either end."""
LATENCY = 0.02
ANSWER = "The door opened, and what stood behind it was not what anybody had expected. " * 3
ROOT = Path(__file__).resolve().parents[1]


class Job(msgspec.Struct):
    """The job of one contestant, in one process."""

    contestant: str
    base_url: str
    server_id: int
    """The process id of the mock server."""
    folder: str
    num_turns: int
    num_waves: int
    """Including the warm-up."""


class Effort(msgspec.Struct):
    """The result of a contestant."""

    microseconds: list[float]
    """CPU of a call, by turn: the medians of the waves."""
    server_share: float
    """CPU time of the server, divided by the time on the clock."""


async def play_gym(job: Job) -> list[float]:
    """Play the conversations as `gym collect` does; return the readings of the CPU clock."""
    from bench.talking import Lockstep, Talk
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.collect_options import CollectOptions
    from gymcli.runner.collection import Collection
    from gymcli.runner.plan import plan_run

    tasks = Path(job.folder) / "tasks.jsonl"
    num_tasks = NUM_AT_ONCE * job.num_waves
    rows = [{"id": f"task-{number}", "prompt": "Let us talk."} for number in range(num_tasks)]
    tasks.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    Talk.lockstep = Lockstep(NUM_AT_ONCE)
    options = CollectOptions(
        model="mock",
        endpoint=Endpoint(base_url=job.base_url, model="mock"),
        env="bench.talking:Talk",
        env_args={"num_turns": str(job.num_turns)},
        out=Path(job.folder) / "run",
        fresh=True,  # earlier contestants have used the folder
        concurrency=NUM_AT_ONCE,
    )
    num_scored = 0
    collection = Collection(plan_run([TaskFile(tasks)], options))
    async with collection, aclosing(collection.run()) as records:
        async for record in records:
            num_scored += getattr(record, "reward", None) == 1.0
    if num_scored != num_tasks:
        raise SystemExit(f"gym scored {num_scored} conversations, not {num_tasks}")
    return Talk.lockstep.readings


async def play_bare(job: Job) -> list[float]:
    """Play the conversations with bare calls; return the readings of the CPU clock."""
    import aiohttp
    import orjson

    from bench.talking import TEXT, Lockstep

    lockstep = Lockstep(NUM_AT_ONCE)
    headers = {"Content-Type": "application/json"}

    async def ask(messages: list[Any]) -> Any:
        body = orjson.dumps({"model": "mock", "messages": messages})
        url = f"{job.base_url}/chat/completions"
        async with session.post(url, data=body, headers=headers) as response:
            return orjson.loads(await response.read())["choices"][0]["message"]

    async def play() -> None:
        for _ in range(job.num_waves):
            await lockstep.wait()
            messages: list[Any] = [{"role": "user", "content": "Let us talk."}]
            for _ in range(job.num_turns):
                message = await ask(messages)
                messages.append({"role": "assistant", "content": message["content"]})
                messages.append({"role": "user", "content": TEXT})
                await lockstep.wait()

    connector = aiohttp.TCPConnector(limit=NUM_AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(play() for _ in range(NUM_AT_ONCE)))
    return lockstep.readings


CONTESTANTS: dict[str, Callable[[Job], Awaitable[list[float]]]] = {
    "gym": play_gym,
    "bare": play_bare,
}


async def contend(job: Job) -> Effort:
    """Play all waves, and return the CPU of a call by turn."""
    server, wall = cpu_seconds(job.server_id), time.perf_counter()
    readings = await CONTESTANTS[job.contestant](job)
    share = (cpu_seconds(job.server_id) - server) / (time.perf_counter() - wall)
    return Effort(by_turn(readings, job.num_turns), share)


def by_turn(readings: list[float], num_turns: int) -> list[float]:
    """Return the CPU of a call in microseconds, by turn; the first wave does not count.

    A wave has one more reading than turns: the one at its beginning.
    """
    length = num_turns + 1
    waves = [readings[at : at + length] for at in range(length, len(readings), length)]
    return [
        median(wave[turn] - wave[turn - 1] for wave in waves) / NUM_AT_ONCE * 1e6
        for turn in range(1, length)
    ]


def measure(scale: float = 1.0) -> list[Figure]:
    """Let the contestants take turns; `scale` multiplies the number of turns.

    Raises:
        SystemExit: A contestant failed, the server was the bottleneck, or there is no /proc.
    """
    num_turns = max(2 * NUM_COMPARED, round(NUM_TURNS * scale))
    efforts: dict[str, list[Effort]] = {name: [] for name in CONTESTANTS}
    options = ("--behaviour", f"fixed:{ANSWER}", "--latency", str(LATENCY))
    with serving(*options) as server, tempfile.TemporaryDirectory() as folder:
        for _ in range(NUM_RUNS):
            for name, made in efforts.items():
                made.append(_run(name, server, folder, num_turns))
    what = f"CPU of a call at turn {num_turns} against turn 1"
    ours = _figure(what, efforts["gym"])
    ours.goal, ours.limit = f"≤ {LIMIT}", LIMIT
    return [ours, _figure("the same, of the barest loop", efforts["bare"])]


def _run(contestant: str, server: Server, folder: str, num_turns: int) -> Effort:
    job = Job(
        contestant=contestant,
        base_url=server.base_url,
        server_id=server.process_id,
        folder=folder,
        num_turns=num_turns,
        num_waves=NUM_WAVES + 1,
    )
    text = msgspec.json.encode(job).decode()
    command = [sys.executable, "-m", "bench.conversations", "--job", text]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
    effort = msgspec.json.decode(output, type=Effort)
    check_share(effort.server_share)
    return effort


def _figure(what: str, efforts: list[Effort]) -> Figure:
    early = [median(effort.microseconds[:NUM_COMPARED]) for effort in efforts]
    late = [median(effort.microseconds[-NUM_COMPARED:]) for effort in efforts]
    ratios = [after / before for before, after in zip(early, late, strict=True)]
    return Figure(
        what=what,
        value=median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        details={
            f"µs, turns 1 to {NUM_COMPARED}": [round(one, 1) for one in early],
            f"µs, last {NUM_COMPARED} turns": [round(one, 1) for one in late],
            "server": f"{max(effort.server_share for effort in efforts):.0%} of a core",
        },
    )


def main() -> None:
    """Measure and print the table, or be one of the contestants."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of turns")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        job = msgspec.json.decode(options.job, type=Job)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            effort = runner.run(contend(job))
        sys.stdout.buffer.write(msgspec.json.encode(effort))
        return
    figures = measure(options.scale)
    print_figures(figures)
    if options.json is not None:
        save(figures, options.json)


if __name__ == "__main__":
    main()
