"""What is reported of a run: its numbers, its gates, and how it stands to a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gymcli.metrics import RunMetrics, TaskMetrics
from gymcli.metrics.comparison import Comparison
from gymcli.metrics.comparison.results import Verdict
from gymcli.metrics.gates import GateProblem, GateVerdict
from gymcli.metrics.planning import Plan

__all__ = ["MetricsReport", "MetricsReports", "RunReport", "verdict_of"]


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
