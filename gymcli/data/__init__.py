"""Task files: validated, rendered, described, written again, and pulled from elsewhere."""

from gymcli.data.generation import Comparison, compare_generated, generated_rows
from gymcli.data.output import whole_file
from gymcli.data.pulling import Provenance, Pulled, pull
from gymcli.data.rendering import rendered_rows
from gymcli.data.statistics import Spread, Statistics, describe_tasks
from gymcli.data.validation import Validation, validate

__all__ = [
    "Comparison",
    "Provenance",
    "Pulled",
    "Spread",
    "Statistics",
    "Validation",
    "compare_generated",
    "describe_tasks",
    "generated_rows",
    "pull",
    "rendered_rows",
    "validate",
    "whole_file",
]
