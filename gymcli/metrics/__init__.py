"""What the rewards of a run say: estimators, and the numbers that `gym metrics` prints."""

from gymcli.metrics.aggregate import Aggregator, aggregate
from gymcli.metrics.curves import METRICS
from gymcli.metrics.groups import AttemptScore, Group, OwnMetrics
from gymcli.metrics.paired import PairedMeans
from gymcli.metrics.records import EnvironmentFacts, FailureLine, ScoredLine, ScoredTiming
from gymcli.metrics.results import Effect, Estimate, Interval, Metrics, RunMetrics, TaskMetrics

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
    "Metrics",
    "OwnMetrics",
    "PairedMeans",
    "RunMetrics",
    "ScoredLine",
    "ScoredTiming",
    "TaskMetrics",
    "aggregate",
]
