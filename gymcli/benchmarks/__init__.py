"""Benchmarks by name: their pinned sources, how they are run, and their published scores."""
