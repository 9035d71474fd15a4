"""One episode: the loop between model and environment, recorded as it goes."""

from gymcli.rollout.flight import Flight
from gymcli.rollout.plan import (
    Episode,
    EpisodeFailedError,
    EpisodeLimits,
    EpisodePlan,
    Policy,
    attempt_seed,
)
from gymcli.rollout.playing import DEFAULT_MAX_TURNS, play
from gymcli.rollout.watchdog import Watchdog

__all__ = [
    "DEFAULT_MAX_TURNS",
    "Episode",
    "EpisodeFailedError",
    "EpisodeLimits",
    "EpisodePlan",
    "Flight",
    "Policy",
    "Watchdog",
    "attempt_seed",
    "play",
]
