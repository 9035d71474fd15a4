"""Measures the index of a run against parsing the same file with orjson.

The run is generated from a seed: conversations of 17 messages with tool calls, 20 kB each, 2 GB at
scale 1. The file is in the page cache. These take turns, parsing in one process and the index in
another:

- parsing: orjson parses every line of the file;
- building the index: CPU time, and memory beyond that of the imports;
- three filters on the finished index: one on values in memory, one on words that no conversation
  has, and one on a field of the task, which is read from the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from bench.figures import Figure, run_script
from gymcli.types import SCHEMA_VERSION, FunctionCall, Message, Rollout, ToolCall, Usage

__all__ = ["measure", "write_run"]

_NUM_ROLLOUTS = 100_000
_ATTEMPTS = 8
_NUM_CALLS = 8
_NUM_WORDS = 160
"""Words of a message, about 1 kB."""
_NUM_TURNS = 3

_PARSE = """
import sys, time, orjson
started = time.process_time()
for line in open(sys.argv[1], "rb"):
    orjson.loads(line)
print([time.process_time() - started])
"""

_INDEX = """
import resource, sys, time
from pathlib import Path
from gymcli.store.filters import parse_filter
from gymcli.store.run_index import RunIndex

def peak():
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

before, started = peak(), time.process_time()
with RunIndex(Path(sys.argv[1])) as index:
    found = [time.process_time() - started, peak() - before]
    for text in sys.argv[2:]:
        started = time.process_time()
        index.select(parse_filter(text))
        found.append(time.process_time() - started)
print(found)
"""

_FILTERS = {
    "a filter of what is in memory": "reward < 0.5 and 0 < avg < 1",
    "words that no conversation has": 'contains(text, "seldom said words")',
    "a field of the task": 'task.category == "b"',
}


def write_run(file: Path, num_rollouts: int) -> None:
    """Write this many rollouts."""
    random, encoder = Random(0), msgspec.json.Encoder()
    words = [f"word{number}" for number in range(2000)]
    texts = [" ".join(random.choices(words, k=_NUM_WORDS)) for _ in range(1000)]
    with file.open("wb") as lines:
        for number in range(num_rollouts):
            lines.write(encoder.encode(_rollout(number, random, texts)) + b"\n")


def _rollout(number: int, random: Random, texts: list[str]) -> Rollout:
    messages = [Message(role="user", content=random.choice(texts))]
    for call in range(_NUM_CALLS):
        function = FunctionCall("search", f'{{"query": "{random.choice(texts)[:20]}"}}')
        asked = [ToolCall(f"c{call}", function)]
        messages.append(Message(role="assistant", content=random.choice(texts), tool_calls=asked))
        answer = random.choice(texts)
        messages.append(Message(role="tool", tool_call_id=f"c{call}", content=answer))
    return Rollout(
        schema_version=SCHEMA_VERSION,
        task_id=f"task-{number // _ATTEMPTS}",
        attempt=number % _ATTEMPTS,
        env="search",
        task={"category": random.choice("abc")},
        messages=messages,
        num_prompt_messages=1,
        model="m",
        stop_reason="done",
        usage=Usage(prompt_tokens=random.randrange(9999), completion_tokens=9),
        reward=float(random.random() < 0.5),
        components={"form": random.random()},
        answer=random.choice("ABCD"),
    )


def measure(scale: float = 1.0) -> list[Figure]:
    """Measure the index of 100,000 rollouts at scale 1."""
    num_rollouts = max(1, round(_NUM_ROLLOUTS * scale))
    with tempfile.TemporaryDirectory(prefix="gym-bench-") as folder:
        file = Path(folder) / "rollouts.jsonl"
        write_run(file, num_rollouts)
        parsed, indexed = [], []
        for _ in range(_NUM_TURNS):
            parsed.append(_run(_PARSE, str(file))[0])
            indexed.append(_run(_INDEX, str(file), *_FILTERS.values()))
        size = file.stat().st_size
    details: dict[str, float | str | list[float]] = {"MB": size / 1e6, "orjson s": median(parsed)}
    # _INDEX prints CPU and memory of the build, then the CPU of each filter.
    whats = {"building the index": 0} | {what: 2 + n for n, what in enumerate(_FILTERS)}
    figures = []
    for what, place in whats.items():
        ratios = [one[place] / parse for one, parse in zip(indexed, parsed, strict=True)]
        figures.append(
            Figure(
                what=f"{what}, against parsing all with orjson",
                value=median(ratios),
                lowest=min(ratios),
                highest=max(ratios),
                details={**details, "CPU s": median(one[place] for one in indexed)},
            )
        )
    taken = [one[1] * 1e6 / num_rollouts for one in indexed]
    memory = "memory of the index for each rollout"
    figures.append(
        Figure(
            what=memory, value=median(taken), unit="bytes", lowest=min(taken), highest=max(taken)
        )
    )
    return figures


def _run(program: str, *arguments: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return msgspec.json.decode(done.stdout, type=list[float])


if __name__ == "__main__":
    run_script((__doc__ or "").split("\n", 1)[0], measure)
