"""The table has a line for each part with all its numbers; no text in it is a formula."""

import csv
import io

from gymcli.reporting.run_report import environments_csv, tasks_csv
from gymcli.store.scored_lines import EnvironmentFacts, ScoredLine
from tests.reporting.reports import HOSTILE, report_of, sums


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def table(*reports, by_task: bool = False) -> list[dict[str, str]]:
    write = tasks_csv if by_task else environments_csv
    return rows_of(write(reports, clean=lambda text: text))


def test_every_estimate_has_its_columns():
    report = report_of(sums({"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, 0.0]}))
    [row] = table(report)
    assert (row["run"], row["environment"], row["field"], row["value"]) == (
        *("runs/a", "sums", "", ""),
    )
    assert (row["num_scored"], row["num_flaky_tasks"], row["cost"]) == ("6", "1", "")
    for name, found in report.metrics.environments["sums"].estimates.items():
        assert float(row[name]) == found.value
        assert float(row[f"{name} error"]) == found.standard_error
        assert float(row[f"{name} low"]) == found.interval.low
        assert float(row[f"{name} high"]) == found.interval.high
    assert "pass@2" in row


def test_slices_and_environments_have_lines():
    facts = {env: EnvironmentFacts(max_reward=1.0) for env in "ab"}
    lines = [ScoredLine(env=env, task_id=str(n), reward=1.0) for env in "ab" for n in range(3)]
    report = report_of(lines, facts=facts)
    report.metrics.environments["b"].slices["level"] = {"3": report.metrics.environments["b"]}
    found = [(row["environment"], row["field"], row["value"]) for row in table(report, report)]
    assert found == [("a", "", ""), ("b", "", ""), ("b", "level", "3"), ("", "", "")] * 2


def test_number_that_a_part_lacks_is_empty():
    report = report_of([ScoredLine(env="sums", task_id="a", reward=1.0, components={"style": 0.5})])
    other = report_of([ScoredLine(env="sums", task_id="a", reward=1.0)])
    first, second = table(report, other)
    assert (first["components.style"], second["components.style"]) == ("0.5", "")
    assert first["components.style low"] == ""


def test_tasks_have_lines():
    rows = table(report_of(sums({"a": [1.0, 0.0], "b": [1.0, 1.0]}, answer="x")), by_task=True)
    assert [(row["task"], row["num_passes"], row["mean_reward"]) for row in rows] == [
        ("a", "1", "0.5"),
        ("b", "2", "1.0"),
    ]
    assert rows[0]["majority_answer"] == "x"


def test_no_text_is_a_formula():
    for text in ("=1+1", "+1", "-cmd", "@SUM(1)", "\t=1", " =1"):
        lines = sums({text: [1.0]}, answer=text)
        [row] = table(report_of(lines, run=text), by_task=True)
        assert {row["run"], row["task"], row["majority_answer"]} == {f"'{text}"}


def test_hostile_text_stays_in_its_cell():
    [row] = table(report_of(sums({HOSTILE: [1.0]}, answer=HOSTILE)), by_task=True)
    assert row["task"].startswith("| `x` <img")
    assert not {"\x00", "\x1b", "\u202e"} & set("".join(row.values()))
