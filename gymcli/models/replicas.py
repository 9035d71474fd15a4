"""The addresses of one endpoint, and which of them a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gymcli.models.governor import Governor
from gymcli.models.http import Target

__all__ = ["Home", "Replica", "Replicas"]


class Replica(NamedTuple):
    """One address."""

    target: Target
    governor: Governor


class Home(msgspec.Struct, eq=False):
    """Where a conversation is at home: its turns go there as long as it is up."""

    replica: Replica | None = None
    left: Replica | None = None
    """Where it failed the last time."""
    waited: float = 0.0
    """Seconds in which nobody worked on a request of it, though it had one."""
    idle_since: float | None = None
    """Since when that is so again."""

    def go_on(self, now: float) -> None:
        """Take notice that somebody may work on it now."""
        if self.idle_since is not None:
            self.waited += now - self.idle_since
        self.idle_since = None

    def leave(self) -> None:
        """Go elsewhere next time, if there is anywhere else."""
        self.left, self.replica = self.replica, None


class Replicas:
    """Shares requests among the addresses that are up, by how busy each of them is."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._all = tuple(replicas)
        self._only = self._all[0] if len(self._all) == 1 else None

    @property
    def was_reached(self) -> bool:
        """Whether one of them ever answered anything."""
        return any(replica.governor.breaker.was_reached for replica in self._all)

    @property
    def num_outages(self) -> int:
        """How often one of them was gone."""
        return sum(replica.governor.breaker.num_outages for replica in self._all)

    @property
    def outage_seconds(self) -> float:
        """How long they were gone, all of them together."""
        return sum(replica.governor.breaker.outage_seconds for replica in self._all)

    def choose(self, home: Home) -> Replica:
        """Give the address for the next request of a conversation.

        Raises:
            EndpointGoneError: All addresses were given up.

        """
        if (only := self._only) is not None:
            if only.governor.breaker.has_given_up:
                raise only.governor.breaker.error()
            return only
        at_home = home.replica
        if at_home is not None:
            governor = at_home.governor
            if not (governor.breaker.is_open or governor.is_paused):
                return at_home
        up = [replica for replica in self._all if not replica.governor.breaker.is_open]
        if not up:
            return self._to_wait_for(home)
        if at_home is None and (due := self._due(home)) is not None:
            return due
        others = [replica for replica in up if replica is not home.left]
        return min(others or up, key=lambda replica: replica.governor.load)

    def _due(self, home: Home) -> Replica | None:
        """Give an address that is gone and to be probed: a new conversation loses least by it."""
        for replica in self._all:
            breaker = replica.governor.breaker
            if breaker.is_open and not breaker.delay and replica is not home.left:
                return replica
        return None

    def _to_wait_for(self, home: Home) -> Replica:
        """Give one of those that are all gone; one that was given up may be back, too."""
        left = [replica for replica in self._all if not replica.governor.breaker.has_given_up]
        if not left:
            last = min(self._all, key=lambda replica: replica.governor.breaker.outage_seconds)
            raise last.governor.breaker.error()
        due = self._due(home)
        return due or min(left, key=lambda replica: replica.governor.num_waiting)
