"""What the rewards of a run say: estimators, and the numbers that `gym metrics` prints."""

from gymcli.metrics.aggregate import Aggregator, aggregate
from gymcli.metrics.at_k import METRICS, Metric
from gymcli.metrics.results import Effect, Estimate, Interval, Metrics, RunMetrics, TaskMetrics
from gymcli.metrics.scored_lines import (
    AttemptScore,
    EnvironmentFacts,
    FailureLine,
    Group,
    OwnMetrics,
    ScoredLine,
    ScoredTiming,
)

__all__ = [
    "METRICS",
    "Aggregator",
    "AttemptScore",
    "Effect",
    "EnvironmentFacts",
    "Estimate",
    "FailureLine",
    "Group",
    "Interval",
    "Metric",
    "Metrics",
    "OwnMetrics",
    "RunMetrics",
    "ScoredLine",
    "ScoredTiming",
    "TaskMetrics",
    "aggregate",
]
