"""Runs and comparisons in Markdown, short enough for a step summary and a comment of a forge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gymcli.metrics.at_k import METRICS
from gymcli.metrics.comparison_results import Comparison, Difference
from gymcli.metrics.results import Estimate, Metrics
from gymcli.reporting.formatting import Clean, between, cost, number, one_line, share, signed
from gymcli.reporting.run_report import RunReport

__all__ = [
    "MAX_CHARACTERS",
    "MAX_ROWS",
    "MarkdownText",
    "comparison_blocks",
    "comparison_markdown",
    "joined",
    "markdown",
    "table",
]


MAX_CHARACTERS = 65_000
"""A comment of GitHub may have 65,536 characters, a step summary 1 MiB."""
MAX_ROWS = 30
_REWARDS_ALONE = [
    metric.name
    for metric in METRICS.values()
    if not (metric.needs_threshold or metric.needs_answers)
]
_LEFT_OUT = ("micro_", *_REWARDS_ALONE)
"""What the names of numbers begin with that only CSV and JSON have."""
_IMPLIED = {f"{metric.name}1" for metric in METRICS.values()} - {"pass@1"}
"""Of one attempt, all are `pass@1` or `mean_reward`."""
_FIRST = ("mean_reward", "strict_mean_reward")
_MAX_NUMBERS = 80
_MAX_COLUMNS = 4
_MAX_TASKS = 50
_MAX_ADVICE = 10


def markdown(runs: Sequence[RunReport], *, clean: Clean) -> str:
    """Return the report of runs: of each the verdict, gates, numbers, changes, slices, failures.

    Args:
        runs: The runs, one after the other.
        clean: Takes secrets out of texts.

    """
    text = MarkdownText(clean)
    return joined([block for run in runs for block in _RunMarkdown(run, text).blocks()])


class _RunMarkdown:
    """The blocks of one run, each a heading, a table or a paragraph."""

    def __init__(self, report: RunReport, text: MarkdownText) -> None:
        self._report = report
        self._text = text

    def blocks(self) -> Iterator[str]:
        """Yield the blocks in order."""
        report = self._report
        model = f" of {self._text.code(report.model)}" if report.model else ""
        yield f"## {self._headline()}: {self._text.code(report.run)}{model}"
        if report.incomplete:
            yield self._text.sentence(f"The run is not whole: {report.incomplete}.")
        if report.gates or report.problems:
            yield table(("gate", "verdict", "value", "interval", ""), self._gates())
        yield from self._numbers()
        if report.comparison is not None:
            baseline = self._text.code(report.comparison.a.run)
            yield f"### Compared with {baseline}: {report.comparison.verdict}"
            yield from comparison_blocks(report.comparison, self._text)
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
            verdicts = {gate.verdict for gate in report.gates}
            worst = next(one for one in ("FAIL", "INCONCLUSIVE", "PASS") if one in verdicts)
            return f"**{worst}**"
        if report.comparison is not None:
            return f"**{report.comparison.verdict}**, compared with the baseline"
        return "Run"

    def _gates(self) -> Iterator[Sequence[str]]:
        for gate in self._report.gates:
            interval = gate.interval
            verdict = gate.verdict if gate.verdict == "PASS" else f"**{gate.verdict}**"
            value = number(gate.value, ".6g" if gate.judged_on == "number" else ".3f")
            yield (
                self._text.code(gate.gate),
                verdict,
                value,
                between(interval) + (f" ({100 * interval.level:g} %)" if interval else ""),
                self._text.sentence(gate.way_out),
            )
        for problem in self._report.problems:
            reason = self._text.sentence(problem.reason)
            yield (self._text.code(problem.what), "**NOT JUDGED**", "-", "-", reason)

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
            self._text.code(name),
            number(metrics.num_expected, ",", unknown="unknown"),
            f"{metrics.num_scored:,}",
            share(metrics.coverage),
            cost(metrics.cost),
            f"{tokens:,}",
        )

    def _estimate(self, env: str, name: str, found: Estimate) -> Sequence[str]:
        error = number(found.standard_error, ".4f")
        counts = (f"{found.num_clusters:,}", f"{found.num_values:,}")
        return (self._text.code(env), self._text.code(name), *_sure(found), error, *counts)

    def _slices(self) -> Iterator[str]:
        metrics = self._report.metrics
        parts: Mapping[str, Metrics] = {"": metrics}
        if metrics.mean_reward is None:  # environments with different scales
            parts = metrics.environments
        for env, part in parts.items():
            for field, slices in part.slices.items():
                of = f"{self._text.code(env)} by" if env else "By"
                yield f"### {of} {self._text.code(field)}"
                yield self._sliced(field, slices)

    def _sliced(self, field: str, slices: Mapping[str, Metrics]) -> str:
        names = _shown(name for own in slices.values() for name in own.estimates)[:_MAX_COLUMNS]
        head = (field, "scored", "coverage", *names)
        rows = [self._slice(value, own, names) for value, own in slices.items()]
        return table([self._text.code(name) for name in head], rows)

    def _slice(self, value: str, metrics: Metrics, names: Iterable[str]) -> Sequence[str]:
        found = [metrics.estimates.get(name) for name in names]
        cells = ["-" if one is None else " in ".join(_sure(one)) for one in found]
        return (self._text.code(value), f"{metrics.num_scored:,}", share(metrics.coverage), *cells)

    def _what_went_wrong(self) -> Iterator[str]:
        metrics = self._report.metrics
        for title, counts in (
            ("Attempts without a score", metrics.failures),
            ("Tool calls that could not be carried out", metrics.tool_errors),
        ):
            if counts:
                yield f"### {title}"
                largest = sorted(counts.items(), key=lambda item: -item[1])
                rows = [(self._text.code(name), f"{count:,}") for name, count in largest]
                yield table(("", "number"), rows)

    def _flaky(self) -> Iterator[str]:
        tasks = [
            task for task in self._report.tasks if 0 < (task.num_passes or 0) < task.num_scored
        ]
        if tasks:
            rows = [
                (
                    self._text.code(task.env),
                    self._text.code(task.task_id),
                    f"{task.num_passes}/{task.num_scored}",
                )
                for task in tasks
            ]
            shown = table(("environment", "task", "passed"), rows, most=_MAX_TASKS)
            yield f"### Flaky tasks\n\n{shown}"

    def _advice(self) -> Iterator[str]:
        found: Mapping[str, Metrics] = self._report.metrics.environments
        lines = []
        for env, own in found.items():
            prefix = f"{self._text.code(env)}: " if len(found) > 1 else ""
            said = map(self._text.sentence, own.advice[:_MAX_ADVICE])
            lines += [f"- {prefix}{sentence}" for sentence in said]
        if lines:
            yield "\n".join(lines[:MAX_ROWS])


def _sure(found: Estimate) -> tuple[str, str]:
    return number(found.value), between(found.interval)


def _shown(names: Iterable[str]) -> list[str]:
    """Return the names of the numbers that are shown, each once, the means first."""
    found = dict.fromkeys(names)
    others = (name for name in found if not name.startswith(_LEFT_OUT) and name not in _IMPLIED)
    return list(dict.fromkeys([*(name for name in _FIRST if name in found), *others]))


def comparison_markdown(comparison: Comparison, *, clean: Clean) -> str:
    """Return a comparison; `clean` is that of `markdown`."""
    text = MarkdownText(clean)
    a, b = text.code(comparison.a.run), text.code(comparison.b.run)
    head = f"## **{comparison.verdict}**: {b} compared with {a}"
    return joined([head, *comparison_blocks(comparison, text)])


_HEAD = ("tasks", "baseline", "run", "difference", "interval", "p", "verdict")


def comparison_blocks(comparison: Comparison, text: MarkdownText) -> Iterator[str]:
    """Yield how the runs were made differently, the differences, and the tasks that changed."""
    for drift in comparison.drift:
        other = text.code(str(drift), 300)
        yield f"Not made alike, so that not the model alone differs: {other}"
    parts: list[tuple[str, Difference]] = [("all", comparison)]
    if len(comparison.environments) > 1:
        parts += comparison.environments.items()
    for field, slices in comparison.slices.items():
        parts += [(f"{field}={value}", found) for value, found in slices.items()]
    rows = [(text.code(name), *_difference(found)) for name, found in parts]
    yield table((text.code(comparison.metric), *_HEAD), rows)
    if comparison.way_out:
        yield text.sentence(comparison.way_out)
    for title, tasks, count in (
        ("Broken", comparison.broken, comparison.num_broken),
        ("Fixed", comparison.fixed, comparison.num_fixed),
    ):
        if count:
            yield f"{title}: {text.listed(tasks, count)}"


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


_ADDRESS = re.compile(r"(:|www)(//|\.)")
"""Where an address that would become a link gets a character that nobody sees."""
_MEANINGFUL = frozenset("\\*_[]#|~$")
_REPLACED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "`": "'", "@": "@\N{WORD JOINER}"}


class MarkdownText:
    """Writes texts of models, tasks and providers.

    Args:
        clean: Takes secrets out of them.

    """

    def __init__(self, clean: Clean) -> None:
        self._clean = clean

    def code(self, text: str, max_characters: int = 80) -> str:
        """Return a text as a code span: nothing in it is a link, an image, a mention or HTML."""
        line = one_line(self._clean(text), max_characters)
        return f"`{line.replace('`', chr(39)).replace('|', '¦') or '(empty)'}`"

    def sentence(self, text: str) -> str:
        """Return a sentence of ours, with what it might quote made harmless."""
        line = _ADDRESS.sub("\\1\N{WORD JOINER}\\2", one_line(self._clean(text), 400))
        return "".join(
            f"\\{sign}" if sign in _MEANINGFUL else _REPLACED.get(sign, sign) for sign in line
        )

    def listed(self, texts: Sequence[str], count: int) -> str:
        """Return the first of `count` texts as code spans, and how many more there are."""
        shown = texts[:MAX_ROWS]
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        return ", ".join(map(self.code, shown)) + more


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, most: int = MAX_ROWS) -> str:
    """Return a table, which says how many of its rows are left out."""
    cells = [*rows]
    lines = [_row(head), _row(["---"] * len(head)), *map(_row, cells[:most])]
    if len(cells) > most:
        lines.append(f"\n{len(cells) - most:,} more are left out.")
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def joined(blocks: Sequence[str]) -> str:
    """Return as many blocks as fit, and how many do not."""
    text = ""
    for place, block in enumerate(blocks):
        if len(text) + len(block) + 100 > MAX_CHARACTERS:
            left = len(blocks) - place
            return f"{text}{left} more sections did not fit; `gym metrics` prints everything.\n"
        text += block + "\n\n"
    return text.rstrip("\n") + "\n"
