"""Tests of `gym report`."""

import sys
from pathlib import Path

import pytest

from tests.builders import HOSTILE, UNSAFE, gym
from tests.reporting.html_pages import Page, attempts, usual_run, write_run

pytest.importorskip("jinja2", reason="needs the extra `report`")
pytest.importorskip("plotly", reason="needs the extra `report`")


@pytest.fixture
def run(working_folder) -> Path:
    return usual_run(Path("run"))


def test_report_writes_a_page(run):
    done = gym("report", run, "-o", "page.html", exit_code=0)
    assert (done.stdout, done.stderr) == ("", "wrote page.html\n")
    assert "13 scored of 16 expected" in Page(Path("page.html").read_text()).text


def test_report_compares_two_runs(run):
    usual_run(Path("other"))
    gym("report", run, "other", "-o", "page.html", exit_code=0)
    page = Page(Path("page.html").read_text())
    assert "Comparison" in page.text
    assert "comparison-tasks" in page.embedded("figures")


def test_report_of_two_runs_judges_their_difference(run):
    """The first run is the baseline, for which there is no such gate."""
    write_run(Path("worse"), *(r for n in range(20) for r in attempts(f"t{n}", [0.0])))
    write_run(Path("better"), *(r for n in range(20) for r in attempts(f"t{n}", [1.0])))
    gate = ("--gate", "difference > -0.05", "-o", "page.html")
    done = gym("report", "better", "worse", *gate, exit_code=3)
    assert done.stdout.count("difference > -0.05: ") == 1
    assert "FAIL difference > -0.05: it is -1" in Page(Path("page.html").read_text()).text
    gym("report", "worse", "better", *gate, exit_code=0)


def test_report_of_other_than_two_runs_has_no_difference(run):
    done = gym("report", run, "-o", "page.html", "--gate", "difference > -0.05", exit_code=2)
    assert "error: --gate difference: needs two runs, the first of which is the" in done.stderr


def test_report_of_runs_that_share_nothing_judges_no_difference(run):
    write_run(Path("other"), *attempts("elsewhere", [1.0, 0.0]))
    done = gym("report", run, "other", "-o", "page.html", "--gate", "difference > 0", exit_code=2)
    assert "warning: other: difference > 0: needs --baseline RUN, a run that" in done.stderr
    assert "NOT COMPARED" in Page(Path("page.html").read_text()).text


def test_report_of_one_run_compares_nothing(run):
    gym("report", run, "-o", "page.html")
    assert "Comparison" not in Page(Path("page.html").read_text()).text


@pytest.mark.parametrize(
    ("gate", "code", "word"),
    [
        ("num_scored >= 13", 0, "PASS"),
        ("coverage >= 0.9", 3, "FAIL"),
        ("mean_reward[env=quiz] >= 0.5", 5, "INCONCLUSIVE"),
    ],
)
def test_report_ends_as_its_gates_do(run, gate, code, word):
    """The page is written whether or not the gate passes."""
    done = gym("report", run, "-o", "page.html", "--gate", gate)
    assert done.exit_code == code
    assert f"{gate}: {word}" in done.stdout
    assert f"{word} {gate}: it is " in Page(Path("page.html").read_text()).text


def test_report_of_a_gate_that_cannot_be_judged_says_so(run):
    gates = ("--gate", "pass@64 > 0.5", "--gate", "num_scored >= 1")
    done = gym("report", run, "-o", "page.html", *gates, exit_code=2)
    assert "warning: pass@64 > 0.5: " in done.stderr
    assert "PASS num_scored >= 1: it is 13" in Page(Path("page.html").read_text()).text


def test_report_of_no_gate_writes_nothing(run):
    done = gym("report", run, "-o", "page.html", "--gate", "pass rate", exit_code=2)
    assert "--gate pass rate" in done.stderr
    assert not Path("page.html").exists()


def test_report_slices_by_fields_of_tasks(run):
    gym("report", run, "-o", "page.html", "--by", "category", exit_code=0)
    assert "Mean reward of quiz by category" in Page(Path("page.html").read_text()).text


def test_report_is_written_anew(run):
    gym("report", run, "-o", "page.html")
    before = Path("page.html").read_bytes()
    write_run(Path("other"), *attempts("a", [1.0]))
    gym("report", "other", "-o", "page.html", exit_code=0)
    gym("report", run, "-o", "page.html", exit_code=0)
    assert Path("page.html").read_bytes() == before


@pytest.mark.parametrize("content", ["my notes", "<!doctype html><title>mine</title>"])
def test_report_writes_over_no_other_file(run, content):
    Path("page.html").write_text(content)
    done = gym("report", run, "-o", "page.html", exit_code=2)
    assert done.stderr == ("error: page.html: exists and is not a report; choose another -o\n")
    assert Path("page.html").read_text() == content


def test_report_never_writes_over_its_run(run):
    done = gym("report", run / "rollouts.jsonl", "-o", run / "rollouts.jsonl", exit_code=2)
    assert "choose another -o" in done.stderr


def test_report_of_no_run_leaves_nothing(run):
    done = gym("report", "nowhere", "-o", "page.html", exit_code=2)
    assert "nowhere: no such run directory or rollout file" in done.stderr
    assert not Path("page.html").exists()
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_report_into_no_folder_says_so(run):
    done = gym("report", run, "-o", "nowhere/page.html", exit_code=2)
    assert "nowhere/page.html: cannot be written: No such file or directory" in done.stderr


def test_report_warns_of_a_line_that_is_left_out(run):
    with (run / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"schema_version": 1, "task')
    done = gym("report", run, "-o", "page.html", exit_code=0)
    assert "the last line was not finished" in done.stderr


def test_report_hides_secrets_and_control_characters(run, monkeypatch):
    key = "Vy0Rk3Jq8Zt5LmN2"
    records = attempts(f"task {key} {HOSTILE}", [1.0, 0.0], env=f"env {key}")
    write_run(Path("other"), *records, model=f"model {key}")
    monkeypatch.setenv("HF_TOKEN", key)
    gym("report", "other", "-o", "page.html", exit_code=0)
    page = Page(Path("page.html").read_text())
    plotly = max((script for _, script in page.scripts), key=len)
    whole = Path("page.html").read_text().replace(plotly, "")
    assert key not in whole
    assert "[redacted]" in whole
    assert not set(UNSAFE) & set(whole)


def test_report_without_its_packages_says_how_to_get_them(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    done = gym("report", run, "-o", "page.html", exit_code=2)
    assert "pip install 'gymcli[report]'" in done.stderr
