"""What the rewards of a run say: estimators, aggregation, comparison, gates and filters."""
