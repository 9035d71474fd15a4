"""A recorded rollout becomes a score: at collection, and any time later from the file."""

from gymcli.scoring.context import VerifyContext
from gymcli.scoring.rescored import (
    AttemptErrorText,
    Numbers,
    Rescored,
    RescoreJob,
    Scorers,
    calls_before,
    compared,
    kept,
    new_line,
    rescore_elsewhere,
    rescore_file,
    rescore_lines,
    unscored,
)
from gymcli.scoring.verifying import score, score_group, verifies_in_loop
from gymcli.scoring.workers import Workers

__all__ = [
    "AttemptErrorText",
    "Numbers",
    "RescoreJob",
    "Rescored",
    "Scorers",
    "VerifyContext",
    "Workers",
    "calls_before",
    "compared",
    "kept",
    "new_line",
    "rescore_elsewhere",
    "rescore_file",
    "rescore_lines",
    "score",
    "score_group",
    "unscored",
    "verifies_in_loop",
]
