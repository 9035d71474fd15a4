"""What attempts took and how they ended, added up: tokens, money, models beside the policy."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gymcli.metrics.scored_lines import FailureLine, ScoredLine
from gymcli.types import RoleUse, Usage

__all__ = ["Cost", "RoleTotal", "Totals"]


class Cost:
    """What attempts cost; the sum is rounded once, whatever their order."""

    def __init__(self) -> None:
        self._known = array("d")
        self._is_complete = True

    @property
    def total(self) -> float | None:
        """The sum; None where it is not known of every attempt, or there is none."""
        return math.fsum(self._known) if self._known and self._is_complete else None

    def extend(self, costs: Sequence[float | None]) -> None:
        """Add the costs of attempts, None where one is not known."""
        known = [cost for cost in costs if cost is not None]
        self._is_complete = self._is_complete and len(known) == len(costs)
        self._known.extend(known)

    def add(self, other: Cost) -> None:
        """Add the costs of other attempts."""
        self._known.extend(other._known)
        self._is_complete = self._is_complete and other._is_complete


class RoleTotal:
    """What one model beside the policy took."""

    def __init__(self) -> None:
        self._counts = RoleUse()
        self._cost = Cost()
        self._seconds = array("d")

    @property
    def use(self) -> RoleUse:
        """The sum."""
        return msgspec.structs.replace(
            self._counts,
            cost=self._cost.total,
            seconds=math.fsum(self._seconds),
            retries=dict(sorted(self._counts.retries.items())),
        )

    def extend(self, use: RoleUse) -> None:
        """Add what one attempt took."""
        self._counts.add(use)
        self._seconds.append(use.seconds)
        if use.num_calls or use.cost is not None:
            self._cost.extend([use.cost])

    def add(self, other: RoleTotal) -> None:
        """Add what other attempts took."""
        self._counts.add(other._counts)
        self._seconds.extend(other._seconds)
        self._cost.add(other._cost)


class Totals:
    """What attempts took and how they ended."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost = Cost()
        self.role_usage: dict[str, RoleTotal] = {}
        self.retries: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.tool_errors: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """Unscored attempts by the class of their last error."""

    def add_scored(self, lines: Sequence[ScoredLine]) -> None:
        """Add scored attempts."""
        self.stop_reasons.update([line.stop_reason for line in lines])
        for line in lines:
            self.usage.add(line.usage)
        self.cost.extend([line.cost for line in lines])
        for counts in filter(None, [line.tool_errors for line in lines]):
            self.tool_errors.update(counts)
        for counts in filter(None, [line.retries for line in lines]):
            self.retries.update(counts)
        for roles in filter(None, [line.role_usage for line in lines]):
            self._add_roles(roles)

    def add_unscored(self, lines: Iterable[FailureLine]) -> None:
        """Add attempts that were not scored.

        A failure that was made up for is not to be among them: where only its verifier had failed,
        the scored line has the same tokens again.
        """
        for line in lines:
            self.failures[line.error.error_class] += 1
            self.usage.add(line.usage)
            if line.cost is not None or line.usage.prompt_tokens or line.usage.completion_tokens:
                self.cost.extend([line.cost])  # what failed before an answer cost nothing
            self.retries.update(line.retries)
            self._add_roles(line.role_usage)

    def add(self, other: Totals) -> None:
        """Add what other attempts took."""
        self.usage.add(other.usage)
        self.cost.add(other.cost)
        for role, total in other.role_usage.items():
            self.role_usage.setdefault(role, RoleTotal()).add(total)
        self.retries.update(other.retries)
        self.stop_reasons.update(other.stop_reasons)
        self.tool_errors.update(other.tool_errors)
        self.failures.update(other.failures)

    def _add_roles(self, roles: Mapping[str, RoleUse]) -> None:
        for role, use in roles.items():
            self.role_usage.setdefault(role, RoleTotal()).extend(use)
