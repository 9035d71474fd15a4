"""What one worker has been handed, as the driver sees it."""

from __future__ import annotations

from gymcli.engines.process import WorkerProcess
from gymcli.engines.units import Unit
from gymcli.types import AttemptKey, Rollout

__all__ = ["Hand"]

_MIN_RESERVE = 2
"""Attempts that a worker has beyond those under way, at least."""


class Hand:
    """What one worker has, and where it stands."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.place = ""
        self.is_open = False
        self.units: dict[Unit, None] = {}
        """Those that have attempts left, in the order in which they were handed out."""
        self._unit_of: dict[AttemptKey, Unit] = {}
        self.num_under_way = 0
        self.num_ended = 0
        """Attempts that ended in its last step."""
        self.num_written = 0
        self.num_verdicts = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing."""
        return not self.units

    def room(self, concurrency: int) -> int:
        """Give how many attempts it is to get: what ends within two steps must be there already."""
        if len(self.units) == 1 and next(iter(self.units)).is_alone:
            return 0
        return concurrency + max(_MIN_RESERVE, 2 * self.num_ended) - len(self._unit_of)

    def add(self, unit: Unit) -> None:
        """Note what it is handed."""
        self.units[unit] = None
        self._unit_of.update(dict.fromkeys(unit.left, unit))

    def save(self, rollout: Rollout) -> None:
        """Note that a conversation is over."""
        self._unit_of[rollout.key].save(rollout)

    def end(self, key: AttemptKey) -> None:
        """Note that an attempt ended."""
        unit = self._unit_of.pop(key)
        unit.left.discard(key)
        if not unit.left:
            del self.units[unit]
