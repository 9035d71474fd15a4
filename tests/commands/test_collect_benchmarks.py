"""Tests of `gym collect` with benchmarks in place of task files."""

import json
from pathlib import Path

import pytest

from gymcli.mock import MockAnswer
from gymcli.types import Usage
from tests.builders import gym, lines_of, write_sums

BENCHMARK = """
name = "{name}"
version = "1"
title = "A test"
domain = "tests"
env = "{env}"
params = {{ temperature = 0.0 }}
repeats = 2
margin = {margin}
citations = {{ margin = "the test" }}
[source]
env = "{env}"
rows = {rows}
licence = "Apache-2.0"
[[reference]]
model = "maker/a"
score = 0.0
repeats = 100
source = "https://example.org"
date = "2026-05"
"""


@pytest.fixture
def ask(tmp_path, working_folder, monkeypatch, mock_server):
    """Return the arguments that collect two benchmarks from a model that knows nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Five tasks cannot tell whether a difference is below 0.1.
    for name, env, rows, margin in (("sums", "arithmetic", 20, 0.3), ("letters", "mcqa", 5, 0.1)):
        Path(name).mkdir()
        text = BENCHMARK.format(name=name, env=env, rows=rows, margin=margin)
        Path(name, "benchmark.toml").write_text(text)
    usage = Usage(prompt_tokens=15, completion_tokens=5)
    mock_server.behaviour = lambda request: MockAnswer(text="0", usage=usage)
    where = ("--base-url", mock_server.base_url, "--model", "a")
    return ("collect", "sums", "letters/benchmark.toml", *where, "--out", "x")


def record(path):
    return json.loads(Path(path, "run.json").read_text())["benchmark"]


def test_each_benchmark_has_a_run_and_a_row(ask, mock_server):
    done = gym(*ask, "--concurrency", "3", exit_code=0)
    assert (len(lines_of(Path("x/sums/rollouts.jsonl"))), mock_server.num_requests) == (40, 50)
    assert len(lines_of(Path("x/letters/rollouts.jsonl"))) == 10
    assert mock_server.max_in_flight <= 3
    assert {request.body["temperature"] for request in mock_server.requests} == {0.0}
    head, sums, letters = done.stdout.splitlines()[-3:]
    assert head.split() == ["benchmark", "model", "score", "95", "%", "scored", "published", "run"]
    assert sums.split()[:3] == ["sums", "a", "0.000"]
    assert "40/40  0 reproduced   x/sums" in sums
    assert "10/10  0 cannot tell  x/letters" in letters
    # A rescoring by other rules is no run of the benchmark any more.
    other = ("--env-arg", "grading_mode=lenient_boxed", "--out", "v")
    gym("verify", "x/letters", *other, exit_code=0)
    [deviation] = record("v")["deviations"]
    assert deviation.startswith("rescored: environments.mcqa.options.grading_mode unset there, ")
    # Means of different benchmarks are not compared.
    assert "diff:" not in gym("metrics", "x/sums", "x/letters").stdout
    # The same command does nothing; with more models each has a folder of its own.
    again = json.loads(gym(*ask, "--json").stdout)["runs"]
    assert mock_server.num_requests == 50
    assert [(one["benchmark"], one["model"]) for one in again] == [("sums", "a"), ("letters", "a")]
    gym(*ask, "--model", "b", "--out", "y", "-n", "1", exit_code=0)
    assert sorted(map(str, Path("y").glob("*/*/run.json"))) == [
        f"y/{name}/{model}/run.json" for name in ("letters", "sums") for model in "ab"
    ]


def test_runs_share_a_budget_and_the_gravest_exit_code_counts(ask, mock_server):
    stopped = gym(*ask, "--concurrency", "1", "--max-tokens-total", "90")
    assert (stopped.exit_code, mock_server.num_requests) == (6, 5)
    assert "; resume, with a larger budget if it was too small: gym collect sums" in stopped.stderr
    gym(*ask, "--gate", "reference", exit_code=5)
    gym(*ask, "--gate", "reference", "--gate", "pass@1 >= 0.5", exit_code=3)


def test_a_narrower_selection_is_no_setting_of_the_whole_run(ask, mock_server):
    one = ("collect", "sums", *ask[3:])
    assert "x: the first 4 of 20 tasks" in gym(*one, "-n", "4").stderr.splitlines()
    assert record("x")["remarks"] == ["the first 4 of 20 tasks"]
    gym(*one, exit_code=0)
    assert "remarks" not in record("x")
    assert "settings differ from sums: 4 of 20 tasks have a score\n" in gym(*one, "-n", "4").stdout
    assert "remarks" not in record("x")
    # Settings are part of the identity.
    assert (gym(*one, "--temperature", "1").exit_code, mock_server.num_requests) == (2, 40)


def test_options_win_over_the_benchmark_and_that_over_gym_toml(ask):
    Path("gym.toml").write_text(
        '[models.big]\nbase_url = "http://127.0.0.1:9/v1"\ntemperature = 0.9\n'
        "params = { top_k = 20 }\n[collect]\nrepeats = 7\n"
    )
    line = ("collect", "sums", "letters", "--model", "big", "--dry-run", "--json")
    options = ("--env-arg", "mcqa.grading_mode=lenient_boxed", "--repeats", "3")
    sums, letters = json.loads(gym(*line).stdout)["runs"]
    assert (sums["plan"]["repeats"], sums["request"]["temperature"]) == (2, 0.0)
    assert sums["benchmark"]["deviations"] == ["top_k 20, not the default"]
    sums, letters = json.loads(gym(*line, *options, "--temperature", "0.5").stdout)["runs"]
    assert (sums["plan"]["repeats"], sums["request"]["temperature"]) == (3, 0.5)
    assert letters["benchmark"]["deviations"] == [
        "grading_mode lenient_boxed, not the default",
        "temperature 0.5, not 0.0",
        "top_k 20, not the default",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("sums.jsonl",), "sums.jsonl: is not a benchmark, but sums is; collect benchmarks"),
        (("./sums",), "sums: is named twice; name each benchmark once"),
        (("wrong",), "gym bench pull wrong"),
        (("--role", "jugde=oracle"), "--role jugde: none of these benchmarks has it"),
        (("--engine", "ray"), "--engine ray takes one --model and one benchmark"),
    ],
)
def test_what_cannot_be_collected_is_refused_before_anything_is_sent(
    ask, mock_server, options, message
):
    write_sums(Path("sums.jsonl"), 3)
    Path("wrong").mkdir()
    text = BENCHMARK.format(name="wrong", env="mcqa", rows=5, margin=0.1).replace(
        'env = "mcqa"\nrows', "rows"
    )
    source = 'url = "http://127.0.0.1:9/x.jsonl"\nsha256 = "' + "0" * 64 + '"\nlicence'
    text = text.replace("licence", source).replace("{ margin", '{ revision = "x", margin')
    Path("wrong/benchmark.toml").write_text(text)
    done = gym(*ask[:3], *options, *ask[3:])
    assert done.exit_code == (4 if options == ("wrong",) else 2)  # 4: the network
    assert message in done.stderr.splitlines()[-1]
    assert mock_server.num_requests == 0
    assert not Path("x").exists()
