"""Confidence intervals of a mean over tasks, and the quantiles they need, in plain Python."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import NamedTuple

from gymcli.metrics.results import Interval

_PRECISION = 1e-15
_ROUNDING = 1e-12
"""The standard error of a share that rounding alone may cause, where all tasks are equal."""
_TINY = 1e-300
"""Stands for a denominator of 0 in Lentz's method."""


class Range(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


class Scale(NamedTuple):
    """The values that the attempts behind a mean may have."""

    best: float | None
    """The top of their range, which begins at 0; None if they have no range."""
    is_graded: bool
    """Whether some lie between 0 and the best one."""


NO_SCALE = Scale(None, is_graded=True)


def wilson_interval(rate: float, num_trials: float, *, level: float = 0.95) -> Range:
    """Return the score interval of a rate in [0, 1]; the number of trials may be a fraction.

    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    z = normal_quantile((1.0 + level) / 2.0)
    shrink = 1.0 + z * z / num_trials
    centre = (rate + z * z / (2.0 * num_trials)) / shrink
    spread = rate * (1.0 - rate) / num_trials + (z / (2.0 * num_trials)) ** 2
    half = z / shrink * math.sqrt(max(0.0, spread))
    # Rounding may move an end slightly past the rate, 0 or 1, which it should equal.
    return Range(max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half)))


def wilson_effective_interval(
    rate: float, error: float, *, num_clusters: int, max_size: float = math.inf, level: float = 0.95
) -> Range:
    """Return the Wilson interval on the effective sample size, over at least two clusters.

    Korn and Graubard 1998 (effective size, adjusted for the degrees of freedom) with the Wilson
    kernel, as Franco et al. 2019 recommend for clustered samples (PMC6690503). The effective size
    is the number of scores of 0 and 1 that have this error, so scores between 0 and 1 may have one
    that is larger than their number; `max_size` bounds it.
    """
    # Without variance the effective size is undefined: each cluster counts as one trial.
    effective = float(num_clusters)
    if error > _ROUNDING and 0.0 < rate < 1.0:
        effective = rate * (1.0 - rate) / error / error
    upper = (1.0 + level) / 2.0
    adjustment = normal_quantile(upper) / student_t_quantile(upper, num_clusters - 1)
    return wilson_interval(rate, min(max_size, effective * adjustment**2), level=level)


def t_interval(centre: float, error: float, *, num_clusters: int, level: float = 0.95) -> Range:
    """Return centre ± t * error with `num_clusters - 1` degrees of freedom; needs two clusters.

    Student 1908, "The probable error of a mean"; over clusters: Miller 2024, arXiv 2411.00640.
    """
    half = student_t_quantile((1.0 + level) / 2.0, num_clusters - 1) * error
    return Range(centre - half, centre + half)


def interval_of(
    value: float,
    error: float | None,
    *,
    scale: Scale,
    num_values: int,
    num_clusters: int,
    level: float,
) -> Interval | None:
    """Return the interval of a mean; None if there is none.

    It is Wilson's on the effective size if every value lies between 0 and a known best one, else
    Student's. It contains the mean and lies within the range.

    Args:
        value: The mean.
        error: Its standard error.
        scale: The values that attempts may have.
        num_values: Attempts that the mean was computed from. Unless the scale is graded, they bound
            the effective size, which a small sample may overstate.
        num_clusters: Tasks, which are independent of each other.
        level: The share of such intervals that contain the true number.
    """
    if error is None or num_clusters < 2:
        return None
    best = scale.best
    if best is None or best <= 0.0:
        # Student's interval would have no width, as if a few equal tasks made the mean certain.
        if error == 0.0:
            return None
        student = t_interval(value, error, num_clusters=num_clusters, level=level)
        return Interval(low=student.low, high=student.high, level=level, method="t")
    wilson = wilson_effective_interval(
        value / best,
        error / best,
        num_clusters=num_clusters,
        max_size=math.inf if scale.is_graded else num_values,
        level=level,
    )
    # Scaling back and forth may round an end slightly past the mean or the best reward.
    return Interval(
        low=min(value, wilson.low * best),
        high=max(value, min(best, wilson.high * best)),
        level=level,
        method="wilson-neff",
    )


def normal_quantile(probability: float) -> float:
    """Return the value below which a standard normal variable falls with this probability."""
    return NormalDist().inv_cdf(probability)


def regularised_incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I_x(a, b), the distribution function of the beta distribution.

    The continued fraction 1 + d1/(1 + d2/(1 + ...)) of DLMF 8.17.22, by the method of Lentz 1976,
    Applied Optics 15(3), as modified by Thompson and Barnett 1986.
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    # The fraction converges quickly below the mean of the distribution; above it the symmetry
    # I_x(a, b) = 1 - I_{1-x}(b, a) is used (DLMF 8.17.4).
    is_above = x > (a + 1.0) / (a + b + 2.0)
    if is_above:
        x, a, b = 1.0 - x, b, a
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
        - math.log(a)
    )
    fraction = numerator = 1.0
    denominator = change = 0.0
    step = 0
    while abs(change - 1.0) > _PRECISION:
        step += 1
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        denominator = 1.0 / ((1.0 + term * denominator) or _TINY)
        numerator = (1.0 + term / numerator) or _TINY
        change = numerator * denominator
        fraction *= change
    tail = math.exp(log_front) / fraction
    return 1.0 - tail if is_above else tail


def student_t_cdf(value: float, degrees_of_freedom: float) -> float:
    """Return the probability that a Student t variable falls below a value.

    By the incomplete beta function: Abramowitz and Stegun 26.7.1.
    """
    square = value * value
    inside = regularised_incomplete_beta(
        square / (degrees_of_freedom + square), 0.5, degrees_of_freedom / 2.0
    )
    return 0.5 + math.copysign(0.5 * inside, value)


@functools.lru_cache(maxsize=1 << 10)  # a millisecond each, and a run needs few different ones
def student_t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the value below which a Student t variable falls with this probability."""
    if not 0.0 < probability < 1.0 or degrees_of_freedom <= 0.0:
        raise ValueError(
            f"no Student t quantile at probability {probability} with "
            f"{degrees_of_freedom} degrees of freedom"
        )
    if probability < 0.5:
        return -student_t_quantile(1.0 - probability, degrees_of_freedom)
    # Bisection to the last digit: faster methods would change the last digits of results.
    low, high = 0.0, 1.0
    while student_t_cdf(high, degrees_of_freedom) < probability:
        low, high = high, 2.0 * high
    while True:
        middle = (low + high) / 2.0
        if middle in (low, high):
            return middle
        if student_t_cdf(middle, degrees_of_freedom) < probability:
            low = middle
        else:
            high = middle
