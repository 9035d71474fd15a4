"""How much the mock server takes on before it answers 429."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["TokenBucket"]


class TokenBucket:
    """Lets so many requests a minute through, evenly: it holds those of one second, at least one.

    https://platform.openai.com/docs/guides/rate-limits: a limit a minute may be enforced over
    shorter times.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second)
        self._tokens = self._most
        self._clock = clock
        self._filled = clock()

    def take(self) -> bool:
        """Say whether one more request may pass, and count it if so."""
        now = self._clock()
        gained = (now - self._filled) * self._per_second
        self._tokens = min(self._most, self._tokens + gained)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
