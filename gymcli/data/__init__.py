"""Task files in (validate, pull, render, generate), training and table files out (export)."""

from gymcli.data.pulling import pull
from gymcli.data.statistics import describe_tasks
from gymcli.data.task_files import generated_rows, rendered_rows, validate

__all__ = ["describe_tasks", "generated_rows", "pull", "rendered_rows", "validate"]
