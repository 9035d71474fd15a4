"""What is reported of a run: its numbers, its gates, and how it stands to a baseline."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from gymcli.metrics import Interval, RunMetrics, TaskMetrics
from gymcli.metrics.comparison_results import Comparison, Verdict
from gymcli.metrics.gates import GateProblem, GateVerdict
from gymcli.metrics.planning import Plan

__all__ = [
    "Clean",
    "MetricsReport",
    "MetricsReports",
    "RunReport",
    "between",
    "number",
    "one_line",
    "plain",
    "signed",
    "verdict_of",
]


class RunReport(NamedTuple):
    """One run, as Markdown, tables and JUnit files tell of it."""

    run: str
    """Its path, as given."""
    metrics: RunMetrics
    tasks: Sequence[TaskMetrics] = ()
    gates: Sequence[GateVerdict] = ()
    problems: Sequence[GateProblem] = ()
    """What could not be judged: the run lacks a number, or shares no task with the baseline."""
    comparison: Comparison | None = None
    """With the baseline as run A; None where there is none."""
    model: str = ""
    started_at: float = 0.0
    """Seconds since 1970: of a file alone, when it was written."""
    incomplete: str = ""
    """What stopped the run, or that too little is scored; the gates speak of what is there."""


class MetricsReport(RunMetrics, kw_only=True):
    """One run, as `gym metrics --json` prints it."""

    run: str
    """Its path, as given."""
    tasks: list[TaskMetrics] = []
    """Every task, where they were asked for."""
    gates: list[GateVerdict] = []
    """The gates that were asked for and could be judged."""
    power: dict[str, Plan] = {}
    """What runs of other sizes would detect, by environment, where that was asked for."""


class MetricsReports(msgspec.Struct, kw_only=True):
    """Several runs, as `gym metrics --json` prints them."""

    runs: list[MetricsReport]
    power: dict[str, Plan] = {}


def verdict_of(gates: Sequence[GateVerdict]) -> Verdict:
    """Give what all gates together come to."""
    verdicts = {gate.verdict for gate in gates}
    if "FAIL" in verdicts:
        return "FAIL"
    return "INCONCLUSIVE" if "INCONCLUSIVE" in verdicts else "PASS"


Clean: TypeAlias = Callable[[str], str]
"""Takes secrets out of a text."""

_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""What XML forbids, what reorders or hides what is read, and what stands for no character."""


def plain(text: str, max_characters: int) -> str:
    """Give a text without what XML forbids and readers cannot see; a longer one ends with `…`."""
    fit = _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text[:max_characters])
    return fit if len(text) <= max_characters else f"{fit[:-1]}…"


def one_line(text: str, max_characters: int = 100) -> str:
    """Give the same as one line."""
    start = text[: 4 * max_characters]
    mark = "…" if len(text) > len(start) else ""
    return plain(" ".join(start.split()) + mark, max_characters)


def number(value: float | None) -> str:
    """Give a number as tables show it."""
    return "-" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Give a difference as tables show it."""
    return "-" if value is None else f"{value:+.3f}"


def between(interval: Interval | None) -> str:
    """Give an interval as tables show it."""
    return "-" if interval is None else f"{interval.low:.3f} .. {interval.high:.3f}"
