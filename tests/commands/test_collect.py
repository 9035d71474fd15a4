"""Tests of `gym collect`."""

import inspect
import itertools
import json
import shlex
import signal
import subprocess
from contextlib import chdir, suppress
from pathlib import Path

import msgspec
import pytest

from gymcli.commands.collect import collect
from gymcli.commands.run_results import missing_coverage
from gymcli.errors import RunError
from gymcli.metrics.measure import measure
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text, refusal_of
from gymcli.models.settings import CollectSettings
from gymcli.runner.collect_options import CollectOptions
from gymcli.runner.collection import Collection
from gymcli.runner.plan import plan_run
from gymcli.store.run_directory import RunDirectory
from gymcli.tasks.task_source import TaskFile
from tests.builders import (
    FLAKY,
    HOSTILE,
    UNSAFE,
    add_up,
    clean_environment,
    gym,
    gym_process,
    lines_of,
    write_sums,
)


@pytest.fixture
def ask(working_folder, mock_server):
    """Return the arguments that collect ten sums from a mock server that can add."""
    mock_server.behaviour = add_up
    tasks = write_sums(Path("sums.jsonl"), 10)
    return ("collect", tasks, "--model", "m", "--base-url", mock_server.base_url)


def test_collect_ends_with_a_summary(ask):
    done = gym(*ask, "--out", "run", exit_code=0)
    table, _, rest = done.stdout.partition("\n\n")
    assert table.splitlines()[1].split()[:3] == ["arithmetic", "10", "1.000"]
    for word in ("stop reasons  10 done", "tokens", "completion", "time", "files         run\n"):
        assert word in rest
    assert "run: 10 attempts to go\n" in done.stderr
    assert "10/10" in done.stderr
    assert "mean reward 1.000" in done.stderr
    files = {path.name for path in Path("run").iterdir()}
    assert files == {"run.json", "rollouts.jsonl", "metrics.json"}


def test_collect_again_prints_the_same_and_sends_nothing(ask, mock_server):
    first = gym(*ask)
    again = gym(*ask, exit_code=0)
    assert again.stdout == first.stdout
    assert "all 10 attempts are already scored" in again.stderr
    assert mock_server.num_requests == 10


def test_collect_again_exits_as_it_would_have(ask, mock_server):
    def behave(request):
        return refusal_of(400, "no") if "9 + 1" in last_user_text(request) else add_up(request)

    mock_server.behaviour = behave
    done = gym(*ask, "--out", "run", exit_code=4)
    assert "\n1 attempt failed with RequestRefusedError: POST " in done.stderr
    assert " answered 400: " in done.stderr
    gym(*ask, "--out", "run", exit_code=4)
    gym(*ask, "--out", "run", "--min-coverage", "0.9", exit_code=0)
    assert mock_server.num_requests == 12


def test_collect_fresh_starts_another_run(ask, mock_server):
    gym(*ask)
    gym(*ask, "--fresh", exit_code=0)
    assert mock_server.num_requests == 20
    assert len(list(Path("runs").iterdir())) == 2


def test_collect_fresh_with_low_coverage_names_the_command_that_completes_it(ask, mock_server):
    """The same command would start another run, and `--no-retry` would leave the failure."""
    mock_server.behaviour = lambda _: refusal_of(400, "no")
    log = ("--log-file", "collect")
    done = gym(
        *log,
        "collect",
        "--fresh",
        "--no-retry",
        "--task",
        "sum-1",
        *ask[2:],
        "--",
        ask[1],
        exit_code=4,
    )
    last = done.stderr.splitlines()[-1]
    name, *command = shlex.split(last.partition("retry with: ")[2])
    (run,) = Path("runs").iterdir()
    rest = [*ask[2:], "--out", str(run), "--", str(ask[1])]
    assert [name, *command] == ["gym", *log, "collect", "--task", "sum-1", *rest]
    mock_server.behaviour = add_up
    gym(*command, exit_code=0)
    assert len(lines_of(run / "rollouts.jsonl")) == 1


def test_collect_fresh_names_values_that_look_like_options(ask, mock_server):
    """Whatever was typed, the command is on one line, and a shell reads it back unchanged."""
    mock_server.behaviour = lambda _: refusal_of(400, "no")
    write_sums(Path("--fresh"), 1)
    odd = "a\n\x1b[1m\u202e\\ '"
    typed = ("--param", f"user={odd}", "--param", "--out=1", *ask[2:], "--out", "run")
    done = gym("collect", *typed, "--fresh", "--", "--fresh")
    command = done.stderr.splitlines()[-1].partition("retry with: gym ")[2]
    told = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True
    )
    expected = ("collect", *typed, "--", "--fresh")
    assert told.stdout.split("\0")[:-1] == list(map(str, expected))


def test_collect_json_prints_one_object(ask):
    done = gym(*ask, "--out", "run", "--json")
    report = msgspec.json.decode(done.stdout)
    assert report["run"] == "run"
    assert (report["num_expected"], report["mean_reward"]) == (10, 1.0)
    assert report["environments"]["arithmetic"]["num_scored"] == 10


def test_collect_quiet_says_nothing_on_stderr(ask):
    Path("sums.jsonl").write_text(
        Path("sums.jsonl").read_text().replace('"answer"', '"params":{"model":"n"},"answer"')
    )
    assert gym(*ask, "--quiet", exit_code=0).stderr == ""


def test_collect_quiet_says_nothing_of_what_an_environment_does_to_the_event_loop(ask):
    """Without the option it does, and so does the log."""
    Path("leaving.py").write_text(
        "import asyncio, sys\n"
        "from gymcli.envs.arithmetic import Arithmetic\n"
        "class Leaving(Arithmetic):\n"
        "    async def setup(self):\n"
        "        asyncio.get_running_loop().call_soon(sys.exit, 0)\n"
        "        return await super().setup()\n"
    )
    text = "SystemExit(0) in a background task is ignored"
    collect = (
        "collect",
        "sums.jsonl",
        *ask[2:],
        "--env",
        "arithmetic=leaving.py:Leaving",
        "--limit",
        "1",
    )
    assert f"warning: {text}" in gym(*collect, "--out", "said").stderr
    quiet = gym("--log-file", "log", *collect, "--out", "unsaid", "--quiet")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert text in Path("log").read_text()


def test_collect_warns_of_what_is_not_sent(ask):
    Path("sums.jsonl").write_text(
        Path("sums.jsonl").read_text().replace('"answer"', '"params":{"model":"n"},"answer"')
    )
    done = gym(*ask, "--dialect", "responses", "--seed", "1", "--param", 'stop=["x"]')
    assert "warning: rows set model: ignored" in done.stderr
    assert "warning: the endpoint's dialect has no stop, seed: not sent" in done.stderr


def test_collect_sends_the_given_parameters(ask, mock_server):
    sampling = ("--temperature", "0.5", "--top-p", "0.9", "--max-tokens", "7", "--seed", "3")
    other = ("--param", "top_k=4", "--param", 'stop=["x"]', "--param", "user=me")
    gym(*ask, *sampling, *other, "--limit", "2", exit_code=0)
    first, second = (received.body for received in mock_server.requests)
    assert first["seed"] != second["seed"]
    expected = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "top_k": 4,
        "stop": ["x"],
        "user": "me",
    }
    assert expected.items() <= first.items()


def test_collect_selects(ask, mock_server):
    gym(*ask, "--task", "sum-3", "--task", "sum-5", "--repeats", "2", exit_code=0)
    (run,) = Path("runs").iterdir()
    keys = sorted(
        (line["task_id"], line.get("attempt", 0)) for line in lines_of(run / "rollouts.jsonl")
    )
    assert keys == [("sum-3", 0), ("sum-3", 1), ("sum-5", 0), ("sum-5", 1)]


@pytest.mark.parametrize(
    "option",
    [("--temperature", "nan"), ("--top-p", "inf"), ("--param", "k=NaN"), ("--param", "k=\udcff")],
)
def test_collect_refuses_what_no_request_can_carry(ask, mock_server, option):
    assert gym(*ask, *option, exit_code=2).stderr.startswith(f"error: {option[0]} ")
    assert mock_server.num_requests == 0
    assert not Path("runs").exists()


def test_collect_refuses_a_secret_among_the_parameters(ask, mock_server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-never-to-be-seen")
    line = (*ask, "--api-key-env", "MY_KEY", "--param", "user=sk-never-to-be-seen")
    assert "never-to-be-seen" not in gym(*line, exit_code=2).output
    assert mock_server.num_requests == 0


def test_collect_finds_named_models(ask, mock_server):
    """The name in gym.toml is the user's; the record has the endpoint's."""
    Path("gym.toml").write_text(
        f'[models.mine]\nbase_url = "{mock_server.base_url}"\nmodel = "big"\n'
    )
    gym("collect", "sums.jsonl", "--model", "mine", "--out", "run", "--limit", "1", exit_code=0)
    assert mock_server.requests[0].body["model"] == "big"
    assert lines_of(Path("run/rollouts.jsonl"))[0]["model"] == "big"


SAMPLED = """
[models.mine]
base_url = "{url}"
temperature = 0.5
max_tokens = 7
params = {{top_k = 3}}
"""


def test_collect_takes_the_sampling_of_a_model(ask, mock_server):
    """The command line wins, then the row, then gym.toml."""
    Path("gym.toml").write_text(SAMPLED.format(url=mock_server.base_url))
    rows = [
        {"id": "own", "params": {"temperature": 0, "max_completion_tokens": 9}},
        {"id": "none", "params": {}},
    ]
    given = {"env": "arithmetic", "prompt": "What is 1 + 1?", "answer": 2}
    lines = [msgspec.json.encode({**given, **row}) + b"\n" for row in rows]
    Path("sums.jsonl").write_bytes(b"".join(lines))
    gym(
        "collect",
        "sums.jsonl",
        "--model",
        "mine",
        "--out",
        "run",
        "--param",
        "top_k=4",
        exit_code=0,
    )
    sampling = {line["task_id"]: line["sampling"] for line in lines_of(Path("run/rollouts.jsonl"))}
    assert sampling == {
        "own": {"temperature": 0, "max_completion_tokens": 9, "top_k": 4},
        "none": {"temperature": 0.5, "max_tokens": 7, "top_k": 4},
    }
    bodies = [request.body for request in mock_server.requests]
    assert sorted(body["temperature"] for body in bodies) == [0, 0.5]
    other = gym(
        "collect",
        "sums.jsonl",
        "--model",
        "mine",
        "--out",
        "run",
        "--temperature",
        "0.6",
        exit_code=2,
    )
    assert "params.temperature 0.5 there, 0.6 here" in other.stderr


def test_collect_refuses_a_key_in_the_sampling_of_a_model(ask, mock_server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-never-to-be-seen")
    text = SAMPLED.format(url=mock_server.base_url).replace("= 3}", '= "sk-never-to-be-seen"}')
    Path("gym.toml").write_text(f'{text}api_key_env = "MY_KEY"\n')
    done = gym("collect", "sums.jsonl", "--model", "mine", exit_code=2)
    assert done.stderr.startswith("error: [models.mine] top_k: holds a secret of the endpoint")
    assert "sk-never" not in done.output


def test_collect_takes_defaults_of_gym_toml(ask, mock_server):
    """An option that is typed replaces them, and the file is found from a folder below."""
    Path("gym.toml").write_text(
        f'[models.mine]\nbase_url = "{mock_server.base_url}"\n'
        '[collect]\nmodel = "mine"\nrepeats = 2\nlimit = 3\nseed = 5\nmax_run_time = 100\n'
        'gate = "mean_reward >= 0.1"\n'
    )
    done = gym("collect", "sums.jsonl", "--out", "run", exit_code=0)
    assert "run: 6 attempts to go" in done.stderr
    assert "settings from" not in done.stderr
    assert "gate          mean_reward >= 0.1: PASS" in done.stdout
    manifest = msgspec.json.decode(Path("run/run.json").read_bytes())
    assert (manifest["model"], manifest["identity"]["seed"]) == ("mine", 5)
    Path("below").mkdir()
    with chdir("below"):
        typed = ("--repeats", "1", "--gate", "mean_reward < 0.1")
        done = gym("collect", "../sums.jsonl", "--out", "run", *typed, exit_code=3)
        assert "settings from ../gym.toml\nrun: 3 attempts to go" in done.stderr
        assert done.stdout.count("gate  ") == 1
        quiet = gym("collect", "../sums.jsonl", "--out", "run", "--quiet", "--json")
        assert "settings" not in quiet.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("repeats = 0", "gym.toml: [collect] --repeats 0: must be 1 or more"),
        ("max_cost = -1", "gym.toml: [collect] --max-cost"),
        ('gate_on = "both"', "gym.toml: [collect] --gate-on both: is not one of bound, point"),
        ("repeat = 1", 'gym.toml: collect.repeat: unknown key (did you mean "repeats"?)'),
        ('gate = "mean_reward"', ""),
    ],
)
def test_collect_names_the_place_of_a_wrong_default(ask, mock_server, text, problem):
    Path("gym.toml").write_text(f"[collect]\n{text}\n")
    assert problem in gym(*ask, exit_code=2).stderr
    assert mock_server.num_requests == 0
    gym("collect", "--help", exit_code=0)


def test_collect_has_an_option_for_every_default():
    assert set(CollectSettings.model_fields) <= set(inspect.signature(collect).parameters)


def test_collect_with_a_template(ask, mock_server):
    Path("raw.jsonl").write_text('{"a": 3, "b": 4, "answer": 7}\n')
    Path("p.yaml").write_text("system: Add.\nuser: What is {a} + {b}?\n")
    gym("collect", "raw.jsonl", *ask[2:], "--prompt", "p.yaml", "--env", "arithmetic", exit_code=0)
    assert [m["content"] for m in mock_server.requests[0].body["messages"]] == [
        "Add.",
        "What is 3 + 4?",
    ]


def test_collect_mends_a_torn_line_with_a_warning(ask, mock_server):
    gym(*ask, "--out", "run")
    whole = Path("run/rollouts.jsonl").read_bytes()
    Path("run/rollouts.jsonl").write_bytes(whole[:-40])
    # This file exists if scoring was slow (a busy machine), and would spare the request below.
    Path("run/generations.jsonl").unlink(missing_ok=True)
    done = gym(*ask, "--out", "run", exit_code=0)
    assert "warning: run/rollouts.jsonl: the last line was not finished" in done.stderr
    assert "1 attempt to go (9 already scored)" in done.stderr
    assert mock_server.num_requests == 11


def test_collect_keeps_keys_and_model_text_out_of_its_log(ask, mock_server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-never-to-be-seen")
    refused = {"1 + 1", "2 + 1"}

    def behave(request):
        text = last_user_text(request)
        if any(asked in text for asked in refused):
            return refusal_of(400, f"bad {HOSTILE} sk-never-to-be-seen\nline")
        return add_up(request)

    mock_server.behaviour = behave
    done = gym(
        *ask,
        "--api-key-env",
        "MY_KEY",
        "--out",
        "run",
        "--log-file",
        "log",
        "--verbose",
        exit_code=4,
    )
    log = Path("log").read_text()
    for text in (log, done.stderr, *(path.read_text() for path in Path("run").iterdir())):
        assert "never-to-be-seen" not in text
    for text in (log, done.output):
        assert not set(UNSAFE) & set(text)
    assert "start run: 10 of 10 attempts" in log
    assert "arithmetic sum-1/0: RequestRefusedError: " in log
    assert "end run: 8 of 10 scored" in log
    assert "ERROR" in log
    assert len(log.splitlines()) == 5
    assert done.stderr.count("8 of 10 attempts are scored") == 1


def test_collect_logs_retries(ask, mock_server):
    """A retry is logged with its class and the task's id when its attempt ends."""
    seen = set()

    def behave(request):
        text = last_user_text(request)
        if text not in seen:
            seen.add(text)
            return refusal_of(500, "busy", retry_after_ms="1")
        return add_up(request)

    mock_server.behaviour = behave
    gym(*ask, "--log-file", "log", "--limit", "2", exit_code=0)
    assert "arithmetic sum-1/0: ServerError, retried 1 times" in Path("log").read_text()


def test_collect_writes_a_run_only_once(ask):
    other = RunDirectory(Path("run"))
    other.lock()
    try:
        done = gym(*ask, "--out", "run")
    finally:
        other.close()
    assert done.exit_code == 4
    assert "another process is writing this run" in done.stderr


def test_collect_scores_pending_conversations_without_the_endpoint(ask, mock_server):
    """No request is sent: the endpoint may be gone by then."""
    Path("flaky.py").write_text(FLAKY)
    Path("broken").touch()
    line = (*ask, "--env", "flaky.py:Flaky", "--out", "run")
    write_sums(Path("sums.jsonl"), 3, env="flaky")
    assert "failures      3 VerifierError" in gym(*line, exit_code=4).stdout
    Path("broken").unlink()
    gym(*line, exit_code=0)
    assert mock_server.num_requests == 3


def start(*arguments, **options) -> subprocess.Popen:
    return subprocess.Popen(
        gym_process(*arguments), env=clean_environment(), stderr=subprocess.PIPE, **options
    )


def wait_for_lines(path: Path, num: int, process: subprocess.Popen) -> None:
    """Wait until a process has written this many lines."""
    for _ in range(3_000):
        if path.is_file() and path.read_bytes().count(b"\n") >= num:
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
            break
    raise AssertionError(f"no {num} lines: {process.stderr.read()}")


def test_collect_survives_kill_9(ask, mock_server):
    """Every attempt is recorded once, and no recorded attempt is requested again."""
    write_sums(Path("sums.jsonl"), 120)
    mock_server.latency = 0.02
    line = (*ask, "--out", "run", "--concurrency", "8")
    with start(*line) as process:
        wait_for_lines(Path("run/rollouts.jsonl"), 20, process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    kept = Path("run/rollouts.jsonl").read_bytes()
    mock_server.latency = 0.0
    gym(*line, exit_code=0)
    # The kill may have torn the last line, which the next command cuts off.
    assert Path("run/rollouts.jsonl").read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    ids = [row["task_id"] for row in lines_of(Path("run/rollouts.jsonl"))]
    assert len(ids) == len(set(ids)) == 120
    # Only the eight attempts in flight may be asked twice.
    assert 120 <= mock_server.num_requests <= 120 + 8


def test_collect_gives_up_an_endpoint_that_is_gone(ask, mock_server):
    """Scores stay, attempts in flight are recorded, and the same command completes the run."""
    write_sums(Path("sums.jsonl"), 60)
    numbers = itertools.count(1)

    def behave(request):
        return add_up(request) if next(numbers) <= 20 else refusal_of(502, "nobody here")

    mock_server.behaviour = behave
    line = (*ask, "--out", "run", "--concurrency", "16")
    done = gym(*line, "--outage-deadline", "0.1", exit_code=4)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "answered 502: mock_error: nobody here" in last
    assert "; 20 of 60 attempts are scored; resume with: gym collect " in last
    assert "outages       1 of an endpoint" in done.stdout
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 20
    failures = lines_of(Path("run/failures.jsonl"))
    assert len({row["task_id"] for row in failures}) == len(failures) <= 16
    assert {row["error"]["class"] for row in failures} <= {
        "EndpointGoneError",
        "CancelledAttemptError",
    }
    mock_server.behaviour = add_up
    gym(*line, exit_code=0)
    assert len(lines_of(Path("run/rollouts.jsonl"))) == 60


@pytest.mark.slow
@pytest.mark.local_model
def test_collect_with_the_local_model(working_folder):
    """A real model, end to end; its answers are not checked."""
    pytest.importorskip("xllamacpp")
    line = ("collect", "arithmetic", "--model", "local", "--limit", "2", "--max-tokens", "12")
    gym(*line, "--seed", "1", "--concurrency", "1", exit_code=0)
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("arithmetic-local-")
    assert {line["model"] for line in lines_of(run / "rollouts.jsonl")} == {"SmolLM2-135M-Instruct"}


@pytest.mark.slow
@pytest.mark.local_model
def test_collect_says_what_the_local_model_cannot_take(working_folder):
    """An image is a failure, and a prompt that is too long is a scored episode."""
    pytest.importorskip("xllamacpp")
    row = {"env": "arithmetic", "prompt": "What is 1 + 1? " * 8000, "answer": 2}
    Path("long.jsonl").write_bytes(msgspec.json.encode(row))
    line = ("collect", "circle_count", "long.jsonl", "--limit", "1", "--model", "local")
    gym(*line, "--out", "run", "--min-coverage", "0.5", exit_code=0)
    (failure,) = lines_of(Path("run/failures.jsonl"))
    assert failure["error"]["class"] == "RequestRefusedError"
    assert "image input is not supported" in failure["error"]["message"]
    (rollout,) = lines_of(Path("run/rollouts.jsonl"))
    assert (rollout["stop_reason"], rollout["reward"]) == ("context_overflow", 0.0)


async def test_missing_coverage_counts_no_score_that_the_files_lack(tmp_path):
    collection = Collection(
        plan_run(
            [TaskFile(write_sums(tmp_path / "t.jsonl", 4))],
            CollectOptions(model="oracle", out=tmp_path / "run"),
        )
    )
    async with collection:
        assert len([record async for record in collection.run()]) == 4
    path = tmp_path / "run" / "rollouts.jsonl"
    assert missing_coverage(collection, measure(path.parent).metrics(), 1.0) is None
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    error = missing_coverage(collection, measure(path.parent).metrics(), 0.95)
    assert isinstance(error, RunError)
    assert "2 of 4 attempts are scored, less than --min-cov" in str(error)


def test_a_run_without_a_score_has_no_result_whatever_its_coverage(working_folder):
    Path("flaky.py").write_text(FLAKY)
    Path("closed").touch()
    Path("t.jsonl").write_text('{"id": "a", "prompt": "Hi"}\n{"id": "b", "prompt": "Ho"}\n')
    line = ("collect", "t.jsonl", "--env", "flaky.py", "--model", "oracle", "--out", "run")
    done = gym(*line, "--min-coverage", "0", exit_code=4)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: 0 of 2 attempts are scored, so there is no result (failed: 2 ")
    assert "run/failures.jsonl has the causes" in last


def test_a_selection_is_reported_and_judged_alone(ask, mock_server):
    """`--limit` in a directory with more attempts: numbers and gates are those of the limit."""
    tasks = write_sums(Path("many.jsonl"), 12)
    line = ("collect", tasks, *ask[2:], "--out", "run")

    def behave(request):
        first = last_user_text(request) in ("What is 0 + 1?", "What is 1 + 1?")
        return add_up(request) if first else MockAnswer(text="It is -1.")

    mock_server.behaviour = behave
    gym(*line, "--repeats", "2", exit_code=0)
    gate = ("--gate", "mean_reward >= 0.9", "--gate-on", "point")
    gym(*line, "--repeats", "2", *gate, exit_code=3)
    part = gym(*line, "--limit", "2", "--repeats", "2", *gate, "--json", exit_code=0)
    printed = json.loads(part.stdout)
    assert (printed["num_expected"], printed["num_scored"], printed["mean_reward"]) == (4, 4, 1.0)
    said = "run: numbers and gates cover the 4 attempts of the selected tasks, of 24 of the run"
    assert said in part.stderr
    # The numbers of the whole run stay on disk, and for other commands.
    assert json.loads(Path("run/metrics.json").read_text())["num_scored"] == 24
    one = json.loads(gym(*line, "--task", "sum-5", "--json").stdout)
    assert (one["num_expected"], one["num_scored"], one["mean_reward"]) == (2, 2, 0.0)
    assert mock_server.num_requests == 24
    sliced = gym(*line, "--limit", "1", "--gate", "mean_reward[answer=1] >= 0.9", "--json")
    assert (sliced.exit_code, json.loads(sliced.stdout)["num_scored"]) == (5, 2)
    # Fewer repeats select no fewer tasks.
    whole = gym(*line, "--json")
    assert json.loads(whole.stdout)["num_scored"] == 24
    assert "numbers and gates cover" not in whole.stderr


def test_files_and_the_baseline_of_a_selection_cover_it_alone(ask, mock_server):
    line = (*ask, "--out", "run")
    gym(*line, "--seed", "1", exit_code=0)
    mock_server.behaviour = lambda request: (
        add_up(request) if last_user_text(request) == "What is 0 + 1?" else MockAnswer(text="?")
    )
    new = (*ask, "--out", "new", "--seed", "1", "--baseline", "run")
    assert "over 10 tasks" in gym(*new).stdout
    gate = ("--gate", "difference >= 0", "--gate-on", "point")
    files = ("--junit", "j.xml", "--junit-tasks", "all", "--markdown", "m.md")
    done = gym(*new, "--limit", "1", *gate, *files, exit_code=0)
    assert "baseline      run: " in done.stdout
    assert "over 1 tasks" in done.stdout
    assert "sum-0" in Path("j.xml").read_text()
    assert "sum-1" not in Path("j.xml").read_text()


def test_failures_outside_a_selection_do_not_count(ask, mock_server):
    write_sums(Path("sums.jsonl"), 6)
    mock_server.behaviour = lambda request: (
        refusal_of(400, "no") if last_user_text(request) == "What is 5 + 1?" else add_up(request)
    )
    line = (*ask, "--out", "run")
    gym(*line, exit_code=4)
    printed = json.loads(gym(*line, "--limit", "3", "--json").stdout)
    assert (printed["num_expected"], printed["failures"]) == (3, {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "the base URL is empty; it looks like https://host/v1"),
        ("--model", 'the base URL is "--model", an option: its own value is missing or empty'),
    ],
)
def test_collect_shows_an_address_that_is_none(ask, given, message):
    """The shell drops an empty value, so that the next option takes its place."""
    assert message in gym(*ask[:2], "--base-url", given, "m", exit_code=2).stderr
