"""A recorded rollout becomes a score: at collection, and any time later from the file."""

from gymcli.scoring.context import VerifyContext
from gymcli.scoring.rescored import (
    AttemptErrorText,
    Numbers,
    Rescored,
    RescoreJob,
    Scorers,
    compared,
    kept,
    new_line,
    rescore_elsewhere,
    rescore_file,
    rescore_lines,
    unscored,
)
from gymcli.scoring.verifying import score, score_group
from gymcli.scoring.workers import Workers

__all__ = [
    "AttemptErrorText",
    "Numbers",
    "RescoreJob",
    "Rescored",
    "Scorers",
    "VerifyContext",
    "Workers",
    "compared",
    "kept",
    "new_line",
    "rescore_elsewhere",
    "rescore_file",
    "rescore_lines",
    "score",
    "score_group",
    "unscored",
]
