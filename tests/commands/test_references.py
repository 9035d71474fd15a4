"""Tests of the published scores of a benchmark, in the commands that show and judge them."""

import shutil
from pathlib import Path

import msgspec
import pytest

from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text
from gymcli.mock.process import serving
from tests.builders import HOSTILE, UNSAFE, gym

NUM_TASKS = 40
REPEATS = 4

BENCHMARK = f"""
name = "sums"
version = "1"
title = "Add two numbers"
domain = "math"
env = "arithmetic"
repeats = {REPEATS}
margin = 0.1
[citations]
margin = "chosen for the test"
[source]
env = "arithmetic"
rows = {NUM_TASKS}
licence = "CC0-1.0"
"""


def reference(score: float, *, model: str = "Maker/M", **more: object) -> str:
    """Return a reference of a benchmark.toml, with a repeat count unless `more` has one."""
    fields = {
        "model": model,
        "score": score,
        "repeats": 1000,
        "source": "https://example.org/card",
        "date": "2026-05",
        "harness": HOSTILE,
        **more,
    }
    lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items()]
    return "\n".join(["[[reference]]", *lines, ""])


@pytest.fixture(scope="module")
def collected(tmp_path_factory) -> Path:
    """Return a folder with a benchmark and a run of it, of which 30 of 40 tasks pass."""
    folder = tmp_path_factory.mktemp("benchmark")
    wrong = set[str]()

    def behave(request):
        text = last_user_text(request)
        if len(wrong) < NUM_TASKS // 4:
            wrong.add(text)
        first, _, second = text.partition("?")[0].split()[2:]
        return MockAnswer(text=f"It is {-1 if text in wrong else int(first) + int(second)}.")

    with pytest.MonkeyPatch.context() as patch, serving(MockServer(behave)) as server:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        Path("benchmark.toml").write_text(BENCHMARK + reference(0.75))
        where = ("--base-url", server.base_url, "--model", "m", "--out", "run")
        refused = gym(
            "collect", "benchmark.toml", *where, "--model", "n", "--gate", "reference", exit_code=2
        )
        assert "sums has no published score of n, but of Maker/M" in refused.stderr
        done = gym(
            "collect", "benchmark.toml", *where, "--gate", "reference", "--json", exit_code=0
        )
        found = msgspec.json.decode(done.stdout)
        assert found["references"][0]["verdict"] == "reproduced"
        assert found["gates"][0]["verdict"] == "PASS"
    return folder


@pytest.fixture
def folder(collected, tmp_path, monkeypatch) -> Path:
    """Return a copy, which is the working directory."""
    shutil.copytree(collected / "run", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace(str(collected.resolve()), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("references", "code", "words"),
    [
        ([reference(0.75)], 0, ["reproduced, difference +0.000 ("]),
        ([reference(0.75), reference(0.95)], 3, ["not reproduced", "0.95 of https://"]),
        ([reference(0.75), reference(0.75, repeats=1)], 5, ["more repeats cannot decide"]),
        ([reference(0.1, settings="no tools")], 5, ["other settings", "not tested: no tools"]),
        # Scores of other settings do not decide.
        ([reference(0.75), reference(0.1, settings="no tools")], 0, ["not tested: no tools"]),
        ([reference(0.75, model="other")], 2, ["sums has no published score of m"]),
    ],
)
def test_metrics_tests_the_references_of_the_model(folder, references, code, words):
    Path("benchmark.toml").write_text(BENCHMARK + "".join(references))
    done = gym("metrics", "run", "--gate", "reference")
    assert done.exit_code == code, done.stdout
    for word in words:
        assert word in done.output
    assert not set(UNSAFE) & set(done.output)


def test_a_benchmark_without_references_is_not_said_to_lack_one(folder):
    Path("benchmark.toml").write_text(BENCHMARK)
    assert "published score" not in gym("metrics", "run").output


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('version = "1"', 'version = "2"', "version 1 of the benchmark, not 2"),
        (
            "rows = 40",
            "rows = 41",
            "the benchmark changed, but is still version 1; 40 of 41 tasks have a score",
        ),
    ],
)
def test_a_run_with_other_settings_is_not_tested(folder, before, after, reason):
    Path("benchmark.toml").write_text((BENCHMARK + reference(0.75)).replace(before, after))
    done = gym("metrics", "run", "--gate", "reference", exit_code=5)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("bench", "refer"))]
    assert lines[0] == f"benchmark     settings differ from sums: {reason}"
    assert "other settings, difference +0.000, not tested" in lines[1]


def test_files_show_the_references(folder):
    Path("benchmark.toml").write_text(BENCHMARK + reference(0.75) + reference(0.95))
    manifest = Path("run/run.json")
    recorded = msgspec.json.decode(manifest.read_bytes())
    deviating = {**recorded["benchmark"], "deviations": ["temperature 0.7, not 0"]}
    markdown = gym("metrics", "run", "--markdown", "-").stdout
    assert "### Published scores of `sums`" in markdown
    assert "| 0.950 | not reproduced | -0.200 |" in markdown
    assert not set(UNSAFE) & set(markdown)
    junit = gym("metrics", "run", "--gate", "reference", "--junit", "-").stdout
    assert 'message="FAIL: 0.95 of https://example.org/card is not reproduced"' in junit
    shutil.copytree("run", "hot")
    Path("hot/run.json").write_bytes(msgspec.json.encode({**recorded, "benchmark": deviating}))
    gym("report", "run", "hot", "-o", "page.html", "--gate", "reference", exit_code=3)
    page = Path("page.html").read_text()
    places = [page.index(text) for text in ("<strong>NOT REPRODUCED", "settings differ from sums")]
    assert places == sorted(places)
    assert "temperature 0.7, not 0" in page


def test_a_benchmark_that_is_gone_is_a_warning(folder):
    done = gym("metrics", "run", exit_code=0)
    assert done.stderr.count("published scores of benchmark sums cannot be read") == 1
    assert "reference" not in done.stdout
    gym("metrics", "run", "--gate", "reference", exit_code=2)


def test_rollouts_without_a_benchmark_are_compared_with_a_named_one(folder):
    Path("benchmark.toml").write_text(BENCHMARK + reference(0.75))
    shutil.copy("run/rollouts.jsonl", "bare.jsonl")
    named = ("--benchmark", "benchmark.toml", "--gate", "reference")
    done = gym("metrics", "bare.jsonl", *named, exit_code=0)
    assert "reproduced, difference +0.000" in done.stdout
    gym("metrics", "bare.jsonl", *named, "--model", "other", exit_code=2)
    gym("metrics", "bare.jsonl", "--gate", "reference", exit_code=2)
    assert "benchmark" not in gym("metrics", "bare.jsonl").stdout
    others = BENCHMARK.replace('env = "arithmetic"\nrows', 'env = "arithmetic"\nseed = 3\nrows')
    Path("benchmark.toml").write_text(others + reference(0.75))
    done = gym("metrics", "bare.jsonl", *named, exit_code=5)
    assert "of 40 tasks are not those of sums" in done.stdout


def test_a_run_is_compared_with_its_own_benchmark_only(folder):
    """Its settings are known, wherever the benchmark is now."""
    Path("moved.toml").write_text(BENCHMARK + reference(0.75))
    Path("more.toml").write_text(BENCHMARK.replace('"sums"', '"more"') + reference(0.75))
    for run in ("run", "run/rollouts.jsonl"):
        gym("metrics", run, "--benchmark", "moved.toml", "--gate", "reference", exit_code=0)
        for options, reason in (
            (("--benchmark", "more.toml"), "is a run of benchmark sums, not of more"),
            (("--benchmark", "moved.toml", "--model", "n"), "is a run of m; leave out --model"),
        ):
            assert reason in gym("metrics", run, *options, exit_code=2).stderr
        again = gym("verify", run, "--benchmark", "moved.toml", exit_code=2)
        assert "whose settings are known: leave out --benchmark" in again.stderr


def test_a_benchmark_that_changed_under_its_version_is_another_setting(folder):
    changed = BENCHMARK.replace("repeats = 4", "repeats = 4\nparams = { temperature = 1.0 }")
    Path("benchmark.toml").write_text(changed + reference(0.75))
    done = gym("metrics", "run", "--gate", "reference", exit_code=5)
    assert "the benchmark changed, but is still version 1" in done.stdout


def test_a_run_with_other_settings_is_not_begun_for_a_gate_on_references(folder):
    Path("benchmark.toml").write_text(BENCHMARK + reference(0.75, settings="a\ngate b: PASS"))
    where = ("collect", "benchmark.toml", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    for options, reason in ((("--param", "top_p=1"), "top_p 1, not"), ((), "a gate b: PASS")):
        refused = gym(*where, *options, "--gate", "reference", exit_code=2)
        assert f"no published score of m can be tested: {reason}" in refused.stderr
