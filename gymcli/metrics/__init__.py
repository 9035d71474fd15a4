"""The numbers of a run: reads its lines, estimates and aggregates."""
