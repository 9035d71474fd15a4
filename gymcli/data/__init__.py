"""Task files in (validate, pull, render, generate), training and table files out (export)."""

from gymcli.data.generation import generated_rows
from gymcli.data.pulling import pull
from gymcli.data.statistics import describe_tasks
from gymcli.data.validation import rendered_rows, validate

__all__ = ["describe_tasks", "generated_rows", "pull", "rendered_rows", "validate"]
