"""Format numbers, shares, intervals and untrusted texts for tables, files and pages.

Commands print with these functions too, so this module imports nothing heavy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from gymcli.comparison.comparison_results import Comparison, RunSide
    from gymcli.comparison.reproduction import BenchmarkScore, Reproduction
    from gymcli.metrics.results import Bounds, Interval, Metrics, TokenNumbers

Clean: TypeAlias = Callable[[str], str]
"""Remove secrets from a text."""

_LARGE = 1e5
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Characters that XML forbids, that reorder or hide text, and non-character code points."""


def number(value: float | None, spec: str = ".3f", *, unknown: str = "-") -> str:
    return unknown if value is None else format(value, spec)


def counted(num: int, noun: str) -> str:
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"


def signed(value: float | None) -> str:
    return number(value, "+.3f")


def share(value: float | None, *, unknown: str = "-") -> str:
    return number(value, ".1%", unknown=unknown)


def cost(value: float | None) -> str:
    return number(value, ",.4f", unknown="unknown")


def p_value(value: float | None) -> str:
    """Format a p-value, the same way wherever it is shown."""
    return "< 0.001" if value is not None and value < 0.001 else number(value)


def with_command(sentence: str, run: str) -> tuple[str, str]:
    """Split advice into its sentence and the command at its end, for this run; either is text."""
    text, _, options = sentence.partition(" gym show RUN ")
    return text, f"gym show {shlex.quote(run)} {options}" if options else ""


def settings_text(benchmark: str, differing: Sequence[str]) -> str:
    return f"settings differ from {benchmark}: {'; '.join(differing)}" if differing else ""


def reference_source(reproduction: Reproduction) -> str:
    return ", ".join(filter(None, [reproduction.source, reproduction.harness, reproduction.date]))


def reference_text(reproduction: Reproduction, score: BenchmarkScore) -> str:
    text = f"difference {signed(reproduction.difference)}"
    reason = reference_reason(reproduction, score)
    if reproduction.interval is None:
        return f"{text}, not tested" + (f": {reason}" if reason else "")
    text += f" ({between(reproduction.interval, '+.3f')}), margin {reproduction.margin:g}"
    if reproduction.smallest_margin is not None:
        text += f", smallest that passes {round_up(reproduction.smallest_margin)}"
    return f"{text}; {reason}" if reason else text


def reference_reason(reproduction: Reproduction, score: BenchmarkScore) -> str:
    """Return what would decide, or which settings differ beyond those of the run."""
    settings = [text for text in reproduction.other_settings if text not in score.other_settings]
    return reproduction.way_out or "; ".join(settings)


def passes_with(smallest_margin: float | None) -> str:
    """Return the margin with which a run passes, with two digits; empty if any will do, or none."""
    if not smallest_margin:
        return ""
    return f"passes with --margin {round_up(smallest_margin)} or more"


def round_up(margin: float) -> str:
    exact = Decimal(repr(margin))
    step = Decimal(1).scaleb(exact.adjusted() - 1)
    rounded = exact.quantize(step, ROUND_CEILING)
    if rounded == exact:  # the margin must be larger
        rounded += step
    return f"{rounded.normalize():f}"


ROWS_OF_RUNS = ("tasks", "mean", "interval", "difference", "interval", "p", "verdict")
"""The columns of `rows_of_runs` after the name of the run."""


def rows_of_runs(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return a row for the baseline of the comparisons, and one for each other run."""
    baseline = comparisons[0].a
    rows: list[tuple[str, ...]] = [
        (baseline.run, f"{baseline.num_tasks:,}", *_value(baseline), "-", "-", "-", "-")
    ]
    for comparison in comparisons:
        difference = comparison.difference
        rows.append(
            (
                comparison.b.run,
                f"{comparison.num_tasks:,}",
                *_value(comparison.b),
                signed(None if difference is None else difference.value),
                between(None if difference is None else difference.interval, "+.3f"),
                p_value(comparison.p_value),
                comparison.verdict,
            )
        )
    return rows


def _value(side: RunSide) -> tuple[str, str]:
    estimate = side.estimate
    return ("-", "-") if estimate is None else (number(estimate.value), between(estimate.interval))


def between(
    interval: Interval | Bounds | None, spec: str = ".3f", *, separator: str = " .. "
) -> str:
    if interval is None:
        return "-"
    return f"{interval.low:{spec}}{separator}{interval.high:{spec}}"


def headline(
    parts: Sequence[Metrics], *, have_coverage: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return the numbers that are shown first: their names, and a row for each part of a run.

    Left out is what says nothing: coverage if all attempts are scored, and pass@n, pass^n and flaky
    tasks if each task has one attempt. The coverage of slices is unknown: without `have_coverage`,
    scored attempts are counted among those on record, if some of these are not scored.
    """
    columns = {"tasks": [f"{part.num_tasks:,}" for part in parts]}
    if not have_coverage:
        if any(part.num_unscored for part in parts):
            columns["scored"] = [f"{part.num_scored:,} of {part.num_present:,}" for part in parts]
    elif any(part.coverage != 1.0 for part in parts):
        columns["scored"] = [
            f"{part.num_scored:,}"
            + ("" if part.num_expected is None else f" of {part.num_expected:,}")
            for part in parts
        ]
        columns["coverage"] = [share(part.coverage, unknown="unknown") for part in parts]
    columns["mean reward"] = [number(part.mean_reward) for part in parts]
    columns["95 %"] = [between(part.interval) for part in parts]
    for name, values in at_n(parts).items():
        sizes = [
            f" (n = {part.usual_num_attempts})" if name.endswith("n") else "" for part in parts
        ]
        columns[name] = [
            "-" if value is None else f"{number(value)}{size}"
            for value, size in zip(values, sizes, strict=True)
        ]
    if have_flaky(parts):
        columns["flaky"] = [number(part.num_flaky_tasks, ",") for part in parts]
    return [*columns], [list(row) for row in zip(*columns.values(), strict=True)]


def at_n(parts: Sequence[Metrics]) -> dict[str, list[float | None]]:
    """Return pass@n and pass^n of each part by name, unless they repeat the mean reward.

    The name has an `n` if the usual number of attempts differs between the parts.
    """
    sizes = {part.usual_num_attempts for part in parts} - {0}
    k = str(*sizes) if len(sizes) == 1 else "n"
    values_by_name = {}
    for name, curves in (
        ("pass@", [part.pass_at_k or {} for part in parts]),
        ("pass^", [part.pass_hat_k or {} for part in parts]),
    ):
        # pass^1 is pass@1, which is the mean of rewards of 0 and 1.
        is_new_at_1 = name == "pass@" and any(part.is_graded for part in parts)
        if any(curves) and (is_new_at_1 or max(sizes, default=0) > 1):
            values_by_name[f"{name}{k}"] = [
                curve.get(str(part.usual_num_attempts))
                for part, curve in zip(parts, curves, strict=True)
            ]
    return values_by_name


def have_flaky(parts: Sequence[Metrics]) -> bool:
    return any(part.usual_num_attempts > 1 and part.num_flaky_tasks is not None for part in parts)


def legible(value: float | None, sign: str = "-", *, digits: int = 3) -> str:
    """Format a number with `digits` decimals, or significant digits if it is tiny or huge.

    Fixed decimals would show a tiny number as 0 and a huge one as a long row of digits.
    """
    if value is None:
        return "-"
    value = value or 0.0  # -0.0 would be printed with a sign
    is_usual = not value or 10.0**-digits <= abs(value) < _LARGE
    return f"{value:{sign}.{digits}{'f' if is_usual else 'g'}}"


def plain(text: str, max_characters: int) -> str:
    """Remove invisible characters and those that XML forbids; a text that is cut ends with `…`."""
    fit = _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text[:max_characters])
    return fit if len(text) <= max_characters else f"{fit[:-1]}…"


def one_line(text: str, max_characters: int = 100) -> str:
    """Like `plain`, but on one line."""
    # A text may have megabytes; what follows this start is not worth splitting.
    start = text[: 4 * max_characters]
    mark = "…" if len(text) > len(start) else ""
    return plain(" ".join(start.split()) + mark, max_characters)


_MAX_REASONS = 3


def token_facts(tokens: TokenNumbers) -> dict[str, str]:
    """Return in words what of a run can be trained, by title."""
    trainable = f"{tokens.num_in_one_sequence:,} of {tokens.num_attempts:,} attempts"
    trainable += " in one sequence"
    if tokens.num_forked:
        trainable += f", {tokens.num_forked:,} in several (history rewritten)"
    if tokens.num_without_ids:
        trainable += f", {tokens.num_without_ids:,} in none (no usable ids)"
    if tokens.off_policy:
        num = sum(tokens.off_policy.values())
        trainable += f", {num:,} not on-policy ({_reasons(tokens.off_policy)})"
    masked = "none masked"
    if tokens.num_masked:
        masked = f"{tokens.num_masked:,} ({share(tokens.num_masked / tokens.num_sampled)}) masked: "
        masked += "a later prompt has them re-tokenised"
    facts = {"trainable": trainable, "sampled ids": f"{tokens.num_sampled:,}, {masked}"}
    if tokens.problems:
        num = sum(tokens.problems.values())
        facts["unusable"] = f"{counted(num, 'call')} ({_reasons(tokens.problems)})"
    drift = tokens.drift
    if drift is not None:
        unrendered_note = f"; not comparable: {counted(drift.num_unrendered, 'attempt')}"
        facts["drift"] = (
            f"a re-rendering changes {drift.num_changed_sampled:,} of {drift.num_sampled:,} "
            f"sampled ids, in {drift.num_changed_calls:,} of {drift.num_calls:,} calls "
            f"and {drift.num_changed_sequences:,} of {drift.num_sequences:,} sequences"
            f"{unrendered_note if drift.num_unrendered else ''}"
        )
    return facts


def _reasons(counts: Mapping[str, int]) -> str:
    sorted_counts = sorted(counts.items(), key=lambda item: -item[1])
    texts = [
        one_line(text) if len(counts) == 1 else f"{num:,} {one_line(text)}"
        for text, num in sorted_counts
    ]
    other_reasons = (
        [f"{len(texts) - _MAX_REASONS:,} other reasons"] if len(texts) > _MAX_REASONS else []
    )
    return ", ".join(texts[:_MAX_REASONS] + other_reasons)
