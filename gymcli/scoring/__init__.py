"""A recorded rollout becomes a score: at collection, and any time later from the file."""
