"""Finds environments by name and types the options that they are given."""
