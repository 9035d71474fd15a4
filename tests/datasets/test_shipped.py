"""The benchmarks that ship are complete, and their tasks are what their sources have."""

import subprocess
import sys
from pathlib import Path

import pytest

from gymcli.benchmarks.benchmark import find_benchmark
from gymcli.benchmarks.benchmark_files import pulled_tasks, tasks_path
from gymcli.tasks.row_map import read_map
from gymcli.tasks.task_row import PromptTemplate
from tests.datasets.shipped import all_names
from tests.tasks.hub import certified_environment

ROOT = Path(__file__).parents[2]


def test_files_of_benchmarks_can_be_read():
    for name in all_names():
        benchmark = find_benchmark(name)
        assert tasks_path(benchmark).name == f"{name.partition('@')[0]}.jsonl"
        if benchmark.template_path is not None:
            PromptTemplate.read(benchmark.template_path)
        if benchmark.source.map is not None:
            read_map(benchmark.path.parent / benchmark.source.map)


@pytest.mark.parametrize("name", ["graph-niah", "reasoning-gym-hard", "ruler-4k"])
def test_generated_tasks_have_the_hash_of_their_benchmark(name, tmp_path):
    assert find_benchmark(name).source.sha256
    assert pulled_tasks(find_benchmark(name), cache=tmp_path).is_file()


@pytest.mark.slow
def test_gold_answers_of_every_benchmark_pass_and_silence_does_not():
    """Rows made by hand pass through the real loading code and map, and are played."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.datasets.shipped"],
        cwd=ROOT,
        env={**certified_environment(), "PYTHONPATH": str(ROOT), "HF_TOKEN": "hf_token"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sorted({line.split()[0] for line in lines[1:-1]}) == sorted(all_names())
