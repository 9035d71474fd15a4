"""Runs and comparisons in Markdown, short enough for a step summary and a comment of a forge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gymcli.metrics import Estimate, Metrics, TaskMetrics
from gymcli.metrics.comparison_results import Comparison, Difference
from gymcli.metrics.gates import GateVerdict
from gymcli.reporting.run_report import (
    Clean,
    RunReport,
    between,
    number,
    one_line,
    signed,
    verdict_of,
)

__all__ = [
    "MAX_CHARACTERS",
    "MAX_ROWS",
    "Spans",
    "comparison_blocks",
    "comparison_markdown",
    "joined",
    "markdown",
    "table",
]


MAX_CHARACTERS = 65_000
"""A comment of GitHub may have 65,536 characters, a step summary 1 MiB."""
MAX_ROWS = 30

_ADDRESS = re.compile(r"(:|www)(//|\.)")
"""Where an address that would become a link gets a character that nobody sees."""
_MEANINGFUL = frozenset("\\*_[]#|~$")
_REPLACED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "`": "'", "@": "@\N{WORD JOINER}"}


class Spans:
    """Writes texts of models, tasks and providers.

    Args:
        clean: Takes secrets out of them.

    """

    def __init__(self, clean: Clean) -> None:
        self._clean = clean

    def code(self, text: str, max_characters: int = 80) -> str:
        """Give a text as a code span: nothing in it is a link, an image, a mention or HTML."""
        line = one_line(self._clean(text), max_characters)
        return f"`{line.replace('`', chr(39)).replace('|', '¦') or '(empty)'}`"

    def sentence(self, text: str) -> str:
        """Give a sentence of ours, with what it might quote made harmless."""
        line = _ADDRESS.sub("\\1\N{WORD JOINER}\\2", one_line(self._clean(text), 400))
        return "".join(
            f"\\{sign}" if sign in _MEANINGFUL else _REPLACED.get(sign, sign) for sign in line
        )

    def listed(self, texts: Sequence[str], count: int) -> str:
        """Give the first of so many texts as code spans, and how many more there are."""
        shown = texts[:MAX_ROWS]
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        return ", ".join(map(self.code, shown)) + more


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, most: int = MAX_ROWS) -> str:
    """Give a table, which says how many of its rows are left out."""
    cells = [*rows]
    lines = [_row(head), _row(["---"] * len(head)), *map(_row, cells[:most])]
    if len(cells) > most:
        lines.append(f"\n{len(cells) - most:,} more are left out.")
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def joined(blocks: Sequence[str]) -> str:
    """Give as many blocks as fit, and say how many do not."""
    text = ""
    for place, block in enumerate(blocks):
        if len(text) + len(block) + 100 > MAX_CHARACTERS:
            left = len(blocks) - place
            return f"{text}{left} more sections did not fit; `gym metrics` prints everything.\n"
        text += block + "\n\n"
    return text.rstrip("\n") + "\n"


_HEAD = ("tasks", "baseline", "run", "difference", "interval", "p", "verdict")


def comparison_blocks(comparison: Comparison, spans: Spans) -> Iterator[str]:
    """Give what is not alike, the differences, what would decide, the tasks that changed."""
    for drift in comparison.drift:
        other = spans.code(str(drift), 300)
        yield f"Not made alike, so that not the model alone differs: {other}"
    parts: list[tuple[str, Difference]] = [("all", comparison)]
    if len(comparison.environments) > 1:
        parts += comparison.environments.items()
    for field, slices in comparison.slices.items():
        parts += [(f"{field}={value}", found) for value, found in slices.items()]
    rows = [(spans.code(name), *_difference(found)) for name, found in parts]
    yield table((spans.code(comparison.metric), *_HEAD), rows)
    if comparison.way_out:
        yield spans.sentence(comparison.way_out)
    for title, tasks, count in (
        ("Broken", comparison.broken, comparison.num_broken),
        ("Fixed", comparison.fixed, comparison.num_fixed),
    ):
        if count:
            yield f"{title}: {spans.listed(tasks, count)}"


def _difference(found: Difference) -> Sequence[str]:
    difference = found.difference
    return (
        f"{found.num_tasks:,}",
        number(found.mean_a),
        number(found.mean_b),
        signed(None if difference is None else difference.value),
        between(None if difference is None else difference.interval),
        number(found.p_value if found.p_adjusted is None else found.p_adjusted),
        found.verdict,
    )


_LEFT_OUT = ("micro_", "avg@", "best@")
"""Numbers that only CSV and JSON have."""
_IMPLIED = ("pass^1", "majority@1")
"""They are `pass@1` and `mean_reward`."""
_FIRST = ("mean_reward", "strict_mean_reward")
_MAX_NUMBERS = 80
_MAX_COLUMNS = 4
_MAX_TASKS = 50
_MAX_ADVICE = 10


def markdown(runs: Sequence[RunReport], *, clean: Clean) -> str:
    """Give the text: the verdict first, then gates, numbers, what changed, slices, failures.

    Args:
        runs: The runs, one after the other.
        clean: Takes secrets out of texts.

    """
    spans = Spans(clean)
    return joined([block for run in runs for block in _Page(run, spans).blocks()])


def comparison_markdown(comparison: Comparison, *, clean: Clean) -> str:
    """Give the text of a comparison; the arguments are those of `markdown`."""
    spans = Spans(clean)
    a, b = spans.code(comparison.a.run), spans.code(comparison.b.run)
    head = f"## **{comparison.verdict}**: {b} compared with {a}"
    return joined([head, *comparison_blocks(comparison, spans)])


class _Page:
    """The blocks of one run, each a heading, a table or a paragraph."""

    def __init__(self, report: RunReport, spans: Spans) -> None:
        self._report = report
        self._spans = spans

    def blocks(self) -> Iterator[str]:
        """Give them in order."""
        report = self._report
        model = f" of {self._spans.code(report.model)}" if report.model else ""
        yield f"## {self._headline()}: {self._spans.code(report.run)}{model}"
        if report.incomplete:
            yield self._spans.sentence(f"The run is not whole: {report.incomplete}.")
        if report.gates or report.problems:
            yield table(("gate", "verdict", "value", "interval", ""), self._gates())
        yield from self._numbers()
        if report.comparison is not None:
            baseline = self._spans.code(report.comparison.a.run)
            yield f"### Compared with {baseline}: {report.comparison.verdict}"
            yield from comparison_blocks(report.comparison, self._spans)
        yield from self._slices()
        yield from self._what_went_wrong()
        yield from self._flaky()
        yield from self._advice()

    def _headline(self) -> str:
        report = self._report
        if report.incomplete:
            return "**INCOMPLETE**"
        if report.problems:
            return "**NOT JUDGED**"
        if report.gates:
            return f"**{verdict_of(report.gates)}**"
        if report.comparison is not None:
            return f"**{report.comparison.verdict}**, compared with the baseline"
        return "Run"

    def _gates(self) -> Iterator[Sequence[str]]:
        for gate in self._report.gates:
            verdict = gate.verdict if gate.verdict == "PASS" else f"**{gate.verdict}**"
            value = number(gate.value) if gate.judged_on != "number" else f"{gate.value:.6g}"
            yield (
                self._spans.code(gate.gate),
                verdict,
                value,
                _interval(gate),
                self._spans.sentence(gate.way_out),
            )
        for problem in self._report.problems:
            reason = self._spans.sentence(problem.reason)
            yield (self._spans.code(problem.what), "**NOT JUDGED**", "-", "-", reason)

    def _numbers(self) -> Iterator[str]:
        metrics = self._report.metrics
        rows: list[tuple[str, Metrics]] = list(metrics.environments.items())
        if len(rows) > 1:
            rows.append(("all", metrics))
        head = ("environment", "expected", "scored", "coverage", "cost", "tokens")
        yield table(head, [self._counts(name, found) for name, found in rows])
        estimates = [
            self._estimate(env, name, own.estimates[name])
            for env, own in rows
            for name in _shown(own.estimates)
        ]
        if estimates:
            names = ("", "number", "value", "interval", "error", "tasks", "attempts")
            yield table(names, estimates, most=_MAX_NUMBERS)

    def _counts(self, name: str, metrics: Metrics) -> Sequence[str]:
        tokens = metrics.usage.get("prompt_tokens", 0) + metrics.usage.get("completion_tokens", 0)
        return (
            self._spans.code(name),
            "unknown" if metrics.num_expected is None else f"{metrics.num_expected:,}",
            f"{metrics.num_scored:,}",
            "-" if metrics.coverage is None else f"{metrics.coverage:.1%}",
            "unknown" if metrics.cost is None else f"{metrics.cost:,.4f}",
            f"{tokens:,}",
        )

    def _estimate(self, env: str, name: str, found: Estimate) -> Sequence[str]:
        error = "-" if found.standard_error is None else f"{found.standard_error:.4f}"
        counts = (f"{found.num_clusters:,}", f"{found.num_values:,}")
        return (self._spans.code(env), self._spans.code(name), *_sure(found), error, *counts)

    def _slices(self) -> Iterator[str]:
        metrics = self._report.metrics
        parts: Mapping[str, Metrics] = {"": metrics}
        if metrics.mean_reward is None:  # environments with different scales
            parts = metrics.environments
        for env, part in parts.items():
            for field, slices in part.slices.items():
                of = f"{self._spans.code(env)} by" if env else "By"
                yield f"### {of} {self._spans.code(field)}"
                yield self._sliced(field, slices)

    def _sliced(self, field: str, slices: Mapping[str, Metrics]) -> str:
        names = _shown(name for own in slices.values() for name in own.estimates)[:_MAX_COLUMNS]
        head = (field, "scored", "coverage", *names)
        rows = [self._slice(value, own, names) for value, own in slices.items()]
        return table([self._spans.code(name) for name in head], rows)

    def _slice(self, value: str, metrics: Metrics, names: Iterable[str]) -> Sequence[str]:
        coverage = "-" if metrics.coverage is None else f"{metrics.coverage:.1%}"
        found = [metrics.estimates.get(name) for name in names]
        cells = ["-" if one is None else " in ".join(_sure(one)) for one in found]
        return (self._spans.code(value), f"{metrics.num_scored:,}", coverage, *cells)

    def _what_went_wrong(self) -> Iterator[str]:
        metrics = self._report.metrics
        for title, counts in (
            ("Attempts without a score", metrics.failures),
            ("Tool calls that could not be carried out", metrics.tool_errors),
        ):
            if counts:
                yield f"### {title}"
                largest = sorted(counts.items(), key=lambda item: -item[1])
                rows = [(self._spans.code(name), f"{count:,}") for name, count in largest]
                yield table(("", "number"), rows)

    def _flaky(self) -> Iterator[str]:
        tasks = [
            task for task in self._report.tasks if 0 < (task.num_passes or 0) < task.num_scored
        ]
        if tasks:
            yield f"### Flaky tasks\n\n{self._flaky_tasks(tasks)}"

    def _flaky_tasks(self, tasks: Sequence[TaskMetrics]) -> str:
        rows = [
            (
                self._spans.code(task.env),
                self._spans.code(task.task_id),
                f"{task.num_passes}/{task.num_scored}",
            )
            for task in tasks
        ]
        return table(("environment", "task", "passed"), rows, most=_MAX_TASKS)

    def _advice(self) -> Iterator[str]:
        found: Mapping[str, Metrics] = self._report.metrics.environments
        lines = []
        for env, own in found.items():
            prefix = f"{self._spans.code(env)}: " if len(found) > 1 else ""
            said = map(self._spans.sentence, own.advice[:_MAX_ADVICE])
            lines += [f"- {prefix}{sentence}" for sentence in said]
        if lines:
            yield "\n".join(lines[:MAX_ROWS])


def _sure(found: Estimate) -> tuple[str, str]:
    return number(found.value), between(found.interval)


def _interval(gate: GateVerdict) -> str:
    if gate.interval is None:
        return "-"
    return f"{between(gate.interval)} ({100 * gate.interval.level:g} %)"


def _shown(names: Iterable[str]) -> list[str]:
    """Give the names of numbers that are shown, each once: the means, then those that say more."""
    found = dict.fromkeys(names)
    others = (name for name in found if not name.startswith(_LEFT_OUT) and name not in _IMPLIED)
    return list(dict.fromkeys([*(name for name in _FIRST if name in found), *others]))
