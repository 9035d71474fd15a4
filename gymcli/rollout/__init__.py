"""One episode: the loop between model and environment, recorded as it goes."""

from gymcli.rollout.plan import (
    Episode,
    EpisodeFailedError,
    EpisodeLimits,
    EpisodePlan,
    Policy,
    attempt_seed,
)
from gymcli.rollout.playing import DEFAULT_MAX_TURNS, play

__all__ = [
    "DEFAULT_MAX_TURNS",
    "Episode",
    "EpisodeFailedError",
    "EpisodeLimits",
    "EpisodePlan",
    "Policy",
    "attempt_seed",
    "play",
]
