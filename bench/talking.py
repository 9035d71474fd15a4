"""An environment with conversations of a given number of turns, for `bench/conversations.py`.

{"id": "task-0", "prompt": "Let us talk."}
"""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from gymcli import Context, Environment, EnvironmentOptions, Message, Rollout, Score, Task

__all__ = ["TEXT", "Lockstep", "Talk"]

TEXT = "Go on with the story, and say what happens next in a sentence or two. " * 3
"""The text of each turn of the user."""


class Lockstep:
    """Lets conversations take their turns together, and reads the CPU clock between two turns.

    The difference of two readings is the CPU time of one turn of all conversations.
    """

    def __init__(self, num: int) -> None:
        self.readings: list[float] = []
        """CPU seconds of the process each time that all had arrived."""
        self._barrier = asyncio.Barrier(num)

    async def wait(self) -> None:
        """Wait until all conversations wait here."""
        position = await self._barrier.wait()
        if position == self._barrier.parties - 1:  # the last to arrive reads the clock
            self.readings.append(time.process_time())


class Talk(Environment[Task]):
    """Talk about nothing, as long as asked."""

    max_turns = 1_000_000
    lockstep: ClassVar[Lockstep | None] = None

    class Options(EnvironmentOptions):
        """The number of user turns."""

        num_turns: int = 100

    options: Options

    async def setup(self) -> list[Message]:
        """Wait until all conversations begin."""
        await self._wait()
        self._num_said = 0
        return []

    async def reply(self, rollout: Rollout) -> str | None:
        """Wait for the other conversations, then return the same text in every turn."""
        await self._wait()
        self._num_said += 1
        return TEXT if self._num_said < self.options.num_turns else None

    async def _wait(self) -> None:
        if self.lockstep is not None:
            await self.lockstep.wait()

    @classmethod
    async def verify(cls, rollout: Rollout, context: Context) -> Score:
        """Reward 1 for an answer."""
        return Score(1.0)
