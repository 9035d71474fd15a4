"""A JUnit file of a run: a case for each gate and, if asked for, one for each task.

Valid in the two common schemas: Ant's (github.com/windyroad/JUnit-Schema), which allows texts only
in failed cases, and Jenkins' (junit-10.xsd of its xunit plugin).
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Literal, NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

import msgspec

from gymcli.comparison.gates import REFERENCE
from gymcli.metrics.results import Metrics
from gymcli.reporting.formatting import Clean, between, number, one_line, plain
from gymcli.reporting.run_report import RunReport
from gymcli.store.run_index import Row, RunIndex
from gymcli.types import AttemptKey, Failure, Rollout

TaskPasses: TypeAlias = Literal["any", "majority", "all"]
"""How many attempts of a task must pass so that its case passes."""

_MAX_NAME = 200
_MAX_MESSAGE = 300
_MAX_TEXT = 4000
_MAX_LINES = 20
_LAST_SECOND = 253_402_300_799
"""Seconds since 1970, in the year 9999."""
_EXPECTED = ("expected_answer", "answer", "expected", "gold", "target", "solution")
"""Fields of task rows that hold the right answer, in order of preference; read where the
environment does not name it in `details`."""
_WAITING = "Waiting"
"""The class of an attempt whose conversation is complete but not scored yet."""


class IndexedReport(NamedTuple):
    """A run to write, and the index of its attempts if its tasks are to have cases."""

    report: RunReport
    attempts: RunIndex | None = None


class _Problem(NamedTuple):
    """The reason why a case is a failure or an error."""

    kind: Literal["failure", "error"]
    type: str
    message: str
    text: str


class _Case(NamedTuple):
    """A task, or a gate."""

    name: str
    seconds: float
    note: str
    """A text about it if it passed."""
    problem: _Problem | None


def write_junit(
    runs: Sequence[IndexedReport],
    file: BinaryIO,
    *,
    clean: Clean,
    passes: TaskPasses = "all",
) -> None:
    """Write a JUnit file of runs.

    The suite of gates begins with a case for the run itself, an error if too little of it is
    scored; an inconclusive gate is an error. A task with an unscored attempt is an error with the
    class of that attempt; one of which too few attempts pass is a failure.

    With several runs, each suite is named after its run; `passes` attempts of a task must pass.

    Raises:
        UsageError: A record cannot be read.
    """
    file.write(b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>')
    num_suites = 0
    for report, index in runs:
        prefix = f"{report.run}: " if len(runs) > 1 else ""
        run_properties = {"run": report.run, "model": report.model}
        # One suite at a time, so that memory never holds the XML of all of them.
        suites = () if index is None else _task_suites(report, index, passes, clean)
        first = ("gates", _properties(report.metrics), list(_gates(report)))
        for name, properties, cases in itertools.chain([first], suites):
            suite = _suite(
                num_suites, prefix + name, report, run_properties | properties, cases, clean
            )
            num_suites += 1
            ET.indent(suite, level=1)
            file.write(b"\n  " + ET.tostring(suite, encoding="utf-8"))
    file.write(b"\n</testsuites>\n")


def _task_suites(
    report: RunReport, index: RunIndex, passes: TaskPasses, clean: Clean
) -> Iterator[tuple[str, dict[str, str], list[_Case]]]:
    tasks: dict[str, dict[str, list[int]]] = {}  # row numbers; rows are read when needed
    for row in index.rows:
        key = AttemptKey(row.env, row.task_id, row.attempt)
        if report.attempts is not None and key not in report.attempts:
            continue
        tasks.setdefault(row.env, {}).setdefault(row.task_id, []).append(row.number)
    for env, metrics in report.metrics.environments.items():
        cases = [
            _task_case(task_id, [index.rows[n] for n in numbers], passes, index, clean)
            for task_id, numbers in sorted(tasks.get(env, {}).items())
        ]
        yield env, _properties(metrics), cases


def _properties(metrics: Metrics) -> dict[str, str]:
    counts = ("num_expected", "num_present", "num_scored", "num_unscored", "coverage", "cost")
    values = {name: getattr(metrics, name) for name in counts}
    properties = {name: f"{value:.6g}" for name, value in values.items() if value is not None}
    for name, estimate in metrics.estimates.items():
        interval = estimate.interval
        interval_text = f" ({100 * interval.level:g} %: {between(interval)})" if interval else ""
        properties[name] = f"{estimate.value:.4f}{interval_text}"
    return properties


def _gates(report: RunReport) -> Iterator[_Case]:
    lack = None
    if report.incomplete:
        lack = _Problem("error", "Incomplete", report.incomplete, report.incomplete)
    metrics = report.metrics
    expected = "" if metrics.num_expected is None else f" of {metrics.num_expected}"
    # Without it a run without gates would have no case, which CI systems take for a mistake.
    yield _Case("the run is usable", 0.0, f"{metrics.num_scored}{expected} attempts scored", lack)
    for gate in report.gates:
        interval_text = f" ({between(gate.interval)})" if gate.interval else ""
        text = f"{gate.verdict}: {gate.value:.4g}{interval_text}"
        problem = None
        if gate.verdict != "PASS":
            kind: Literal["failure", "error"] = "failure" if gate.verdict == "FAIL" else "error"
            message = f"{gate.verdict}: expected {gate.gate}, got {gate.value:.4g}{interval_text}"
            if gate.gate.strip() == REFERENCE:
                message = f"{gate.verdict}: {gate.way_out}"
            problem = _Problem(kind, gate.verdict, message, gate.way_out)
        yield _Case(gate.gate, 0.0, text, problem)
    for gate_problem in report.problems:
        problem = _Problem("error", "NotJudged", gate_problem.reason, gate_problem.reason)
        yield _Case(gate_problem.what, 0.0, "", problem)


def _task_case(
    task_id: str, rows: list[Row], passes: TaskPasses, index: RunIndex, clean: Clean
) -> _Case:
    rows.sort(key=lambda row: row.attempt)
    scored = [row for row in rows if row.reward is not None]
    seconds = sum(row.seconds or 0.0 for row in rows)
    num_passed = sum(bool(row.passed) for row in scored)
    kind: Literal["failure", "error"] = "failure"
    if len(scored) < len(rows):
        classes = Counter(row.error or _WAITING for row in rows if row.reward is None)
        counts_text = ", ".join(f"{count} {name}" for name, count in classes.most_common())
        message = f"{len(rows) - len(scored)} of {len(rows)} attempts have no score: {counts_text}"
        if scored:
            message += f"; {_pass_text(scored)}"
        kind, class_ = "error", classes.most_common(1)[0][0]
    elif _is_passed(num_passed, len(rows), passes) or None in [row.passed for row in rows]:
        return _Case(task_id, seconds, _pass_text(rows), None)
    else:
        required = {"any": "one", "majority": "most", "all": "all"}[passes]
        message = _pass_text(rows)
        if len(rows) > 1:
            message += f", and {required} must pass"
        class_ = "Flaky" if num_passed else "Failed"
    text = [_line(row, index, clean) for row in rows[:_MAX_LINES]]
    if kind == "failure":
        # Some CI systems show nothing but this message.
        message += f"; {_line(next(row for row in rows if not row.passed), index, clean)}"
    if len(rows) > _MAX_LINES:
        text.append(f"and {len(rows) - _MAX_LINES} more attempts")
    problem = _Problem(kind, class_, message, "\n".join(text))
    return _Case(task_id, seconds, "", problem)


def _is_passed(num_passed: int, num_attempts: int, passes: TaskPasses) -> bool:
    if passes == "any":
        return num_passed > 0
    return num_passed == num_attempts if passes == "all" else 2 * num_passed > num_attempts


def _line(row: Row, index: RunIndex, clean: Clean) -> str:
    """Return the result of an attempt as one line: what was expected, and what came."""
    record = index.read(row)
    # Texts are cleaned before they are cut, since half a secret would not be found.
    if row.reward is not None:
        assert isinstance(record, Rollout), "a failure has no reward"
        came = record.last_text if record.answer is None else record.answer
        parts = [f"got {_short(came, clean)}" if came.strip() else "no answer"]
        if (expected := _expected_answer(record)) is not None and not row.passed:
            parts.insert(0, f"expected {_short(expected, clean)}")
        parts += [f"reward {row.reward:g}", row.stop_reason or "done"]
        if isinstance(reason := record.details.get("reason"), str):
            parts.append(_short(reason, clean))
        return f"attempt {row.attempt}: {', '.join(parts)}"
    if row.status == "waiting":
        return f"attempt {row.attempt}: waits for its score (gym verify --pending)"
    message = record.error.message if isinstance(record, Failure) else ""
    return f"attempt {row.attempt}: {row.error} ({row.phase}): {one_line(clean(message), 500)}"


def _short(text: str, clean: Clean) -> str:
    return one_line(clean(text), 80)


def _expected_answer(record: Rollout) -> str | None:
    """Return the right answer by the environment, else by the row; None if neither has one."""
    inner = record.task.get("verifier_metadata")
    fields = {**inner, **record.task} if isinstance(inner, dict) else record.task
    answers = (record.details.get("expected"), *(fields.get(name) for name in _EXPECTED))
    expected = next((answer for answer in answers if answer not in (None, "")), None)
    if expected is None or isinstance(expected, str):
        return expected
    return msgspec.json.encode(expected).decode()


def _pass_text(rows: Sequence[Row]) -> str:
    mean = sum(row.reward or 0.0 for row in rows) / len(rows) if rows else None
    passed = [row.passed for row in rows]
    if None in passed:
        return f"mean reward {number(mean)} of {len(rows)}"
    return f"{sum(map(bool, passed))} of {len(rows)} attempts passed, mean reward {number(mean)}"


def _suite(
    place: int,
    name: str,
    report: RunReport,
    properties: Mapping[str, str],
    cases: Sequence[_Case],
    clean: Clean,
) -> ET.Element:
    def element(parent: ET.Element, tag: str, attributes: Mapping[str, str]) -> ET.Element:
        fit = {key: one_line(clean(text), _MAX_MESSAGE) for key, text in attributes.items()}
        return ET.SubElement(parent, tag, fit)

    # Ant's schema requires all these attributes, and properties, cases, system-out and system-err
    # in this order.
    kinds = Counter(case.problem.kind for case in cases if case.problem is not None)
    started_at = time.gmtime(min(max(0.0, report.started_at), _LAST_SECOND))
    attributes = {
        "name": name,
        "package": "gym",
        "id": str(place),
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", started_at),
        "hostname": "localhost",
        "tests": str(len(cases)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    suite = element(ET.Element("testsuites"), "testsuite", attributes)
    parent = ET.SubElement(suite, "properties")
    for key, value in properties.items():
        if value:
            element(parent, "property", {"name": key, "value": value})
    passed_lines = []
    for case in cases:
        short = one_line(clean(case.name), _MAX_NAME)
        attributes = {"name": short, "classname": name, "time": f"{case.seconds:.3f}"}
        child = element(suite, "testcase", attributes)
        if case.problem is None:
            line = f"{one_line(clean(case.name))}: {case.note}"
            passed_lines.append(plain(line, _MAX_MESSAGE) + "\n")
        else:
            kind, class_, message, text = case.problem
            problem = element(child, kind, {"type": class_, "message": message})
            problem.text = plain(clean(text), _MAX_TEXT)
    ET.SubElement(suite, "system-out").text = "".join(passed_lines)
    ET.SubElement(suite, "system-err")
    return suite
