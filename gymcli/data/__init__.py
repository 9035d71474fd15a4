"""Validates, pulls, renders and generates task files; exports runs to training and table files."""

from gymcli.data.pulling import pull
from gymcli.data.statistics import describe_tasks
from gymcli.data.task_files import generated_rows, rendered_rows, validate

__all__ = ["describe_tasks", "generated_rows", "pull", "rendered_rows", "validate"]
