"""Measures the CPU of a rollout against the barest loop that sends the same requests.

Two contestants ask the same mock server: `gym` does everything that `gym collect` does, from the
tasks file to metrics.json; `bare` is a loop of aiohttp, uvloop and orjson that writes a comparable
line for each rollout and does nothing else. They are measured as follows:

- The server and each contestant are processes of their own. A contestant's CPU is the user and
  system time of all threads of its process.
- Start-up and imports do not count: a contestant first plays fewer rollouts into other folders,
  and its clock is read only around the last run. Everything in that run counts, including checking
  the tasks file and measuring the run.
- The tree is that process and the workers in which verifiers run. Starting a worker does not count
  either. It costs the same in the last two runs, so the CPU of the workers is the difference of the
  two, scaled from the additional rollouts to all.
- The contestants take turns, so that other load on the machine affects both. The ratio is that of
  the medians; its spread is the lowest and highest ratio of a turn.
- The server waits before it answers, as a model does, which bounds its load. A server that uses
  80 % of a core would set the pace and its answers would arrive in batches, so such a measurement
  is refused.

Only ratios are claims; microseconds are shown to make them plausible.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import uvloop

from bench import server
from bench.figures import Figure, print_figures, save
from bench.server import Server, check_share, cpu_seconds
from gymcli.tasks.task_source import TaskFile

__all__ = ["LIMIT", "NUM_ROLLOUTS", "NUM_RUNS", "SHAPES", "measure"]

LIMIT = 2.5
TREE_LIMIT = 3.5
CONCURRENCY = 64
LATENCY = 0.05
NUM_ROLLOUTS = 2000
NUM_RUNS = 5
WARM_UP_SHARE = 0.5
"""Share of the rollouts in a warm-up run; it starts as many workers as the measured run."""
ROOT = Path(__file__).resolve().parents[1]


class Job(msgspec.Struct):
    """The job of one contestant, in one process."""

    contestant: str
    env: str
    base_url: str
    server_id: int
    """The process id of the mock server."""
    folder: str
    """Holds `tasks.jsonl`, `warm-up.jsonl` and the contestants' output."""
    turn: int
    tools: list[dict[str, object]]
    """The tools of the environment, which the bare loop sends unchanged."""
    records_tokens: bool = False


class Effort(msgspec.Struct):
    """A contestant's report on its measured run."""

    num_rollouts: int
    cpu_seconds: float
    worker_seconds: float
    """CPU of the contestant's child processes, without their start."""
    wall_seconds: float
    server_seconds: float
    """CPU of the server during the run."""


async def play_gym(job: Job, tasks: Path, out: Path) -> int:
    """Do what `gym collect` does, without printing; return the number of scored rollouts."""
    from gymcli.commands.collect import GARBAGE_THRESHOLD
    from gymcli.commands.progress import Progress
    from gymcli.metrics.measure import measure
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.collect_options import CollectOptions
    from gymcli.runner.collection import Collection
    from gymcli.runner.plan import plan_run

    endpoint = Endpoint(base_url=job.base_url, model="mock")
    options = CollectOptions(
        model="mock",
        endpoint=endpoint,
        env=job.env,
        out=out,
        concurrency=CONCURRENCY,
        record_tokens=job.records_tokens,
    )
    collection = Collection(plan_run([TaskFile(tasks)], options))
    async with collection:
        # The command sets it too; it affects the cost of every rollout.
        gc.set_threshold(GARBAGE_THRESHOLD)
        with Progress(collection, is_quiet=True) as progress:
            async with aclosing(collection.run()) as records:
                async for record in records:
                    progress.add(record)
        metrics = measure(out).metrics()
        collection.finish(msgspec.json.encode(metrics), time.time())
    return metrics.num_scored


async def play_bare(job: Job, tasks: Path, out: Path) -> int:
    """Send the same requests and write as many lines, with nothing in between."""
    import aiohttp
    import orjson

    url = f"{job.base_url}/chat/completions"
    headers = {"Content-Type": "application/json"}
    tools = {"tools": job.tools} if job.tools else {}
    num_written = 0

    async def ask(messages: list[Any], usage: dict[str, int]) -> Any:
        body = orjson.dumps({"model": "mock", "messages": messages, **tools})
        async with session.post(url, data=body, headers=headers) as response:
            answer = orjson.loads(await response.read())
        for name in usage:
            usage[name] += answer["usage"][name]
        return answer["choices"][0]["message"]

    async def play(row: dict[str, Any]) -> dict[str, object]:
        started = time.time()
        messages = row.pop("messages")
        usage = {"prompt_tokens": 0, "completion_tokens": 0}
        count = row.get("initial_count", 0)
        # The tools of example_session_state_mgmt, without an environment.
        while calls := (message := await ask(messages, usage)).get("tool_calls"):
            messages.append({"role": "assistant", "tool_calls": calls})
            for call in calls:
                arguments = orjson.loads(call["function"]["arguments"])
                count += arguments.get("count", 0)
                result = {"success": True} if arguments else {"count": count}
                text = orjson.dumps(result).decode()
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        messages.append({"role": "assistant", "content": message["content"]})
        is_right = count == row["expected_count"] if job.tools else "7" in message["content"]
        timing = {"started_at": started, "total_seconds": time.time() - started}
        return {
            "task_id": row["id"],
            "env": job.env,
            "task": row,
            "messages": messages,
            **tools,
            "model": "mock",
            "usage": usage,
            "timing": timing,
            "reward": float(is_right),
        }

    async def work() -> None:
        nonlocal num_written
        # All workers share one iterator over the file: a free worker takes the next line.
        for line in lines:
            written.write(orjson.dumps(await play(orjson.loads(line))) + b"\n")
            num_written += 1

    with tasks.open("rb") as lines, out.open("wb") as written:
        connector = aiohttp.TCPConnector(limit=CONCURRENCY)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return num_written


CONTESTANTS: dict[str, Callable[[Job, Path, Path], Awaitable[int]]] = {
    "gym": play_gym,
    "bare": play_bare,
}


async def contend(job: Job) -> Effort:
    """Warm up, then run and measure."""
    play, folder = CONTESTANTS[job.contestant], Path(job.folder)
    out = folder / f"{job.contestant}-{job.turn}"
    warm_up = folder / "warm-up.jsonl"
    # The first run also starts the fork server of the workers.
    await play(job, warm_up, out.with_suffix(".first"))
    before = _children_seconds()
    num_warm_up = await play(job, warm_up, out.with_suffix(".warm-up"))
    start = _children_seconds() - before
    server, cpu, wall = cpu_seconds(job.server_id), time.process_time(), time.perf_counter()
    num_rollouts = await play(job, folder / "tasks.jsonl", out)
    # Both runs paid for starting workers; the difference is the CPU of the additional rollouts.
    more = _children_seconds() - before - 2 * start
    share = num_rollouts / max(num_rollouts - num_warm_up, 1)
    return Effort(
        num_rollouts,
        time.process_time() - cpu,
        max(0.0, more) * share,
        time.perf_counter() - wall,
        cpu_seconds(job.server_id) - server,
    )


def _children_seconds() -> float:
    """Return the CPU of child processes, running or ended, and of their ended children (Linux)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    # RUSAGE_CHILDREN omits running children; /proc has them, with the children they waited for.
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


class Shape(NamedTuple):
    """A kind of rollout: an environment, the server's answers, and the rows."""

    env: str
    answers: list[dict[str, object]]
    """One for each request of a rollout."""
    fields: dict[str, object]
    """The environment's fields of a row, besides its id and prompt."""


SHAPES = {
    "single-turn": Shape("arithmetic", [{"text": "The sum is 7."}], {"answer": 7}),
    "4 tool calls": Shape(
        "example_session_state_mgmt",
        [
            {"tool_calls": [["increment_counter", {"count": 3}]]},
            {"tool_calls": [["increment_counter", {"count": 4}]]},
            {"tool_calls": [["increment_counter", {"count": 5}]]},
            {"tool_calls": [["get_counter_value", {}]]},
            {"text": "The counter is at 13."},
        ],
        {"initial_count": 1, "expected_count": 13},
    ),
}


def write_tasks(path: Path, shape: Shape, num_rows: int) -> None:
    """Write rows that differ in their ids and prompts."""
    with path.open("wb") as file:
        for number in range(num_rows):
            text = f"This is task {number}. Do what it asks for, one step after another."
            prompt = [{"role": "user", "content": text}]
            row = {"id": f"task-{number}", "messages": prompt, **shape.fields}
            file.write(msgspec.json.encode(row) + b"\n")


def serving(script: Path, latency: float) -> AbstractContextManager[Server]:
    """Run a mock server with this script and this latency in seconds while the block lasts."""
    return server.serving("--behaviour", f"script:{script}", "--latency", str(latency))


class Run(msgspec.Struct, kw_only=True):
    """One measured run of one contestant."""

    num_rollouts: int
    num_requests: int
    """As the server counted them."""
    microseconds: float
    """CPU of a rollout."""
    tree_microseconds: float
    """CPU of a rollout, including the workers."""
    server_share: float
    """CPU time of the server, divided by the time of the run."""


def run_contestant(job: Job, server: Server) -> Run:
    """Run a contestant in a process of its own."""
    num_before = server.num_requests()
    command = [sys.executable, "-m", "bench.overhead", "--job", msgspec.json.encode(job).decode()]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
    effort = msgspec.json.decode(output, type=Effort)
    return Run(
        num_rollouts=effort.num_rollouts,
        num_requests=server.num_requests() - num_before,
        microseconds=effort.cpu_seconds / max(effort.num_rollouts, 1) * 1e6,
        tree_microseconds=(effort.cpu_seconds + effort.worker_seconds)
        / max(effort.num_rollouts, 1)
        * 1e6,
        server_share=effort.server_seconds / effort.wall_seconds,
    )


def check(run: Run, job: Job, *, num_rollouts: int, num_requests: int) -> None:
    """Exit if a contestant failed, or if the server was the bottleneck."""
    check_share(run.server_share)
    if (run.num_rollouts, run.num_requests) != (num_rollouts, num_requests):
        raise SystemExit(
            f"{job.contestant} made {run.num_rollouts} rollouts, not {num_rollouts}, with "
            f"{run.num_requests} requests, not {num_requests} (warm-up included)"
            f"{_first_failure(Path(job.folder) / f'{job.contestant}-{job.turn}')}"
        )


def _first_failure(run: Path) -> str:
    """Return the error of the first failed attempt; empty if there is none."""
    file = run / "failures.jsonl"
    if not file.is_file():
        return ""
    with file.open("rb") as lines:
        line = next(lines, b"{}")
    return f"; the first failure: {msgspec.json.decode(line).get('error')}"


class Result(msgspec.Struct, kw_only=True):
    """The measurements of one shape."""

    num_requests: int
    """Requests of one rollout."""
    runs: dict[str, list[Run]]
    """By contestant, in the order of the turns."""

    def figures(self, shape: str) -> list[Figure]:
        """Return the figures of the main process and of the tree."""
        shares = (run.server_share for made in self.runs.values() for run in made)
        details: dict[str, float | str | list[float]] = {}
        for name, made in self.runs.items():
            details[f"{name} µs"] = [round(run.microseconds, 1) for run in made]
        details |= {"requests": self.num_requests, "server's share": max(shares)}
        tree = {"gym µs": [round(run.tree_microseconds, 1) for run in self.runs["gym"]]}
        what = f"of a rollout, {shape}, against the barest loop"
        return [
            self._figure(f"CPU {what}", "microseconds", LIMIT, details),
            self._figure(f"CPU with workers {what}", "tree_microseconds", TREE_LIMIT, tree),
        ]

    def _figure(
        self,
        what: str,
        field: str,
        limit: float,
        details: Mapping[str, float | str | list[float]],
    ) -> Figure:
        """Compare the medians of one field; the spread is that of the turns' ratios."""
        gym = [getattr(run, field) for run in self.runs["gym"]]
        # The bare loop has no workers, so its process is its tree.
        bare = [run.microseconds for run in self.runs["bare"]]
        ratios = [ours / theirs for ours, theirs in zip(gym, bare, strict=True)]
        return Figure(
            what=what,
            goal=f"≤ {limit}",
            limit=limit,
            value=median(gym) / median(bare),
            lowest=min(ratios),
            highest=max(ratios),
            details=dict(details),
        )


def measure_shape(
    shape: Shape, folder: Path, *, num_rollouts: int, num_runs: int, latency: float
) -> Result:
    """Let the contestants take turns at one shape."""
    from gymcli.environment.registry import Registry

    script = folder / "script.jsonl"
    script.write_bytes(msgspec.json.encode({"answers": shape.answers}) + b"\n")
    num_warm_up = max(1, round(WARM_UP_SHARE * num_rollouts))
    write_tasks(folder / "tasks.jsonl", shape, num_rollouts)
    write_tasks(folder / "warm-up.jsonl", shape, num_warm_up)
    tools = Registry().find(shape.env).environment.method_tools().values()
    # Two warm-up runs come before the measured one.
    num_requests = len(shape.answers) * (num_rollouts + 2 * num_warm_up)
    runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
    with serving(script, latency) as mock:
        for turn, name in itertools.product(range(num_runs), CONTESTANTS):
            job = Job(
                contestant=name,
                env=shape.env,
                base_url=mock.base_url,
                server_id=mock.process_id,
                folder=str(folder),
                turn=turn,
                tools=[tool.spec for tool in tools],
            )
            run = run_contestant(job, mock)
            check(run, job, num_rollouts=num_rollouts, num_requests=num_requests)
            runs[name].append(run)
    return Result(num_requests=len(shape.answers), runs=runs)


def measure(
    scale: float = 1.0, *, num_runs: int = NUM_RUNS, latency: float = LATENCY
) -> list[Figure]:
    """Return a figure for each shape; `scale` makes the runs shorter or longer."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, (name, shape) in enumerate(SHAPES.items()):
            folder = Path(temporary) / str(number)
            folder.mkdir()
            result = measure_shape(
                shape,
                folder,
                num_rollouts=max(1, round(NUM_ROLLOUTS * scale)),
                num_runs=num_runs,
                latency=latency,
            )
            figures += result.figures(name)
    return figures


def main() -> None:
    """Measure, or be one of the contestants."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--scale", type=float, default=1.0, help=f"factor for {NUM_ROLLOUTS} rollouts"
    )
    parser.add_argument("--runs", type=int, default=NUM_RUNS, help="runs of each contestant")
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds before an answer")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        job = msgspec.json.decode(options.job, type=Job)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(msgspec.json.encode(runner.run(contend(job))).decode())
        return
    figures = measure(options.scale, num_runs=options.runs, latency=options.latency)
    print_figures(figures)
    if options.json is not None:
        save(figures, options.json)


if __name__ == "__main__":
    main()
