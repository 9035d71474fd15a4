"""Quantiles of the normal and of Student's t distribution, without numpy or scipy."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

__all__ = [
    "normal_quantile",
    "regularised_incomplete_beta",
    "student_t_cdf",
    "student_t_quantile",
]

_PRECISION = 1e-15
_TINY = 1e-300


def normal_quantile(probability: float) -> float:
    """Give the value below which a standard normal variable falls with this probability."""
    return NormalDist().inv_cdf(probability)


def regularised_incomplete_beta(x: float, a: float, b: float) -> float:
    """Give I_x(a, b), the distribution function of the beta distribution.

    The continued fraction of DLMF 8.17.22 converges quickly below the mean of the distribution;
    above it the symmetry I_x(a, b) = 1 - I_{1-x}(b, a) (DLMF 8.17.4) is used.
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta_tail(1.0 - x, b, a)
    return _beta_tail(x, a, b)


def _beta_tail(x: float, a: float, b: float) -> float:
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
        - math.log(a)
    )
    return math.exp(log_front) / _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluate 1 + d1/(1 + d2/(1 + ...)) of DLMF 8.17.22 by the modified Lentz method.

    Lentz 1976, Applied Optics 15(3), as modified by Thompson and Barnett 1986.
    """
    value = numerator = 1.0
    denominator = 0.0
    change = 0.0
    step = 0
    while abs(change - 1.0) > _PRECISION:
        step += 1
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        denominator = 1.0 / _away_from_zero(1.0 + term * denominator)
        numerator = _away_from_zero(1.0 + term / numerator)
        change = numerator * denominator
        value *= change
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def student_t_cdf(value: float, degrees_of_freedom: float) -> float:
    """Give the probability that a Student t variable falls below a value.

    By the incomplete beta function: Abramowitz and Stegun 26.7.1.
    """
    square = value * value
    inside = regularised_incomplete_beta(
        square / (degrees_of_freedom + square), 0.5, degrees_of_freedom / 2.0
    )
    return 0.5 + math.copysign(0.5 * inside, value)


@functools.lru_cache(maxsize=1 << 10)  # a millisecond each, and few are different in a run
def student_t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Give the value below which a Student t variable falls with this probability.

    Found by bisection, so it is as exact as the distribution function: 9 digits or more.

    Raises:
        ValueError: The probability is not strictly between 0 and 1, or there is no degree of
            freedom.

    """
    if not 0.0 < probability < 1.0 or degrees_of_freedom <= 0.0:
        raise ValueError(
            f"no Student t quantile at probability {probability} with "
            f"{degrees_of_freedom} degrees of freedom"
        )
    if probability < 0.5:
        return -student_t_quantile(1.0 - probability, degrees_of_freedom)
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
