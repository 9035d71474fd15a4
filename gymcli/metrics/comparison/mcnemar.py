"""McNemar's test: whether more tasks got worse than better than chance gives."""

from __future__ import annotations

import math

__all__ = ["coin_tail", "mcnemar_mid_p"]

_NEGLIGIBLE = 1e-18


def coin_tail(num_tosses: int, most_heads: int) -> tuple[float, float]:
    """Give the chance of at most so many heads of a fair coin, and of just so many."""
    if 2 * most_heads > num_tosses:
        above, _ = coin_tail(num_tosses, num_tosses - most_heads - 1)  # as many tails, and more
        _, just = coin_tail(num_tosses, num_tosses - most_heads)
        return 1.0 - above, just
    if most_heads < 0:
        return 0.0, 0.0
    log_chance = (
        math.lgamma(num_tosses + 1)
        - math.lgamma(most_heads + 1)
        - math.lgamma(num_tosses - most_heads + 1)
        - num_tosses * math.log(2.0)
    )
    term = total = 1.0
    for heads in range(most_heads, 0, -1):
        term *= heads / (num_tosses - heads + 1)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    just = math.exp(log_chance)
    return just * total, just


def mcnemar_mid_p(num_worse: int, num_better: int) -> float:
    """Give the two-sided mid-p value of tasks that got worse against tasks that got better.

    McNemar 1947 by the binomial distribution of the discordant pairs, less the chance of just
    what was observed: Fagerland, Lydersen and Laake 2013, "The McNemar test for binary
    matched-pairs data", BMC Medical Research Methodology 13:91, since the exact test is too
    conservative. 1 where as many got worse as better.
    """
    if num_worse == num_better:
        return 1.0
    at_most, just = coin_tail(num_worse + num_better, min(num_worse, num_better))
    return min(1.0, 2.0 * at_most - just)
