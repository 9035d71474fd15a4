"""Tests of `gym metrics`."""

import stat
import subprocess
from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot

from gymcli.mock.behaviours import last_user_text, refusal_of
from tests.builders import (
    HOSTILE,
    UNSAFE,
    add_up,
    clean_environment,
    gym,
    gym_process,
    lines_of,
    write_rows,
    write_sums,
)
from tests.data.token_runs import KINDS, append_kinds


def behave(request):
    text = last_user_text(request)
    if "5 + 1" in text:
        return refusal_of(400, "no")
    return "It is 0." if "4 + 1" in text else add_up(request)


def collect(server):
    server.behaviour = behave
    tasks = write_sums(Path("sums.jsonl"), 6)
    where = ("--base-url", server.base_url, "--model", "m")
    gym("collect", tasks, *where, "--repeats", "2", "--out", "run", exit_code=4)


@pytest.fixture
def run(working_folder, recorded) -> Path:
    """Return a run of six sums, two attempts each: one task is refused, one is wrong."""
    recorded(collect)
    return Path("run")


def test_metrics_prints_every_number_on_request(run):
    done = gym("metrics", run, "--all", exit_code=0)
    text = " ".join(done.stdout.split())
    for part in (
        "run environment tasks scored coverage mean reward 95 % pass@2 pass^2 flaky",
        "arithmetic 6 10 of 12 83.3% 0.800 0.223 .. 0.982 0.800 0.800 0",
        "stop reasons 10 done",
        "failures 2 RequestRefusedError",
        "seconds p50",
        "in the model p50",
        "arithmetic 95 % error tasks mean_reward 0.800 0.223 .. 0.982 0.2000 5",
        "strict_mean_reward 0.667 ",
        "pass@2 0.800 0.223 .. 0.982 0.2000 5",
        "pass^2 0.800 0.223 .. 0.982 0.2000 5",
        "majority@2 0.800",
        "errors clustered by 5 tasks; intervals: wilson-neff",
        "intraclass correlation 1.00, design effect 2.00",
        "- 2 of 12 attempts are not scored: whatever their rewards, the mean lies in",
        "- fewer than 10 tasks: the interval is rough",
        "- 100% of the variance lies between tasks: the best use of the next request is another "
        "task, not another attempt",
    ):
        assert part in text
    for repeated in ("micro_mean_reward", "pass@1", "pass^1", "best@2", "avg@", "more "):
        assert repeated not in text


def test_metrics_shows_each_number_once(run):
    """Everything else is behind --all."""
    lines = gym("metrics", run).stdout.splitlines()
    assert lines[1].split() == [
        *("environment", "tasks", "scored", "coverage", "mean", "reward", "95", "%"),
        *("pass@2", "pass^2", "flaky"),
    ]
    assert "more          --all prints every number with its interval" in lines
    shown = "\n".join(lines)
    for hidden in ("majority@", "best@", "pass@1", "strict", "clustered"):
        assert hidden not in shown


def test_metrics_of_one_attempt_is_one_row(working_folder):
    gym("collect", "arithmetic", "--model", "oracle", "--limit", "20", "--out", "run")
    head, row, *_ = gym("metrics", "run").stdout.splitlines()[1:]
    assert head.split() == ["environment", "tasks", "mean", "reward", "95", "%"]
    assert row.split() == ["arithmetic", "20", "1.000", "0.820", "..", "1.000"]
    shown = " ".join(gym("metrics", "run", "--all").stdout.split())
    assert "arithmetic 95 % error tasks mean_reward 1.000 0.820 .. 1.000 0.0000 20 arith" in shown


def test_metrics_prints_and_stores_the_requested_k(working_folder):
    done = gym(
        *("collect", "mcqa", "--model", "oracle", "--limit", "5", "--repeats", "7"),
        *("--k", "3,7", "--out", "run", "--gate", "pass^5 >= 0.1"),
        exit_code=0,
    )
    assert "pass@3 " in done.stdout
    stored = msgspec.json.decode(Path("run/metrics.json").read_bytes())
    assert list(stored["pass_at_k"]) == ["1", "2", "3", "4", "5", "7"]
    shown = gym("metrics", "run", "--k", "6,1").stdout
    assert [
        line.split()[0] for line in shown.splitlines() if "@" in line[:9] or "^" in line[:9]
    ] == [
        *("pass@1", "pass@6", "pass^6", "majority@6"),
    ]
    report = msgspec.json.decode(gym("metrics", "run", "--k", "3", "--json").stdout)
    assert report["environments"]["mcqa"]["estimates"]["majority@3"]["value"] == 1.0


@pytest.mark.parametrize(
    ("k", "reason"),
    [
        ("3,x", "is not a list of numbers of attempts, such as 3,5,10"),
        ("0", "is not a list of numbers"),
        ("2,3", "no task has more than 2 attempts; --repeats 3 would make 3 of each"),
    ],
)
def test_metrics_refuses_a_k_that_no_task_has(run, k, reason):
    done = gym("metrics", run, "--k", k)
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr


def test_metrics_json_is_one_object(run):
    """metrics.json holds the same without the run's name."""
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
    done = gym("metrics", run, "other", exit_code=0)
    head, first, second, *rest = done.stdout.splitlines()
    assert head.split() == [
        *("run", "date", "model", "scored"),
        *("arithmetic,", "95", "%", "diff", "mcqa,", "95", "%", "diff"),
    ]
    assert first.split()[0] == "run"
    assert first.split()[3:] == [
        *("m", "10/12", "0.800", "0.223..0.982", "-"),
    ]
    assert second.split()[3:] == ["oracle", "2/2", "-", "-", "1.000", "0.012..1.000", "-"]
    assert rest == ["diff: to the mean of the first run; gym compare A B tests it task by task"]
    whole = gym("metrics", run, "other", "--all").stdout
    assert "\n\nother\n" in whole
    assert "\nmcqa  " in whole
    assert whole.endswith(done.stdout)


def test_metrics_of_several_runs_shows_differences_and_what_was_set(run, mock_server):
    mock_server.behaviour = add_up
    again = ("collect", "sums.jsonl", "--base-url", mock_server.base_url, "--model", "m")
    gym(*again, "--repeats", "2", "--temperature", "0.5", "--out", "other")
    head, first, second, *_ = gym("metrics", run, "other").stdout.splitlines()
    assert head.split()[:4] == ["run", "date", "model", "sampling"]
    assert first.split()[3:7] == ["m", "-", "10/12", "0.800"]
    assert "  temperature 0.5   12/12  1.000" in second
    assert second.endswith("  +0.200")
    text = gym("metrics", run, "other", "--by-task").stdout
    assert text.count("sum-5") == 2
    assert "clustered" not in text
    assert gym("metrics", run, "other", "--k", "2").stdout.count("\npass^2 ") == 2


def test_metrics_of_several_environments(working_folder):
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
    assert gym("metrics", run, exit_code=0).stderr == "warning: run: nothing is scored\n"


def test_metrics_of_a_run_that_cannot_be_written(run):
    """Another user's run, in a folder without write permission, can be measured."""
    (run / "metrics.json").unlink()
    (run / "metrics.json").mkdir()
    done = gym("metrics", run, exit_code=0)
    assert "warning: run/metrics.json: cannot be written" in done.stderr
    assert "arithmetic" in done.stdout


def test_metrics_shows_nothing_of_a_rollout_unescaped(run):
    """Task ids, answers and the names of environments, components and failures are escaped."""
    line = lines_of(run / "rollouts.jsonl")[0]
    line |= {"task_id": HOSTILE, "answer": f"{HOSTILE}\n" * 9, "env": HOSTILE}
    line |= {"components": {HOSTILE: 1.0}, "metrics": {HOSTILE: 1.0}, "tool_errors": {HOSTILE: 1}}
    Path("r.jsonl").write_bytes(msgspec.json.encode(line))
    for more in ((), ("--json",)):
        done = gym("metrics", "r.jsonl", "--by-task", *more, exit_code=0)
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
        done = gym("metrics", place, exit_code=0)
        assert f"warning: {path}: the last line was not finished" in done.stderr
    path.write_bytes(path.read_bytes() + b"\n")
    gym("metrics", run, exit_code=2)


def test_metrics_lets_no_name_pass_for_a_line_of_ours(run):
    line = lines_of(run / "rollouts.jsonl")[0]
    forged = "x\nmean reward 1"
    line |= {"task_id": forged, "env": forged, "tool_errors": {forged: 1}, "retries": {forged: 1}}
    line |= {"components": {forged: 1.0}, "answer": forged, "attempt": 0}
    others = [{**line, "task_id": "y"}, {**line, "attempt": 1, "reward": 0.0}]
    write_rows("r.jsonl", [line, *others])
    assert "\nmean reward 1" not in gym("metrics", "r.jsonl", "--by-task", exit_code=0).stdout


def test_metrics_says_how_certain_the_numbers_are(run):
    """It prints the range left open by unscored attempts, flaky tasks, and a hint on few tasks."""
    lines = lines_of(run / "rollouts.jsonl")
    first = next(line for line in lines if line["task_id"] == "sum-0")
    first["reward"] = 0.0
    write_rows(run / "rollouts.jsonl", lines)
    shown = " ".join(gym("metrics", run).stdout.split())
    assert (
        "2 of 12 attempts are not scored: whatever their rewards, the mean lies in 0.583 .. 0.750"
    ) in shown
    assert "1 of 5 tasks passes only sometimes: gym show run --where" in shown
    assert "fewer than 10 tasks: the interval is rough" in shown


def test_metrics_says_nothing_about_certain_numbers(working_folder):
    gym("collect", "mcqa", "--model", "oracle", "--limit", "10", "--out", "run")
    shown = gym("metrics", "run").stdout
    for words in ("not scored", "passes in some", "rough"):
        assert words not in shown


def test_metrics_names_the_environment_with_uncertain_numbers(tmp_path, working_folder):
    few = write_sums(tmp_path / "few.jsonl", 3)
    gym("collect", "mcqa", few, "--model", "oracle", "--out", "run")
    shown = gym("metrics", "run").stdout.splitlines()
    assert "- arithmetic: fewer than 10 tasks: the interval is rough" in shown
    assert sum("rough" in line for line in shown) == 1


def test_metrics_lines_fit_a_terminal_of_100_columns(run):
    gym("collect", "mcqa", "--model", "oracle", "--limit", "5", "--repeats", "33", "--out", "many")
    for shown in (
        gym("metrics", run, "many", "--by", "task.answer"),
        gym("metrics", run, "many", "--all"),
        gym("metrics", run, "--power"),
    ):
        assert max(map(len, shown.stdout.splitlines())) <= 100


def test_metrics_json_says_how_sure_every_number_is(run):
    report = msgspec.json.decode(gym("metrics", run, "--json").stdout)
    found = report["environments"]["arithmetic"]["estimates"]
    assert found["pass@2"] == {
        "value": 0.8,
        "estimator": "unbiased pass@k, mean over tasks with k attempts or more",
        "num_values": 10,
        "num_clusters": 5,
        "standard_error": pytest.approx(0.2),
        "interval": {
            "low": pytest.approx(0.22255, abs=1e-4),
            "high": pytest.approx(0.98242, abs=1e-4),
            "level": 0.95,
            "method": "wilson-neff",
        },
    }
    assert report["advice"] == report["environments"]["arithmetic"]["advice"] != []


def test_metrics_by_a_field_of_the_tasks(run):
    """Each sum has a different answer; the refused one is known only by its failure."""
    done = gym("metrics", run, "--by", "task.answer", "--by", "nothing")
    text = " ".join(done.stdout.split())
    head = "value tasks scored mean reward 95 % pass@2 pass^2 flaky"
    assert f"{head} 1 1 2 of 2 1.000 - 1.000" in text
    assert "arithmetic by task.answer value" in text
    assert "(none) 1 0 of 2 - - - - -" in text
    assert "warning: --by nothing: no task of this run has the field" in done.stderr
    report = msgspec.json.decode(gym("metrics", run, "--json", "--by", "task.answer").stdout)
    slices = report["environments"]["arithmetic"]["slices"]["task.answer"]
    assert list(slices) == ["1", "2", "3", "4", "5", "(none)"]
    assert slices["5"]["mean_reward"] == 0.0
    assert slices["1"]["estimates"]["pass@1"]["value"] == 1.0


def test_metrics_by_a_field_with_very_many_values_is_refused(working_folder):
    line = {"schema_version": 1, "env": "mcqa", "reward": 1.0}
    lines = [{**line, "task_id": str(n), "task": {"id": n}} for n in range(1001)]
    write_rows("r.jsonl", lines)
    done = gym("metrics", "r.jsonl", "--by", "id", exit_code=2)
    assert "--by id: has more than 1,000 values" in done.stderr


OWN = """from gymcli import Context, Environment, Message, Rollout, Score, Task


class Own(Environment[Task]):
    '''Say anything.'''

    async def oracle(self, rollout: Rollout) -> Message:
        return Message(role="assistant", content="anything")

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        return Score(1.0)

    @classmethod
    def metrics(cls, groups) -> dict[str, float]:
        return {"num_groups": len(list(groups)) / LENGTH}
"""
"""An environment that computes a metric; the test replaces LENGTH."""


def test_metrics_shows_what_an_environment_computes(working_folder):
    Path("own.py").write_text(OWN.replace("LENGTH", "4"))
    rows = [{"id": str(n), "prompt": str(n)} for n in range(3)]
    write_rows("t.jsonl", rows)
    gym("collect", "t.jsonl", "--env", "own.py:Own", "--model", "oracle", "--out", "run")
    shown = " ".join(gym("metrics", "run", "--env", "own.py:Own", "--all").stdout.split())
    assert "own: its own numbers num_groups 0.750" in shown
    without = gym("metrics", "run", exit_code=0)
    assert "warning: the metrics of environment own are left out: no environment" in without.stderr


def test_metrics_are_printed_when_those_of_the_environment_fail(working_folder):
    Path("own.py").write_text(OWN.replace("LENGTH", "0"))
    Path("t.jsonl").write_text('{"id": "a", "prompt": "a"}\n')
    gym("collect", "t.jsonl", "--env", "own.py:Own", "--model", "oracle", "--out", "run")
    done = gym("metrics", "run", "--env", "own.py:Own", "--json", exit_code=0)
    assert msgspec.json.decode(done.stdout)["mean_reward"] == 1.0
    assert (
        "warning: the metrics of environment own failed: ZeroDivisionError: division by zero"
    ) in done.stderr


def test_metrics_power_plans_each_environment(tmp_path, working_folder):
    sums = write_sums(tmp_path / "sums.jsonl", 3)
    gym("collect", "mcqa", sums, "--model", "oracle", "--limit", "6", "--out", "run")
    lines = lines_of(Path("run/rollouts.jsonl"))
    first = {line["env"]: line for line in lines}
    rows = [{**line, "reward": float(line not in first.values())} for line in lines]
    write_rows("run/rollouts.jsonl", rows)
    assert gym("metrics", "run", "--power").stdout == snapshot("""\
arithmetic: planned from 3 tasks
variance      0.33 between tasks, unknown (one attempt per task) within
correlation   0.50 of two models' task means (assumed; a second run of these tasks would measure it)

tasks so that gym compare passes in 80% of the cases if B is another model, as good as A on average:
                            1 attempt
--margin 0.01                  21,000
--margin 0.02                   5,300
--margin 0.05                     840
--margin 0.1                      210
3 tasks pass with --margin        1.3

mcqa: planned from 6 tasks
variance      0.17 between tasks, unknown (one attempt per task) within
correlation   0.50 of two models' task means (assumed; a second run of these tasks would measure it)

tasks so that gym compare passes in 80% of the cases if B is another model, as good as A on average:
                            1 attempt
--margin 0.01                  11,000
--margin 0.02                   2,700
--margin 0.05                     420
--margin 0.1                      110
6 tasks pass with --margin       0.48
""")


def test_metrics_power_refuses_a_pilot_whose_rewards_are_all_the_same(tmp_path, working_folder):
    """With no variance the plan would claim that two tasks detect any difference."""
    sums = write_sums(tmp_path / "sums.jsonl", 3)
    gym("collect", sums, "--model", "oracle", "--out", "run")
    done = gym("metrics", "run", "--power", "--margin", "0.05")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "two scored tasks of one environment, and rewards that differ" in done.stderr


def test_metrics_power_plans_a_run(run):
    done = gym("metrics", run, "--power", "--margin", "0.1", exit_code=0)
    # No attempt differs from the others of its task: the same model differs in none, and the two
    # pseudo-tasks decide. 1.77 * sqrt(0.5 / 13 / 14) is below 0.1.
    # 2 * 0.2 * 0.5 * (1.65 + 0.84)^2 / 0.1^2 = 123.7, and some more for Student's t.
    assert done.stdout == snapshot("""\
arithmetic: planned from 5 tasks
variance      0.2 between tasks, 0 within
correlation   0.50 of two models' task means (assumed; a second run of these tasks would measure it)

tasks so that gym compare passes in 80% of the cases if nothing changed:
                            1 attempt  2 attempts  4 attempts  8 attempts  16 attempts
--margin 0.1                       12          12          12          12           12
5 tasks pass with --margin       0.21        0.21        0.21        0.21         0.21

tasks so that gym compare passes in 80% of the cases if B is another model, as good as A on average:
                            1 attempt  2 attempts  4 attempts  8 attempts  16 attempts
--margin 0.1                      130         130         130         130          130
5 tasks pass with --margin       0.59        0.59        0.59        0.59         0.59
""")


def test_metrics_power_of_two_runs_measures_their_correlation(run):
    report = msgspec.json.decode(gym("metrics", run, run, "--power", "--json").stdout)
    assert len(report["runs"]) == 2
    pilot = report["power"]["arithmetic"]["pilot"]
    assert (pilot["correlation"], pilot["is_assumed"], pilot["num_tasks"]) == (1.0, False, 5)
    shown = gym("metrics", run, run, "--power").stdout
    assert "correlation   1.00 of two models' task means (measured)" in shown


def test_metrics_refuses_a_margin_without_a_plan(run):
    done = gym("metrics", run, "--margin", "0.1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--margin needs --power" in done.stderr


def test_metrics_labels_say_how_far_rewards_agree(run):
    """Of ten scored attempts eight pass; the labels call one of these and both others wrong."""
    rows = ["task_id,attempt,label", *(f"sum-{n},{k},pass" for n in range(4) for k in (0, 1))]
    rows[1] = "sum-0,0,fail"
    rows += ["sum-4,,pass"]
    Path("labels.csv").write_text("\n".join(rows))
    done = gym("metrics", run, "--labels", "labels.csv", exit_code=0)
    text = " ".join(done.stdout.split())
    for part in (
        "arithmetic: agreement with the labels of labels.csv attempts 10 of 5 tasks",
        "agreement 70.0% kappa -0.154, 95 % -0.",
        "(rough: fewer than 10 tasks)",
        "label pass label fail reward >= 1 7 1 reward < 1 2 0",
    ):
        assert part in text
    report = msgspec.json.decode(gym("metrics", run, "--labels", "labels.csv", "--json").stdout)
    found = report["agreement"]["arithmetic"]
    assert found["kappa"] == pytest.approx((0.7 - 0.74) / 0.26)
    assert (found["num_only_label_passes"], found["num_only_reward_passes"]) == (2, 1)

    # As a spreadsheet program saves it where commas are decimal.
    text = "\r\n".join(f" {row} ,für später ".replace(",", " ; ") for row in rows)
    Path("labels.csv").write_bytes(text.encode("cp1252"))
    done = gym("metrics", run, "--labels", "labels.csv", "--json")
    assert done.stderr.startswith("labels.csv: is not UTF-8 and is read as Windows-1252")
    assert msgspec.json.decode(done.stdout)["agreement"] == report["agreement"]


def test_metrics_labels_may_be_a_field_of_the_task_rows(working_folder):
    tasks = write_sums(Path("sums.jsonl"), 4)
    rows = [{**row, "human": number > 0} for number, row in enumerate(lines_of(tasks))]
    write_rows(tasks, rows)
    gym("collect", tasks, "--model", "oracle", "--out", "run")
    done = gym("metrics", "run", "--labels", "task.human")
    assert "agreement     75.0%\n" in done.stdout
    done = gym("metrics", "run", "--labels", "task.humour")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--labels task.humour: no scored attempt of this run has a label" in done.stderr


def test_metrics_labels_need_a_file_or_a_field(run):
    done = gym("metrics", run, "--labels", "human")
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        "--labels human: no such file; name a table such as labels.csv, or a field" in done.stderr
    )


def test_metrics_labels_refuse_grades(run):
    Path("labels.jsonl").write_text('{"task_id": "sum-0", "label": 0.7}\n')
    done = gym("metrics", run, "--labels", "labels.jsonl")
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        "labels.jsonl:1: the label 0.7 is neither pass nor fail; write pass or fail" in done.stderr
    )


def test_metrics_says_what_of_the_recorded_tokens_can_be_trained(tmp_path):
    run = append_kinds(tmp_path / "run")
    done = gym("metrics", run, exit_code=0)
    text = " ".join(done.stdout.split())
    assert (
        "trainable 4 of 6 attempts in one sequence, 1 in several (history rewritten), 1 in none "
        "(no usable ids), 1 not on-policy (raw log-probabilities at temperature 0.7) "
        "sampled ids 15, 2 (13.3%) masked: a later prompt has them re-tokenised "
        "unusable 3 calls (the answer has no token ids)"
    ) in text
    append_kinds(run, {"forked": KINDS["forked"]}, env="other")
    found = msgspec.json.decode(gym("metrics", run, "--json").stdout)
    names = ("num_attempts", "num_in_one_sequence", "num_forked", "num_without_ids")
    numbers = {
        name: [one["tokens"][key] for key in names]
        for name, one in {"all": found, **found["environments"]}.items()
    }
    assert numbers == {"all": [7, 4, 2, 1], "e": [6, 4, 1, 1], "other": [1, 0, 1, 0]}
    assert msgspec.json.decode((run / "metrics.json").read_bytes())["tokens"] == found["tokens"]
    assert "| sampled ids | 18, 2 (11.1%) masked" in gym("metrics", run, "--markdown", "-").stdout
    (run / "tokens.jsonl").unlink()
    assert msgspec.json.decode(gym("metrics", run, "--json").stdout)["tokens"] is None
