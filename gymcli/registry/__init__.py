"""Finds environments by name and types the options that they are given."""

from gymcli.registry.describe import describe, shipped_tasks
from gymcli.registry.find import EnvironmentClass, Found, Registry, prepare
from gymcli.registry.options import environment_options, split_env_args

__all__ = [
    "EnvironmentClass",
    "Found",
    "Registry",
    "describe",
    "environment_options",
    "prepare",
    "shipped_tasks",
    "split_env_args",
]
