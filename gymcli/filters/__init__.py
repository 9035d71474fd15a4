"""Expressions such as `0 < avg < 1 and stop_reason == "length"`, which say what is meant."""

from gymcli.filters.filter import Filter, parse_filter

__all__ = ["Filter", "parse_filter"]
