"""What the rewards of a run say: estimators, and the numbers that `gym metrics` prints."""

from gymcli.metrics.aggregate import Aggregator, aggregate
from gymcli.metrics.curves import METRICS
from gymcli.metrics.paired import PairedMeans
from gymcli.metrics.records import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.metrics.results import Interval, Metrics, RunMetrics, TaskMetrics

__all__ = [
    "METRICS",
    "Aggregator",
    "EnvironmentFacts",
    "FailureLine",
    "Interval",
    "Metrics",
    "PairedMeans",
    "RunMetrics",
    "ScoredLine",
    "TaskMetrics",
    "aggregate",
]
