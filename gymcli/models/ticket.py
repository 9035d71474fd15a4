"""One request on its way through a governor: since when, how large, what it met."""

from __future__ import annotations

import msgspec

from gymcli.types import JSONObject, Tries

__all__ = ["Ticket"]


class Ticket(msgspec.Struct, eq=False):
    """One request on its way, through all of its tries."""

    since: float
    """When it was first there; who came first goes first, also to try again."""
    num_bytes: int
    """Of the request's body."""
    params: JSONObject
    tries: Tries = msgspec.field(default_factory=Tries)
    """Those that gave no answer."""
    waited: float = 0.0
    """Seconds in line which were no fault of its own."""
    was_sent: bool = False
    """Since it last began to wait."""
    was_refused: bool = False
    """Its last try was too much."""
    met_outage: bool = False
    """Its last try met an address that is gone, as the breaker knows."""
    epoch: int = 0
    is_probe: bool = False
    tokens: float = 0.0
    """Reserved for it where tokens are counted; guessed once, for all of its tries."""
