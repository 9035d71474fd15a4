"""Models beside the policy: a judge, a simulated user, a reward model, a judge of pairs."""

from gymcli.roles.judge import Judge, Verdict
from gymcli.roles.reward import Comparison, PairwiseJudge, RewardModel
from gymcli.roles.stand_in import StandIn
from gymcli.roles.user import SimulatedUser, UserTurn

__all__ = [
    "Comparison",
    "Judge",
    "PairwiseJudge",
    "RewardModel",
    "SimulatedUser",
    "StandIn",
    "UserTurn",
    "Verdict",
]
