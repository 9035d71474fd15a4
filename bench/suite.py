"""Runs thirty benchmarks in one command, kills it twice, and looks for lost or repeated attempts.

The benchmarks are folders with rows that environments generate, or with `--shipped` those that ship
with gymcli, with 20 rows each that were made by hand. `gym collect` runs all of them in one process
against a `gym mock` that fails now and then. The command and all of its processes are killed by
SIGKILL when a third, and again when two thirds, of the attempts are scored; then the same command
ends the runs. This must hold:

- no line that was on disk after a kill is lost or changed;
- at the end, each run has every (environment, task, attempt) exactly once;
- the same command once more sends nothing.

Then one benchmark of 12,000 rows and 16 repeats starts. Its goals are the time that its rows take
before the first request is sent, and the most memory that the command holds.

The script prints the memory, processes and open files of each command and the time to its first
request; the exit code is 1 if a rule is broken or a goal is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.figures import TIMES, Figure, print_figures, save
from bench.remains import OnDisk
from bench.runs import Server, serving, write_settings
from gymcli.benchmarks.benchmark import benchmark_names
from gymcli.benchmarks.benchmark_files import tasks_path

__all__ = ["main"]

GYM = [sys.executable, "-c", "from gymcli.supervisor import main; main()"]

ENVIRONMENTS = (
    *("mcqa", "arithmetic", "math_with_judge", "string_match", "instruction_following"),
    *("structured_outputs", "equivalence_llm_judge", "example_multi_step", "reasoning_gym"),
    *("xlam_fc", "single_step_tool_use_with_argument_comparison", "example_multi_turn"),
    *("example_tool_call_multireward", "workplace_assistant", "example_session_state_mgmt"),
)
JUDGED = "equivalence_llm_judge"
REPEATS = 2
SCRIPT = (
    {"match": "[[A!=B]] if it does not", "answers": [{"text": "[[A=B]]"}]},
    {"answers": [{"text": "The answer is \\boxed{B}."}] * 20},
)
FAULTS = ("429=0.02", "500=0.02", "reset=0.01")
SHARES = (1 / 3, 2 / 3)
"""Of the attempts, after which the command is killed."""
MAX_SECONDS = 600.0
NUM_ROWS, NUM_REPEATS = 12_000, 16
MAX_READING, MAX_MEGABYTES = 1.0, 200.0


class Sample(msgspec.Struct):
    """What one command needed."""

    seconds: float = 0.0
    first_seconds: float = 0.0
    """From its start to its first request."""
    megabytes: float = 0.0
    """The peak of the run's process."""
    num_processes: int = 0
    num_open_files: int = 0
    exit_code: int | None = None
    """None: it was killed."""


def write_benchmark(folder: Path, env: str, *, rows: int, repeats: int, seed: int) -> Path:
    """Write a benchmark.toml whose rows the environment generates."""
    folder.mkdir(parents=True)
    lines = [
        f'name = "{folder.name}"',
        'version = "1"',
        'title = "Rows that an environment generates"',
        'domain = "none"',
        f'env = "{env}"',
        f"repeats = {repeats}",
        "params = { temperature = 0.0, max_tokens = 64 }",
        "margin = 0.05",
        'citations = { margin = "chosen for this script" }',
        *('[roles.judge]\nmodel = "judge"' for _ in range(env == JUDGED)),
        "[source]",
        f'env = "{env}"',
        f"seed = {seed}",
        f"rows = {rows}",
        'licence = "Apache-2.0"',
    ]
    (folder / "benchmark.toml").write_text("\n".join(lines) + "\n")
    return folder


def generated(folder: Path, num_benchmarks: int, rows: int) -> dict[str, int]:
    """Write benchmarks; return how many attempts each has, by its folder."""
    numbered = zip(range(num_benchmarks), itertools.cycle(ENVIRONMENTS), strict=False)
    return {
        str(write_benchmark(folder / f"suite-{n}", env, rows=rows, repeats=REPEATS, seed=n)): rows
        * REPEATS
        for n, env in numbered
    }


def shipped(folder: Path) -> dict[str, int]:
    """Fill a cache with rows for the benchmarks that ship; return the attempts of each, by name."""
    # Late: it needs the libraries of the Hub, and reads HF_ENDPOINT once.
    from tests.datasets.shipped import pull
    from tests.tasks.hub import running_hub

    cache = folder / "cache" / "gymcli" / "benchmarks"
    with running_hub() as hub:
        os.environ |= {"HF_ENDPOINT": hub.address, "HF_HOME": f"{folder}/home"}
        pulled = [pull(hub, name, folder / "stand-in") for name in benchmark_names()]
    expected = {}
    for found, tasks in pulled:
        if not isinstance(tasks, Path):
            raise SystemExit(f"{found.name}: {tasks}")
        path = tasks_path(found, cache)
        path.parent.mkdir(parents=True)
        for ending in ("", ".source.json"):
            shutil.copy(f"{tasks}{ending}", f"{path}{ending}")
        expected[found.name] = len(path.read_bytes().splitlines()) * REPEATS
    return expected


def command(
    folder: Path, benchmarks: Iterable[str], server: Server, *, stop_after: int | None = None
) -> Sample:
    """Run the command; kill it and its processes after `stop_after` requests, if given.

    Raises:
        SystemExit: It does not end.
    """
    sample, before = Sample(), server.num_requests()
    variables = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    arguments = [*benchmarks, "--model", "mock", "--out", "runs", "--quiet"]
    with (folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            [*GYM, "collect", *arguments],
            cwd=folder,
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    started = time.monotonic()
    while process.poll() is None:
        if time.monotonic() - started > MAX_SECONDS:
            kill_group(process)
            raise SystemExit("gym collect did not end")
        num_requests = server.num_requests() - before
        if num_requests and not sample.first_seconds:
            sample.first_seconds = time.monotonic() - started
        look(process.pid, sample)
        if stop_after is not None and num_requests >= stop_after:
            kill_group(process)
            break
        time.sleep(0.02)
    code = process.wait()
    sample.seconds = time.monotonic() - started
    sample.exit_code = None if code < 0 else code
    while server.stats().in_flight:  # those of a killed command are still being answered
        time.sleep(0.02)
    return sample


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the supervisor and the run; the workers lead sessions of their own and die with it."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def look(process: int, sample: Sample) -> None:
    """Add the present state of the supervised run to a sample."""
    tree = [process, *children(process)]
    sample.num_processes = max(sample.num_processes, len(tree))
    run = tree[1] if len(tree) > 1 else process
    with suppress(OSError):  # it has ended
        status = Path(f"/proc/{run}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        sample.megabytes = max(sample.megabytes, int(found[1]) / 1024 if found else 0.0)
        num_files = len(list(Path(f"/proc/{run}/fd").iterdir()))
        sample.num_open_files = max(sample.num_open_files, num_files)


def children(process: int) -> Iterator[int]:
    """Yield the processes below one."""
    with suppress(OSError):
        for text in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            yield int(text)
            yield from children(int(text))


def run_suite(
    folder: Path, expected: Mapping[str, int], *options: str
) -> tuple[dict[str, Sample], list[str]]:
    """Run the benchmarks with two kills; return a sample of each command, and broken rules.

    `expected` has the attempts of each benchmark, `options` are those of `gym collect`.
    """
    script = folder / "script.jsonl"
    script.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in SCRIPT))
    arguments = [*expected, *options]
    runs = [folder / "runs" / Path(name).name for name in expected]
    mock = ["--behaviour", f"script:{script}", "--latency", "uniform:0.02:0.1"]
    mock += [text for fault in FAULTS for text in ("--fault", fault)]
    samples: dict[str, Sample] = {}
    problems: list[str] = []
    with serving(*mock) as server:
        write_settings(folder, server)
        with (folder / "gym.toml").open("a") as file:
            file.write(f'[models.judge]\nbase_url = "{server.base_url}"\n')
        before = list(map(OnDisk.read, runs))
        stops = [round(share * sum(expected.values())) for share in SHARES]
        for stop in (*stops, None):
            done = sum(len(one.lines["rollouts.jsonl"]) for one in before)
            after_requests = None if stop is None else max(1, stop - done)
            name = "resumed" if stop is None else f"killed at {stop:,} attempts"
            samples[name] = command(folder, arguments, server, stop_after=after_requests)
            after = list(map(OnDisk.read, runs))
            lost = sum(old.num_lost_by(new) for old, new in zip(before, after, strict=True))
            if lost:
                problems.append(f"{name}: {lost} lines are lost")
            before = after
        num_before = server.num_requests()
        samples["again"] = command(folder, arguments, server)
        if sent := server.num_requests() - num_before:
            problems.append(f"the same command again sent {sent} requests")
    if samples["resumed"].exit_code or samples["again"].exit_code:
        problems.append((folder / "stderr").read_text(errors="replace")[-2000:])
    for run, num_attempts, end in zip(runs, expected.values(), before, strict=True):
        keys = Counter(rollout.key for rollout in end.rollouts("rollouts.jsonl"))
        if len(keys) != num_attempts or keys.total() > len(keys):
            num_twice = keys.total() - len(keys)
            problems.append(
                f"{run.name}: {len(keys)} of {num_attempts} attempts, {num_twice} of them twice"
            )
    return samples, problems


def run_rows(folder: Path) -> tuple[list[Figure], dict[str, Sample]]:
    """Start a benchmark with many rows and repeats, and one with few rows to compare it with."""
    samples = {}
    with serving("--behaviour", "fixed:The answer is \\boxed{B}.", "--latency", "0.05") as server:
        write_settings(folder, server)
        for rows in (1, NUM_ROWS):
            name = f"rows-{rows}"
            one = write_benchmark(folder / name, "mcqa", rows=rows, repeats=NUM_REPEATS, seed=1)
            # The first command pulls the rows, and is killed at once.
            for stop_after in (1, 1 if rows == 1 else NUM_REPEATS * 500):
                shutil.rmtree(folder / "runs", ignore_errors=True)
                samples[name] = command(folder, [str(one)], server, stop_after=stop_after)
    few, many = samples["rows-1"], samples[f"rows-{NUM_ROWS}"]
    what = f"{NUM_ROWS:,} rows {TIMES} {NUM_REPEATS}"
    figures = [
        Figure(
            what=f"{what}: time until the first request, beyond that of one row",
            value=many.first_seconds - few.first_seconds,
            unit="s",
            goal=f"≤ {MAX_READING}",
            limit=MAX_READING,
        ),
        Figure(
            what=f"{what}: peak memory",
            value=many.megabytes,
            unit="MB",
            goal=f"≤ {MAX_MEGABYTES:g}",
            limit=MAX_MEGABYTES,
        ),
    ]
    return figures, samples


def main() -> int:
    """Run both parts, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.suite", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--benchmarks", type=int, default=30)
    parser.add_argument("--rows", type=int, default=100, help="of each benchmark")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--shipped", action="store_true", help="run the benchmarks that ship")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder, more_options = Path(text), []
        if options.shipped:
            expected = shipped(folder)
            # The environment's own stand-in judges: the judges' prompts differ.
            more_options = ["--repeats", str(REPEATS), "--role", "judge=oracle"]
        else:
            expected = generated(folder, options.benchmarks, options.rows)
        started = time.monotonic()
        samples, problems = run_suite(folder, expected, *more_options)
        seconds = time.monotonic() - started
    with tempfile.TemporaryDirectory() as text:
        figures, more = run_rows(Path(text))
    print(
        f"{'command':<28}{'seconds':>9}{'first':>8}{'MB':>8}{'processes':>11}{'files':>7}{'exit':>6}"
    )
    for name, one in {**samples, **more}.items():
        code = "kill" if one.exit_code is None else one.exit_code
        print(
            f"{name:<28}{one.seconds:>9.1f}{one.first_seconds:>8.2f}{one.megabytes:>8.0f}"
            f"{one.num_processes:>11}{one.num_open_files:>7}{code:>6}"
        )
    print_figures(figures)
    num_attempts = sum(expected.values())
    print(f"{num_attempts:,} attempts of {len(expected)} benchmarks in {seconds:.0f} s")
    print("\n".join(problems) or "nothing is lost, and nothing is twice")
    if options.json is not None:
        save(figures, options.json)
    return 1 if problems or not all(figure.is_met for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
