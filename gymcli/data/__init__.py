"""Validates, selects, renders and generates tasks; exports rollouts for training and tables."""

from gymcli.data.selection import select_rows
from gymcli.data.statistics import describe_tasks
from gymcli.data.validation import generated_rows, rendered_rows, validate
from gymcli.tasks.pulling import pull

__all__ = ["describe_tasks", "generated_rows", "pull", "rendered_rows", "select_rows", "validate"]
