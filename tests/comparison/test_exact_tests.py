"""Tests of paired differences by counting, against scipy and statsmodels."""

import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar

from gymcli.comparison.exact_tests import (
    NUM_FLIPS,
    coin_tail,
    mcnemar_mid_p,
    sign_flip,
)

counts = st.integers(0, 400)
quarters = st.integers(-4, 4).map(lambda number: number / 4)
sixty_fourths = st.integers(-64, 64).map(lambda number: number / 64)
"""Exact in binary: scipy would take equal sums for different ones after rounding."""


def of_scipy(differences):
    """Return scipy's p-value over all sign flips."""
    return scipy.stats.permutation_test(
        (np.array(differences),),
        lambda flipped, axis: flipped.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    ).pvalue


@settings(max_examples=40)
@given(st.lists(quarters | sixty_fourths, min_size=2, max_size=9))
def test_few_differences_agree_with_scipy(differences):
    found = sign_flip(differences, seed="any")
    assert found.is_exact
    assert found.p_value == pytest.approx(of_scipy(differences), abs=1e-12)


@settings(max_examples=20)
@given(st.lists(st.integers(-3, 3).filter(bool), min_size=17, max_size=18))
def test_counting_agrees_with_listing(thirds):
    """Integers are counted by one polynomial, and so are their multiples by any factor."""
    sums = np.array([0])
    for number in thirds:
        sums = np.concatenate([sums + number, sums - number])
    expected = np.mean(np.abs(sums) >= abs(sum(thirds)))
    for divisor in (1, 3, 48, 0.01):
        found = sign_flip([number / divisor for number in thirds], seed="any")
        assert found.is_exact
        assert found.p_value == pytest.approx(expected, abs=1e-12)


def test_differences_of_one_size_are_the_tosses_of_a_coin():
    differences = [0.5] * 5200 + [-0.5] * 5000 + [0.0] * 700
    expected = scipy.stats.binomtest(5000, 10_200).pvalue
    assert sign_flip(differences, seed="any") == (pytest.approx(expected), True)


def test_many_differences_are_drawn_and_agree_with_the_normal_distribution():
    """The normal approximation for 400 errs far less than the draws, which are seeded."""
    draw = random.Random(3)
    differences = [draw.gauss(0.06, 1.0) for _ in range(400)]
    found = sign_flip(differences, seed="any")
    assert not found.is_exact
    z = sum(differences) / np.linalg.norm(differences)
    assert found.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z)), abs=0.006)
    assert found == sign_flip(differences, seed="any")
    assert found.p_value != sign_flip(differences, seed="another").p_value


def test_many_multiples_are_drawn_and_agree_with_counting():
    draw = random.Random(5)
    few = [draw.randint(-4, 5) / 4 for _ in range(600)]
    counted = sign_flip(few, seed="any")
    assert counted.is_exact
    doubled = sign_flip([one for one in few for _ in range(8)], seed="any")
    assert not doubled.is_exact
    z = 8 * sum(few) / (np.linalg.norm(few) * 8**0.5)
    assert doubled.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z)), abs=0.006)


def test_a_sum_that_no_draw_reaches_has_a_positive_p_value():
    draw = random.Random(7)
    found = sign_flip([draw.uniform(0.5, 1.0) for _ in range(100)], seed="any")
    assert found == (1 / (1 + NUM_FLIPS), False)


def test_an_outlier_does_not_hide_the_others():
    """All differences have one sign, so that hardly any flip has a sum as large."""
    draw = random.Random(9)
    small = [draw.uniform(0.5, 1.5) for _ in range(100)]
    for outlier in (1e5, 1e12):
        found = sign_flip([outlier, *small], seed="any")
        assert found == (1 / (1 + NUM_FLIPS), False)
    assert sign_flip([1e300, *small], seed="any").p_value == 1.0, "the others are lost to rounding"


@given(st.lists(quarters, max_size=40), st.randoms(use_true_random=False))
def test_order_signs_zeros_and_units_do_not_matter(differences, shuffle):
    found = sign_flip(differences, seed="any")
    shuffled = [*differences, 0.0, 0.0]
    shuffle.shuffle(shuffled)
    assert sign_flip(shuffled, seed="any") == found
    assert sign_flip([-one for one in differences], seed="any") == found
    scaled = sign_flip([8.0 * one for one in differences], seed="any")
    assert scaled.p_value == pytest.approx(found.p_value, abs=1e-12)


def test_no_difference_at_all():
    assert sign_flip([], seed="any") == (1.0, True)
    assert sign_flip([0.0] * 50, seed="any") == (1.0, True)


def test_a_single_difference_says_nothing():
    assert sign_flip([0.7], seed="any") == (1.0, True)


@pytest.mark.parametrize(
    "make",
    [lambda draw: draw.choice((-0.5, -0.25, 0.0, 0.25, 0.5)), lambda draw: draw.gauss(0.0, 1.0)],
)
def test_false_alarms_are_as_many_as_promised(make):
    """Of 400 pairs of equal runs, about 5 % have p <= 0.05."""
    draw = random.Random(11)
    num_alarms = sum(
        sign_flip([make(draw) for _ in range(14)], seed=str(number)).p_value <= 0.05
        for number in range(400)
    )
    assert 8 <= num_alarms <= 28


def test_rounding_errors_do_not_hide_a_common_divisor():
    """A tiny difference does not hide the common divisor of the others."""
    thirds = [number / 3 for number in (1, 2, -1, 1, 2, -2)] * 4
    found = sign_flip([*thirds, 1e-17], seed="any")
    assert found == (pytest.approx(sign_flip(thirds, seed="any").p_value), True)


@given(counts, counts)
def test_mid_p_is_the_exact_p_of_statsmodels_less_the_observed_outcome(worse, better):
    exact = mcnemar([[5, worse], [better, 5]], exact=True).pvalue
    just = scipy.stats.binom.pmf(worse, worse + better, 0.5)

    found = mcnemar_mid_p(worse, better)

    assert found == pytest.approx(1.0 if worse == better else exact - just, abs=1e-12)


@given(counts, counts)
def test_mid_p_is_the_same_the_other_way_round(worse, better):
    assert mcnemar_mid_p(worse, better) == mcnemar_mid_p(better, worse)
    assert 0.0 < mcnemar_mid_p(worse, better) <= 1.0


def test_mid_p_of_very_many_pairs():
    """Against scipy; the terms are too small and too many to add one by one."""
    tail = scipy.stats.binom.cdf(99_500, 200_000, 0.5)
    just = scipy.stats.binom.pmf(99_500, 200_000, 0.5)
    assert mcnemar_mid_p(99_500, 100_500) == pytest.approx(2 * tail - just, rel=1e-9)


@given(st.integers(1, 2000), st.data())
def test_coin_tail_agrees_with_scipy(tosses, data):
    heads = data.draw(st.integers(0, tosses))
    at_most, just = coin_tail(tosses, heads)
    assert at_most == pytest.approx(scipy.stats.binom.cdf(heads, tosses, 0.5), rel=1e-9)
    assert just == pytest.approx(scipy.stats.binom.pmf(heads, tosses, 0.5), rel=1e-9)
