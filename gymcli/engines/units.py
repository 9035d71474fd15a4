"""What is left to be handed out: attempts one by one, those that are scored together as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from gymcli.engines.sending import key_of
from gymcli.runner.attempts import Attempt
from gymcli.types import Rollout

__all__ = ["Unit", "Units"]

_MAX_DEATHS_IN_COMPANY = 2
"""A unit that was with so many workers as they died is run alone, so that it is known whether it
kills them."""


class Unit:
    """Attempts that one worker runs."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self.attempts = {key_of(attempt): attempt for attempt in attempts}
        self.left = {key for key, attempt in self.attempts.items() if not attempt.is_done}
        """Attempts without an outcome."""
        self.num_deaths = 0
        """Workers that died while they had it."""

    @property
    def is_alone(self) -> bool:
        """Whether a worker must have nothing beside it."""
        return self.num_deaths >= _MAX_DEATHS_IN_COMPANY

    def save(self, rollout: Rollout) -> None:
        """Take a finished conversation, which is not played again if the worker dies."""
        attempt = self.attempts[rollout.key]
        self.attempts[rollout.key] = attempt._replace(plan=None, generation=rollout)

    def to_run(self) -> list[Attempt]:
        """Give what is left, and what was scored before and is there for the others."""
        return [
            attempt for key, attempt in self.attempts.items() if key in self.left or attempt.is_done
        ]


class Units:
    """Units in the order of the attempts; those of a worker that died come first."""

    def __init__(self, attempts: Iterator[Attempt]) -> None:
        self._attempts = attempts
        self._groups: dict[tuple[str, str], list[Attempt]] = {}
        self._returned: deque[Unit] = deque()
        self._next: Unit | None = None

    def put_back(self, unit: Unit) -> None:
        """Take a unit whose worker died."""
        self._returned.append(unit)

    def take(self, num_attempts: int, *, is_idle: bool) -> list[Unit]:
        """Give about so many attempts for one worker; none where there are none.

        Args:
            num_attempts: Room of the worker.
            is_idle: It has nothing to do; only then it gets a unit that must be alone.

        """
        taken: list[Unit] = []
        while num_attempts > 0 and (unit := self._peek()) is not None:
            if unit.is_alone and (taken or not is_idle):
                break
            self._drop()
            taken.append(unit)
            num_attempts -= len(unit.left)
            if unit.is_alone:
                break
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left, for now."""
        return self._peek() is None

    def _peek(self) -> Unit | None:
        if self._returned:
            return self._returned[0]
        if self._next is None:
            self._next = self._formed()
        return self._next

    def _drop(self) -> None:
        if self._returned:
            self._returned.popleft()
        else:
            self._next = None

    def _formed(self) -> Unit | None:
        """Form the next unit; at the end those of tasks whose attempts are not all there."""
        for attempt in self._attempts:
            if not attempt.group_size:
                return Unit([attempt])
            key = key_of(attempt)
            members = self._groups.setdefault((key.env, key.task_id), [])
            members.append(attempt)
            if len(members) == attempt.group_size:
                return Unit(self._groups.pop((key.env, key.task_id)))
        if not self._groups:
            return None
        return Unit(self._groups.pop(next(iter(self._groups))))
