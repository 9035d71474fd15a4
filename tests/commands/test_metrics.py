"""`gym metrics` through the front door."""

import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from gymcli.mock.behaviours import last_user_text, refusal_of
from tests.commands.running import (
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
def run(tmp_path, monkeypatch, mock_server) -> Path:
    """Give a run of six sums, two attempts of each: one task is refused, one is wrong."""
    monkeypatch.chdir(tmp_path)

    def behave(request):
        text = last_user_text(request)
        if "5 + 1" in text:
            return refusal_of(400, "no")
        return "It is 0." if "4 + 1" in text else add_up(request)

    mock_server.behaviour = behave
    tasks = write_sums(Path("sums.jsonl"), 6)
    where = ("--base-url", mock_server.base_url, "--model", "m")
    assert gym("collect", tasks, *where, "--repeats", "2", "--out", "run").exit_code == 4
    return Path("run")


def test_metrics_prints_everything(run):
    done = gym("metrics", run)
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    for part in (
        "run environment expected present scored coverage mean reward 95 % strict mean",
        "arithmetic 12 12 10 83.3% 0.800",
        "0.667",
        "stop reasons 10 done",
        "failures 2 RequestRefusedError",
        "seconds p50",
        "in the model p50",
        "arithmetic k=1 k=2 pass@k 0.800 0.800",
        "pass^k 0.800 0.800 avg@k 0.800 0.800",
        "majority@k 0.800 0.800",
        "standard error 0.2000, clustered by 5 tasks",
    ):
        assert part in text


def test_metrics_json_is_one_object(run):
    """And the same, without the run's name, is in metrics.json."""
    (run / "metrics.json").unlink()
    report = msgspec.json.decode(gym("metrics", run, "--json").stdout)
    assert report.pop("run") == "run"
    assert (report["num_expected"], report["num_present"], report["num_scored"]) == (12, 12, 10)
    assert report["mean_reward"] == pytest.approx(0.8)
    assert report["failures"] == {"RequestRefusedError": 2}
    assert report["environments"]["arithmetic"]["pass_at_k"]["2"] == pytest.approx(0.8)
    assert msgspec.json.decode((run / "metrics.json").read_bytes()) == report


def test_metrics_of_several_runs(run):
    gym("collect", "mcqa", "--model", "oracle", "--limit", "2", "--out", "other")
    report = msgspec.json.decode(gym("metrics", run, "other", "--json").stdout)
    assert [one["run"] for one in report["runs"]] == ["run", "other"]
    done = gym("metrics", run, "other")
    assert "\n\nother\n" in done.stdout
    assert "mcqa: means" in done.stdout


def test_metrics_of_several_environments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gym("collect", "arithmetic", "mcqa", "--model", "oracle", "--out", "run")
    done = gym("metrics", "run")
    assert [line.split()[0] for line in done.stdout.splitlines()[2:5]] == [
        "arithmetic",
        "mcqa",
        "all",
    ]


def test_metrics_by_task(run):
    done = gym("metrics", run, "--by-task")
    rows = {
        line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if "sum-" in line
    }
    assert rows["sum-3"] == ["arithmetic", "2", "0", "2", "1.000", "1.000", "1.000", "4"]
    assert rows["sum-5"] == ["arithmetic", "0", "2", "0", "-", "-", "-", "-"]
    report = msgspec.json.decode(gym("metrics", run, "--by-task", "--json").stdout)
    assert [task["task_id"] for task in report["tasks"]] == [f"sum-{n}" for n in range(6)]


def test_metrics_of_a_bare_file(run):
    done = gym("metrics", run / "rollouts.jsonl")
    assert " unknown " in done.stdout
    assert done.exit_code == 0


def test_metrics_warns_where_nothing_is_scored(run):
    (run / "rollouts.jsonl").unlink()
    done = gym("metrics", run)
    assert done.exit_code == 0
    assert done.stderr == "warning: run: nothing is scored\n"


def test_metrics_of_a_run_that_cannot_be_written(run):
    """A run of somebody else's can still be read."""
    (run / "metrics.json").unlink()
    (run / "metrics.json").mkdir()
    done = gym("metrics", run)
    assert done.exit_code == 0
    assert "warning: run/metrics.json: cannot be written" in done.stderr
    assert "arithmetic" in done.stdout


def test_metrics_shows_nothing_of_a_rollout_unescaped(run):
    """Neither task ids, nor answers, nor names of environments, components and failures."""
    line = lines_of(run / "rollouts.jsonl")[0]
    line |= {"task_id": HOSTILE, "answer": f"{HOSTILE}\n" * 9, "env": HOSTILE}
    line |= {"components": {HOSTILE: 1.0}, "metrics": {HOSTILE: 1.0}, "tool_errors": {HOSTILE: 1}}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    for more in ((), ("--json",)):
        done = gym("metrics", "r.jsonl", "--by-task", *more)
        assert done.exit_code == 0
        assert not set(UNSAFE) & set(done.output)
        assert "[bold red]markup[/]" in done.output


def test_metrics_ends_quietly_when_its_reader_leaves(run):
    with subprocess.Popen(
        gym_process("metrics", run, "--by-task"),
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_metrics_leaves_the_run_readable(run):
    gym("metrics", run)
    assert stat.S_IMODE((run / "metrics.json").stat().st_mode) & stat.S_IRUSR


def test_metrics_says_that_a_torn_line_is_left_out(run):
    path = run / "rollouts.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    for place in (run, path):
        done = gym("metrics", place)
        assert done.exit_code == 0
        assert f"warning: {path}: the last line was not finished" in done.stderr
    path.write_bytes(path.read_bytes() + b"\n")
    assert gym("metrics", run).exit_code == 2


def test_metrics_lets_no_name_pass_for_a_line_of_ours(run):
    line = lines_of(run / "rollouts.jsonl")[0]
    forged = "x\nmean reward 1"
    line |= {"task_id": forged, "env": forged, "tool_errors": {forged: 1}, "retries": {forged: 1}}
    line |= {"components": {forged: 1.0}, "answer": forged, "attempt": 0}
    others = [{**line, "task_id": "y"}, {**line, "attempt": 1, "reward": 0.0}]
    Path("r.jsonl").write_bytes(b"\n".join(msgspec.json.encode(x) for x in (line, *others)))
    done = gym("metrics", "r.jsonl", "--by-task")
    assert done.exit_code == 0
    assert "\nmean reward 1" not in done.stdout


def test_metrics_says_how_sure_one_can_be(run):
    """What the unscored leave open, which tasks are flaky, and that few tasks tell little."""
    lines = lines_of(run / "rollouts.jsonl")
    first = next(line for line in lines if line["task_id"] == "sum-0")
    first["reward"] = 0.0
    (run / "rollouts.jsonl").write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))
    shown = gym("metrics", run).stdout.splitlines()
    assert "bounds        0.583 .. 0.750, whatever the unscored attempts would have got" in shown
    assert "flaky tasks   1" in shown
    assert "fewer than 10 tasks: the interval is rough" in shown


def test_metrics_says_nothing_where_one_is_sure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gym("collect", "mcqa", "--model", "oracle", "--limit", "10", "--out", "run")
    shown = gym("metrics", "run").stdout
    for words in ("bounds", "flaky", "rough"):
        assert words not in shown


def test_metrics_names_the_environment_of_which_it_is_not_sure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = write_sums(tmp_path / "few.jsonl", 3)
    gym("collect", "mcqa", few, "--model", "oracle", "--out", "run")
    shown = gym("metrics", "run").stdout.splitlines()
    assert "fewer than 10 tasks of arithmetic: the interval is rough" in shown
    assert sum("rough" in line for line in shown) == 1


def test_metrics_help_says_how_many_attempts_to_make():
    assert "n >= 2k" in " ".join(gym("metrics", "--help").output.split())
