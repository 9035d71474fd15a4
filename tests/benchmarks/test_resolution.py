"""Tests of what TASKS name."""

from pathlib import Path

import pytest

from gymcli import GymError
from gymcli.benchmarks.resolution import names_benchmark, resolve, task_inputs
from gymcli.environment.registry import shipped_tasks
from gymcli.errors import TasksError, UnknownNameError, UsageError
from gymcli.tasks.task_source import GeneratedTasks, TaskFile, env_of_tasks
from tests.builders import write_sums

BENCHMARK = """
name = "sums"
version = "1"
title = "A test"
domain = "tests"
env = "arithmetic"
source = { env = "arithmetic", rows = 5, licence = "Apache-2.0" }
"""


@pytest.fixture(autouse=True)
def folder(working_folder):
    write_sums(Path("t.jsonl"), 1)
    for name in ("sums", "empty"):
        Path(name).mkdir()
    Path("sums/benchmark.toml").write_text(BENCHMARK)
    Path("benchmark.toml").write_text(BENCHMARK)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("t.jsonl", TaskFile(Path("t.jsonl"))),
        (Path("t.jsonl"), TaskFile(Path("t.jsonl"))),
        ("mcqa", TaskFile(shipped_tasks("mcqa"), "mcqa")),
        ("quiz.py", GeneratedTasks("quiz.py", is_code=True)),
        ("pack.quiz:Quiz", GeneratedTasks("pack.quiz:Quiz", is_code=True)),
    ],
)
def test_a_file_an_environment_and_code_are_inputs_of_one_run(spec, expected):
    assert resolve([spec]) == ([expected], [])
    assert resolve([spec, "t.jsonl"]).inputs == [expected, TaskFile(Path("t.jsonl"))]
    assert task_inputs([spec]) == [expected]


@pytest.mark.parametrize("spec", ["sums", "sums/", "./sums", "benchmark.toml", Path("sums")])
def test_a_benchmark_is_named_by_its_folder_or_file(spec):
    inputs, [benchmark] = resolve([spec])
    assert (inputs, benchmark.name) == ([], "sums")


def test_several_benchmarks_keep_their_order():
    names = ["gsm8k@8-shot", "benchmark.toml", "gpqa-diamond"]
    found = [benchmark.name for benchmark in resolve(names).benchmarks]
    assert found == ["gsm8k@8-shot", "sums", "gpqa-diamond"]


def test_files_and_environments_come_before_benchmarks():
    Path("tasks.jsonl").touch()
    assert not any(map(names_benchmark, ("tasks.jsonl", "mcqa", "nothing", "missing.toml")))
    assert names_benchmark("benchmark.toml")
    assert names_benchmark(str(Path.cwd()))
    write_sums(Path("gsm8k"), 1)
    assert resolve(["gsm8k"]).inputs == [TaskFile(Path("gsm8k"))]


@pytest.mark.parametrize(
    ("specs", "kind", "message"),
    [
        (["nothing"], TasksError, "nothing: no such file, and no environment of this name has tas"),
        (["arithmatic"], TasksError, 'has tasks; did you mean "arithmetic"'),
        (["empty"], TasksError, "empty: is a folder without a benchmark.toml; name a JSONL"),
        (["hf:a/b"], TasksError, "hf:a/b: fetch it first: gym data pull hf:a/b -o FILE"),
        (["gsm9k"], UnknownNameError, 'gsm9k: no benchmark has this name .* "gsm8k"'),
        (["t.jsonl", "gsm9k"], UnknownNameError, "gsm9k: no benchmark has this name"),
        (["gsm8k@9-shot"], UnknownNameError, 'gsm8k has no variant "9-shot"; did you mean'),
        (["gsm8k", "t.jsonl"], UsageError, "t.jsonl: is not a benchmark, but gsm8k is; collect"),
        (["gsm8k", "nothing"], UsageError, "nothing: is not a benchmark, but gsm8k is; collect"),
        (["sums", "./sums"], UsageError, "sums: is named twice; name each benchmark once"),
    ],
)
def test_what_cannot_be_resolved_is_named(specs, kind, message):
    with pytest.raises(kind, match=message):
        resolve(specs)


def test_where_no_benchmark_is_meant_its_name_is_unknown():
    for name in ("gsm8k", "sums"):
        with pytest.raises(GymError, match=f"^{name}: (no such file|is a folder)"):
            task_inputs([name])


def test_code_plays_the_tasks_that_it_generates():
    code = GeneratedTasks("quiz.py", is_code=True)
    assert env_of_tasks([code], None) == "quiz.py"
    assert env_of_tasks([code, TaskFile(Path("t.jsonl"))], "mcqa") == "mcqa"
    assert env_of_tasks([GeneratedTasks("plugin"), TaskFile(Path("t.jsonl"))], None) is None
    with pytest.raises(UsageError, match=r"quiz\.py: its tasks are collected alone; write them to"):
        env_of_tasks([code, TaskFile(Path("t.jsonl"))], None)
