"""Two runs against each other, task by task: how much they differ, how sure that is, a verdict."""

from gymcli.metrics.comparison.compare import compare
from gymcli.metrics.comparison.doubts import doubts
from gymcli.metrics.comparison.effects import TwiceScored, reward_effects
from gymcli.metrics.comparison.measures import Measure, parse_measure
from gymcli.metrics.comparison.moments import PairedMoments
from gymcli.metrics.comparison.results import (
    Comparison,
    Difference,
    Drift,
    DriftKind,
    RunSide,
    Setting,
    TaskDifference,
    Unmatched,
    Verdict,
)
from gymcli.metrics.comparison.scores import EnvironmentScores
from gymcli.metrics.comparison.values import PairedTask
from gymcli.metrics.comparison.verdict import Rule

__all__ = [
    "Comparison",
    "Difference",
    "Drift",
    "DriftKind",
    "EnvironmentScores",
    "Measure",
    "PairedMoments",
    "PairedTask",
    "Rule",
    "RunSide",
    "Setting",
    "TaskDifference",
    "TwiceScored",
    "Unmatched",
    "Verdict",
    "compare",
    "doubts",
    "parse_measure",
    "reward_effects",
]
