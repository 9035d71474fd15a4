"""The addresses of one endpoint, and which of them a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gymcli.client.governor import Governor
from gymcli.client.http import Target

__all__ = ["Home", "Replica", "Replicas"]


class Replica(NamedTuple):
    """One address."""

    target: Target
    governor: Governor


class Home:
    """Where a conversation is at home: its turns go there as long as it is up."""

    __slots__ = ("left", "replica")

    def __init__(self) -> None:
        self.replica: Replica | None = None
        self.left: Replica | None = None
        """Where it could not be reached the last time."""

    def leave(self) -> None:
        """Go elsewhere next time, if there is anywhere else."""
        self.left, self.replica = self.replica, None


class Replicas:
    """Shares requests among the addresses that are up, by how busy each of them is."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._all = tuple(replicas)

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
        if len(self._all) == 1:
            return self._least_waited_for()
        at_home = home.replica
        if at_home is not None and not at_home.governor.breaker.is_open:
            return at_home
        up = [replica for replica in self._all if not replica.governor.breaker.is_open]
        if not up:
            return self._least_waited_for()
        if at_home is None and (due := self._due()) is not None:
            return due
        others = [replica for replica in up if replica is not home.left]
        return min(others or up, key=lambda replica: replica.governor.load)

    def _due(self) -> Replica | None:
        """Give an address that is gone and to be probed: a new conversation loses least by it."""
        for replica in self._all:
            breaker = replica.governor.breaker
            if breaker.is_open and not breaker.delay:
                return replica
        return None

    def _least_waited_for(self) -> Replica:
        left = [replica for replica in self._all if not replica.governor.breaker.has_given_up]
        if not left:
            last = min(self._all, key=lambda replica: replica.governor.breaker.outage_seconds)
            raise last.governor.breaker.error()
        return min(left, key=lambda replica: replica.governor.num_waiting)
