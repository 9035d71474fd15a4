"""Compares runs with each other, with a gate and with published scores."""
