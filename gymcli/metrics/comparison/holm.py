"""P-values of several tests at once."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> list[float]:
    """Give each p-value adjusted for all of them: below alpha, it is significant among them all.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the chance of one false
    alarm or more stays below alpha, whatever the tests have to do with each other.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    by_size = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, place in enumerate(by_size):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
