"""Computes the numbers of a run from its lines."""

from gymcli.metrics.aggregate import Aggregator


def aggregate(scored, failures=(), *, facts=None, level=0.95, ks=()):
    """Return the numbers of scored and failed lines."""
    aggregator = Aggregator(facts)
    for line in scored:
        aggregator.add_scored(line)
    for failure in failures:
        aggregator.add_failure(failure)
    return aggregator.metrics(level=level, ks=ks)
