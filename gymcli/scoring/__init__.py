"""A recorded rollout becomes a score: at collection, and any time later from the file."""

from gymcli.scoring.context import VerifyContext
from gymcli.scoring.groups import score_group
from gymcli.scoring.isolation import Workers
from gymcli.scoring.parts import Batch, RescoreJob, score_lines
from gymcli.scoring.pool import Scorers
from gymcli.scoring.rescored import (
    AttemptErrorText,
    Numbers,
    Rescored,
    RescoredLines,
    kept,
    rescored,
    unscored,
)
from gymcli.scoring.stored import rescore, rescore_batches
from gymcli.scoring.verifying import score

__all__ = [
    "AttemptErrorText",
    "Batch",
    "Numbers",
    "RescoreJob",
    "Rescored",
    "RescoredLines",
    "Scorers",
    "VerifyContext",
    "Workers",
    "kept",
    "rescore",
    "rescore_batches",
    "rescored",
    "score",
    "score_group",
    "score_lines",
    "unscored",
]
