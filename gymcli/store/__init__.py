"""Reads tasks; reads and appends rollouts; the only package that knows the run's files."""
