"""One request on its way through a governor: since when, how large, what it met."""

from __future__ import annotations

from gymcli.types import JSONObject, Tries

__all__ = ["Ticket"]


class Ticket:
    """One request on its way, through all of its tries."""

    __slots__ = (
        "epoch",
        "is_probe",
        "met_outage",
        "num_bytes",
        "params",
        "since",
        "tokens",
        "tries",
        "waited",
        "was_refused",
        "was_sent",
    )

    def __init__(
        self, since: float, num_bytes: int, params: JSONObject, tries: Tries | None = None
    ) -> None:
        self.since = since
        """When it was first there; who came first goes first, also to try again."""
        self.num_bytes = num_bytes
        """Of the request's body."""
        self.params = params
        self.tries = tries or Tries()
        """Those that gave no answer."""
        self.waited = 0.0
        """Seconds in line which were no fault of its own."""
        self.was_sent = False
        """Since it last began to wait."""
        self.was_refused = False
        """Its last try was too much."""
        self.met_outage = False
        """Its last try met an address that is gone, as the breaker knows."""
        self.epoch = 0
        self.is_probe = False
        self.tokens = 0.0
        """Reserved for it where tokens are counted; guessed once, for all of its tries."""
