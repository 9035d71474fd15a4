"""Reminds many of their moment, all of a second with one timer."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

__all__ = ["Reminded", "Reminders"]


class Reminded(Protocol):
    """Somebody who has a moment."""

    def remind(self) -> None:
        """Take notice that the moment is there, or comes within a second."""
        ...


class _Second(NamedTuple):
    """Who is reminded at its beginning."""

    reminded: set[Reminded]
    timer: asyncio.TimerHandle


class Reminders:
    """Those who are to be reminded in the running loop.

    Nearly all are forgotten before their moment, and a timer for each costs several times as much.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[int, _Second] = {}

    def add(self, one: Reminded, seconds: float) -> int:
        """Remind one in so many seconds, or up to one before; give the number for `forget`."""
        loop = asyncio.get_running_loop()
        number = int(loop.time() + seconds)
        second = self._seconds.get(number)
        if second is None:
            timer = loop.call_at(number, self._remind, number)
            second = self._seconds[number] = _Second(set(), timer)
        second.reminded.add(one)
        return number

    def forget(self, one: Reminded, number: int) -> None:
        """Remind one no more, whether it was reminded or not."""
        second = self._seconds.get(number)
        if second is None:
            return
        second.reminded.discard(one)
        if not second.reminded:
            second.timer.cancel()
            del self._seconds[number]

    def _remind(self, number: int) -> None:
        for one in self._seconds.pop(number).reminded:
            one.remind()
