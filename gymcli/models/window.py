"""How many requests an endpoint takes at once, found out from what it refuses (AIMD).

The scheme of TCP (RFC 5681), with four differences that requests allow: it starts at the ceiling,
since refusals are cheap and most endpoints can do what the user asked for; a refusal is known at
once and takes back its own place only, and an answer gives all places back; where few of a window
were refused the endpoint's capacity is one less, not half; and nothing that was refused makes it
less than what the endpoint was seen to work on. That is the number under way when answers come
(Little's law): where too much is refused it is the capacity, and where requests are refused at
random, whatever there is to do, it is the limit, which then stays.
"""

from __future__ import annotations

__all__ = ["Window"]

_HEAVY = 0.4
"""Share of refusals in a window from which on half as many are taken for its capacity. One of two
is refused while the limit grows far above the capacity; fewer say that it is near."""

_PATIENCE = 10
"""Windows without a refusal after which the limit grows faster and faster."""


class Window:
    """The number of requests that may be under way at once, from 1 to a ceiling."""

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = float(ceiling)
        self.capacity = float(ceiling)
        """What the endpoint is thought to take: up to here the limit grows with an answer, beyond
        by one for as many answers as it allows at once."""
        self._num_answers = 0
        self._num_refused = 0
        self._num_quiet = 0
        self._sum_under_way = 0
        """Of the window's answers."""

    def lower(self, ceiling: int) -> None:
        """Keep to a lower ceiling from now on; a higher one changes nothing."""
        self.ceiling = min(self.ceiling, ceiling)
        self.capacity = min(self.capacity, self.ceiling)
        self.limit = min(self.limit, self.ceiling)

    def answered(self, num_under_way: int) -> None:
        """Take notice of an answer, which counts itself as under way.

        The limit grows only where it was used up: else nothing is known about more.
        """
        self._num_answers += 1
        self._num_quiet += 1
        self._sum_under_way += num_under_way
        if self.limit < self.capacity:
            self.limit = self.capacity
            return
        if self.limit == self.ceiling or num_under_way + 1 <= self.limit:
            return
        extra = int(self._num_quiet / self.limit) - _PATIENCE
        step = min(2.0 ** min(max(extra, 0), 32), self.limit)
        self.limit = self.capacity = min(self.limit + step / self.limit, self.ceiling)

    def refused(self, num_others: int) -> None:
        """Take notice of a request that was too much, while so many others are under way."""
        self._num_answers += 1
        self._num_refused += 1
        self._num_quiet = 0
        self.limit = max(1.0, min(max(self.limit - 1, num_others), self.capacity))
        if self._num_answers < self.capacity:
            return
        is_heavy = self._num_refused >= _HEAVY * self._num_answers
        less = self.capacity / 2 if is_heavy else self.capacity - 1
        seen = self._sum_under_way / max(1, self._num_answers - self._num_refused)
        self.capacity = max(1.0, min(self.capacity, max(less, seen)))
        self.limit = min(self.limit, self.capacity)
        self._num_answers = self._num_refused = self._sum_under_way = 0
