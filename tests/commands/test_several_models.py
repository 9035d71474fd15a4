"""Tests of `gym collect --model a --model b`: a run of each in one process."""

import json
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.process import serving
from gymcli.types import Usage
from tests.builders import add_up, clean_environment, gym, gym_process, lines_of, write_sums
from tests.processes import TOO_LONG, wait_until

TWENTY = Usage(prompt_tokens=15, completion_tokens=5)


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect ten sums from two models."""
    mock_server.behaviour = add_up
    where = ("--base-url", mock_server.base_url)
    tasks = write_sums(Path("sums.jsonl"), 10)
    return ("collect", tasks, "--model", "a", "--model", "b", *where, "--out", "x")


def scored(path: str) -> int:
    file = Path(path, "rollouts.jsonl")
    return len(lines_of(file)) if file.is_file() else 0


def manifest(path: str) -> dict:
    return msgspec.json.decode(Path(path, "run.json").read_bytes())


def test_each_model_has_a_run_and_a_summary(ask, mock_server):
    done = gym(*ask, exit_code=0)
    assert {r["model"] for r in lines_of(Path("x/a/rollouts.jsonl"))} == {"a"}
    assert {r["model"] for r in lines_of(Path("x/b/rollouts.jsonl"))} == {"b"}
    assert (scored("x/a"), scored("x/b"), mock_server.num_requests) == (10, 10, 20)
    assert [manifest(f"x/{model}")["model"] for model in "ab"] == ["a", "b"]
    assert all(manifest(f"x/{model}")["ended_at"] for model in "ab")
    assert done.stdout.startswith("model         a\n")
    assert "\n\nmodel         b\n" in done.stdout
    assert done.stdout.count("mean reward") == 2
    assert "x/a: 10 attempts to go" in done.stderr
    head, first, second, _ = done.stdout.splitlines()[-4:]
    assert head.split()[:4] == ["run", "date", "model", "scored"]
    assert (first.split()[0], first.split()[3:5]) == ("x/a", ["a", "10/10"])
    assert (second.split()[0], second.split()[-1]) == ("x/b", "+0.000")
    assert (gym(*ask).exit_code, mock_server.num_requests) == (0, 20)
    # Each is an ordinary run, which a command for its model alone resumes.
    alone = (*ask[:2], "--model", "a", *ask[6:8], "--out", "x/a")
    assert "all 10 attempts are already scored" in gym(*alone).stderr


def test_json_has_every_run(ask):
    printed = json.loads(gym(*ask, "--json", "--gate", "pass@1 >= 0.5").stdout)
    assert list(printed) == ["runs"]
    assert [(one["run"], one["model"]) for one in printed["runs"]] == [("x/a", "a"), ("x/b", "b")]
    assert [one["mean_reward"] for one in printed["runs"]] == [1.0, 1.0]
    assert [one["gates"][0]["verdict"] for one in printed["runs"]] == ["PASS", "PASS"]


def test_models_of_the_command_share_its_concurrency(ask, mock_server):
    mock_server.latency = 0.005
    gym(*ask, "--concurrency", "3", exit_code=0)
    assert mock_server.max_in_flight == 3
    # Not one after the other: attempts of both are under way together.
    spans = [
        [row["timing"]["started_at"] for row in lines_of(Path("x", model, "rollouts.jsonl"))]
        for model in "ab"
    ]
    assert min(spans[1]) < max(spans[0])
    assert min(spans[0]) < max(spans[1])


def test_without_out_each_model_has_its_default_directory(ask):
    gym(*ask[:-2], exit_code=0)
    names = sorted(path.name.rpartition("-")[0] for path in Path("runs").iterdir())
    assert names == ["sums-a", "sums-b"]


def test_the_gravest_run_decides_the_exit_code(ask, mock_server):
    """An endpoint that refuses one model does not stop the other."""
    line = [*ask, "--gate", "pass@1 >= 0.5", "--junit", "j.xml"]
    with serving(MockServer(add_up, models=("a",))) as server:
        line[line.index(mock_server.base_url)] = server.base_url
        done = gym(*line, "--json", exit_code=4)
        first, second = json.loads(done.stdout)["runs"]
        assert (first["num_scored"], first["gates"][0]["verdict"]) == (10, "PASS")
        assert "error" not in first
        assert (second["num_scored"], second["gates"]) == (0, [])
        assert "b" in second["error"]
        # The file is not green because of the other run.
        suites = ET.parse("j.xml").getroot().findall("testsuite")
        assert [suite.get("name") for suite in suites] == ["x/a: gates", "x/b: gates"]
        assert [suite.get("errors") for suite in suites] == ["0", "2"]
        text = gym(*line, exit_code=4)
        assert "model         a\n" in text.stdout
        assert "model         b\n" not in text.stdout
        last = text.stderr.splitlines()[-1]
        assert last.startswith("error: x/b: ")
        assert "; resume with: gym collect sums.jsonl --model a --model b" in last


def test_gates_are_judged_for_each_run(ask, mock_server):
    mock_server.behaviour = lambda request: (
        add_up(request) if mock_server.requests[-1].body["model"] == "a" else MockAnswer(text="0")
    )
    done = gym(
        *ask, "--gate", "pass@1 >= 0.5", "--concurrency", "1", "--junit", "j.xml", exit_code=3
    )
    blank, *tail = done.stdout.splitlines()[-5:]
    assert not blank
    assert tail[0::2] == ["x/a", "x/b"]
    assert "PASS" in tail[1]
    assert "FAIL" in tail[3]
    assert "x/b" in Path("j.xml").read_text()


def test_models_of_the_command_share_its_budget(ask, mock_server):
    mock_server.behaviour = lambda request: MockAnswer(text=add_up(request).text, usage=TWENTY)
    line = (*ask, "--concurrency", "1")
    done = gym(*line, "--max-tokens-total", "90")
    assert (done.exit_code, mock_server.num_requests) == (6, 5)
    assert scored("x/a") + scored("x/b") == 5
    *_, first, second = done.stderr.splitlines()
    reached = "the budget --max-tokens-total 90 is reached, 100 tokens are spent"
    assert first.startswith(f"x/a: {reached}; ")
    assert second.startswith(f"x/b: {reached}; ")
    assert "; resume, with a larger budget if it was too small: gym collect" in second
    # Tokens of the earlier command count, those of both runs.
    gym(*line, "--max-tokens-total", "90", exit_code=6)
    assert mock_server.num_requests == 5
    gym(*line, "--max-tokens-total", "1000", exit_code=0)
    assert mock_server.num_requests == 20


def test_models_of_the_command_share_the_limits_of_an_address(ask, mock_server):
    Path("gym.toml").write_text(
        "".join(
            f'[models.{name}]\nbase_url = "{mock_server.base_url}"\n'
            "limits = { max_concurrency = 2 }\n"
            for name in "ab"
        )
    )
    mock_server.latency = 0.005
    line = [*ask[:6], *ask[8:]]
    gym(*line, exit_code=0)
    assert (scored("x/a"), scored("x/b"), mock_server.max_in_flight) == (10, 10, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "a"), "--model a: is named twice"),
        (("--engine", "ray"), "--engine ray takes one --model"),
        (("--model", "A"), "--model a and --model A: both runs would be x/A"),
        (("--model", "oracle"), "--model oracle takes no --base-url"),
    ],
)
def test_models_that_cannot_be_collected_together_are_refused(ask, mock_server, options, message):
    assert message in gym(*ask, *options, exit_code=2).stderr
    assert mock_server.num_requests == 0
    assert not Path("x").exists()


def test_a_run_holds_no_runs_of_several_models(ask, mock_server):
    alone = (*ask[:2], "--model", "a", *ask[6:])
    gym(*alone, exit_code=0)
    done = gym(*ask)
    assert (done.exit_code, mock_server.num_requests) == (2, 10)
    assert "--out x: holds a run; several models need a folder" in done.stderr
    gym(*ask, "--fresh", exit_code=0)
    assert (scored("x-2/a"), scored("x-2/b")) == (10, 10)


def test_a_file_holds_no_runs(ask, mock_server):
    done = gym(*ask[:-1], "sums.jsonl")
    assert (done.exit_code, mock_server.num_requests) == (4, 0)
    assert "sums.jsonl/a: cannot be created: sums.jsonl is a file, not a folder; " in done.stderr


def test_fresh_needs_a_folder_for_the_runs_of_several_models(ask):
    done = gym(*ask[:-2], "--fresh", exit_code=2)
    assert "--fresh with several models needs --out DIR" in done.stderr


def test_fresh_names_the_new_runs(ask, mock_server):
    gym(*ask, exit_code=0)
    done = gym(*ask, "--fresh", exit_code=0)
    assert done.stderr.splitlines()[-1] == "the new runs are in x-2/a and x-2/b"
    mock_server.behaviour = lambda request: MockAnswer(text="", usage=TWENTY)
    stopped = gym(*ask, "--fresh", "--max-tokens-total", "20", "--concurrency", "1", exit_code=6)
    assert stopped.stderr.endswith(" --out x-3\n")


def test_a_dry_run_shows_the_plan_of_each_model(ask, mock_server):
    plans = json.loads(gym(*ask, "--dry-run", "--json").stdout)["runs"]
    assert [one["plan"]["run"] for one in plans] == ["x/a", "x/b"]
    assert [one["request"]["model"] for one in plans] == ["a", "b"]
    assert gym(*ask, "--dry-run").stdout.count("first request (not sent):") == 2
    assert mock_server.num_requests == 0


def test_a_signal_stops_the_runs_of_all_models(ask, mock_server, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    mock_server.latency = 60.0
    command = gym_process(*ask, "--grace", "0", "--concurrency", "4")
    with subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        wait_until(lambda: mock_server.num_requests >= 4 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        lines = process.communicate(timeout=TOO_LONG)[1].decode().splitlines()
    assert process.returncode == 130
    assert "interrupted: no new attempts; 4 in flight get 0 s; press Ctrl-C again to stop now" in (
        lines
    )
    assert lines[-2] == "x/a: interrupted: 0 of 10 attempts are scored"
    again = "; resume with: gym collect sums.jsonl --model a --model b"
    assert lines[-1].startswith(f"x/b: interrupted: 0 of 10 attempts are scored{again}")
    mock_server.latency = 0.0
    gym(*ask, exit_code=0)
