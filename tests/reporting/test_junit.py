"""The file has the format of JUnit and reports the verdicts, and tasks where they are asked for."""

import io
import re
from functools import partial
from xml.etree import ElementTree as ET

import pytest

from gymcli.comparison.gates import GateProblem
from gymcli.metrics.measure import measure
from gymcli.reporting.junit import IndexedReport, write_junit
from gymcli.reporting.run_report import RunReport
from gymcli.store.run_index import RunIndex
from gymcli.types import Timing
from tests import builders
from tests.builders import scored
from tests.reporting.html_pages import write_run
from tests.reporting.reports import HOSTILE, report_of

SUITE = {
    *("name", "package", "id", "timestamp", "hostname"),
    *("tests", "failures", "errors", "time"),
}
"""Attributes that Ant's schema requires."""


line = partial(scored, env="sums", timing=Timing(total_seconds=1.5))
failed = partial(builders.failed, env="sums")


def written(*runs: tuple[RunReport, object], passes: str = "all") -> ET.Element:
    """Write a file, check it against both schemas in common use, and return its root."""
    file = io.BytesIO()
    indexed = [IndexedReport(*run) for run in runs]
    write_junit(indexed, file, clean=lambda text: text, passes=passes)
    root = ET.fromstring(file.getvalue())
    assert (root.tag, root.attrib) == ("testsuites", {})
    for number, suite in enumerate(root):
        assert suite.tag == "testsuite"
        assert set(suite.attrib) == SUITE
        assert suite.get("id") == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
        tags = [child.tag for child in suite]
        cases = suite.findall("testcase")
        assert tags == ["properties", *["testcase"] * len(cases), "system-out", "system-err"]
        assert suite.get("tests") == str(len(cases))
        for kind in ("failure", "error"):
            found = suite.findall(f"testcase/{kind}")
            assert suite.get(f"{kind}s") == str(len(found))
            assert all(set(one.attrib) == {"type", "message"} for one in found)
        for case in cases:
            assert set(case.attrib) == {"name", "classname", "time"}
            assert float(case.get("time")) >= 0.0
            assert len(case) <= 1
        for one in suite.findall("properties/property"):
            assert set(one.attrib) == {"name", "value"}
    return root


@pytest.fixture
def folder(tmp_path):
    lines = [
        *(line("passes", attempt, 1.0) for attempt in range(2)),
        *(line("fails", attempt, 0.0, answer="5") for attempt in range(2)),
        *(line("flaky", attempt, float(attempt)) for attempt in range(2)),
        line("breaks", 0, 1.0),
    ]
    return write_run(tmp_path / "run", *lines, failed("breaks", 1), failed("never", 0))


def of_folder(folder, *, passes: str = "all", **more: object) -> ET.Element:
    metrics = measure(folder).metrics()
    report = report_of([])._replace(run=str(folder), metrics=metrics, **more)
    with RunIndex(folder) as index:
        return written((report, index), passes=passes)


def test_every_task_is_a_case(folder):
    root = of_folder(folder, started_at=1_700_000_000.0)
    gates, suite = root
    assert [case.get("name") for case in gates.iter("testcase")] == ["the run is usable"]
    assert gates.findtext("system-out") == "the run is usable: 7 of 9 attempts scored\n"
    assert (suite.get("name"), suite.get("timestamp")) == ("sums", "2023-11-14T22:13:20")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == ["breaks", "fails", "flaky", "never", "passes"]
    assert cases["passes"].get("time") == "3.000"
    assert suite.get("time") == "10.500"

    assert len(cases["passes"]) == 0
    assert "passes: 2 of 2 attempts passed, mean reward 1.000\n" in suite.findtext("system-out")
    [failure] = cases["fails"]
    assert (failure.tag, failure.get("type")) == ("failure", "Failed")
    assert failure.get("message") == (
        "0 of 2 attempts passed, mean reward 0.000, and all must pass; "
        "attempt 0: got 5, reward 0, done"
    )
    assert failure.text.splitlines() == [
        "attempt 0: got 5, reward 0, done",
        "attempt 1: got 5, reward 0, done",
    ]
    [flaky] = cases["flaky"]
    assert (flaky.tag, flaky.get("type")) == ("failure", "Flaky")


def test_failure_says_what_was_expected_and_what_came(tmp_path):
    nested = {"verifier_metadata": {"expected": [4, 2]}}
    folder = write_run(
        tmp_path / "run",
        line("a", 0, 0.0, answer="5", task={"answer": 42}, details={"reason": "wrong_answer"}),
        line("b", 0, 0.0, said="I do\nnot know", task=nested, stop_reason="max_turns"),
        line("c", 0, 0.0, said="", task={"expected_answer": "x" * 500, "answer": "y"}),
        line("d", 0, 0.0, answer="B", task={"answer": "Paris"}, details={"expected": "A"}),
        line("e", 0, 0.0, answer="5", task={"target": 7}, details={"expected": 0}),
        line("f", 0, 0.0, answer="5", task={"target": 7}, details={"expected": ""}),
    )
    messages = [one.get("message") for one in of_folder(folder).iter("failure")]
    counted = "0 of 1 attempts passed, mean reward 0.000; attempt 0: "
    assert messages == [
        f"{counted}expected 42, got 5, reward 0, done, wrong_answer",
        f"{counted}expected [4,2], got I do not know, reward 0, max_turns",
        f"{counted}expected {'x' * 79}…, no answer, reward 0, done",
        f"{counted}expected A, got B, reward 0, done",
        f"{counted}expected 0, got 5, reward 0, done",
        f"{counted}expected 7, got 5, reward 0, done",
    ]


@pytest.mark.parametrize(
    ("passes", "failing"),
    [
        ("any", ["none"]),
        ("majority", ["half", "none", "one"]),
        ("all", ["half", "most", "none", "one"]),
    ],
)
def test_a_task_passes_as_asked(tmp_path, passes, failing):
    num_passed = {"none": 0, "one": 1, "half": 2, "most": 3, "every": 4}
    folder = write_run(
        tmp_path / "run",
        *(
            line(name, attempt, float(attempt < num))
            for name, num in num_passed.items()
            for attempt in range(4)
        ),
    )
    root = of_folder(folder, passes=passes)
    failed_cases = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert sorted(case.get("name") for case in failed_cases) == failing
    for case in failed_cases:
        assert case[0].get("type") == ("Failed" if case.get("name") == "none" else "Flaky")
        assert "; attempt " in case[0].get("message")


def test_tasks_are_no_cases_unless_they_are_asked_for(folder):
    report = report_of([], run="run")._replace(metrics=measure(folder).metrics())
    [gates] = written((report,))
    assert [case.get("name") for case in gates.iter("testcase")] == ["the run is usable"]


def test_run_that_is_not_usable_is_an_error(folder):
    root = of_folder(folder, incomplete="7 of 9 attempts are scored, less than --min-coverage 0.95")
    error = root[0].find("testcase/error")
    assert error.get("type") == "Incomplete"
    assert error.get("message").startswith("7 of 9 attempts are scored, less than ")


def test_unscored_attempts_are_errors_of_their_class(folder):
    root = of_folder(folder)
    cases = {case.get("name"): case for case in root.iter("testcase")}
    [error] = cases["breaks"]
    assert (error.tag, error.get("type")) == ("error", "ServerError")
    assert error.get("message") == (
        "1 of 2 attempts have no score: 1 ServerError; 1 of 1 attempts passed, mean reward 1.000"
    )
    assert error.text.splitlines()[1] == "attempt 1: ServerError (model): sorry"
    [never] = cases["never"]
    assert never.get("message") == "1 of 1 attempts have no score: 1 ServerError"


def test_properties_are_the_numbers(folder):
    gates, tasks = of_folder(folder, model="m")
    found = {one.get("name"): one.get("value") for one in tasks.iter("property")}
    assert {one.get("name"): one.get("value") for one in gates.iter("property")} == found
    assert found["model"] == "m"
    assert (found["num_expected"], found["num_unscored"]) == ("9", "2")
    assert re.fullmatch(r"0\.6250 \(95 %: 0\.\d+ \.\. [01]\.\d+\)", found["pass@1"])
    assert "cost" not in found


def test_gates_are_a_suite(folder):
    metrics = measure(folder).metrics()
    judged = report_of(
        [], gates=(), problems=(GateProblem(what="cost < 1", reason="not known"),)
    )._replace(run="run", metrics=metrics)
    from gymcli.comparison.gates import judge, parse_gate

    texts = ("coverage >= 0.5", "coverage >= 0.99", "pass@1 >= 0.6")
    judged = judged._replace(gates=[judge(parse_gate(text), metrics) for text in texts])
    with RunIndex(folder) as index:
        root = written((judged, index))
    assert [suite.get("name") for suite in root] == ["gates", "sums"]
    kinds = {
        case.get("name"): [(one.tag, one.get("type")) for one in case]
        for case in root[0].iter("testcase")
    }
    assert kinds == {
        "the run is usable": [],
        "coverage >= 0.5": [],
        "coverage >= 0.99": [("failure", "FAIL")],
        "pass@1 >= 0.6": [("error", "INCONCLUSIVE")],
        "cost < 1": [("error", "NotJudged")],
    }
    assert "tasks such as these" in root.findtext(".//error[@type='INCONCLUSIVE']")
    failure = root[0].find("testcase/failure")
    assert failure.get("message") == "FAIL: expected coverage >= 0.99, got 0.7778"


def test_hostile_text_is_text(tmp_path):
    folder = write_run(
        tmp_path / "run",
        line("t", 0, 0.0, answer=HOSTILE),
        failed(HOSTILE, 0, "<&\"'>", said=HOSTILE * 99),
    )
    root = of_folder(folder, model=HOSTILE)
    hostile, plain = root[1].iter("testcase")
    if hostile.get("name") == "t":
        hostile, plain = plain, hostile
    assert "<img src=x onerror=alert(1)>" in hostile.get("name")
    assert hostile[0].get("type") == "<&\"'>"
    assert len(hostile[0].text) < 1000
    assert "<img src=x onerror=alert(1)>" in plain[0].text
    assert not re.search("[\x00\x1b\u202e\ufffe]", ET.tostring(root, encoding="unicode"))


def test_texts_are_bounded(tmp_path):
    """Of a task with very many attempts, only the first are listed."""
    folder = write_run(tmp_path / "run", *(line("t" * 5000, n, 0.0) for n in range(300)))
    [case] = of_folder(folder)[1].iter("testcase")
    assert len(case.get("name")) == 200
    lines = case[0].text.splitlines()
    assert (len(lines), lines[-1]) == (21, "and 280 more attempts")


def test_secrets_are_taken_out(folder):
    metrics = measure(folder).metrics()
    report = report_of([])._replace(run="run", metrics=metrics, model="secret-model")
    file = io.BytesIO()
    with RunIndex(folder) as index:
        runs = [IndexedReport(report, index)]
        write_junit(runs, file, clean=lambda text: text.replace("secret", "[redacted]"))
    assert b"secret" not in file.getvalue()
    assert b"[redacted]-model" in file.getvalue()


def test_secrets_are_taken_out_before_texts_are_cut(tmp_path):
    """A secret that is cut in half would no longer be found."""
    folder = write_run(
        tmp_path / "run",
        line("t" * 195 + "secret", 0, 1.0),
        line("a", 0, 0.0, answer="t" * 75 + "secret"),
        failed("b", 0, said="t" * 495 + "secret"),
    )
    report = report_of([])._replace(run="run", metrics=measure(folder).metrics())
    file = io.BytesIO()
    with RunIndex(folder) as index:
        runs = [IndexedReport(report, index)]
        write_junit(runs, file, clean=lambda text: text.replace("secret", "*"))
    assert b"tse" not in file.getvalue()


@pytest.mark.parametrize("started_at", [1e300, -1e300])
def test_any_start_is_a_time(folder, started_at):
    for suite in of_folder(folder, started_at=started_at):
        assert suite.get("timestamp")[:4] in ("1970", "9999")


def test_several_runs_have_suites_of_their_own(folder, tmp_path):
    other = write_run(tmp_path / "other", line("a", 0, 1.0))
    reports = [
        report_of([])._replace(run=name, metrics=measure(path).metrics())
        for name, path in (("one", folder), ("two", other))
    ]
    with RunIndex(folder) as first, RunIndex(other) as second:
        root = written((reports[0], first), (reports[1], second))
    assert [suite.get("name") for suite in root] == [
        *("one: gates", "one: sums", "two: gates", "two: sums"),
    ]


def test_conversation_that_waits_for_its_score_is_an_error(tmp_path):
    folder = write_run(tmp_path / "run", line("a", 0, 1.0))
    waiting = (folder / "rollouts.jsonl").read_text().replace('"a"', '"b"')
    (folder / "generations.jsonl").write_text(waiting.replace(',"reward":1.0', ""))
    errors = of_folder(folder).findall(".//error")
    assert [error.get("type") for error in errors] == ["Waiting"]
    assert errors[0].text == "attempt 0: waits for its score (gym verify --pending)"
