"""Confidence intervals of a mean, over tasks or other independent units."""

from __future__ import annotations

import math
from typing import NamedTuple

from gymcli.metrics.distributions import normal_quantile, student_t_quantile

__all__ = ["Range", "t_interval", "wilson_effective_interval", "wilson_interval"]


class Range(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def wilson_interval(rate: float, num_trials: float, *, level: float = 0.95) -> Range:
    """Give the score interval of a rate in [0, 1]; the number of trials may be a fraction.

    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    z = normal_quantile((1.0 + level) / 2.0)
    shrink = 1.0 + z * z / num_trials
    centre = (rate + z * z / (2.0 * num_trials)) / shrink
    spread = rate * (1.0 - rate) / num_trials + (z / (2.0 * num_trials)) ** 2
    half = z / shrink * math.sqrt(max(0.0, spread))
    # Rounding may put an end that equals the rate, or 0, or 1, just beside it.
    return Range(
        max(0.0, min(rate, centre - half)),
        min(1.0, max(rate, centre + half)),
    )


def wilson_effective_interval(
    rate: float, error: float, *, num_clusters: int, num_values: int, level: float = 0.95
) -> Range:
    """Give the Wilson interval on the effective sample size.

    Korn and Graubard 1998 (effective size, adjusted for the degrees of freedom) with the Wilson
    kernel, as Franco et al. 2019 recommend for clustered samples (PMC6690503). For scores inside
    (0, 1) it is conservative, since no variance exceeds Bernoulli's.

    Args:
        rate: The mean, in [0, 1].
        error: Its standard error.
        num_clusters: How many independent units there are: tasks, at least two.
        num_values: How many values there are: attempts; the effective size is never more.
        level: The share of such intervals that contain the true rate.

    Raises:
        ValueError: There are fewer than two clusters.

    """
    effective = float(num_clusters)
    if error > 0.0 and 0.0 < rate < 1.0:
        effective = rate * (1.0 - rate) / error / error
    upper = (1.0 + level) / 2.0
    adjustment = normal_quantile(upper) / student_t_quantile(upper, num_clusters - 1)
    return wilson_interval(rate, min(num_values, effective * adjustment**2), level=level)


def t_interval(centre: float, error: float, *, num_clusters: int, level: float = 0.95) -> Range:
    """Give centre ± t * error with `num_clusters - 1` degrees of freedom.

    Student 1908, "The probable error of a mean"; over clusters: Miller 2024, arXiv 2411.00640.

    Raises:
        ValueError: There are fewer than two clusters.

    """
    half = student_t_quantile((1.0 + level) / 2.0, num_clusters - 1) * error
    return Range(centre - half, centre + half)
