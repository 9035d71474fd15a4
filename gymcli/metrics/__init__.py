"""Metrics of runs: estimators, aggregation, comparison, gates and filters."""
