"""Measures the CPU of a rollout against the barest loop that sends the same requests.

Two contestants ask the same mock server: `gym`, the whole way of `gym collect` from the tasks file
to metrics.json, and `bare`, a loop of aiohttp, uvloop and orjson that writes a line of comparable
content for each rollout and does nothing else. What is measured, and how:

- The server and each contestant are processes of their own; a contestant's CPU is the user and
  system time of its process, all threads.
- Start-up and imports do not count: a contestant first plays a few rollouts into another folder,
  and its clock is read around the second run alone. All that this run does counts, checking the
  tasks file and measuring the run included.
- The contestants take turns, so that what else the machine does meets both. The ratio is that of
  the medians; its spread is the lowest and the highest ratio of one turn.
- The server waits before it answers, as a model does, and so its load is bounded. From 80 % of a
  core on it would set the pace and gather the answers; such a measurement is refused.

Only ratios are claims; microseconds are shown to make them plausible.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import uvloop

CONCURRENCY = 64
MAX_SERVER_SHARE = 0.8
NUM_WARM_UP = 128


class Job(msgspec.Struct):
    """What one contestant is asked to do, in one process."""

    contestant: str
    env: str
    base_url: str
    server_id: int
    """The process id of the mock server."""
    folder: str
    """Holds `tasks.jsonl` and `warm-up.jsonl`, and takes what the contestants write."""
    turn: int
    tools: list[dict[str, object]]
    """What the environment shows the model; the bare loop sends them as they are."""


class Effort(msgspec.Struct):
    """What a contestant reports of its measured run."""

    num_rollouts: int
    cpu_seconds: float
    wall_seconds: float
    server_seconds: float
    """CPU of the server meanwhile."""


async def play_gym(job: Job, tasks: Path, out: Path) -> int:
    """Do what `gym collect` does, without its printing; give the number of scored rollouts."""
    from gymcli.client import Endpoint
    from gymcli.commands.progress import Progress
    from gymcli.runner import Collection, CollectOptions, measure

    endpoint = Endpoint(base_url=job.base_url, model="mock")
    options = CollectOptions(
        model="mock", endpoint=endpoint, env=job.env, out=out, concurrency=CONCURRENCY
    )
    collection = Collection([tasks], options)
    async with collection:
        with Progress(collection.num_left, is_quiet=True) as progress:
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
    await play(job, folder / "warm-up.jsonl", out.with_suffix(".warm-up"))
    server, cpu, wall = cpu_seconds(job.server_id), time.process_time(), time.perf_counter()
    num_rollouts = await play(job, folder / "tasks.jsonl", out)
    return Effort(
        num_rollouts,
        time.process_time() - cpu,
        time.perf_counter() - wall,
        cpu_seconds(job.server_id) - server,
    )


def cpu_seconds(process_id: int) -> float:
    """Give the user and system time of a process, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Shape(NamedTuple):
    """A kind of rollout: an environment, what the server answers, and the rows."""

    env: str
    answers: list[dict[str, object]]
    """One for each request of a rollout."""
    fields: dict[str, object]
    """What the environment's rows have beside their id and prompt."""


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


class Server(NamedTuple):
    """The mock server in a process of its own."""

    process_id: int
    base_url: str

    def num_requests(self) -> int:
        """Give how many requests arrived."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.base_url.replace("/v1", "/stats"), timeout=10) as response:
            return int(msgspec.json.decode(response.read())["num_requests"])


@contextmanager
def serving(script: Path, latency: float) -> Iterator[Server]:
    """Start the mock server and stop it at the end."""
    command = [sys.executable, "-c", "from gymcli.cli import main; main()", "mock", "--with-parent"]
    command += ["--behaviour", f"script:{script}", "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            base_url = process.stdout.readline().decode().strip()
            if not base_url:
                raise RuntimeError(f"the mock server ended with {process.wait()} and no address")
            yield Server(process.pid, base_url)
        finally:
            process.stdin.close()


class Run(msgspec.Struct, kw_only=True):
    """One measured run of one contestant."""

    num_rollouts: int
    num_requests: int
    """As the server counted them."""
    microseconds: float
    """CPU of a rollout."""
    server_share: float
    """CPU of the server by the time that the run took."""


def run_contestant(job: Job, server: Server) -> Run:
    """Run a contestant in a process of its own."""
    num_before = server.num_requests()
    command = [sys.executable, __file__, "--job", msgspec.json.encode(job).decode()]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    effort = msgspec.json.decode(output, type=Effort)
    return Run(
        num_rollouts=effort.num_rollouts,
        num_requests=server.num_requests() - num_before,
        microseconds=effort.cpu_seconds / max(effort.num_rollouts, 1) * 1e6,
        server_share=effort.server_seconds / effort.wall_seconds,
    )


def check(run: Run, name: str, *, num_rollouts: int, num_requests: int) -> None:
    """Stop where a contestant did not do what it should, or the server was the slower one."""
    if (run.num_rollouts, run.num_requests) != (num_rollouts, num_requests):
        raise SystemExit(
            f"{name} made {run.num_rollouts} rollouts, not {num_rollouts}, with "
            f"{run.num_requests} requests, not {num_requests}, the warm-up counted in"
        )
    if run.server_share >= MAX_SERVER_SHARE:
        raise SystemExit(
            f"the mock server used {run.server_share:.0%} of a core, so it set the pace; "
            "give a longer --latency"
        )


class Result(msgspec.Struct, kw_only=True):
    """What was measured for one shape."""

    num_requests: int
    """Of one rollout."""
    ratio: float
    """Of the medians: CPU of `gym` by that of `bare`."""
    lowest_ratio: float
    highest_ratio: float
    runs: dict[str, list[Run]]
    """By contestant, in the order they were made."""

    def median_of(self, contestant: str) -> float:
        """Give the median of a contestant's CPU of a rollout, in microseconds."""
        return median(run.microseconds for run in self.runs[contestant])


def measure_shape(
    shape: Shape, folder: Path, *, num_rollouts: int, num_runs: int, latency: float
) -> Result:
    """Let the contestants take turns at one shape."""
    from gymcli.registry import Registry

    script = folder / "script.jsonl"
    script.write_bytes(msgspec.json.encode({"answers": shape.answers}) + b"\n")
    num_warm_up = min(NUM_WARM_UP, num_rollouts)
    write_tasks(folder / "tasks.jsonl", shape, num_rollouts)
    write_tasks(folder / "warm-up.jsonl", shape, num_warm_up)
    tools = Registry().find(shape.env).environment.method_tools().values()
    num_requests = len(shape.answers) * (num_rollouts + num_warm_up)
    runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
    with serving(script, latency) as server:
        for turn, name in itertools.product(range(num_runs), CONTESTANTS):
            job = Job(
                contestant=name,
                env=shape.env,
                base_url=server.base_url,
                server_id=server.process_id,
                folder=str(folder),
                turn=turn,
                tools=[tool.spec for tool in tools],
            )
            run = run_contestant(job, server)
            check(run, name, num_rollouts=num_rollouts, num_requests=num_requests)
            runs[name].append(run)
    return summarize(runs, len(shape.answers))


def summarize(runs: dict[str, list[Run]], num_requests: int) -> Result:
    """Give the ratio of the medians and the spread of the turns' ratios."""
    gym, bare = ([run.microseconds for run in runs[name]] for name in ("gym", "bare"))
    ratios = [ours / theirs for ours, theirs in zip(gym, bare, strict=True)]
    return Result(
        num_requests=num_requests,
        ratio=median(gym) / median(bare),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
        runs=runs,
    )


class Report(msgspec.Struct, kw_only=True):
    """What `--json` writes."""

    num_rollouts: int
    """Of each run."""
    num_runs: int
    """Of each contestant."""
    concurrency: int
    latency: float
    """Seconds before each answer of the server."""
    load_average: float
    """Of the machine over the last minute, when the measurement began."""
    shapes: dict[str, Result]


def print_report(report: Report) -> None:
    """Print a table, a line for each shape."""
    print(f"{'shape':<14}{'gym':>10}{'bare':>10}{'ratio':>8}{'spread':>14}{'server':>9}")
    for name, result in report.shapes.items():
        gym, bare = (f"{result.median_of(who):.0f} us" for who in ("gym", "bare"))
        spread = f"{result.lowest_ratio:.2f} - {result.highest_ratio:.2f}"
        server = max(run.server_share for made in result.runs.values() for run in made)
        print(f"{name:<14}{gym:>10}{bare:>10}{result.ratio:>8.2f}{spread:>14}{server:>9.0%}")
    print(
        f"CPU of a rollout: medians of {report.num_runs} runs of {report.num_rollouts} rollouts, "
        f"{report.concurrency} at once; load {report.load_average:.1f} at the start"
    )


def main() -> None:
    """Measure, or be one of the contestants."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rollouts", type=int, default=2000, help="of one run")
    parser.add_argument("--runs", type=int, default=5, help="of each contestant")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds before an answer")
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not Path("/proc/self/stat").is_file():
        parser.error("needs Linux, where /proc tells what the server used")
    if options.job is not None:
        job = msgspec.json.decode(options.job, type=Job)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(msgspec.json.encode(runner.run(contend(job))).decode())
        return
    report = Report(
        num_rollouts=options.rollouts,
        num_runs=options.runs,
        concurrency=CONCURRENCY,
        latency=options.latency,
        load_average=os.getloadavg()[0],
        shapes={},
    )
    with tempfile.TemporaryDirectory() as temporary:
        for number, (name, shape) in enumerate(SHAPES.items()):
            folder = Path(temporary) / str(number)
            folder.mkdir()
            report.shapes[name] = measure_shape(
                shape,
                folder,
                num_rollouts=options.rollouts,
                num_runs=options.runs,
                latency=options.latency,
            )
    print_report(report)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
