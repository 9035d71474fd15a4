"""Whether an address is there: after failures in a row it is only probed, at last given up."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from gymcli.errors import EndpointGoneError, ModelError
from gymcli.models.api_errors import is_unreachable

__all__ = ["FIRST_CONTACT_DEADLINE", "MIN_FAILURES", "CircuitBreaker"]

_LOGGER = logging.getLogger(__name__)

MIN_FAILURES = 8
"""Failures in a row after which an address seems to be gone; or as many as are still under way, if
these are more. Failures come fast and answers slowly, so that where each fifth request fails by
itself, the first ones to end are failures."""

FIRST_CONTACT_DEADLINE = 10.0
"""Seconds, in place of a longer deadline, while the endpoint never answered: the user should soon
know of a wrong address, while a server that restarts has the endpoint's patience."""

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
"""Seconds between probes."""


class CircuitBreaker:
    """Follows what one address answers; nothing in here waits.

    The methods that record something return whether it changes what is thought of the address.

    Args:
        place: The address, for messages.
        deadline: Seconds after which an address that is gone is given up.
        overload_deadline: Seconds after which one is given up that only says "too much".
        clock: Returns the time in seconds.

    """

    def __init__(
        self, place: str, *, deadline: float, overload_deadline: float, clock: Callable[[], float]
    ) -> None:
        self._place = place
        self._deadline = deadline
        self._overload_deadline = overload_deadline
        self._clock = clock
        self.is_open = False
        """The address seems to be gone: requests wait while one at a time probes it."""
        self.has_given_up = False
        self.was_reached = False
        """Whether it ever answered anything, or at least took a connection."""
        self.probe: object | None = None
        """The request that probes the address, while it is under way."""
        self.num_outages = 0
        self._opened_at = 0.0
        self._past_outage_seconds = 0.0
        self._num_in_a_row = 0
        self._failed_requests: set[object] = set()
        """Those that met the failures in a row."""
        self._overloaded_since: float | None = None
        self._last_error: ModelError | None = None
        self._next_probe_at = 0.0
        self._pause = _FIRST_PAUSE

    @property
    def outage_seconds(self) -> float:
        """How long the address was gone, all outages together."""
        current = self._clock() - self._opened_at if self.is_open else 0.0
        return self._past_outage_seconds + current

    @property
    def seconds_left(self) -> float:
        """Seconds until the address is given up."""
        if self.has_given_up:
            return math.inf
        deadline = self._deadline
        if not self.was_reached:
            deadline = min(deadline, FIRST_CONTACT_DEADLINE)
        return max(0.0, self._opened_at + deadline - self._clock())

    @property
    def is_overdue(self) -> bool:
        """Whether the address is gone and should be given up."""
        return self.is_open and not self.seconds_left

    @property
    def delay(self) -> float:
        """Seconds until the next request may go; infinite while a probe is under way."""
        if not self.is_open:
            return 0.0
        if self.probe is not None:
            return math.inf
        return max(0.0, self._next_probe_at - self._clock())

    def record_answer(self) -> bool:
        """Record a sign of life, which ends an outage."""
        self.was_reached = True
        self._overloaded_since = None
        self._num_in_a_row = 0
        self._failed_requests.clear()
        if not self.is_open:
            return False
        seconds = self._clock() - self._opened_at
        self._past_outage_seconds += seconds
        self.is_open = self.has_given_up = False
        self.probe = None
        _LOGGER.info("%s: is back after %.1f seconds", self._place, seconds)
        return True

    def record_overload(self, error: ModelError, *, num_others: int) -> bool:
        """Record an answer that says "too much".

        It is a sign of life, but one that does not end a time of overload: past the deadline, and
        with no other request under way, it makes the address be given up.
        """
        self._last_error = error
        now = self._clock()
        since = now if self._overloaded_since is None else self._overloaded_since
        if num_others or now - since < self._overload_deadline:
            is_back = self.record_answer()
            self._overloaded_since = since
            return is_back
        if not self.is_open:
            self._open(since=since)
        return self.give_up()

    def record_failure(self, error: ModelError, *, request: object, num_others: int) -> bool:
        """Record an error of the kind that an address has which is gone.

        Where connections are taken, failures that only one request met are its own: `request` is
        the same object for all of its tries. The `num_others` under way may still be answered.
        """
        is_nobody_there = is_unreachable(error)
        self.was_reached = self.was_reached or not is_nobody_there
        self._last_error = error
        self._num_in_a_row += 1
        if self.is_open:
            if request is not self.probe:
                return False
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._next_probe_at = self._clock() + self._pause
            return self.is_overdue and not num_others and self.give_up()
        self._failed_requests.add(request)
        if self._num_in_a_row < max(MIN_FAILURES, num_others):
            return False
        if len(self._failed_requests) == 1 and not is_nobody_there:
            return False
        self._open(since=self._clock())
        _LOGGER.info(
            "%s: seems to be gone (%d failures in a row), requests wait until it is back: %s",
            self._place,
            self._num_in_a_row,
            error,
        )
        return True

    def give_up(self) -> bool:
        """Wait for the address no longer."""
        if self.has_given_up:
            return False
        self.has_given_up = True
        _LOGGER.info("%s: given up after %.0f seconds", self._place, self.outage_seconds)
        return True

    def error(self) -> EndpointGoneError:
        """Return the error of an address that was given up, with the last one that it caused."""
        seconds = self._clock() - self._opened_at
        last = self._last_error
        words = f"{last} (nothing better for {seconds:.0f} seconds)"
        return EndpointGoneError(words, status=last.status if last is not None else None)

    def _open(self, *, since: float) -> None:
        self.is_open = True
        self.num_outages += 1
        self._opened_at = since
        self._pause = _FIRST_PAUSE
        self._next_probe_at = self._clock() + self._pause
