"""Pulls benchmarks from a stand-in of their sources and checks the tasks.

`python -m tests.datasets.shipped [NAME...]` does it for all, and prints a line for each.

The rows are made by hand in `tests/datasets/rows/<name>.py`, whose `rows(rng, num)` returns those
of `num` tasks by configuration or by the last part of the address, "" where a benchmark names none.
`EXAMPLES` there are the rows of the split with the examples of its variants.
The real loading code fetches them, so all but `rows`, `sha256`, `url` and the tested part of
`config` is as in the benchmark.toml.
"""

import asyncio
import csv
import gzip
import hashlib
import importlib
import io
import json
import os
import random
import re
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

import yaml

from gymcli.benchmarks.benchmark import benchmark_names, find_benchmark, with_variants
from gymcli.benchmarks.benchmark_files import pulled_tasks
from gymcli.checks.prompt_checks import leaks
from gymcli.checks.score_checks import oracle
from gymcli.checks.subject import Finding, Subject, read_task_set
from gymcli.data.validation import validate
from gymcli.environment.registry import Registry, own_options, prepare
from gymcli.errors import GymError, MissingPackageError
from gymcli.rollout.scoring import Workers
from tests.tasks.hub import running_hub

NUM_TASKS = 20


class Checked(NamedTuple):
    """A line of the table; without problems, all is as it must be."""

    name: str
    env: str
    num_tasks: int
    oracle: str
    empty: str
    leaks: str
    problems: list[str]


def main(names):
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running_hub() as hub:
        # Before the Hub's library is imported, which reads them once.
        os.environ |= {"HF_ENDPOINT": hub.address, "HF_HOME": f"{folder}/home"}
        pulled = [pull(hub, name, Path(folder, "cache")) for name in names or all_names()]
        checked = asyncio.run(check(pulled))
    print(f"{'benchmark':26} {'environment':20} tasks  oracle  empty  leaks")
    for one in checked:
        columns = f"{one.num_tasks:5}  {one.oracle:6}  {one.empty:5}  {one.leaks}"
        print(f"{one.name:26} {one.env:20} {columns}")
        for problem in one.problems:
            print(f"  FAILED: {problem}")
    num_wrong = len({one.name for one in checked if one.problems})
    print(f"{len(pulled)} benchmarks, {num_wrong} with problems")
    print(f"{time.monotonic() - started:.1f} s", file=sys.stderr)
    return 1 if num_wrong else 0


def all_names():
    """Return the names of all benchmarks and of their variants."""
    return [benchmark.name for name in benchmark_names() for benchmark in with_variants(name)]


def pull(hub, name, cache):
    """Return the benchmark and its tasks file, or the error in its place."""
    benchmark = find_benchmark(name)
    try:
        return benchmark, pulled_tasks(stand_in(hub, benchmark), cache=cache)
    except (GymError, ImportError) as error:
        return benchmark, error


def stand_in(hub, benchmark):
    """Serve rows made by hand as the benchmark's source; return it with what differs changed."""
    source = benchmark.source
    base = find_benchmark(benchmark.spec.removesuffix(benchmark.variant_suffix))
    changed = {"rows": NUM_TASKS * source.rows // base.source.rows}
    if source.env is not None:
        changed["sha256"] = ()
    else:
        module = importlib.import_module(f"tests.datasets.rows.{re.sub('[-.]', '_', base.name)}")
        tables = module.rows(random.Random(0), NUM_TASKS)
    if source.hf is not None:
        changed["config"] = tuple(name for name in source.config if name in tables)
        assert set(tables) == {*(changed["config"] or [""])}, f"unknown: {set(tables)}"
        # The rows of several have the column `_config`.
        assert min(len(source.config), 2) == min(len(changed["config"]), 2), "too few"
        examples = [variant.examples.split for variant in base.variant if variant.examples]
        rows = {split: module.EXAMPLES for split in examples if split}
        hub.repositories[source.hf] = repository(tables, source.split, rows)
        hub.revisions[source.hf] = source.revision
    if source.url or source.pypi:
        urls, contents = [], []
        for number, url in enumerate(source.url or source.pypi):
            name = url.rpartition("/")[2]
            # A longer key tells files of the same name in different folders apart.
            keys = [key for key in tables if f"/{url}".endswith(f"/{key}") or not key]
            content = table(name, tables[max(keys, key=len)], source.columns)
            member = url.partition("#")[2] if source.url else ""
            contents.append(zipped(member, content) if member else content)
            path = f"/{benchmark.name}/{number}/{name}"
            hub.files[path] = contents[-1]
            urls.append(f"{hub.address}{path}" + (f"#{member}" if member else ""))
        changed["url"], changed["pypi"] = tuple(urls), ()
        changed["sha256"] = tuple(hashlib.sha256(one).hexdigest() for one in contents)
    return benchmark.model_copy(update={"source": source.model_copy(update=changed)})


def zipped(name, content):
    """Return a ZIP archive with one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def repository(tables, split, others):
    """Return the files of a data set: one for each configuration, and the card that names them.

    `others` are the rows of further splits, of all configurations.
    """
    ending = (
        "parquet" if any(_has_bytes(row) for rows in tables.values() for row in rows) else "jsonl"
    )
    names = {config: f"{number}.{ending}" for number, config in enumerate(tables)}
    # As in some data sets, a split that no benchmark names has the name of its configuration.
    configs = [
        {
            "config_name": config or "default",
            "data_files": [
                {"split": split or config or "test", "path": name},
                *({"split": other, "path": f"{other}.{ending}"} for other in others),
            ],
        }
        for config, name in names.items()
    ]
    card = f"---\n{yaml.safe_dump({'license': 'other', 'configs': configs})}---\n"
    files = {name: table(name, tables[config]) for config, name in names.items()}
    files |= {f"{other}.{ending}": table(f".{ending}", rows) for other, rows in others.items()}
    return {"README.md": card.encode(), **files}


def _has_bytes(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bytes) or any(map(_has_bytes, inner))


def table(name, rows, columns=()):
    """Return rows as a file of the format of its name."""
    ending = Path(name.removesuffix(".gz")).suffix
    if ending == ".parquet":
        import pyarrow as pa
        from pyarrow.parquet import write_table

        file = io.BytesIO()
        write_table(pa.Table.from_pylist(rows), file)
        return file.getvalue()
    if ending in (".csv", ".tsv", ".lst"):
        text = io.StringIO()
        writer = csv.DictWriter(
            text, columns or rows[0], delimiter="\t" if ending == ".tsv" else ","
        )
        if not columns:
            writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue()
    else:
        content = "".join(json.dumps(row) + "\n" for row in rows)
    return gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()


async def check(pulled):
    """Play the tasks of every benchmark by its oracle and by silence."""
    async with Workers() as workers:
        # At once, since some wait for another process.
        checked = await asyncio.gather(*(check_one(*one, workers) for one in pulled))
    return [line for lines in checked for line in lines]


async def check_one(benchmark, tasks, workers):
    """Return a line for each environment of the tasks, or one with the error in their place."""
    if not isinstance(tasks, Path):
        is_skipped = isinstance(tasks, MissingPackageError)
        what, problems = ("skipped", []) if is_skipped else ("failed", [str(tasks) or repr(tasks)])
        return [Checked(benchmark.name, benchmark.env, 0, what, "", "", problems)]
    played = validate([tasks], env=benchmark.env, prompt=benchmark.prompt_path).environments
    return [await check_in(env, benchmark, tasks, workers) for env in played or [benchmark.env]]


async def check_in(env, benchmark, tasks, workers):
    found = Registry((env,)).find(env)
    options = own_options(benchmark.env_arg_texts, found)
    prepare(found, options)
    task_set = read_task_set(
        found, Registry(), tasks, prompt=benchmark.prompt_path, limit=NUM_TASKS
    )
    subject = Subject(found, task_set, options, workers=workers, watch=lambda _: None)
    findings = {"tasks": task_set.finding}
    for name, function in (("oracle", oracle), ("empty", silence), ("leaks", leaks)):
        reason = found.environment.skipped_checks.get(name)
        findings[name] = (
            Finding(status="skipped", text=reason) if reason else await function(subject)
        )
    means = {name: one.numbers.get("mean") for name, one in findings.items()}
    shown = {
        name: one.status if means[name] is None else f"{means[name]:g}"
        for name, one in findings.items()
    }
    failures = [f"{name}: {one.text}" for name, one in findings.items() if one.status == "failed"]
    return Checked(
        name=benchmark.name,
        env=found.name,
        num_tasks=len(task_set.rows),
        oracle=shown["oracle"],
        empty=shown["empty"],
        leaks=shown["leaks"],
        problems=failures,
    )


async def silence(subject):
    """Check that an empty answer gets nothing at all, which `gym check` does not ask."""
    rewards = [episode.error or episode.reward for episode in await subject.episodes("empty")]
    if set(rewards) == {0.0}:
        return Finding(status="ok", text="", numbers={"mean": 0.0})
    return Finding(status="failed", text=f"silence gets {sorted(set(map(str, rewards)))}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
