"""A recorded rollout becomes a score: at collection, and any time later from the file."""

from gymcli.scoring.context import VerifyContext, score
from gymcli.scoring.stored import Rescored, RescoreJob, rescore, verify

__all__ = ["RescoreJob", "Rescored", "VerifyContext", "rescore", "score", "verify"]
