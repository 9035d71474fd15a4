"""The author's workbench: begin an environment, and find out whether its scores can be trusted."""

from gymcli.checking.checks import CHECKS, DEFAULT_LIMIT, check, check_async
from gymcli.checking.creation import NewFiles, Pattern, create
from gymcli.checking.report import CheckReport, Finding

__all__ = [
    "CHECKS",
    "DEFAULT_LIMIT",
    "CheckReport",
    "Finding",
    "NewFiles",
    "Pattern",
    "check",
    "check_async",
    "create",
]
