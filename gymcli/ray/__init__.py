"""A run over a Ray cluster."""
