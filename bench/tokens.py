"""Measures what recording token ids costs: CPU of a rollout, and bytes in the run directory.

`gym` with and without `--record-tokens` take turns against one mock server, which reports ids as
vLLM does to requests that ask for them. Each run is a process of its own, measured as in
`bench.overhead`. Without the option the requests and the run directory are as they were before
there was one; what a rollout costs then is the figure of `overhead`.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import Figure, run_script
from bench.overhead import (
    NUM_RUNS,
    SHAPES,
    WARM_UP_SHARE,
    Job,
    Run,
    Shape,
    check,
    run_contestant,
    write_tasks,
)
from bench.server import serving

__all__ = ["LIMIT", "measure"]

LIMIT = 2.0
NUM_ROLLOUTS = 500
MANY_ROLLOUTS = 50
"""With fewer, start-up takes most of the time, and one run each is enough."""
LATENCY = 0.1
"""Longer than in `overhead`, since reporting ids costs the server more than recording them."""


def measure(scale: float = 1.0) -> list[Figure]:
    """Return the figures of each shape; `scale` makes the runs shorter or longer."""
    figures: list[Figure] = []
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            num_rollouts = max(1, round(NUM_ROLLOUTS * scale))
            figures += measure_shape(name, shape, Path(folder), num_rollouts)
    return figures


def measure_shape(name: str, shape: Shape, folder: Path, num_rollouts: int) -> list[Figure]:
    """Let runs with and without token ids take turns at one shape."""
    num_runs = NUM_RUNS if num_rollouts >= MANY_ROLLOUTS else 1
    script = folder / "script.jsonl"
    script.write_bytes(msgspec.json.encode({"answers": shape.answers}) + b"\n")
    num_warm_up = max(1, round(WARM_UP_SHARE * num_rollouts))
    write_tasks(folder / "tasks.jsonl", shape, num_rollouts)
    write_tasks(folder / "warm-up.jsonl", shape, num_warm_up)
    num_requests = len(shape.answers) * (num_rollouts + 2 * num_warm_up)
    runs: dict[bool, list[Run]] = {False: [], True: []}
    options = ("--behaviour", f"script:{script}", "--latency", str(LATENCY), "--tokens", "vllm")
    with serving(*options) as mock:
        for turn, records in itertools.product(range(num_runs), runs):
            job = Job(
                contestant="gym",
                env=shape.env,
                base_url=mock.base_url,
                server_id=mock.process_id,
                folder=str(folder),
                turn=2 * turn + records,
                tools=[],
                records_tokens=records,
            )
            run = run_contestant(job, mock)
            # Each of the three runs of a process probes once for its source of ids.
            check(run, job, num_rollouts=num_rollouts, num_requests=num_requests + 3 * records)
            runs[records].append(run)
    without, with_ids = ([run.microseconds for run in made] for made in runs.values())
    ratios = [one / other for one, other in zip(with_ids, without, strict=True)]
    plain, recorded = folder / "gym-0", folder / "gym-1"
    num_ids = sum(
        len(line.get("added", ())) + len(line["sampled"])
        for line in map(msgspec.json.decode, (recorded / "tokens.jsonl").open("rb"))
    )
    sizes = {
        f"{file} {run.name}": (run / file).stat().st_size if (run / file).exists() else 0
        for run, file in itertools.product((plain, recorded), ("rollouts.jsonl", "tokens.jsonl"))
    }
    return [
        Figure(
            what=f"CPU of a rollout that records token ids, {name}, against one that does not",
            goal=f"≤ {LIMIT}",
            limit=LIMIT,
            value=median(with_ids) / median(without),
            lowest=min(ratios),
            highest=max(ratios),
            details={"with µs": with_ids, "without µs": without},
        ),
        Figure(
            what=f"recorded bytes a token, {name}",
            value=sizes["tokens.jsonl gym-1"] / num_ids,
            unit="bytes",
            details={"ids a rollout": num_ids / num_rollouts, **sizes},
        ),
    ]


if __name__ == "__main__":
    run_script((__doc__ or "").split("\n", 1)[0], measure, size=f"{NUM_ROLLOUTS} rollouts a run")
