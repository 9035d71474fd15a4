"""The governors of a run: one for each address and key, whoever asks there."""

from __future__ import annotations

import asyncio
import time

from gymcli.models.breaker import Breaker
from gymcli.models.endpoint import Endpoint
from gymcli.models.governor import Clock, Governor, Sleep

__all__ = ["Governors"]


class Governors:
    """Gives models that are behind the same address, and have the same key, the same governor."""

    def __init__(
        self, ceiling: int, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self._ceiling = ceiling
        self._governors: dict[tuple[str, object], Governor] = {}

    @property
    def num_outages(self) -> int:
        """How often an address was gone."""
        return sum(governor.breaker.num_outages for governor in self._governors.values())

    @property
    def outage_seconds(self) -> float:
        """How long addresses were gone, all of them together."""
        return sum(governor.breaker.outage_seconds for governor in self._governors.values())

    def of(self, base_url: str, endpoint: Endpoint) -> Governor:
        """Give the governor of an address; deadlines are those of who asks first."""
        # Some providers take the key in a header of its own; a secret text compares by its value.
        key = (base_url, (endpoint.api_key, *sorted(endpoint.headers.items(), key=_name)))
        governor = self._governors.get(key)
        if governor is None:
            breaker = Breaker(
                base_url,
                deadline=endpoint.outage_deadline,
                # A request that is refused whatever the others are fails by itself before.
                storm_deadline=endpoint.retry_deadline + endpoint.outage_deadline,
                clock=self.clock,
            )
            governor = self._governors[key] = Governor(
                breaker,
                ceiling=self._ceiling,
                max_retry_after=endpoint.max_retry_after,
                on_change=self._send_away,
                clock=self.clock,
                sleep=self.sleep,
            )
        governor.keep_to(endpoint.limits)
        return governor

    def _send_away(self) -> None:
        """Let those who wait for an address that is gone choose anew: another may be back."""
        for governor in self._governors.values():
            if governor.breaker.is_open:
                governor.send_away()


def _name(item: tuple[str, object]) -> str:
    return item[0].lower()
