"""What an endpoint allows a minute, where the user says so, and how that is kept to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Bucket", "Limits"]

_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Limits(BaseModel):
    """The `limits` of a model in gym.toml; None: unknown, to be found out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Rate | None = None
    tokens_per_minute: _Rate | None = None
    """Of prompts and answers together."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Requests under way at once; `--concurrency` may be less."""


class Bucket:
    """Lets so much pass a minute, evenly: not more at once than comes within a second.

    What is larger than that passes when nothing is owed, and is paid back by waiting.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._per_second = per_minute / 60
        self._size = max(1.0, self._per_second)
        self._level = self._size
        self._clock = clock
        self._filled_at = clock()

    def delay(self, amount: float) -> float:
        """Give the seconds until so much may pass."""
        missing = min(amount, self._size) - self._filled()
        # Sums of floats: a trillionth that is missing must not be waited for.
        return missing / self._per_second if missing > 1e-6 * self._size else 0.0

    def take(self, amount: float) -> None:
        """Let so much pass; the bucket may owe it."""
        self._level = self._filled() - amount

    def give_back(self, amount: float) -> None:
        """Take back what was not needed; less than nothing was needed on top."""
        self._level = min(self._size, self._filled() + amount)

    def _filled(self) -> float:
        now = self._clock()
        grown = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._size, grown), now
        return self._level
