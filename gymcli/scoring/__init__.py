"""A recorded rollout becomes a score: at collection, and any time later from the file."""

from gymcli.scoring.context import VerifyContext
from gymcli.scoring.groups import score_group
from gymcli.scoring.isolation import Workers
from gymcli.scoring.rescored import AttemptErrorText, Rescored, kept, rescored, unscored
from gymcli.scoring.stored import RescoreJob, rescore
from gymcli.scoring.verifying import score

__all__ = [
    "AttemptErrorText",
    "RescoreJob",
    "Rescored",
    "VerifyContext",
    "Workers",
    "kept",
    "rescore",
    "rescored",
    "score",
    "score_group",
    "unscored",
]
