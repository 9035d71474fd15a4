"""The page about two runs."""

import pytest

from gymcli.comparison.paired_runs import compare_runs
from gymcli.reporting.html_comparison import ComparisonSection, read_comparison
from gymcli.reporting.html_page import html_report
from gymcli.reporting.html_run import read_run
from tests.reporting.html_pages import HOSTILE, Page, attempts, write_run

pytest.importorskip("jinja2", reason="needs the extra `report`")
pytest.importorskip("plotly", reason="needs the extra `report`")


def pair(tmp_path, first, second):
    """Write two runs of tasks with these rewards."""
    return [
        write_run(
            tmp_path / name,
            *(r for task_id, given in own.items() for r in attempts(task_id, given)),
        )
        for name, own in (("before", first), ("after", second))
    ]


def page_of(a, b):
    readings = [read_run(a), read_run(b)]
    return Page(html_report(readings, comparison=read_comparison(a, b), clean=lambda text: text))


def test_a_comparison_says_what_gym_compare_says(tmp_path):
    a, b = pair(
        tmp_path,
        {"fixed": [0.0, 0.0], "broken": [1.0, 1.0], "flaky": [1.0, 0.0], "same": [1.0, 1.0]},
        {"fixed": [1.0, 1.0], "broken": [0.0, 0.0], "flaky": [0.0, 0.0], "same": [1.0, 1.0]},
    )
    found = compare_runs(a, b)
    page = page_of(a, b)
    assert found.difference is not None
    for value in (found.difference.value, found.mean_a, found.mean_b, found.p_value):
        assert value in page.numbers
    assert found.verdict in page.text
    for title in (
        "Largest regressions: 2 of 2",
        "Fixed tasks: 1",
        "Broken tasks: 1",
        "Flaky tasks: 1",
        "1 of them passed in all attempts of A and in none of B",
    ):
        assert title in page.text
    assert "1 tasks are better in B, 2 worse, 1 equal." in page.text
    scatter = page.embedded("figures")["comparison-tasks"]["data"][0]
    assert sorted(zip(scatter["x"], scatter["y"], strict=True)) == [
        (0.0, 1.0),
        (0.5, 0.0),
        (1.0, 0.0),
        (1.0, 1.0),
    ]


def test_the_comparison_stands_between_the_table_and_the_runs(tmp_path):
    page = page_of(*pair(tmp_path, {"a": [1.0], "b": [0.0]}, {"a": [1.0], "b": [0.0]}))
    sections = [attrs["id"] for attrs in page.all("section")]
    assert [s for s in sections if sections.count(s) == 1 and s.count("-") < 2][:3] == [
        "runs",
        "comparison",
        "run-1",
    ]
    assert 0.0 in page.numbers


def test_runs_without_a_task_in_common_are_not_compared(tmp_path):
    a, b = pair(tmp_path, {"one": [1.0]}, {"other": [1.0]})
    page = page_of(a, b)
    assert "NOT COMPARED" in page.text
    assert "share no task" in page.text


def test_runs_without_a_score_are_not_compared(tmp_path):
    page = page_of(*pair(tmp_path, {"one": [None]}, {"one": [1.0]}))
    assert "NOT COMPARED" in page.text
    assert "nothing is scored" in page.text


def test_what_was_not_made_alike_is_said(tmp_path):
    a = write_run(tmp_path / "a", *attempts("t", [1.0]), *attempts("u", [0.0]))
    b = write_run(tmp_path / "b", *attempts("t", [1.0]), *attempts("u", [0.0]), max_reward=2.0)
    assert "The runs differ in more than the model:" in page_of(a, b).text


def test_parts_of_the_tasks_are_compared_too(tmp_path):
    runs = []
    for name, better in (("before", 0.0), ("after", 1.0)):
        records = [
            *attempts("a", [better, 0.0], task={"kind": "easy"}),
            *attempts("b", [1.0, 0.0], task={"kind": "hard"}),
            *attempts("sum", [1.0, 1.0], env="sums", task={"kind": "hard"}),
            *attempts("lost", [None if better else 1.0], env="sums"),
        ]
        runs.append(write_run(tmp_path / name, *records))
    section = read_comparison(*runs, by=["kind"])
    assert [chart.title for chart in section.charts] == [
        "Each task in A and in B",
        "Difference by environment",
        "Difference by kind",
    ]
    by_environment, by_kind = section.charts[1:]
    assert by_environment.figure["data"][0]["y"] == ["quiz", "sums"]
    assert by_kind.figure["data"][0]["y"] == ["easy", "hard"]
    assert by_kind.figure["data"][0]["x"] == [0.5, 0.0]
    assert by_kind.table.rows[0][1].text == "+0.500"
    assert "Left out: 1 tasks that are scored only in A." in section.doubts


def test_a_field_may_be_called_environment(tmp_path):
    runs = []
    for name in ("before", "after"):
        records = [
            *attempts("a", [1.0, 0.0], task={"environment": "x"}),
            *attempts("b", [1.0, 0.0], env="sums", task={"environment": "y"}),
        ]
        runs.append(write_run(tmp_path / name, *records))
    section = read_comparison(*runs, by=["environment"])
    names = [chart.name for chart in section.charts]
    assert names == ["comparison-tasks", "comparison-0", "comparison-1"]


def test_many_doubts_are_folded(tmp_path):
    run = read_run(write_run(tmp_path / "run", *attempts("a", [1.0])))
    doubts = [f"doubt {number}" for number in range(7)]
    section = ComparisonSection(word="PASS", words="fine", doubts=doubts)
    text = html_report([run], comparison=section, clean=str)
    assert "<summary>2 more</summary>" in text
    assert [text.count(f">{doubt}<") for doubt in doubts] == [1] * 7
    few = ComparisonSection(word="PASS", words="fine", doubts=doubts[:5])
    assert " more</summary>" not in html_report([run], comparison=few, clean=str)


def test_many_tasks_are_sampled(tmp_path):
    rewards = {f"t{number}": [0.0] for number in range(1501)}
    page = page_of(*pair(tmp_path, rewards, {**rewards, "t0": [1.0]}))
    assert "1,500 of 1,501 tasks, drawn at random." in page.text


def test_task_ids_cannot_script_the_comparison(tmp_path):
    a, b = pair(tmp_path, {HOSTILE: [0.0, 0.0]}, {HOSTILE: [1.0, 1.0]})
    page = page_of(a, b)
    assert len(page.scripts) == 4
    assert not page.all("img")
    assert "<" not in str(page.embedded("figures")["comparison-tasks"])
