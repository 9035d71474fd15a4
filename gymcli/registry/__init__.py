"""Finds environments by name and types the options that they are given."""

from gymcli.registry.describe import describe, own_tasks, shipped_tasks
from gymcli.registry.find import EnvironmentClass, Found, Registry, prepare, split_name
from gymcli.registry.generate import NUM_GENERATED, generated_lines, generates
from gymcli.registry.options import environment_options, own_options, split_env_args

__all__ = [
    "NUM_GENERATED",
    "EnvironmentClass",
    "Found",
    "Registry",
    "describe",
    "environment_options",
    "generated_lines",
    "generates",
    "own_options",
    "own_tasks",
    "prepare",
    "shipped_tasks",
    "split_env_args",
    "split_name",
]
