"""Tests of paired differences by counting: McNemar's mid-p and random changes of sign.

They need no distribution of rewards: if neither run is better, the signs of the tasks' differences
are tosses of a fair coin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

NUM_FLIPS = 100_000
"""The number of random flips if all flips are too many to count."""
_NEGLIGIBLE = 1e-18
"""The share of a sum below which further terms do not change it."""
_MAX_LISTED = 16
"""The most differences whose 2^n flips are all listed, whatever their values."""
_MAX_COUNTED_BYTES = 5e8
"""Limits the work of counting all flips of whole numbers to about a tenth of a second."""
_MAX_MULTIPLE = 1 << 20
"""The largest difference, in units of the common divisor of all differences."""
_STEPS = 1 << 12
"""The median of differences without a common divisor, in the steps that they are rounded to."""
_MAX_STEPS = 1 << 53
"""The largest of these differences in steps: a double has no finer ones."""


def mcnemar_mid_p(num_worse: int, num_better: int) -> float:
    """Return the two-sided mid-p value for the numbers of tasks that got worse and better.

    McNemar 1947, by the binomial distribution of the discordant pairs. As the exact test is too
    conservative, the probability of the observed numbers is subtracted: Fagerland, Lydersen and
    Laake 2013, "The McNemar test for binary matched-pairs data", BMC Medical Research Methodology
    13:91. 1 if both numbers are equal.
    """
    if num_worse == num_better:
        return 1.0
    at_most, exact_chance = coin_tail(num_worse + num_better, min(num_worse, num_better))
    return min(1.0, 2.0 * at_most - exact_chance)


def coin_tail(num_tosses: int, most_heads: int) -> tuple[float, float]:
    """Return the chances of at most and of exactly `most_heads` heads of a fair coin."""
    if 2 * most_heads > num_tosses:
        # As many tails, and more.
        more_heads, _ = coin_tail(num_tosses, num_tosses - most_heads - 1)
        _, exact_chance = coin_tail(num_tosses, num_tosses - most_heads)
        return 1.0 - more_heads, exact_chance
    if most_heads < 0:
        return 0.0, 0.0
    # By logarithms: 2^-n is 0 as a float for more than 1,074 tosses.
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
    exact_chance = math.exp(log_chance)
    return exact_chance * total, exact_chance


class SignFlip(NamedTuple):
    """The result of a sign-flip test."""

    p_value: float
    is_exact: bool
    """Whether all flips were counted."""


def sign_flip(differences: Sequence[float], *, seed: str) -> SignFlip:
    """Return the two-sided p-value of the sum of differences: the share of flips as extreme.

    If neither run is better, each task's difference may as well have the other sign (Fisher 1935,
    "The Design of Experiments", section 21). All 2^n flips are counted if n is small or the
    differences are whole multiples of a common number; else `NUM_FLIPS` are drawn with `seed`, and
    the observed one is counted among them (Phipson and Smyth 2010). Neither the order of the
    differences matters, nor which run is A.
    """
    sizes = sorted(abs(difference) for difference in differences if difference)
    if len(sizes) <= _MAX_LISTED:
        return SignFlip(_share_of_extreme_flips(sizes, abs(math.fsum(differences))), is_exact=True)
    multiples = _multiples(sizes)
    whole_sizes = multiples or _in_steps(sizes)
    # `whole_sizes` follows the order of sizes; in the observed sum, each rounded size has its sign.
    whole_by_size = dict(zip(sizes, whole_sizes, strict=True))
    observed = sum(
        whole_by_size[abs(difference)] * (1 if difference > 0.0 else -1)
        for difference in differences
        if difference
    )
    total = sum(whole_sizes)
    # A flip is as extreme if the differences of one sign add up to this or less.
    max_sum = (total - abs(observed)) // 2
    # Equal sizes are tosses of a coin.
    if multiples is not None and whole_sizes[0] == whole_sizes[-1]:
        at_most, _ = coin_tail(len(whole_sizes), max_sum // whole_sizes[0])
        return SignFlip(min(1.0, 2.0 * at_most), is_exact=True)
    if multiples is not None and len(whole_sizes) ** 2 * total / 8.0 <= _MAX_COUNTED_BYTES:
        share = 2 * _count_at_most(whole_sizes, max_sum) / (1 << len(whole_sizes))
        return SignFlip(min(1.0, share), is_exact=True)
    num_as_large = _count_extreme_flips(whole_sizes, max_sum, total - max_sum, seed)
    return SignFlip((1 + num_as_large) / (1 + NUM_FLIPS), is_exact=False)


def _share_of_extreme_flips(sizes: Sequence[float], observed: float) -> float:
    sums = [0.0]
    for size in sizes:
        sums = [total for sum_ in sums for total in (sum_ + size, sum_ - size)]
    # Rounding may move equal sums slightly apart.
    smallest_extreme = observed - 1e-12 * math.fsum(sizes)
    return sum(abs(total) >= smallest_extreme for total in sums) / len(sums)


def _multiples(sizes: Sequence[float]) -> list[int] | None:
    """Return the smallest whole numbers in the proportions of the sizes; None if there are none.

    There are some if tasks have few attempts and few different rewards. Euclid's algorithm finds
    the common divisor; a remainder that rounding can cause counts as 0.
    """
    largest, divisor = sizes[-1], 0.0
    for size in dict.fromkeys(reversed(sizes)):
        if 1e-12 * largest < size < 1e-9 * largest:  # too small to divide, too large for rounding
            return None
        remainder = size
        while remainder > 1e-9 * largest:
            divisor, remainder = remainder, math.fmod(divisor, remainder)
            if divisor - remainder <= 1e-9 * largest:  # rounded to just below a multiple
                remainder = 0.0
        if divisor * _MAX_MULTIPLE < largest:
            return None
    return [round(size / divisor) for size in sizes]


def _in_steps(sizes: Sequence[float]) -> list[int]:
    largest = min(_STEPS * (sizes[-1] / sizes[len(sizes) // 2]), _MAX_STEPS)
    return [round(size / sizes[-1] * largest) for size in sizes]


def _count_at_most(sizes: Sequence[int], max_sum: int) -> int:
    """Count the subsets of whole numbers whose sum is `max_sum` or less.

    The product of all 1 + x^size has the numbers of subsets by their sum as coefficients. One
    integer holds them all, each in a field of n + 1 bits: multiplying by a factor is a shift and an
    addition, and the remainder by a field full of ones is the sum of the fields.
    """
    width = len(sizes) + 1
    counts = 1
    for size in sizes:
        counts += counts << (width * size)
    low = counts & ((1 << (width * (max_sum + 1))) - 1)
    return low % ((1 << width) - 1)


def _count_extreme_flips(sizes: Sequence[int], low: int, high: int, seed: str) -> int:
    """Draw flips; count those whose sizes of one sign sum to at most `low` or at least `high`.

    A flip is one random integer with a bit for each size.
    """
    # The plane of a bit marks the sizes that have it: a sum of sizes is a few counts of bits.
    planes = [
        (bit, int("".join("01"[size >> bit & 1] for size in sizes), 2))
        for bit in range(max(sizes).bit_length())
    ]
    draw = Random(f"sign_flip:{seed}").getrandbits
    num_extreme = 0
    for flip in map(draw, itertools.repeat(len(sizes), NUM_FLIPS)):
        sum_ = 0
        for bit, plane in planes:
            sum_ += (flip & plane).bit_count() << bit
        num_extreme += sum_ <= low or sum_ >= high
    return num_extreme
