"""Tests of gates, files for CI and baselines in `gym collect` and `gym metrics`."""

import csv
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from gymcli.metrics.slicing import MAX_SLICES
from gymcli.mock import MockAnswer
from gymcli.mock.behaviours import last_user_text, refusal_of
from tests.builders import (
    add_up,
    clean_environment,
    gym,
    gym_process,
    lines_of,
    write_rows,
    write_sums,
)

NUM_TASKS = 20


def write_tasks(path: Path) -> Path:
    """Write sums, every fourth of which is hard."""
    rows = (
        {
            "id": f"sum-{n}",
            "env": "arithmetic",
            "prompt": f"What is {n} + 1?",
            "answer": n + 1,
            "level": "easy" if n % 4 else "hard",
        }
        for n in range(NUM_TASKS)
    )
    write_rows(path, rows)
    return path


def behave(request):
    """Fail at the hard sums, and refuse one of the easy ones."""
    number = int(last_user_text(request).split()[2])
    if number == 5:
        return refusal_of(400, "no | <b>such</b> sum")
    return add_up(request) if number % 4 else MockAnswer(text="It is 0.")


@pytest.fixture
def collect(working_folder, mock_server):
    """Return a function that runs the tasks."""
    mock_server.behaviour = behave
    tasks = write_tasks(Path("tasks.jsonl"))
    where = ("--base-url", mock_server.base_url, "--model", "m")

    def run(*options: str | Path):
        common = () if "--out" in options else ("--out", "run")
        return gym("collect", tasks, *where, "--min-coverage", "0.9", *common, *options)

    return run


def collect_once(server):
    server.behaviour = behave
    where = ("--base-url", server.base_url, "--model", "m", "--out", "run")
    tasks = write_tasks(Path("tasks.jsonl"))
    gym("collect", tasks, *where, "--min-coverage", "0.9", exit_code=0)


@pytest.fixture
def run(working_folder, recorded) -> Path:
    recorded(collect_once)
    return Path("run")


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        (["pass@1 >= 0.4"], 0),
        (["pass@1 >= 0.4", "coverage >= 0.9", "failures.ServerError == 0"], 0),
        (["pass@1 >= 0.7"], 5),
        (["pass@1 >= 0.99"], 3),
        (["pass@1 >= 0.7", "coverage >= 0.99"], 3),
        (["coverage >= 0.99", "cost < 1"], 2),
    ],
)
def test_metrics_ends_as_the_worst_gate(run, gates, code):
    done = gym("metrics", run, *(part for gate in gates for part in ("--gate", gate)))
    assert done.exit_code == code
    shown = [line for line in done.stdout.splitlines() if line.startswith("gate  ")]
    assert len(shown) == len(gates) - (code == 2)


def test_metrics_prints_every_verdict(run):
    gates = ("pass@1 >= 0.7", "pass@1[level=hard] > 0.7", "num_unscored <= 1")
    done = gym("metrics", run, *(part for gate in gates for part in ("--gate", gate)))
    first, second, third = done.stdout.splitlines()[-3:]
    assert first.startswith("gate          pass@1 >= 0.7: INCONCLUSIVE, 0.737 (0.")
    assert first.endswith(" tasks such as these would decide")
    assert second.startswith("gate          pass@1[level=hard] > 0.7: FAIL, 0.000 (0.000 .. 0.")
    assert third == "gate          num_unscored <= 1: PASS, 1"


def test_metrics_judges_the_point_where_it_is_asked_to(run):
    gym("metrics", run, "--gate", "pass@1 >= 0.7", "--gate-on", "point", exit_code=0)
    gym("metrics", run, "--gate", "pass@1 >= 0.8", "--gate-on", "point", exit_code=3)


def test_metrics_explains_what_it_cannot_judge(run):
    done = gym("metrics", run, "--gate", "pass@4 >= 0.7", "--gate", "pass@1 >= 0.1", exit_code=2)
    assert "gate          pass@1 >= 0.1: PASS" in done.stdout
    warning, error = done.stderr.splitlines()
    assert warning == (
        "warning: pass@4 >= 0.7: no task has more than 1 attempt; --repeats 4 would make 4 of each"
    )
    assert error == ("error: 1 of the gates and comparisons could not be judged; see the warnings")


def test_metrics_has_the_gates_in_json(run):
    done = gym("metrics", run, "--gate", "coverage >= 0.99", "--json", exit_code=3)
    [gate] = msgspec.json.decode(done.stdout)["gates"]
    assert (gate["gate"], gate["verdict"], gate["value"]) == ("coverage >= 0.99", "FAIL", 0.95)
    assert done.stderr == "gate          coverage >= 0.99: FAIL, 0.95\n"
    assert "gates" not in msgspec.json.decode(gym("metrics", run, "--json").stdout)


def test_metrics_judges_each_of_several_runs(run, collect):
    gym("collect", "mcqa", "--model", "oracle", "--out", "other")
    gate = ("--gate", "pass@1 >= 0.8")
    done = gym("metrics", run, "other", *gate, exit_code=5)
    last = done.stdout.splitlines()[-4:]
    assert [line.split(",")[0] for line in last] == [
        "run",
        "gate          pass@1 >= 0.8: INCONCLUSIVE",
        "other",
        "gate          pass@1 >= 0.8: PASS",
    ]
    report = msgspec.json.decode(gym("metrics", run, "other", *gate, "--json").stdout)
    assert [one["gates"][0]["verdict"] for one in report["runs"]] == ["INCONCLUSIVE", "PASS"]


def test_metrics_writes_files(run):
    gates = ("--gate", "pass@1 >= 0.7", "--gate", "coverage >= 0.5")
    files = ("--junit", "junit.xml", "--markdown", "summary.md", "--csv", "numbers.csv")
    gym("metrics", run, *gates, *files, "--by", "level", "--junit-tasks", "all", exit_code=5)

    suites = ET.parse("junit.xml").getroot()
    counts = [(s.get("name"), s.get("tests"), s.get("failures"), s.get("errors")) for s in suites]
    assert counts == [("gates", "3", "0", "1"), ("arithmetic", "20", "5", "1")]
    wrong = suites.find(".//testcase[@name='sum-4']/failure")
    assert wrong.get("message").endswith(
        "; attempt 0: expected 5, got 0, reward 0, done, wrong_answer"
    )
    gym("metrics", run, *gates, "--junit", "gates.xml")
    assert [suite.get("name") for suite in ET.parse("gates.xml").getroot()] == ["gates"]
    Path("gates.xml").unlink()
    text = Path("summary.md").read_text(encoding="utf-8")
    assert text.startswith("## **INCONCLUSIVE**: `run` of `m`\n")
    assert "### By `level`" in text
    with Path("numbers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["field"], row["value"]) for row in rows] == [
        ("", ""),
        ("level", "easy"),
        ("level", "hard"),
        ("level", "(none)"),
    ]
    assert sorted(path.name for path in Path().iterdir()) == [
        *("junit.xml", "numbers.csv", "run", "summary.md", "tasks.jsonl"),
    ]


def test_metrics_prints_only_the_file_that_goes_to_stdout(run):
    for option in ("--junit", "--markdown", "--csv"):
        done = gym("metrics", run, option, "-", "--gate", "coverage > 0.5", exit_code=0)
        assert done.stderr == "gate          coverage > 0.5: PASS, 0.95\n"
        gym("metrics", run, option, "file", "--gate", "coverage > 0.5")
        assert done.stdout == Path("file").read_text(encoding="utf-8")


def test_a_field_in_a_gate_and_in_by_is_sliced_once(run):
    for field, by in (("level", "task.level"), ("task.level", "level"), ("level", "level")):
        done = gym(
            "metrics",
            run,
            "--gate",
            f"pass@1[{field}=easy] > 0.5",
            "--by",
            by,
            "--json",
            exit_code=0,
        )
        assert list(msgspec.json.decode(done.stdout)["slices"]) == [by]


def test_metrics_writes_a_table_of_tasks(run):
    gym("metrics", run, "--by-task", "--csv", "tasks.csv")
    with Path("tasks.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["task"]: row for row in csv.DictReader(file)}
    assert len(rows) == NUM_TASKS
    assert (rows["sum-5"]["num_scored"], rows["sum-5"]["num_unscored"]) == ("0", "1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gate", "pas@1 > 0.5"], '--gate pas@1 > 0.5: there is no number "pas@1"; did you mean'),
        (["--csv", "a", "--junit", "a"], "--junit, --csv: name a different file for each"),
        (["--csv", "-", "--json"], "--csv -: --json already uses stdout; name a file"),
        (["--csv", "no/a.csv"], "--csv no/a.csv: there is no folder no"),
        (["--csv", "run"], "--csv run: is not a regular file; choose another"),
        (["--baseline", "main"], "--baseline main: there is no such run"),
        (["--csv", "/dev/null"], "--csv /dev/null: is not a regular file; choose another"),
        (["--csv", "run/rollouts.jsonl"], "is an input of this command"),
        (["--csv", "a.csv", "--junit", "run/../a.csv"], "name a different file for each"),
        (["--gate", "difference > 0"], "--gate difference: needs --baseline RUN"),
        (["--junit-tasks", "all"], "--junit-tasks all: add --junit FILE"),
    ],
)
def test_wrong_options_are_refused(run, options, message):
    before = (run / "rollouts.jsonl").read_bytes()
    assert message in gym("metrics", run, *options, exit_code=2).stderr
    assert (run / "rollouts.jsonl").read_bytes() == before


def test_files_that_are_read_are_not_written_over(run, collect, mock_server):
    """Neither tasks nor a baseline are overwritten; other files in a run's folder may be."""
    num_requests = mock_server.stats.num_requests
    tasks = Path("tasks.jsonl").read_bytes()
    done = collect("--out", "other", "--csv", "tasks.jsonl")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--csv tasks.jsonl: is an input of this command" in done.stderr
    assert Path("tasks.jsonl").read_bytes() == tasks
    assert mock_server.stats.num_requests == num_requests

    lines = (run / "rollouts.jsonl").read_bytes()
    Path("base.jsonl").write_bytes(lines)
    done = gym("metrics", run, "--baseline", "base.jsonl", "--csv", "base.jsonl", exit_code=2)
    assert Path("base.jsonl").read_bytes() == lines

    for _ in range(2):
        gym("metrics", run, "--junit", run / "junit.xml", exit_code=0)


def test_folder_of_any_name_is_reported(run):
    try:
        folder = run.rename(os.fsdecode(b"odd\xff"))
    except OSError:
        pytest.skip("names of files are Unicode here")
    done = gym("metrics", folder, "--json", "--csv", "a.csv", "--junit", "a.xml")
    assert msgspec.json.decode(done.stdout)["run"] == r"odd\udcff"
    assert r"odd\udcff" in Path("a.csv").read_text(encoding="utf-8")
    assert r"odd\udcff" in Path("a.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--gate", "pas@1 > 0.5"), 'did you mean "pass@1"?'),
        (("--gate", "pass@1 > 2"), "pass@1 lies between 0 and 1"),
        (("--gate", "mean_reward >= 70"), "mean_reward is never above 1, the best reward"),
        (("--gate", "pass@1[env=arithmetics] > 0"), 'did you mean "arithmetic"?'),
        (("--gate", "pass@k > 0.5"), "write a number of attempts after pass@, such as pass@5"),
        (("--gate", "pass@1[level=hrad] > 0.5"), 'no task has level=hrad; did you mean "hard"?'),
        (("--gate", "pass@1[levle=hard] > 0.5"), "no task has the field levle"),
        (("--gate", "pass@5 > 0", "--repeats", "4"), "no task has more than 4 attempts; --repeats"),
        (("--k", "3,5", "--repeats", "4"), "--k 5: no task has more than 4 attempts"),
    ],
)
def test_collect_refuses_what_it_cannot_meet_before_it_asks(collect, mock_server, options, reason):
    done = collect(*options)
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {options[0]} ")
    assert reason in line
    assert mock_server.stats.num_requests == 0
    assert not Path("run").exists()


def test_collect_counts_the_attempts_that_a_run_already_has(collect, mock_server):
    assert collect("--repeats", "3", "--limit", "3").exit_code == 0
    num_requests = mock_server.stats.num_requests
    assert collect("--limit", "3", "--gate", "pass@3 > 0.01").exit_code == 0
    refused = collect("--limit", "3", "--gate", "pass@4 > 0.01")
    assert "pass@4 > 0.01: no task has more than 3 attempts" in refused.stderr
    assert mock_server.stats.num_requests == num_requests


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("pass@1 >= 0.4", 0),
        ("pass@1 >= 0.7", 5),
        ("pass@1 >= 0.99", 3),
        ("components.style >= 0.1", 2),
    ],
)
def test_collect_ends_as_its_gate(collect, gate, code):
    done = collect("--gate", gate, "--quiet", "--markdown", "summary.md")
    assert done.exit_code == code
    assert (f"gate          {gate}: " in done.stdout) == (code != 2)
    assert "files         run\n" in done.stdout
    assert gate in Path("summary.md").read_text(encoding="utf-8")
    assert collect("--gate", gate, "--quiet", "--no-retry").exit_code == code


def test_collect_has_the_gates_in_json(collect):
    done = collect("--gate", "pass@1[level=hard] >= 0.9", "--json", "--quiet")
    assert done.exit_code == 3
    assert [one["verdict"] for one in msgspec.json.decode(done.stdout)["gates"]] == ["FAIL"]


def test_collect_tells_coverage_before_gates(collect):
    """Exit code 4 takes precedence over 3 and 5; the gates are still judged and printed."""
    for gate in ("pass@1 >= 0.99", "pass@1 >= 0.7", "components.style > 0"):
        done = collect("--gate", gate, "--min-coverage", "0.99", "--junit", "junit.xml")
        assert done.exit_code == 4
        assert f"{gate}: " in done.output
        trouble = next(ET.parse("junit.xml").getroot().iter("error"))
        assert trouble.get("type") == "Incomplete"
        assert trouble.get("message").startswith("19 of 20 attempts are scored, less than ")


def test_collect_tells_a_budget_before_gates(collect):
    done = collect("--gate", "pass@1 >= 0.99", "--max-tokens-total", "30", "--concurrency", "1")
    assert done.exit_code == 6
    assert "gate          pass@1 >= 0.99: " in done.stdout


def test_summary_of_a_stopped_run_says_so(collect):
    """A gate that the finished attempts pass says nothing about the whole run."""
    options = ("--max-tokens-total", "30", "--concurrency", "1", "--gate", "coverage > 0.01")
    files = ("--markdown", "summary.md", "--junit", "junit.xml")
    assert collect(*options, *files).exit_code == 6
    title, _, reason, *_ = Path("summary.md").read_text(encoding="utf-8").splitlines()
    assert title == "## **INCOMPLETE**: `run` of `m`"
    assert reason.startswith("The run is incomplete: the budget --max-tokens-total 30 is reached")
    gates = ET.parse("junit.xml").getroot()[0]
    assert [(case.get("name"), len(case)) for case in gates.iter("testcase")] == [
        ("the run is usable", 1),
        ("coverage > 0.01", 0),
    ]


def test_collect_that_cannot_write_a_file(collect):
    """What stopped the run is reported before the file that could not be written."""
    done = collect("--csv", "run")
    assert done.exit_code == 2
    assert "files         run\n" in done.stdout
    assert "error: run: is not a regular file" in done.stderr

    done = collect("--csv", "few", "--out", "few", "--min-coverage", "0.99")
    assert done.exit_code == 4
    assert "warning: few: is not a regular file" in done.stderr

    done = collect("--csv", "new", "--out", "new", "--max-tokens-total", "30")
    assert done.exit_code == 6
    assert "warning: new: is not a regular file" in done.stderr


def test_collect_that_scores_nothing_ends_so(collect, mock_server):
    mock_server.behaviour = lambda request: refusal_of(400, "no")
    done = collect("--gate", "pass@1 >= 0.5", "--markdown", "summary.md")
    assert done.exit_code == 4
    assert "warning: pass@1 >= 0.5: nothing is scored" in done.stderr
    assert "**NOT JUDGED**" in Path("summary.md").read_text(encoding="utf-8")


def test_collect_writes_its_files_if_the_endpoint_refuses_everything(collect, mock_server):
    """A file of an earlier command, which may be green, does not stay."""
    mock_server.behaviour = lambda request: refusal_of(401, "no")
    done = collect("--junit", "junit.xml", "--json")
    assert (done.exit_code, done.stdout) == (4, "")
    assert ' errors="1" ' in Path("junit.xml").read_text(encoding="utf-8")


def test_collect_with_too_many_slices_is_refused_and_a_run_that_has_them_prints_its_numbers(
    working_folder,
):
    tasks = write_sums(Path("tasks.jsonl"), MAX_SLICES + 1)
    collect = ("collect", tasks, "--model", "oracle", "--out", "run", "--quiet")
    gates = ("--gate", "pass@1[id=1] > 0", "--gate", "coverage == 1")
    refused = gym(*collect, *gates)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "id: has more than 1,000 values" in refused.stderr
    assert not Path("run").exists()
    gym(*collect, exit_code=0)
    done = gym(*collect, *gates, exit_code=2)
    assert "files         run\n" in done.stdout
    assert "gate          coverage == 1: PASS, 1\n" in done.stdout
    assert "id: has more than 1,000 values" in done.stderr


def test_collect_prints_only_the_file_that_goes_to_stdout(collect):
    done = collect("--markdown", "-", "--quiet")
    assert done.exit_code == 0
    assert done.stdout.startswith("## Run: `run` of `m`\n")
    assert "files    " not in done.stdout


def test_baseline_is_compared_with(run, collect, mock_server):
    """A run that also solves the hard tasks is no worse."""
    mock_server.behaviour = lambda request: (
        behave(request) if "What is 5 " in last_user_text(request) else add_up(request)
    )
    gate = ("--gate", "difference > -0.02")
    done = collect("--out", "new", "--baseline", run, *gate, "--markdown", "summary.md")
    assert done.exit_code == 0, done.output
    baseline, judged = done.stdout.splitlines()[-2:]
    assert baseline.startswith("baseline      run: PASS, +0.263 (")
    assert baseline.endswith(" over 19 tasks")
    assert judged.startswith("gate          difference > -0.02: PASS, 0.263 (")
    text = Path("summary.md").read_text(encoding="utf-8")
    assert "### Compared with `run`: PASS" in text
    assert "Fixed: `sum-0`, `sum-12`" in text

    gym("metrics", run, "--baseline", "new", "--gate", "difference > 0.3", exit_code=3)
    gym("metrics", run, "--baseline", "new", exit_code=0)


def test_compare_writes_its_verdict_in_markdown(run):
    done = gym("compare", run, run, "--markdown", "summary.md", "--by", "level", exit_code=5)
    text = Path("summary.md").read_text(encoding="utf-8")
    assert text.startswith("## **INCONCLUSIVE**: `run` compared with `run`\n")
    assert "A and B are the same run" in text
    assert "| `level=hard` | 5 | 0.000 | 0.000 | +0.000 |" in text
    assert gym("compare", run, run, "--markdown", "-", "--by", "level").stdout == text
    done = gym("compare", run, run, "--markdown", "-", "--json")
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_run_is_no_baseline_of_itself(run):
    done = gym("metrics", run, "--baseline", run, "--gate", "difference > -0.5", exit_code=2)
    assert (
        "baseline      run: INCONCLUSIVE, +0.000 over 19 tasks; it is the same run" in done.stdout
    )
    assert "warning: difference > -0.5: the baseline is the same run" in done.stderr


def test_a_difference_of_few_equal_tasks_is_not_decided(run):
    again = Path(shutil.copytree(run, "again"))
    rollouts = again / "rollouts.jsonl"
    rollouts.write_bytes(b"".join(reversed(rollouts.read_bytes().splitlines(keepends=True))))
    done = gym("metrics", "again", "--baseline", run, "--gate", "difference > -0.02", exit_code=5)
    assert (
        "difference > -0.02: INCONCLUSIVE, 0.000 (-0.060 .. 0.060); no task differs" in done.stdout
    )


def test_baseline_of_other_tasks_is_told(run):
    gym("collect", "mcqa", "--model", "oracle", "--out", "other")
    done = gym("metrics", run, "--baseline", "other", "--gate", "difference > -0.5", exit_code=2)
    assert "arithmetic" in done.stdout
    assert "warning: --baseline other: " in done.stderr


def test_a_baseline_with_drift_decides_nothing(run):
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    gym("collect", "tasks.jsonl", "--model", "oracle", "--out", "old")
    manifest = msgspec.json.decode((Path("old") / "run.json").read_bytes())
    manifest["environments"]["arithmetic"]["version"] = "0"
    manifest["identity"]["environments"]["arithmetic"]["version"] = "0"
    (Path("old") / "run.json").write_bytes(msgspec.json.encode(manifest))
    for line in (lines := lines_of(Path("old") / "rollouts.jsonl")):
        line["env_version"] = "0"
        line["verifier"]["version"] = "0"
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (Path("old") / "rollouts.jsonl").write_bytes(text)

    done = gym("metrics", run, "--baseline", "old", "--gate", "difference < 0.5", exit_code=2)
    assert "; the runs differ: " in done.stdout
    assert "difference < 0.5: the baseline differs: " in done.stderr


def test_files_hold_no_secret(run):
    """A key in the name of a task is redacted."""
    lines = lines_of(run / "rollouts.jsonl")
    lines[0]["task_id"] = "the sk-live-0123456789abcdef task"
    path = Path("bare.jsonl")
    write_rows(path, lines)
    files = ("--junit", "a.xml", "--csv", "a.csv", "--markdown", "a.md", "--by-task")
    files += ("--junit-tasks", "any")
    environment = clean_environment() | {"OPENAI_API_KEY": "sk-live-0123456789abcdef"}
    done = subprocess.run(
        gym_process("metrics", path, *files), env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"the [redacted] task" in Path("a.xml").read_bytes()
    for written in ("a.xml", "a.csv", "a.md"):
        assert b"0123456789" not in Path(written).read_bytes()


def test_interrupt_goes_before_gates(tmp_path, mock_server):
    """Finished attempts are judged, and the exit code says that the run was interrupted."""
    asked = threading.Event()

    def never_answer(request):
        asked.set()
        return MockAnswer(text="It is 0.", delay=600.0)

    mock_server.behaviour = never_answer
    write_tasks(tmp_path / "tasks.jsonl")
    where = ("--base-url", mock_server.base_url, "--model", "m", "--out", "run", "--grace", "0")
    with subprocess.Popen(
        gym_process("collect", "tasks.jsonl", *where, "--gate", "num_scored >= 5"),
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert asked.wait(60.0)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate()
    assert process.returncode == 130
    assert b"gate          num_scored >= 5: FAIL, 0\n" in stdout


def test_a_run_whose_answers_cannot_be_read_says_so_and_decides_nothing(collect, mock_server):
    mock_server.behaviour = lambda request: MockAnswer(text="I would rather not say.")
    done = collect("--gate", "mean_reward <= 0.5", "--markdown", "summary.md")
    assert done.exit_code == 5
    text = " ".join(done.stdout.split())
    said = f"no answer could be read in {NUM_TASKS} of {NUM_TASKS} attempts"
    show = "gym show run --where 'details.reason == \"no_answer\"' -n 3"
    assert f"answers {said}; for three of them: {show}" in text
    assert "gate mean_reward <= 0.5: INCONCLUSIVE" in text
    assert f"{said}; for three of them: `{show}`" in Path("summary.md").read_text()
    assert f"  {show}\n" in gym("metrics", "run").stdout
    listed = gym("show", "run", "--where", 'details.reason == "no_answer"', "-n", "3")
    assert listed.stdout.count("I would rather not say.") == 3
    shutil.copytree("run", "other")
    Path("other/rollouts.jsonl").write_bytes(Path("run/rollouts.jsonl").read_bytes() + b"\n")
    done = gym("compare", "run", "other", exit_code=5)
    assert "INCONCLUSIVE: most answers of A and of B could not be read" in done.stdout
