"""Which rollouts are listed and in which order; what was found stays until the run has grown."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gymcli.errors import FilterError
from gymcli.filters import parse_filter
from gymcli.index import Refreshed, RunIndex
from gymcli.reporting.viewer_numbers import REST
from gymcli.reporting.viewer_queries import Query, RefusedError

__all__ = ["REWARD_CHOICES", "Choices", "Listing", "Listings", "listing_of", "quoted"]

REWARD_CHOICES = {
    "passed": "passed == True",
    "not-passed": "passed == False",
    "zero": "reward == 0",
    "between": "0 < reward < 1",
    "mixed": "0 < avg < 1",
}
"""Expressions by the names of the quick choices."""

_EQUAL = {"only_env": "env", "only_status": "status", "only_stop_reason": "stop_reason"}
"""The names of a row by the quick choices that ask for one value of them."""

_MAX_KEPT = 8
"""Lists that are kept; each takes 8 bytes a rollout."""
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
"""What cannot stand in the quotes of an expression as it is."""

Choices = dict[str, dict[str, int]]
"""By name, how many rollouts have each value."""


class Listing(NamedTuple):
    """Which rollouts, and in which order."""

    expression: str = ""
    """A filter; empty: all."""
    sort: str = ""


class _Found(NamedTuple):
    rows: list[int]
    version: int
    fresh_until: float


def listing_of(query: Query) -> Listing:
    """Read which rollouts are asked for: by an expression, and by quick choices.

    Raises:
        RefusedError: The expression is none, or there is no such choice.

    """
    parts = []
    where = query.text("where").strip()
    if where:
        try:
            parse_filter(where)
        except FilterError as error:
            raise RefusedError(400, str(error), field="where") from error
        parts.append(where)
    for choice, name in _EQUAL.items():
        if value := query.text(choice):
            parts.append(f"{name} == {quoted(value)}")
    if reward := query.text("only_reward"):
        if reward not in REWARD_CHOICES:
            known = ", ".join(REWARD_CHOICES)
            raise RefusedError(400, f"only_reward: there are {known}", field="only_reward")
        parts.append(REWARD_CHOICES[reward])
    if text := query.text("containing"):
        parts.append(f"contains(text, {quoted(text)})")
    joined = parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
    return Listing(joined, query.text("sort"))


def quoted(text: str) -> str:
    """Give a text as an expression has it, in quotes."""
    return f'"{_TO_ESCAPE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}" if found[0] in '"\\' else f"\\u{ord(found[0]):04x}"


class Listings:
    """The lists of one run; used by one thread at a time.

    Args:
        index: The run.
        clock: Tells the time in seconds.

    """

    def __init__(self, index: RunIndex, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._index = index
        self._clock = clock
        self._version = 0
        self._kept: dict[Listing, _Found] = {}
        self._choices: tuple[int, Choices] | None = None

    @property
    def version(self) -> int:
        """A number that grows with what is on record."""
        return self._version

    def version_of(self, listing: Listing) -> int:
        """Give the version that the rows of a list are of: an older one while a search rests."""
        found = self._kept.get(listing)
        return self._version if found is None else found.version

    def take(self, refreshed: Refreshed) -> None:
        """Take notice of what is on record beside what was before."""
        if refreshed.is_rebuilt:
            self._kept.clear()
        if refreshed.is_rebuilt or refreshed.num_new or refreshed.num_changed:
            self._version += 1

    def rows(self, listing: Listing) -> Sequence[int]:
        """Give the numbers of the rows that are listed.

        Raises:
            RefusedError: A name is unknown, or a value does not fit.
            UsageError: A line cannot be read.

        """
        if not any(listing):
            return range(len(self._index.rows))
        found = self._kept.pop(listing, None)
        if found is None or (found.version != self._version and self._clock() > found.fresh_until):
            found = self._search(listing)
        self._kept[listing] = found
        while len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return found.rows

    def _search(self, listing: Listing) -> _Found:
        started = self._clock()
        try:
            wanted = parse_filter(listing.expression) if listing.expression else None
            rows = self._index.select(wanted, sort=listing.sort)
        except FilterError as error:
            raise RefusedError(400, str(error), field="where") from error
        ended = self._clock()
        return _Found(rows, self._version, ended + REST * (ended - started))

    def choices(self) -> Choices:
        """Count the rollouts by environment, status and stop reason, as the quick choices show."""
        if self._choices is None or self._choices[0] != self._version:
            names = ("env", "status", "stop_reason")
            found = {name: _counted(self._index.values(name)) for name in names}
            self._choices = self._version, found
        return self._choices[1]


def _counted(values: Iterable[object]) -> dict[str, int]:
    """Count texts, the commonest first; rows that have none are left out."""
    counts = Counter(values)
    return {str(value): count for value, count in counts.most_common() if value is not None}
