"""Tests of paired differences: McNemar's, sign flips, Holm's adjustment; and correlation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from gymcli.metrics.estimators import mean_of, sum_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "NUM_FLIPS",
    "SignFlip",
    "coin_tail",
    "correlation",
    "holm",
    "mcnemar_mid_p",
    "sign_flip",
]

NUM_FLIPS = 100_000
"""Random flips where there are too many to count them all."""

_NEGLIGIBLE = 1e-18
_MAX_LISTED = 16
"""Differences of which all 2^n flips are listed, whatever numbers they are."""
_MAX_COUNTED_BYTES = 5e8
"""A limit to the work of counting all flips of whole numbers: about a tenth of a second."""
_MAX_MULTIPLE = 1 << 20
"""The largest difference as a multiple of what all of them are multiples of."""
_STEPS = 1 << 12
"""The median of differences that are no such multiples, when flips of them are drawn."""
_MAX_STEPS = 1 << 53
"""The most of the largest one: a double holds no smaller steps beside it."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Return each p-value adjusted for the number of tests.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the chance of one false
    alarm or more stays below alpha, however the tests depend on each other.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    by_size = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, place in enumerate(by_size):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Return the correlation of two rows of values (Pearson 1895); None where one does not vary."""
    one, other = first - mean_of(first), second - mean_of(second)
    lengths = math.sqrt(sum_of(one * one)), math.sqrt(sum_of(other * other))
    if not all(lengths):
        return None
    return min(1.0, max(-1.0, sum_of(one * other) / lengths[0] / lengths[1]))


def mcnemar_mid_p(num_worse: int, num_better: int) -> float:
    """Return the two-sided mid-p value of tasks that got worse against tasks that got better.

    McNemar 1947 by the binomial distribution of the discordant pairs, less the chance of just
    what was observed: Fagerland, Lydersen and Laake 2013, "The McNemar test for binary
    matched-pairs data", BMC Medical Research Methodology 13:91, since the exact test is too
    conservative. 1 where as many got worse as better.
    """
    if num_worse == num_better:
        return 1.0
    at_most, just = coin_tail(num_worse + num_better, min(num_worse, num_better))
    return min(1.0, 2.0 * at_most - just)


def coin_tail(num_tosses: int, most_heads: int) -> tuple[float, float]:
    """Return the chance of at most that many heads of a fair coin, and of exactly that many."""
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


class SignFlip(NamedTuple):
    """The result of a sign-flip test."""

    p_value: float
    is_exact: bool
    """Whether all flips were counted."""


def sign_flip(differences: Sequence[float], *, seed: str) -> SignFlip:
    """Return the two-sided p-value of the differences' sum: how often flips give one as large.

    If neither run is better, each task's difference may as well be reversed (Fisher 1935, "The
    Design of Experiments", section 21). All 2^n flips are counted where n is small or the
    differences are whole multiples of something; else `NUM_FLIPS` are drawn with `seed`, and the
    observed one is counted among them (Phipson and Smyth 2010). The order of the differences does
    not matter, nor which run is A.
    """
    sizes = sorted(abs(difference) for difference in differences if difference)
    if len(sizes) <= _MAX_LISTED:
        return SignFlip(_listed(sizes, abs(math.fsum(differences))), is_exact=True)
    multiples = _multiples(sizes)
    whole = multiples or _in_steps(sizes)
    # Signs are put on by size: what was rounded alike is flipped alike.
    rounded = dict(zip(sizes, whole, strict=True))
    observed = sum(
        rounded[abs(difference)] * (1 if difference > 0.0 else -1)
        for difference in differences
        if difference
    )
    total = sum(whole)
    most = (total - abs(observed)) // 2  # the flips to the one side sum up to this or less
    if multiples is not None and whole[0] == whole[-1]:
        at_most, _ = coin_tail(len(whole), most // whole[0])
        return SignFlip(min(1.0, 2.0 * at_most), is_exact=True)
    if multiples is not None and len(whole) ** 2 * total / 8.0 <= _MAX_COUNTED_BYTES:
        share = 2 * _count_at_most(whole, most) / (1 << len(whole))
        return SignFlip(min(1.0, share), is_exact=True)
    num_as_large = _drawn(whole, most, total - most, seed)
    return SignFlip((1 + num_as_large) / (1 + NUM_FLIPS), is_exact=False)


def _listed(sizes: Sequence[float], observed: float) -> float:
    sums = [0.0]
    for size in sizes:
        sums = [one for sum_ in sums for one in (sum_ + size, sum_ - size)]
    # Sums that are equal may be rounded to just beside each other.
    enough = observed - 1e-12 * math.fsum(sizes)
    return sum(abs(one) >= enough for one in sums) / len(sums)


def _multiples(sizes: Sequence[float]) -> list[int] | None:
    """Return the sizes as the smallest whole numbers in the same proportions; None if none fit.

    Some fit where means are of a few attempts with few rewards. Euclid's algorithm finds what
    divides all of them; what rounding leaves counts as 0.
    """
    largest, divisor = sizes[-1], 0.0
    for size in dict.fromkeys(reversed(sizes)):
        if 1e-12 * largest < size < 1e-9 * largest:  # neither a multiple nor nothing
            return None
        rest = size
        while rest > 1e-9 * largest:
            divisor, rest = rest, math.fmod(divisor, rest)
            if divisor - rest <= 1e-9 * largest:  # just below a multiple
                rest = 0.0
        if divisor * _MAX_MULTIPLE < largest:
            return None
    return [round(size / divisor) for size in sizes]


def _in_steps(sizes: Sequence[float]) -> list[int]:
    largest = min(_STEPS * (sizes[-1] / sizes[len(sizes) // 2]), _MAX_STEPS)
    return [round(size / sizes[-1] * largest) for size in sizes]


def _count_at_most(sizes: Sequence[int], most: int) -> int:
    """Count the subsets of whole numbers whose sum is `most` or less.

    The number of subsets by their sum is the polynomial that is the product of 1 + x^size. All its
    coefficients stand in one integer, each in a field of n + 1 bits, so that a factor is a shift
    and a sum, and the sum of fields is the remainder by a field full of ones.
    """
    width = len(sizes) + 1
    counts = 1
    for size in sizes:
        counts += counts << (width * size)
    low = counts & ((1 << (width * (most + 1))) - 1)
    return low % ((1 << width) - 1)


def _drawn(sizes: Sequence[int], low: int, high: int, seed: str) -> int:
    """Draw flips and count those whose sum on the one side is at most `low` or at least `high`.

    A flip is one random integer with a bit for each size. With the sizes cut into their own bits,
    "planes", its sum is a few counts of bits.
    """
    planes = [
        (bit, int("".join("01"[size >> bit & 1] for size in sizes), 2))
        for bit in range(max(sizes).bit_length())
    ]
    draw = Random(f"sign_flip:{seed}").getrandbits
    num_found = 0
    for flip in map(draw, itertools.repeat(len(sizes), NUM_FLIPS)):
        sum_ = 0
        for bit, plane in planes:
            sum_ += (flip & plane).bit_count() << bit
        num_found += sum_ <= low or sum_ >= high
    return num_found
