"""Runs and comparisons in Markdown, short enough for a step summary and a pull request comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gymcli.comparison.comparison_results import Comparison, Difference, worst_verdict
from gymcli.comparison.reproduction import BenchmarkScore
from gymcli.metrics.results import Metrics, RunMetrics
from gymcli.reporting.formatting import (
    ROWS_OF_RUNS,
    Clean,
    between,
    cost,
    headline,
    number,
    one_line,
    p_value,
    passes_with,
    reference_reason,
    reference_source,
    round_up,
    rows_of_runs,
    settings_text,
    signed,
    token_facts,
    with_command,
)
from gymcli.reporting.run_report import RunReport

MAX_CHARACTERS = 65_000
"""A GitHub comment may have 65,536 characters, a step summary 1 MiB."""
_MAX_ROWS = 30
_MAX_NUMBERS = 80
_MAX_TASKS = 50
_MAX_ADVICE = 10


def markdown(runs: Sequence[RunReport], *, clean: Clean) -> str:
    """Return the report of runs: verdict, gates, numbers, changes, slices and failures of each."""
    text = MarkdownText(clean)
    return join_blocks([block for run in runs for block in _blocks(run, text)])


def _blocks(report: RunReport, text: MarkdownText) -> Iterator[str]:
    model = f" of {text.code(report.model)}" if report.model else ""
    yield f"## {_headline(report)}: {text.code(report.run)}{model}"
    if report.incomplete:
        yield text.sentence(f"The run is incomplete: {report.incomplete}.")
    if report.gates or report.problems:
        yield table(("gate", "verdict", "value", "interval", ""), _gates(report, text))
    yield from _numbers(report.metrics, text)
    if report.score is not None:
        yield from _references(report.score, text)
    if report.comparison is not None:
        baseline = text.code(report.comparison.a.run)
        yield f"### Compared with {baseline}: {report.comparison.verdict}"
        yield from comparison_blocks(report.comparison, text)
    yield from _slices(report.metrics, text)
    for title, counts in (
        ("Attempts without a score", report.metrics.failures),
        ("Failed tool calls", report.metrics.tool_errors),
    ):
        if counts:
            yield f"### {title}"
            largest = sorted(counts.items(), key=lambda item: -item[1])
            yield table(("", "number"), [(text.code(name), f"{num:,}") for name, num in largest])
    if report.metrics.tokens is not None:
        facts = token_facts(report.metrics.tokens).items()
        rows = [(text.sentence(name), text.sentence(fact)) for name, fact in facts]
        yield f"### Token ids\n\n{table(('', ''), rows)}"
    flaky = [
        (text.code(task.env), text.code(task.task_id), f"{task.num_passes}/{task.num_scored}")
        for task in report.tasks
        if 0 < (task.num_passes or 0) < task.num_scored
    ]
    if flaky:
        flaky_table = table(("environment", "task", "passed"), flaky, max_rows=_MAX_TASKS)
        yield f"### Flaky tasks\n\n{flaky_table}"
    environments = report.metrics.environments
    advice = []
    for env, part in environments.items():
        prefix = f"{text.code(env)}: " if len(environments) > 1 else ""
        for sentence in part.advice[:_MAX_ADVICE]:
            advice_text, command = with_command(sentence, report.run)
            example = f" {text.code(command, 400)}" if command else ""
            advice.append(f"- {prefix}{text.sentence(advice_text)}{example}")
    if advice:
        yield "\n".join(advice[:_MAX_ROWS])


def _headline(report: RunReport) -> str:
    if report.incomplete:
        return "**INCOMPLETE**"
    if report.problems:
        return "**NOT JUDGED**"
    if report.gates:
        return f"**{worst_verdict(gate.verdict for gate in report.gates)}**"
    if report.comparison is not None:
        return f"**{report.comparison.verdict}**, compared with the baseline"
    return "Run"


def _gates(report: RunReport, text: MarkdownText) -> Iterator[Sequence[str]]:
    for gate in report.gates:
        interval = gate.interval
        yield (
            text.code(gate.gate),
            gate.verdict if gate.verdict == "PASS" else f"**{gate.verdict}**",
            number(gate.value, ".6g" if gate.judged_on == "number" else ".3f"),
            between(interval) + (f" ({100 * interval.level:g} %)" if interval else ""),
            text.sentence(gate.way_out),
        )
    for problem in report.problems:
        reason = text.sentence(problem.reason)
        yield (text.code(problem.what), "**NOT JUDGED**", "-", "-", reason)


def _references(score: BenchmarkScore, text: MarkdownText) -> Iterator[str]:
    if settings := settings_text(score.benchmark, score.other_settings):
        yield text.sentence(f"{settings[:1].upper()}{settings[1:]}.")
    if not score.references:
        return
    yield f"### Published scores of {text.code(score.benchmark)}"
    rows = [
        (
            number(reference.score),
            reference.verdict_text,
            signed(reference.difference),
            between(reference.interval, "+.3f"),
            f"{reference.margin:g}",
            "-" if reference.smallest_margin is None else round_up(reference.smallest_margin),
            text.sentence(reference_reason(reference, score)),
            text.sentence(reference_source(reference)),
        )
        for reference in score.references
    ]
    head = ("score", "verdict", "difference", "interval", "margin", "smallest margin", "", "source")
    yield table(head, rows)


def _numbers(metrics: RunMetrics, text: MarkdownText) -> Iterator[str]:
    parts: list[tuple[str, Metrics]] = list(metrics.environments.items())
    if len(parts) > 1:
        parts.append(("all", metrics))
    head, rows = headline([part for _, part in parts])
    tokens = [
        part.usage.get("prompt_tokens", 0) + part.usage.get("completion_tokens", 0)
        for _, part in parts
    ]
    columns = {"tokens": [f"{count:,}" for count in tokens]} if any(tokens) else {}
    if any(part.cost is not None for _, part in parts):
        columns["cost"] = [cost(part.cost) for _, part in parts]
    yield table(
        ("environment", *_titles(head), *columns),
        [
            (text.code(env), *row, *(column[place] for column in columns.values()))
            for place, ((env, _), row) in enumerate(zip(parts, rows, strict=True))
        ],
    )
    estimates = []
    for env, part in parts:
        for name, estimate in part.distinct.items():
            estimates.append(
                (
                    text.code(env),
                    text.code(name),
                    number(estimate.value),
                    between(estimate.interval),
                    number(estimate.standard_error, ".4f"),
                    f"{estimate.num_clusters:,}",
                    f"{estimate.num_values:,}",
                )
            )
    if estimates:
        titles = ("", "number", "value", "interval", "error", "tasks", "attempts")
        all_numbers = table(titles, estimates, max_rows=_MAX_NUMBERS)
        yield f"<details><summary>All numbers</summary>\n\n{all_numbers}\n\n</details>"


def _slices(metrics: RunMetrics, text: MarkdownText) -> Iterator[str]:
    parts: Mapping[str, Metrics] = {"": metrics}
    if metrics.mean_reward is None:  # environments with different scales
        parts = metrics.environments
    for env, part in parts.items():
        for field, slices in part.slices.items():
            heading = f"{text.code(env)} by" if env else "By"
            yield f"### {heading} {text.code(field)}"
            head, cells = headline([*slices.values()], have_coverage=False)
            rows = [(text.code(value), *row) for value, row in zip(slices, cells, strict=True)]
            yield table((text.code(field), *_titles(head)), rows)


def _titles(names: Iterable[str]) -> list[str]:
    # `pass@4` outside of a code span would mention a user.
    return [f"`{name}`" if "pass" in name else name for name in names]


def comparison_markdown(comparison: Comparison, *, clean: Clean) -> str:
    """Return a comparison, with secrets taken out by `clean`."""
    text = MarkdownText(clean)
    a, b = text.code(comparison.a.run), text.code(comparison.b.run)
    head = f"## **{comparison.verdict}**: {b} compared with {a}"
    return join_blocks([head, *comparison_blocks(comparison, text)])


def comparisons_markdown(comparisons: Sequence[Comparison], *, clean: Clean) -> str:
    """Return several runs compared with one baseline: a table of all, then each of them."""
    text = MarkdownText(clean)
    first = comparisons[0]
    worst = worst_verdict(comparison.verdict for comparison in comparisons)
    head = f"## **{worst}**: {len(comparisons)} runs compared with {text.code(first.a.run)}"
    rows = [
        (text.code(row[0]), *(cell.replace("<", "&lt;") for cell in row[1:]))
        for row in rows_of_runs(comparisons)
    ]
    blocks = [head, table([text.code(first.metric), *ROWS_OF_RUNS], rows)]
    for comparison in comparisons:
        blocks.append(f"### {text.code(comparison.b.run)}: {comparison.verdict}")
        blocks += comparison_blocks(comparison, text)
    return join_blocks(blocks)


def comparison_blocks(comparison: Comparison, text: MarkdownText) -> Iterator[str]:
    for drift in comparison.drift:
        other = text.code(str(drift), 300)
        yield f"The runs differ in more than the model: {other}"
    yield _differences(comparison, text)
    passes = passes_with(comparison.smallest_margin)
    sentences = [comparison.way_out, f"the run {passes}" if passes else ""]
    if any(sentences):
        sentence = "; ".join(filter(None, sentences))
        yield text.sentence(sentence[:1].upper() + sentence[1:])
    if comparison.num_tasks:
        yield _changes(comparison)
    if comparison.regressions:
        rows = [
            (
                text.code(task.env),
                text.code(task.task_id),
                number(task.value_a),
                number(task.value_b),
                signed(task.difference),
            )
            for task in comparison.regressions
        ]
        regressions = table(("environment", "task", "baseline", "run", "difference"), rows)
        yield f"Largest regressions:\n\n{regressions}"
    for title, tasks, count in (
        ("Broken", comparison.broken, comparison.num_broken),
        ("Fixed", comparison.fixed, comparison.num_fixed),
    ):
        if count:
            names = tasks[:_MAX_ROWS]
            more = f" and {count - len(names):,} more" if count > len(names) else ""
            yield f"{title}: {', '.join(map(text.code, names))}{more}"


def _differences(comparison: Comparison, text: MarkdownText) -> str:
    parts: list[tuple[str, Difference]] = [("all", comparison)]
    if len(comparison.environments) > 1:
        parts += comparison.environments.items()
    for field, slices in comparison.slices.items():
        parts += [(f"{field}={value}", difference) for value, difference in slices.items()]
    is_adjusted = len(parts) > 1
    rows = []
    for name, difference in parts:
        estimate = difference.difference
        adjusted = (p_value(difference.p_adjusted),) if is_adjusted else ()
        rows.append(
            (
                text.code(name),
                f"{difference.num_tasks:,}",
                number(difference.mean_a),
                number(difference.mean_b),
                signed(estimate.value if estimate else None),
                between(estimate.interval if estimate else None, "+.3f"),
                *(cell.replace("<", "&lt;") for cell in (p_value(difference.p_value), *adjusted)),
                difference.verdict,
            )
        )
    head = ["tasks", "baseline", "run", "difference", "interval", "p"]
    head += ["p (Holm)", "verdict"] if is_adjusted else ["verdict"]
    return table((text.code(comparison.metric), *head), rows)


def _changes(comparison: Comparison) -> str:
    parts = [
        (comparison.num_regressed, "regressed", comparison.num_broken, "broken"),
        (comparison.num_improved, "improved", comparison.num_fixed, "fixed"),
        (comparison.num_unchanged, "unchanged", None, ""),
    ]
    counts = [
        f"{count:,} {name}" + ("" if num_strict is None else f" ({num_strict:,} {strict})")
        for count, name, num_strict, strict in parts
    ]
    if comparison.num_flaky is not None:
        counts.append(f"{comparison.num_flaky:,} flaky in either run")
    return f"Tasks: {', '.join(counts)}"


_ADDRESS = re.compile(r"(:|www)(//|\.)")
"""Where an address would become a link; an invisible character is inserted there."""
_MEANINGFUL = frozenset("\\*_[]#|~$")
"""Characters that a backslash makes literal."""
# A backslash does not stop `@name` from notifying a person; an invisible character does.
_REPLACED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "`": "'", "@": "@\N{WORD JOINER}"}


class MarkdownText:
    """Escapes texts of models, tasks and providers, after `clean` has removed secrets."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean

    def code(self, text: str, max_characters: int = 80) -> str:
        """Return a text as a code span: nothing in it is a link, an image, a mention or HTML."""
        line = one_line(self._clean(text), max_characters)
        # A backtick would end the span, and a bar ends a cell of a table even within one.
        return f"`{line.replace('`', chr(39)).replace('|', '¦') or '(empty)'}`"

    def sentence(self, text: str) -> str:
        """Return one of our sentences, with Markdown in its quotes escaped."""
        line = _ADDRESS.sub("\\1\N{WORD JOINER}\\2", one_line(self._clean(text), 400))
        return "".join(
            f"\\{sign}" if sign in _MEANINGFUL else _REPLACED.get(sign, sign) for sign in line
        )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, max_rows: int = _MAX_ROWS) -> str:
    cells = [*rows]
    rows_to_print = (head, ["---"] * len(head), *cells[:max_rows])
    lines = [f"| {' | '.join(row)} |" for row in rows_to_print]
    if len(cells) > max_rows:
        lines.append(f"\n{len(cells) - max_rows:,} more are left out.")
    return "\n".join(lines)


def join_blocks(blocks: Sequence[str]) -> str:
    text = ""
    for place, block in enumerate(blocks):
        if len(text) + len(block) + 100 > MAX_CHARACTERS:  # 100 for the note
            num_left = len(blocks) - place
            return f"{text}{num_left} more sections did not fit; `gym metrics` prints everything.\n"
        text += block + "\n\n"
    return text.rstrip("\n") + "\n"
