"""Tests of `gym verify`."""

import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot

from gymcli.commands.verify import print_repeats, print_rescoring
from gymcli.comparison.paired_differences import PairedAttempts, reward_effects
from gymcli.metrics.results import Effect
from gymcli.rescoring.run_rescoring import (
    EnvironmentAgreement,
    EnvironmentFlips,
    RepeatReport,
    RescoringReport,
)
from gymcli.store.run_directory import RunDirectory
from gymcli.store.scored_lines import EnvironmentFacts
from tests.builders import (
    FLAKY,
    HOSTILE,
    UNSAFE,
    clean_environment,
    gym,
    gym_process,
    lines_of,
    write_rows,
    write_sums,
)
from tests.metrics.test_measure import NEMO


def collect(_):
    tasks = write_sums(Path("sums.jsonl"), 6)
    gym("collect", tasks, "--model", "oracle", "--out", "run", exit_code=0)
    # This file exists if scoring took a second, as on a busy machine.
    Path("run/generations.jsonl").unlink(missing_ok=True)


@pytest.fixture
def run(working_folder, recorded) -> Path:
    """Return a run of six sums that the oracle played."""
    recorded(collect)
    return Path("run")


def test_verify_says_that_nothing_changed(run):
    done = gym("verify", run, exit_code=0)
    assert done.stdout == (
        "6 rescored, 0 changed rewards (0 up, 0 down)\nmean reward 1.0000 -> 1.0000\n"
    )


def test_verify_says_what_changed(run):
    lines = lines_of(run / "rollouts.jsonl")
    lines[0]["reward"] = 0.5
    lines[1]["messages"][-1]["content"] = "no idea"
    write_rows(run / "rollouts.jsonl", lines)
    done = gym("verify", run, exit_code=0)
    shown = done.stdout.replace(lines[0]["task_id"], "FIRST").replace(lines[1]["task_id"], "SECOND")
    assert shown == snapshot("""\
arithmetic FIRST/0: 0.5 -> 1  correct -> correct
arithmetic SECOND/0: 1 -> 0  correct -> no_answer
1 changed: correct -> correct (1 up, 1 fail -> pass)
1 changed: correct -> no_answer (1 down, 1 pass -> fail)
6 rescored, 2 changed rewards (1 up, 1 down)
mean reward 0.9167 -> 0.8333

arithmetic          before  after  change              95 %  tasks
mean_reward          0.917  0.833  -0.083  -0.599 .. +0.433      6
micro_mean_reward    0.917  0.833  -0.083  -0.599 .. +0.433      6
strict_mean_reward   0.917  0.833  -0.083  -0.599 .. +0.433      6
pass@1               0.833  0.833  +0.000  -0.664 .. +0.664      6
avg@1                0.917  0.833  -0.083  -0.599 .. +0.433      6
""")


def test_verify_says_what_changes_do_to_every_number(run):
    """In a table of at most 100 columns, after the totals; the JSON has them by name."""
    lines = lines_of(run / "rollouts.jsonl")
    lines[0]["reward"] = 0.0
    lines[1]["components"] = {"a component with a name that is longer than any table has room": 1.0}
    write_rows(run / "rollouts.jsonl", lines)
    done = gym("verify", run)
    assert done.stdout.split("mean reward 0.8333 -> 1.0000\n")[1] == (
        "1 have the same reward but another component or number\n"
        "\n"
        "arithmetic                       before  after  change              95 %  tasks\n"
        "mean_reward                       0.833  1.000  +0.167  -0.262 .. +0.595      6\n"
        "micro_mean_reward                 0.833  1.000  +0.167  -0.262 .. +0.595      6\n"
        "strict_mean_reward                0.833  1.000  +0.167  -0.262 .. +0.595      6\n"
        "pass@1                            0.833  1.000  +0.167  -0.262 .. +0.595      6\n"
        "avg@1                             0.833  1.000  +0.167  -0.262 .. +0.595      6\n"
        "components.a component with a …   1.000      -       -                 -      -\n"
    )
    report = msgspec.json.decode(gym("verify", run, "--json").stdout)
    assert (report["num_fail_to_pass"], report["num_pass_to_fail"]) == (1, 0)
    flips = report["environments"]["arithmetic"]
    assert flips["reasons"]["correct -> correct"]["num_fail_to_pass"] == 1
    assert flips["effects"]["mean_reward"]["difference"]["interval"]["method"] == "t"


def test_verify_says_what_changed_in_each_environment(run, monkeypatch):
    Path("flaky.py").write_text(FLAKY)
    lines = [{**line, "reward": 0.0} for line in lines_of(run / "rollouts.jsonl")]
    others = [{**line, "env": "flaky"} for line in lines]
    write_rows(Path("r.jsonl"), [*lines[:2], *others])
    done = gym("verify", "r.jsonl", "--env", "flaky.py:Flaky")
    summary = done.stdout[done.stdout.index("arithmetic: ") :]
    assert summary == snapshot("""\
arithmetic: 2 changed rewards (2 up, 2 fail -> pass)
arithmetic          before  after  change  95 %  tasks
mean_reward          0.000  1.000  +1.000     -      2
micro_mean_reward    0.000  1.000  +1.000     -      2
strict_mean_reward   0.000  1.000  +1.000     -      2
pass@1               0.000  1.000  +1.000     -      2
avg@1                0.000  1.000  +1.000     -      2

flaky: 6 changed rewards (6 up, 6 fail -> pass)
flaky               before  after  change              95 %  tasks
mean_reward          0.000  1.000  +1.000  +1.000 .. +1.000      6
micro_mean_reward    0.000  1.000  +1.000  +1.000 .. +1.000      6
strict_mean_reward   0.000  1.000  +1.000  +1.000 .. +1.000      6
pass@1               0.000  1.000  +1.000  +1.000 .. +1.000      6
avg@1                0.000  1.000  +1.000  +1.000 .. +1.000      6
""")
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_verify_quiet_gives_the_totals_alone(run):
    write_rows(
        run / "rollouts.jsonl", [{**x, "reward": 0} for x in lines_of(run / "rollouts.jsonl")]
    )
    done = gym("verify", run, "--quiet")
    assert done.stdout == (
        "6 rescored, 6 changed rewards (6 up, 0 down)\nmean reward 0.0000 -> 1.0000\n"
    )
    assert done.stderr == ""


def test_verify_lists_the_first_changes(run):
    lines = lines_of(run / "rollouts.jsonl")
    many = [{**lines[0], "reward": 0, "attempt": attempt} for attempt in range(25)]
    write_rows(run / "rollouts.jsonl", many)
    done = gym("verify", run)
    assert done.stdout.count(": 0 -> 1") == 20
    assert "and 5 more (--json lists the first 1,000)" in done.stdout


def test_verify_json(run):
    report = msgspec.json.decode(gym("verify", run, "--json").stdout)
    assert (report["num_rescored"], report["num_changed"], report["changes"]) == (6, 0, [])


def test_verify_writes_a_run(run):
    assert gym("verify", run, "--out", "again").stdout.endswith("files         again\n")
    gym("metrics", "again", exit_code=0)
    assert len(lines_of(Path("again/rollouts.jsonl"))) == 6


def test_verify_that_could_not_write_a_run_is_done_by_the_same_command(run):
    """Until it succeeds there is no run to measure or to resume."""
    command = gym_process("verify", "run", "--out", "again")
    limited = ["bash", "-c", f"trap '' XFSZ; ulimit -f 2; exec {shlex.join(command)}"]
    done = subprocess.run(limited, env=clean_environment(), capture_output=True, check=False)
    assert done.returncode == 4
    assert b"File too large" in done.stderr
    gym("metrics", "again", exit_code=2)
    collect = ("collect", "sums.jsonl", "--model", "oracle", "--out", "again")
    assert "again: is not empty and holds no run" in gym(*collect).stderr
    gym("verify", "run", "--out", "again", exit_code=0)
    assert len(lines_of(Path("again/rollouts.jsonl"))) == 6
    gym("verify", "run", "--out", "again", exit_code=2)


def test_verify_reads_a_run_that_is_being_written(run):
    """Only scoring of waiting conversations needs the run's lock."""
    other = RunDirectory(run)
    other.lock()
    try:
        gym("verify", run, exit_code=0)
    finally:
        other.close()


def test_verify_reads_nemo_gym(working_folder):
    line = {**NEMO, "reward": 0.0, "_ng_task_index": 0}
    write_rows(Path("r.jsonl"), [line])
    gym("verify", "r.jsonl", exit_code=2)
    done = gym("verify", "r.jsonl", "--env", "arithmetic", exit_code=0)
    assert "arithmetic 0/0: 0 -> 1" in done.stdout
    named = {**line, "agent_ref": {"name": "arithmetic_simple_agent"}}
    del named["answer"]
    write_rows(Path("r.jsonl"), [named])
    write_rows(Path("t.jsonl"), [{"env": "arithmetic", "prompt": "What is 1 + 1?", "answer": 2}])
    gym("verify", "r.jsonl", exit_code=4)
    done = gym("verify", "r.jsonl", "--tasks", "t.jsonl")
    assert (done.exit_code, "1 rescored, 1 changed" in done.stdout) == (0, True)


def test_verify_takes_options(working_folder):
    gym("collect", "mcqa", "--model", "oracle", "--limit", "12", "--out", "run")
    done = gym("verify", "run", "--env-arg", "mcqa.grading_mode=lenient_answer_colon", exit_code=0)
    assert "correct -> no_answer" in done.stdout


def collect_waiting(_):
    Path("flaky.py").write_text(FLAKY)
    tasks = write_sums(Path("t.jsonl"), 2, env="flaky")
    line = ("collect", tasks, "--model", "oracle", "--env", "flaky.py:Flaky", "--out", "run")
    gym(*line, "--task", "sum-0", exit_code=0)
    Path("broken").touch()
    gym(*line, exit_code=4)
    Path("broken").unlink()


@pytest.fixture
def waiting(working_folder, recorded) -> Path:
    """Return a run in which one of two conversations waits for its score."""
    recorded(collect_waiting)
    return Path("run")


def test_verify_scores_waiting_conversations(waiting):
    done = gym("verify", waiting, "--env", "flaky.py:Flaky", exit_code=0)
    assert done.stderr == "1 waiting conversations scored, 0 failed\n"
    assert "2 rescored, 0 changed" in done.stdout
    assert len(lines_of(waiting / "rollouts.jsonl")) == 2


def test_verify_pending_does_that_alone(waiting):
    for num in (1, 0):
        done = gym("verify", waiting, "--env", "flaky.py:Flaky", "--pending")
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == f"{num} waiting conversations scored, 0 failed\n"


def test_verify_leaves_what_crashed(waiting):
    failures = waiting / "failures.jsonl"
    error = {"class": "CrashedAttemptError", "phase": "environment", "message": "died"}
    write_rows(failures, [{**line, "error": error} for line in lines_of(failures)])
    done = gym("verify", waiting, "--env", "flaky.py:Flaky", "--pending")
    assert done.stderr == (
        "0 waiting conversations scored, 0 failed\n1 waiting conversations of crashed attempts are "
        "not scored; gym collect --retry-crashed retries them\n"
    )
    assert len(lines_of(waiting / "rollouts.jsonl")) == 1


def test_verify_says_what_cannot_be_scored(waiting):
    """The exit code is 4 if nothing can be scored."""
    Path("broken").touch()
    done = gym("verify", waiting, "--env", "flaky.py:Flaky", exit_code=4)
    assert done.stdout == snapshot("""\
flaky sum-0/0: 1 -> unscored  any -> -
1 changed: any -> -
1 not scored: VerifierError: RuntimeError: the verifier is broken
0 rescored, 1 changed rewards (0 up, 0 down), 1 not scored

flaky               before  after  change              95 %  tasks
strict_mean_reward   0.500  0.000  -0.500  -1.000 .. +1.000      2
""")
    assert done.stderr == snapshot("""\
0 waiting conversations scored, 1 failed
error: run: the verifier scored none of the rollouts
""")


def test_verify_says_how_many_are_kept_as_recorded(waiting):
    Path("flaky.py").write_text(
        FLAKY.replace('"""Say anything."""', '"""Say anything."""\n\n    rescore = "recorded"')
    )
    Path("other.py").write_text(Path("flaky.py").read_text())
    lines = [{**line, "env": "other"} for line in lines_of(waiting / "rollouts.jsonl")]
    write_rows(Path("r.jsonl"), lines)
    done = gym("verify", "r.jsonl", "--env", "other.py:Flaky")
    assert "0 rescored, 0 changed rewards (0 up, 0 down), 1 kept as recorded" in done.stdout


def test_verify_sums_up_many_reasons(working_folder):
    verifier = "raise RuntimeError(rollout.task_id)"
    Path("picky.py").write_text(FLAKY.replace("if Path", f"{verifier}\n        if Path"))
    tasks = write_sums(Path("t.jsonl"), 30)
    gym("collect", tasks, "--model", "oracle", "--out", "run")
    write_rows(
        Path("r.jsonl"), [{**x, "env": "picky"} for x in lines_of(Path("run/rollouts.jsonl"))]
    )
    done = gym("verify", "r.jsonl", "--env", "picky.py:Flaky", exit_code=4)
    assert "10 not scored for 10 other reasons" in done.stdout


def test_verify_shows_nothing_of_a_rollout_unescaped(waiting):
    verifier = f"return Score(0.0, details={{'reason': {HOSTILE!r}}})"
    Path("flaky.py").write_text(FLAKY.replace("if Path", f"{verifier}\n        if Path"))
    lines = lines_of(waiting / "rollouts.jsonl")
    write_rows(Path("r.jsonl"), [{**lines[0], "task_id": HOSTILE, "details": {"reason": HOSTILE}}])
    Path("code").mkdir()
    Path("code/flaky.py").write_text(Path("flaky.py").read_text())
    for more in ((), ("--json",)):
        done = gym("verify", "r.jsonl", "--env", "code/flaky.py:Flaky", *more, exit_code=0)
        assert not set(UNSAFE) & set(done.output)
    assert "[bold red]markup[/]" in done.output


def test_verify_says_that_a_torn_line_is_left_out(run):
    path = run / "rollouts.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    for place in (run, path):
        done = gym("verify", place, exit_code=0)
        assert f"warning: {path}: the last line was not finished" in done.stderr
    path.write_bytes(path.read_bytes() + b"\n")
    gym("verify", run, exit_code=2)


@pytest.mark.parametrize("pending", [True, False])
def test_verify_says_how_an_environment_given_as_code_is_found(waiting, pending):
    if not pending:
        Path("run/generations.jsonl").unlink()
    done = gym("verify", waiting, exit_code=2)
    way_out = "if it is your own code, set --env FILE.py:CLASS"
    assert done.stderr.startswith('error: run: no environment "flaky"')
    assert f"; {way_out}; " in done.stderr
    assert done.stderr.count("\n") == 1
    gym("metrics", waiting, exit_code=0)
    gym("show", waiting, "sum-0", exit_code=0)


def fickle(path: Path, rollouts: Path) -> tuple[str, ...]:
    """Return a function that verifies these rollouts with a verifier that counts its calls."""
    counter = "CALLS = itertools.count()\n\n\nclass Flaky"
    verifier = "return Score(float(next(CALLS) % 2))\n        if Path"
    code = FLAKY.replace("from pathlib", "import itertools\nfrom pathlib")
    path.write_text(code.replace("class Flaky", counter).replace("if Path", verifier, 1))
    lines = [{**line, "env": path.stem} for line in lines_of(rollouts)]
    write_rows(Path("r.jsonl"), lines)
    return "verify", "r.jsonl", "--env", f"{path}:Flaky"


def test_verify_repeat_finds_a_verifier_that_disagrees_with_itself(run):
    command = fickle(Path("fickle.py"), run / "rollouts.jsonl")
    done = gym(*command, "--repeat", "2", exit_code=3)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fickle sum-")
    assert lines[0].endswith("/0: 0, 1")
    assert lines[6] == "6 rollouts scored 2 times, 6 with different rewards"
    assert lines[8].split("  ")[-1].strip() == "of verifier (share)"
    assert lines[9].split() == ["fickle", "6", "0.0%", "1", "0.2236", "0.2887", "(100%)"]
    assert lines[10] == "fickle mean reward 0.500, 0.500"
    assert max(map(len, lines)) <= 100
    assert "6 rollouts have a verifier that asks no model and disagrees with itself" in done.stderr
    done = gym(*command, "--repeat", "2", "--json", exit_code=3)
    report = msgspec.json.decode(done.stdout)
    assert (report["num_repeats"], report["num_faulty"]) == (2, 6)
    assert report["disagreements"][0]["rewards"] == [0.0, 1.0]


def test_verify_repeat_is_content_with_one_that_agrees(run):
    done = gym("verify", run, "--repeat", "2", "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("6 rollouts scored 2 times, 0 with different rewards\n")
    assert "arithmetic         6     100.0%" in done.stdout


def test_verify_repeat_lists_the_first_disagreements(run):
    lines = lines_of(run / "rollouts.jsonl")
    write_rows(run / "rollouts.jsonl", [{**lines[0], "attempt": n} for n in range(25)])
    done = gym(*fickle(Path("fickle.py"), run / "rollouts.jsonl"), "--repeat", "2")
    assert done.stdout.count(": 0, 1\n") + done.stdout.count(": 1, 0\n") == 20
    assert "and 5 more (--json lists the first 1,000)\n" in done.stdout


def test_verify_repeat_leaves_waiting_conversations_waiting(waiting):
    """Repeating writes nothing, and a note says that they stay waiting."""
    before = {path.name: path.read_bytes() for path in waiting.iterdir()}
    done = gym("verify", waiting, "--env", "flaky.py:Flaky", "--repeat", "2", exit_code=0)
    assert done.stdout.startswith("1 rollouts scored 2 times, 0 with different rewards\n")
    assert {path.name: path.read_bytes() for path in waiting.iterdir()} == before
    for option in (("--out", "again"), ("--pending",)):
        refused = gym("verify", waiting, "--repeat", "2", *option, exit_code=2)
        assert f"--repeat writes nothing: leave out {option[0]}" in refused.stderr
    gym("verify", waiting, "--repeat", "1", exit_code=2)


def test_verify_repeat_says_that_nothing_can_be_scored(waiting):
    Path("broken").touch()
    done = gym("verify", waiting, "--env", "flaky.py:Flaky", "--repeat", "2", exit_code=4)
    assert "1 rollouts scored 2 times, 0 with different rewards, 1 never scored\n" in done.stdout
    assert "2 not scored: VerifierError: RuntimeError: the verifier is broken\n" in done.stdout


LONG = "a name that is longer than any table has room for"


def effects_of(pairs, facts):
    """Return the effects on tasks of one attempt each, with rewards before and after."""
    scores = PairedAttempts("quiz")
    for number, (before, after) in enumerate(pairs):
        scores.a.extend([f"t{number}"], [0], reward=[before])
        scores.b.extend([f"t{number}"], [0], reward=[after])
    return reward_effects(scores, facts)


def shown(capsys, effects: dict[str, Effect]) -> list[str]:
    flips = EnvironmentFlips(effects=effects)
    print_rescoring(RescoringReport(environments={"quiz": flips}), is_quiet=False)
    return capsys.readouterr().out.splitlines()


def test_a_change_of_one_rollout_among_many_is_seen(capsys):
    pairs = [(1.0, float(number > 0)) for number in range(3_000)]
    effects = effects_of(pairs, EnvironmentFacts(max_reward=1.0))
    assert shown(capsys, effects)[3].split() == [
        *("mean_reward", "1.000", "1.000", "-0.000333"),
        *("-0.000987", "..", "+0.00032", "3,000"),
    ]


@pytest.mark.parametrize("size", [0.0, 1e-9, 99_999.4, 1e99])
def test_a_table_of_effects_has_100_columns(capsys, size):
    effects = effects_of([(0.0, -size), (size, 0.0)] * 2, EnvironmentFacts())
    lines = shown(capsys, {LONG: effects["mean_reward"]})
    assert len(lines) == 4
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("size", [0.0, 1e-9, 99_999.4, 1e99])
def test_a_table_of_repeats_has_100_columns(capsys, size):
    found = EnvironmentAgreement(
        asks_models=True,
        num_rollouts=1_000_000,
        num_disagreeing=1,
        agreement=1.0,
        largest_spread=size,
        mean_rewards=[-size] * 9,
        standard_error=size,
        verifier_error=size,
        verifier_share=1.0,
    )
    print_repeats(RepeatReport(num_repeats=9, environments={LONG: found}), is_quiet=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].endswith(" (100%)")
    assert max(map(len, lines)) <= 100
