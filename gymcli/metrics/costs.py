"""What attempts took, added up: tokens, money, models beside the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gymcli.metrics.sums import RunningSum
from gymcli.types import RoleUse, Usage

__all__ = ["Cost", "RoleTotal", "Totals", "add_role_usage"]


class Cost:
    """What attempts cost, added up."""

    def __init__(self) -> None:
        self._sum = RunningSum()
        self._is_known = True
        self._is_any = False

    @property
    def total(self) -> float | None:
        """The sum; None where it is not known of every attempt, or there is none."""
        return self._sum.total if self._is_any and self._is_known else None

    def add(self, cost: float | None) -> None:
        """Add the cost of one attempt."""
        if cost is None:
            self._is_known = False
        else:
            self._is_any = True
            self._sum.add(cost)

    def add_all(self, costs: Sequence[float | None]) -> None:
        """Add the costs of several attempts."""
        known = [cost for cost in costs if cost is not None]
        self._is_known = self._is_known and len(known) == len(costs)
        self._is_any = self._is_any or bool(known)
        if known:
            self._sum.add_values(known)

    def add_sum(self, other: Cost) -> None:
        """Add up two sums."""
        self._sum.add_all(other._sum)
        self._is_known = self._is_known and other._is_known
        self._is_any = self._is_any or other._is_any


class RoleTotal:
    """What one model beside the policy took, added up, whatever the order."""

    def __init__(self) -> None:
        self._counts = RoleUse()
        self._cost = Cost()
        self._seconds = RunningSum()

    @property
    def use(self) -> RoleUse:
        """The sum."""
        return msgspec.structs.replace(
            self._counts,
            cost=self._cost.total,
            seconds=self._seconds.total,
            retries=dict(sorted(self._counts.retries.items())),
        )

    def add(self, use: RoleUse) -> None:
        """Add what one attempt took."""
        self._counts.add(use)
        self._seconds.add(use.seconds)
        if use.num_calls or use.cost is not None:
            self._cost.add(use.cost)

    def add_sum(self, other: RoleTotal) -> None:
        """Add up two sums."""
        self._counts.add(other._counts)
        self._seconds.add_all(other._seconds)
        self._cost.add_sum(other._cost)


class Totals(NamedTuple):
    """What attempts took, added up."""

    usage: Usage
    cost: Cost
    role_usage: dict[str, RoleTotal]
    retries: Counter[str]

    def add_roles(self, roles: Mapping[str, RoleTotal]) -> None:
        """Add what models beside the policy took, role by role."""
        for role, total in roles.items():
            self.role_usage.setdefault(role, RoleTotal()).add_sum(total)


def add_role_usage(total: dict[str, RoleTotal], more: Mapping[str, RoleUse]) -> None:
    """Add what models beside the policy took for one attempt, role by role."""
    for role, use in more.items():
        total.setdefault(role, RoleTotal()).add(use)
