"""A run as a JUnit file: a suite for each environment and one for the gates, a case for each task.

Valid by the two schemas in common use: Ant's (github.com/windyroad/JUnit-Schema), which has a place
for texts of failed cases only, and Jenkins' (junit-10.xsd of its xunit plugin).
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, Literal, NamedTuple
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from gymcli.metrics.results import Metrics
from gymcli.reporting.formatting import Clean, between, number, one_line, plain
from gymcli.reporting.run_report import RunReport
from gymcli.store.run_index import Row, RunIndex
from gymcli.types import Failure

__all__ = ["IndexedReport", "write_junit"]

_MAX_NAME = 200
_MAX_MESSAGE = 300
_MAX_TEXT = 4000
_MAX_LINES = 20
_LAST_SECOND = 253_402_300_799
"""Of the year 9999."""
_WAITING = "Waiting"
"""The class of an attempt whose conversation is whole and has no score yet."""


class IndexedReport(NamedTuple):
    """A run to be written, and where its attempts are looked up."""

    report: RunReport
    attempts: RunIndex


class _Problem(NamedTuple):
    """Why a case is a failure or an error."""

    kind: Literal["failure", "error"]
    type: str
    message: str
    text: str


class _Case(NamedTuple):
    """A task, or a gate."""

    name: str
    seconds: float
    note: str
    """What is said of it where nothing is wrong with it."""
    problem: _Problem | None


def write_junit(runs: Sequence[IndexedReport], file: BinaryIO, *, clean: Clean) -> None:
    """Write a JUnit file of runs.

    A task with an unscored attempt is an error of its class, one whose mean reward is below the
    threshold of success a failure; an inconclusive gate is an error.

    Args:
        runs: The runs; of several, each suite is named after its run.
        file: Takes UTF-8.
        clean: Takes secrets out of texts.

    Raises:
        UsageError: A record cannot be read.

    """
    text = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
    writer = _JUnitWriter(text, clean)
    writer.start("testsuites", {})
    for run in runs:
        prefix = f"{run.report.run}: " if len(runs) > 1 else ""
        if gates := list(_gates(run.report)):
            properties = {"run": run.report.run, "model": run.report.model}
            writer.suite(f"{prefix}gates", run.report, properties, gates)
        tasks = _tasks(run.attempts)
        for env, metrics in run.report.metrics.environments.items():
            own = _EnvironmentCases(run.attempts, env, clean)
            cases = (own.case(task_id, rows) for task_id, rows in tasks.get(env, {}).items())
            writer.suite(prefix + env, run.report, _properties(run.report, metrics), list(cases))
    writer.end("testsuites", is_inline=False)
    text.write("\n")
    text.detach()  # or closing it would close the file


def _tasks(index: RunIndex) -> dict[str, dict[str, list[int]]]:
    """Return the rows of each task, by environment and task id."""
    found: dict[str, dict[str, list[int]]] = {}
    for row in index.rows:
        found.setdefault(row.env, {}).setdefault(row.task_id, []).append(row.number)
    return {env: dict(sorted(tasks.items())) for env, tasks in found.items()}


def _properties(report: RunReport, metrics: Metrics) -> dict[str, str]:
    """Return the numbers of an environment as properties of its suite."""
    counts = ("num_expected", "num_present", "num_scored", "num_unscored", "coverage", "cost")
    properties = {"run": report.run, "model": report.model}
    properties |= {name: str(getattr(metrics, name)) for name in counts}
    for name, found in metrics.estimates.items():
        interval = found.interval
        sure = f" ({100 * interval.level:g} %: {between(interval)})" if interval else ""
        properties[name] = f"{found.value:.4f}{sure}"
    return {name: value for name, value in properties.items() if value not in ("", "None")}


def _gates(report: RunReport) -> Iterator[_Case]:
    if report.incomplete:
        lack = _Problem("error", "Incomplete", report.incomplete, report.incomplete)
        yield _Case("the run is whole", 0.0, "", lack)
    for gate in report.gates:
        sure = f" ({between(gate.interval)})" if gate.interval else ""
        text = f"{gate.verdict}: {gate.value:.4g}{sure}"
        problem = None
        if gate.verdict != "PASS":
            kind: Literal["failure", "error"] = "failure" if gate.verdict == "FAIL" else "error"
            problem = _Problem(kind, gate.verdict, text, gate.way_out)
        yield _Case(gate.gate, 0.0, text, problem)
    for unjudged in report.problems:
        problem = _Problem("error", "NotJudged", unjudged.reason, unjudged.reason)
        yield _Case(unjudged.what, 0.0, "", problem)


class _EnvironmentCases:
    """Makes the cases of one environment."""

    def __init__(self, index: RunIndex, env: str, clean: Clean) -> None:
        self._index = index
        self._clean = clean
        self._threshold = index.facts(env).success_threshold

    def case(self, task_id: str, numbers: Iterable[int]) -> _Case:
        """Return the case of a task from the rows of its attempts."""
        rows = sorted((self._index.rows[number] for number in numbers), key=lambda r: r.attempt)
        seconds = sum(row.seconds or 0.0 for row in rows)
        scored = [row for row in rows if row.reward is not None]
        return _Case(task_id, seconds, _counted(scored), self._problem(rows, scored))

    def _problem(self, rows: Sequence[Row], scored: Sequence[Row]) -> _Problem | None:
        unscored = [row for row in rows if row.reward is None]
        if unscored:
            classes = Counter(row.error or _WAITING for row in unscored)
            counted = ", ".join(f"{count} {name}" for name, count in classes.most_common())
            message = f"{len(unscored)} of {len(rows)} attempts have no score: {counted}"
            if scored:
                message += f"; {_counted(scored)}"
            return _Problem("error", classes.most_common(1)[0][0], message, self._text(rows))
        mean = rows[0].avg
        if self._threshold is None or mean is None or mean >= self._threshold:
            return None
        message = f"{_counted(rows)}, below {self._threshold:g}"
        is_flaky = any(row.passed for row in rows)
        return _Problem("failure", "Flaky" if is_flaky else "Failed", message, self._text(rows))

    def _text(self, rows: Sequence[Row]) -> str:
        """Return a line for each attempt, with what went wrong with unscored ones."""
        lines = [self._line(row) for row in rows[:_MAX_LINES]]
        if len(rows) > _MAX_LINES:
            lines.append(f"and {len(rows) - _MAX_LINES} more attempts")
        return "\n".join(lines)

    def _line(self, row: Row) -> str:
        if row.reward is not None:
            answer = "" if row.answer is None else f", answer {self._short(row.answer, 80)}"
            return (
                f"attempt {row.attempt}: reward {row.reward:g}, {row.stop_reason or 'done'}{answer}"
            )
        if row.status == "waiting":
            return f"attempt {row.attempt}: waits for its score (gym verify --pending)"
        record = self._index.read(row)
        message = record.error.message if isinstance(record, Failure) else ""
        return f"attempt {row.attempt}: {row.error} ({row.phase}): {self._short(message, 500)}"

    def _short(self, text: str, max_characters: int) -> str:
        return one_line(self._clean(text), max_characters)  # half a secret is not found any more


def _counted(rows: Sequence[Row]) -> str:
    """Return how many attempts passed, and their mean, in words."""
    mean = sum(row.reward or 0.0 for row in rows) / len(rows) if rows else None
    passed = [row.passed for row in rows]
    text = f"mean reward {number(mean)} of {len(rows)}"
    if None in passed:
        return text
    return f"{sum(map(bool, passed))} of {len(rows)} attempts passed, mean reward {number(mean)}"


class _JUnitWriter:
    """Writes elements; texts are made fit for XML on the way."""

    def __init__(self, file: io.TextIOBase, clean: Clean) -> None:
        self._clean = clean
        self._depth = 0
        self._num_suites = 0
        self._xml = XMLGenerator(file, "utf-8", short_empty_elements=True)
        self._xml.startDocument()

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin an element on a line of its own."""
        self._xml.ignorableWhitespace("\n" + "  " * self._depth if self._depth else "")
        self._depth += 1
        fit = {key: one_line(self._clean(text), _MAX_MESSAGE) for key, text in attributes.items()}
        self._xml.startElement(name, AttributesImpl(fit))

    def end(self, name: str, *, is_inline: bool = True) -> None:
        """End an element."""
        self._depth -= 1
        if not is_inline:
            self._xml.ignorableWhitespace("\n" + "  " * self._depth)
        self._xml.endElement(name)

    def element(self, name: str, attributes: Mapping[str, str], text: str = "") -> None:
        """Write an element without others in it."""
        self.start(name, attributes)
        if text:
            self._xml.characters(plain(self._clean(text), _MAX_TEXT))
        self.end(name)

    def suite(
        self, name: str, report: RunReport, properties: Mapping[str, str], cases: Sequence[_Case]
    ) -> None:
        """Write a suite with its cases."""
        kinds = Counter(case.problem.kind for case in cases if case.problem is not None)
        attributes = {
            "name": name,
            "package": "gym",
            "id": str(self._num_suites),
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", _time_of(report)),
            "hostname": "localhost",
            "tests": str(len(cases)),
            "failures": str(kinds["failure"]),
            "errors": str(kinds["error"]),
            "time": _seconds(sum(case.seconds for case in cases)),
        }
        self._num_suites += 1
        self.start("testsuite", attributes)
        self.start("properties", {})
        for key, value in properties.items():
            self.element("property", {"name": key, "value": value})
        self.end("properties", is_inline=False)
        for case in cases:
            self._case(name, case)
        self.start("system-out", {})
        for case in cases:
            if case.problem is None:
                line = f"{one_line(self._clean(case.name))}: {case.note}"
                self._xml.characters(plain(line, _MAX_MESSAGE) + "\n")
        self.end("system-out")
        self.element("system-err", {})
        self.end("testsuite", is_inline=False)

    def _case(self, suite: str, case: _Case) -> None:
        name = one_line(self._clean(case.name), _MAX_NAME)
        attributes = {"name": name, "classname": suite, "time": _seconds(case.seconds)}
        if case.problem is None:
            self.element("testcase", attributes)
            return
        kind, type_, message, text = case.problem
        self.start("testcase", attributes)
        self.element(kind, {"type": type_, "message": message}, text)
        self.end("testcase", is_inline=False)


def _time_of(report: RunReport) -> time.struct_time:
    """Return when a run began, within the years that can be written."""
    return time.gmtime(min(max(0.0, report.started_at), _LAST_SECOND))


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
