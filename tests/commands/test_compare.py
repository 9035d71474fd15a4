"""Tests of `gym compare`."""

import os
import shutil
import subprocess

import jsonschema
import msgspec
import pytest
from inline_snapshot import snapshot

from gymcli.comparison.comparison_results import Comparison
from gymcli.library.baseline import ComparisonReports
from tests.builders import HOSTILE, UNSAFE, clean_environment, gym, gym_process, write_rows
from tests.comparison.compared import line, mixed, nemo, write_run


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runs(tmp_path):
    """Return the names of a run and of runs that are equal to it, worse and smaller."""
    write_run(tmp_path / "base", mixed(120, 2))
    write_run(tmp_path / "worse", mixed(120, 2, every=2, model="m2"))
    write_run(tmp_path / "few", [one for one in mixed(20, 2, every=4) if one["task_id"] < "t015"])


@pytest.mark.parametrize("name", ["base", "copy", "base/rollouts.jsonl", "./base/"])
def test_a_run_against_itself_decides_nothing(runs, tmp_path, name):
    """A baseline that is the run itself is a mistake, and no reason to pass."""
    shutil.copytree(tmp_path / "base", tmp_path / "copy")
    done = gym("compare", "base", name, exit_code=5)
    assert "mean_reward  tasks      A      B   B - A  95 %  p " in done.stdout
    assert "INCONCLUSIVE: A and B are the same run" in done.stdout
    assert "equivalent" not in done.stdout
    found = msgspec.json.decode(gym("compare", "base", name, "--json").stdout)
    assert (found["is_same_run"], found["p_value"], found["smallest_margin"]) == (True, None, None)


def test_another_run_with_the_same_rewards_is_evidence(runs, tmp_path):
    write_run(tmp_path / "again", mixed(120, 2, timing={"started_at": 1.0}))
    done = gym("compare", "base", "again", exit_code=0)
    assert done.stdout == snapshot("""\
         tasks  scored  mean reward
A base     120     240        0.667
B again    120     240        0.667

model         m in both

mean_reward  tasks      A      B   B - A              95 %      p  verdict
arithmetic     120  0.667  0.667  +0.000  -0.012 .. +0.012  1.000     PASS

test          all sign flips: p = 1.000
pairing       correlation 1.00 of A and B, 100% less variance
equivalent    yes, within ±0.02, p < 0.001
regressed     0 tasks, 0 broken
improved      0 tasks, 0 fixed
unchanged     120 tasks
flaky         80 tasks: 0 only in A, 0 only in B, 80 in both

decided by    the 90 % interval, -0.010 .. +0.010: above -0.02 it passes, else below 0 it fails
margin        B passes with --margin 0.0097 or more
PASS: B is not worse by 0.02 or more
""")
    assert "no task differs; up to 2% of other tasks may differ" in done.stderr


def test_few_equal_tasks_do_not_pass(tmp_path):
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        write_run(
            tmp_path / name, [line(f"t{n}", timing={"started_at": seconds}) for n in range(10)]
        )
    done = gym("compare", "a", "b", exit_code=5)
    assert done.stdout == snapshot("""\
     tasks  scored  mean reward
A a     10      10        1.000
B b     10      10        1.000

model         m in both

mean_reward  tasks      A      B   B - A              95 %      p       verdict
arithmetic      10  1.000  1.000  +0.000  -0.135 .. +0.135  1.000  INCONCLUSIVE

test          McNemar mid-p: p = 1.000
equivalent    not shown, within ±0.02, p = 0.376
regressed     0 tasks, 0 broken
improved      0 tasks, 0 fixed
unchanged     10 tasks
flaky         0 tasks

decided by    the 90 % interval, -0.111 .. +0.111: above -0.02 it passes, else below 0 it fails
margin        B passes with --margin 0.12 or more
INCONCLUSIVE: about 58 tasks such as these would decide; one attempt a task does not show whether
              more attempts would
""")
    gym("compare", "a", "b", "--margin", "0.12", exit_code=0)


def test_a_worse_run_fails_with_exit_code_3(runs):
    done = gym("compare", "base", "worse", exit_code=3)
    assert done.stdout == snapshot("""\
         tasks  scored  mean reward
A base     120     240        0.667
B worse    120     240        0.500

model         m in A, m2 in B

mean_reward  tasks      A      B   B - A              95 %        p  verdict
arithmetic     120  0.667  0.500  -0.167  -0.209 .. -0.120  < 0.001     FAIL

test          all sign flips: p < 0.001
equivalent    not shown, within ±0.02, p = 1.000
regressed     40 tasks, 0 broken
improved      0 tasks, 0 fixed
unchanged     80 tasks
flaky         120 tasks: 0 only in A, 40 only in B, 80 in both

largest regressions      A      B   B - A
t001                 1.000  0.500  -0.500
t004                 1.000  0.500  -0.500
t007                 1.000  0.500  -0.500
t010                 1.000  0.500  -0.500
t013                 1.000  0.500  -0.500
t016                 1.000  0.500  -0.500
t019                 1.000  0.500  -0.500
t022                 1.000  0.500  -0.500
t025                 1.000  0.500  -0.500
t028                 1.000  0.500  -0.500

decided by    the 90 % interval, -0.202 .. -0.127: above -0.02 it passes, else below 0 it fails
margin        B passes with --margin 0.21 or more
FAIL: B is worse than A
""")
    assert done.stderr == ""


def test_folders_of_any_name_are_compared(runs, tmp_path):
    try:
        odd = (tmp_path / "worse").rename(os.fsdecode(b"odd\xff"))
    except OSError:
        pytest.skip("names of files are Unicode here")
    done = gym("compare", "base", odd, "--json", exit_code=3)
    assert msgspec.json.decode(done.stdout)["b"]["run"] == r"odd\udcff"


def test_the_other_way_round_it_is_better(runs):
    assert "PASS: B is better than A" in gym("compare", "worse", "base", exit_code=0).stdout


def test_strict_and_margin_decide_what_fails(runs):
    gym("compare", "base", "worse", "--margin", "0.5", exit_code=0)
    gym("compare", "base", "worse", "--margin", "0.16", "--strict", exit_code=5)
    done = gym("compare", "base", "worse", "--strict", "--margin", "0.01", exit_code=3)
    assert "FAIL: B is worse by more than 0.01" in done.stdout


def test_too_few_tasks_are_inconclusive_with_exit_code_5(runs):
    done = gym("compare", "base", "few", "--level", "0.999", exit_code=5)
    assert done.stdout == snapshot("""\
        tasks  scored  mean reward
A base    120     240        0.667
B few      15      30        0.767

model         m in both

mean_reward  tasks      A      B   B - A            99.9 %      p       verdict
arithmetic      15  0.667  0.767  +0.100  -0.266 .. +0.461  0.453  INCONCLUSIVE

test          all sign flips: p = 0.453
pairing       correlation 0.09 of A and B, 9% less variance: worth 17 unpaired tasks
equivalent    not shown, within ±0.02, p = 0.813
regressed     2 tasks, 0 broken
improved      5 tasks, 0 fixed
unchanged     8 tasks
flaky         12 tasks: 5 only in A, 2 only in B, 5 in both
only in A     105 tasks: t015, t016, t017, t018, t019, ...

largest regressions      A      B   B - A
t004                 1.000  0.500  -0.500
t007                 1.000  0.500  -0.500

decided by    the 99.8 % interval, -0.237 .. +0.431: above -0.02 it passes, else below 0 it fails
margin        B passes with --margin 0.24 or more
INCONCLUSIVE: about 130 tasks such as these would decide; no number of attempts of these tasks would
""")
    assert "105 tasks are in one run only" in done.stderr


def test_drift_is_refused_with_exit_code_2_and_allowed(runs, tmp_path):
    write_run(tmp_path / "new", mixed(120, 2, verifier={"version": "2", "source_hash": "s1"}))
    done = gym("compare", "base", "new")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: A (base) and B (new) differ in more than the model, so a difference may have other "
        "causes; --allow-drift compares them anyway:",
        "error:   arithmetic: verifier version 1 in A, 2 in B",
    ]
    done = gym("compare", "base", "new", "--allow-drift", exit_code=0)
    assert "warning: A and B differ: arithmetic: verifier version 1 in A, 2 in B" in done.stderr


def test_json_is_one_object(runs):
    done = gym("compare", "base", "worse", "--json", exit_code=3)
    found = msgspec.json.decode(done.stdout, type=Comparison)
    assert (found.verdict, found.num_tasks, found.a.run) == ("FAIL", 120, "base")
    assert found.tasks == []
    schema = msgspec.json.schema(Comparison)
    jsonschema.validate(msgspec.json.decode(done.stdout), schema)


def test_by_prints_a_line_for_every_value(runs, tmp_path):
    for name, every in (("a", 3), ("b", 4)):
        lines = [
            line(f"t{n:02}", reward=float(n % every > 0), fields={"level": HOSTILE if n % 2 else 7})
            for n in range(40)
        ]
        write_run(tmp_path / name, lines)
    done = gym("compare", "a", "b", "--by", "level")
    assert "p (Holm)" in done.stdout
    assert "\nlevel " in done.stdout
    assert "\n7 " in done.stdout
    assert not set(done.stdout) & set(UNSAFE)
    assert all(len(one) <= 100 for one in done.stdout.splitlines())


def test_by_task_prints_a_line_for_every_task(runs):
    done = gym("compare", "base", "worse", "--by-task")
    rows = [one for one in done.stdout.splitlines() if one.startswith("t0")]
    assert len(rows) == 100
    changes = [float(row.split()[3]) for row in rows]
    assert changes == sorted(changes), "the largest losses come first"
    assert rows[0].split()[4:] == ["2/2", "1/2", "regressed", "B"]
    assert "largest regressions" not in done.stdout, "they are the first of all tasks"


def test_environments_have_a_line_each(tmp_path):
    def lines(gain):
        return [
            line(f"t{n:02}", reward=float(n % 4 > 1 - gain), env=env)
            for n in range(40)
            for env in ("arithmetic", "mcqa")
        ]

    write_rows(tmp_path / "a.jsonl", lines(0))
    write_rows(tmp_path / "b.jsonl", lines(1))
    done = gym("compare", "a.jsonl", "b.jsonl", exit_code=0)
    names = [row.split()[0] for row in done.stdout.splitlines() if row.endswith("PASS")]
    assert names == ["all", "arithmetic", "mcqa"]
    assert "improved      20 tasks, 20 fixed: arithmetic/t01, arithmetic/t05" in done.stdout


def test_environments_on_other_scales_are_judged_one_by_one(tmp_path):
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        timing = {"timing": {"started_at": seconds}}
        lines = [line(f"t{n:02}", reward=float(n % 3 > 0), **timing) for n in range(60)]
        others = [
            line(f"t{n:02}", reward=5.0 * (n % 3 > 0), env="other", **timing) for n in range(60)
        ]
        run = write_run(tmp_path / name, [*lines, *others])
        manifest = msgspec.json.decode((run / "run.json").read_bytes())
        manifest["environments"]["other"] = {"max_reward": 5.0, "num_expected": 60}
        (run / "run.json").write_bytes(msgspec.json.encode(manifest))
    done = gym("compare", "a", "b", exit_code=0)
    assert "PASS: each environment is judged separately" in done.stdout
    assert "flaky         0 tasks" in done.stdout
    undecided = gym("compare", "a", "b", "--margin", "0", exit_code=5)
    assert "INCONCLUSIVE: arithmetic: the difference is so close to the margin" in undecided.stdout


def test_another_metric_is_compared(runs):
    assert "pass@2" in gym("compare", "base", "worse", "--metric", "pass@2").stdout
    done = gym("compare", "base", "worse", "--metric", "majority@2", exit_code=2)
    assert "error: --metric majority@2: cannot be compared" in done.stderr


def test_what_nemo_gym_does_not_say_is_said(tmp_path):
    write_rows(tmp_path / "a.jsonl", [nemo(f"t{n}", float(n % 3 > 0)) for n in range(12)])
    done = gym("compare", "a.jsonl", "a.jsonl", exit_code=5)
    assert "warning: a.jsonl does not record for arithmetic: version, options" in done.stderr


def test_a_line_that_was_not_finished_is_left_out_with_a_warning(runs, tmp_path):
    rollouts = tmp_path / "worse" / "rollouts.jsonl"
    rollouts.write_bytes(rollouts.read_bytes()[:-9])
    done = gym("compare", "base", "worse", exit_code=3)
    assert "worse/rollouts.jsonl: the last line was not finished" in done.stderr
    assert "coverage is 100.0% in A and 99.6% in B" in done.stderr
    assert "tasks  scored  coverage  mean reward  strict mean\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("base", "nowhere"), 2, "nowhere: no such run"),
        (("base",), 2, "gym compare: needs B; usage: gym compare A B...; gym compare --help"),
        (("base", "base", "--margin", "-1"), 2, "--margin -1: must be 0 or a positive number"),
        (("base", "base", "--level", "95"), 2, "--level 95: must be between 0.5 and 0.999999"),
        (("base", "few", "--env", "arithmetik", "--margin", "1.5"), 0, ""),
        (("base/rollouts.jsonl", "base", "--env", "arithmetik"), 2, "arithmetic"),
    ],
)
def test_wrong_use(runs, arguments, code, said):
    done = gym("compare", *arguments)
    assert done.exit_code == code
    assert said in done.stderr


def test_a_run_of_which_nothing_is_scored_has_exit_code_4(runs, tmp_path):
    write_run(tmp_path / "empty", [], num_expected=5)
    done = gym("compare", "base", "empty")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "error: empty: nothing is scored" in done.stderr


def test_a_closed_output_ends_quietly(runs):
    """A closed output has its own exit code, so that no pipeline takes it for a verdict."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            gym_process("compare", "base", "worse"),
            stdout=closed,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr


@pytest.fixture
def several(runs, tmp_path):
    write_run(tmp_path / "again", mixed(120, 2, timing={"started_at": 1.0}))


def test_several_runs_have_a_row_each(several):
    done = gym("compare", "base", "again", "worse", exit_code=3)
    rows = done.stdout.splitlines()[:4]
    assert rows[0].split()[:4] == ["mean_reward", "tasks", "mean", "95"]
    assert [row.split()[0] for row in rows[1:]] == ["base", "again", "worse"]
    assert rows[1].split()[1:3] == ["120", "0.667"]
    assert rows[1].split()[4] == ".."
    assert rows[2].split()[-1] == "PASS"
    assert rows[3].split()[-3:] == ["<", "0.001", "FAIL"]
    assert "again: PASS: B is not worse by 0.02 or more; passes with --margin 0.0097" in done.stdout
    assert "worse: FAIL: B is worse than A; passes with --margin 0.21 or more" in done.stdout
    assert "warning: again: no task differs" in done.stderr


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("again", "worse", "few"), 3),
        (("again", "few"), 5),
        (("few", "worse"), 3),
        (("again", "again"), 0),
        (("again", "base"), 5),
    ],
)
def test_several_runs_end_by_the_worst_verdict(several, tmp_path, names, code):
    """A failure comes before what is undecided."""
    lines = [one for one in mixed(20, 2, every=4) if one["task_id"] < "t005"]
    write_run(tmp_path / "few", lines)
    assert gym("compare", "base", *names).exit_code == code


def test_several_runs_are_one_object_of_json(several):
    done = gym("compare", "base", "again", "worse", "--json", exit_code=3)
    found = msgspec.json.decode(done.stdout, type=ComparisonReports)
    assert [(one.a.run, one.b.run, one.verdict) for one in found.comparisons] == [
        ("base", "again", "PASS"),
        ("base", "worse", "FAIL"),
    ]
    assert found.comparisons[0].a.estimate.interval.method == "wilson-neff"


def test_several_runs_in_markdown(several):
    text = gym("compare", "base", "again", "worse", "--markdown", "-").stdout
    assert text.startswith("## **FAIL**: 2 runs compared with `base`\n")
    assert "| `worse` | 120 | 0.500 | " in text
    assert "| &lt; 0.001 | FAIL |" in text
    assert "### `again`: PASS\n" in text
    assert text.index("### `again`") < text.index("### `worse`: FAIL")


def test_several_runs_have_their_slices_and_tasks_below(several):
    done = gym("compare", "base", "again", "worse", "--by", "answer", "--by-task")
    lines = done.stdout.splitlines()
    assert [one for one in lines if one in ("again", "worse")] == [
        "again",
        "again",
        "worse",
        "worse",
    ]
    assert sum(one.startswith("t000 ") for one in lines) == 2


def test_a_component_has_a_mean_with_an_interval(tmp_path):
    for name, style in (("a", 0.5), ("b", 0.4), ("c", 0.9)):
        lines = [
            line(f"t{n:02}", components={"style": style + n / 500}, model=name) for n in range(20)
        ]
        write_run(tmp_path / name, lines)
    done = gym("compare", "a", "b", "c", "--metric", "components.style")
    assert done.stdout.splitlines()[1].split()[:3] == ["a", "20", "0.519"]
    assert done.exit_code == 3


def test_one_run_that_differs_in_more_is_named(several, tmp_path):
    write_run(tmp_path / "new", mixed(120, 2, verifier={"version": "2", "source_hash": "s1"}))
    done = gym("compare", "base", "again", "new")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "A (base) and B (new) differ in more than the model" in done.stderr
