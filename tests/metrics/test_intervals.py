"""Intervals of a mean and their quantiles, against scipy or statsmodels, and by laws."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from gymcli.metrics.estimators import mean, standard_error
from gymcli.metrics.intervals import (
    Scale,
    interval_of,
    normal_quantile,
    regularised_incomplete_beta,
    student_t_cdf,
    student_t_quantile,
    t_interval,
    wilson_effective_interval,
    wilson_interval,
)

rewards = st.floats(0.0, 1.0)


@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_interval_agrees_with_statsmodels(num_trials, data, level):
    num_passes = data.draw(st.integers(0, num_trials))
    expected = proportion_confint(num_passes, num_trials, alpha=1.0 - level, method="wilson")

    found = wilson_interval(num_passes / num_trials, num_trials, level=level)

    assert found == pytest.approx(expected, abs=1e-12)


@given(rewards, st.floats(0.01, 1e6))
def test_wilson_interval_contains_the_rate_within_0_and_1(rate, num_trials):
    low, high = wilson_interval(rate, num_trials)

    assert 0.0 <= low <= rate <= high <= 1.0


def test_wilson_effective_interval_by_the_formula():
    """G = 20, K = 4, mean 0.8, SE 0.05: n_eff = 64, n* = 64 (z/t)^2 with 19 degrees of freedom."""
    z, t = scipy.stats.norm.ppf(0.975), scipy.stats.t.ppf(0.975, 19)
    size = 0.8 * 0.2 / 0.05**2 * (z / t) ** 2
    centre = (0.8 + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(0.8 * 0.2 / size + z**2 / (4 * size**2))

    found = wilson_effective_interval(0.8, 0.05, num_clusters=20, max_size=80)

    assert found == pytest.approx((centre - half, centre + half))


def test_wilson_effective_interval_never_has_more_trials_than_attempts():
    found = wilson_effective_interval(0.5, 1e-9, num_clusters=20, max_size=80)

    assert found == wilson_interval(0.5, 80)


@pytest.mark.parametrize(("rate", "error"), [(1.0, 0.0), (0.0, 0.0), (0.5, 0.0)])
def test_wilson_effective_interval_without_a_spread_counts_the_clusters(rate, error):
    adjustment = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, 19)) ** 2

    found = wilson_effective_interval(rate, error, num_clusters=20, max_size=80)

    assert found == pytest.approx(wilson_interval(rate, 20 * adjustment))


def test_wilson_effective_interval_of_a_spread_that_is_rounding_counts_the_clusters():
    found = wilson_effective_interval(0.5, 1e-16, num_clusters=20, max_size=80)

    assert found == wilson_effective_interval(0.5, 0.0, num_clusters=20, max_size=80)


@given(st.integers(2, 400), st.floats(0.05, 0.95), st.floats(1e-4, 1e-3))
def test_wilson_effective_interval_of_a_small_spread_is_as_narrow_as_student_s(size, rate, error):
    """Scores that vary less than passes and failures would."""
    low, high = wilson_effective_interval(rate, error, num_clusters=size)
    student = t_interval(rate, error, num_clusters=size)

    assert high - low == pytest.approx(student.high - student.low, rel=0.05)


GRADED = [0.75, 0.8, 0.85] * 30


def test_interval_of_graded_values_follows_their_variance():
    """Ninety rewards of 0.8 ± 0.04 are no ninety passes and failures."""
    value, error = mean(GRADED), standard_error(GRADED)
    found, capped = (
        interval_of(
            value, error, scale=Scale(1.0, is_graded), num_values=90, num_clusters=90, level=0.95
        )
        for is_graded in (True, False)
    )
    student = t_interval(value, error, num_clusters=90)

    assert (found.low, found.high) == pytest.approx(student, abs=1e-3)
    assert capped.high - capped.low > 7 * (found.high - found.low)


def test_interval_of_graded_values_scales_with_the_range():
    tens = [10.0 * value for value in GRADED]
    unit, ten = (
        interval_of(
            mean(values),
            standard_error(values),
            scale=Scale(best, is_graded=True),
            num_values=90,
            num_clusters=90,
            level=0.95,
        )
        for values, best in ((GRADED, 1.0), (tens, 10.0))
    )

    assert (ten.low, ten.high) == pytest.approx((10.0 * unit.low, 10.0 * unit.high))


def test_t_interval_agrees_with_scipy():
    means = [0.2, 1.7, -3.0, 4.5]
    expected = scipy.stats.t.interval(0.9, 3, np.mean(means), scipy.stats.sem(means))

    found = t_interval(mean(means), standard_error(means), num_clusters=4, level=0.9)

    assert found == pytest.approx(expected)


@pytest.mark.parametrize("num_clusters", [0, 1])
def test_intervals_refuse_fewer_than_two_clusters(num_clusters):
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_interval(0.5, 0.1, num_clusters=num_clusters)
    with pytest.raises(ValueError, match="degrees of freedom"):
        wilson_effective_interval(0.5, 0.1, num_clusters=num_clusters, max_size=4)


@pytest.mark.parametrize("probability", [0.001, 0.05, 0.5, 0.9, 0.975, 0.9999])
def test_normal_quantile_agrees_with_scipy(probability):
    assert normal_quantile(probability) == pytest.approx(scipy.stats.norm.ppf(probability))


@given(
    x=st.floats(0.0, 0.999999),  # beyond this, scipy is wrong in the ninth digit
    a=st.floats(0.5, 500.0),
    b=st.floats(0.5, 500.0),
)
def test_regularised_incomplete_beta_agrees_with_scipy(x, a, b):
    expected = scipy.special.betainc(a, b, x)

    assert regularised_incomplete_beta(x, a, b) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(value=st.floats(-50.0, 50.0), degrees=st.integers(1, 2000))
def test_student_t_cdf_agrees_with_scipy(value, degrees):
    expected = scipy.stats.t.cdf(value, degrees)

    # Near the middle, scipy is the less exact of the two: at 1e-9 it returns one half.
    assert student_t_cdf(value, degrees) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("degrees", [1, 2, 5, 9, 99, 9_999, 1_000_000])
@pytest.mark.parametrize("probability", [0.55, 0.9, 0.975, 0.995, 0.9999])
def test_student_t_quantile_agrees_with_scipy(probability, degrees):
    expected = scipy.stats.t.ppf(probability, degrees)

    assert student_t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-8)


@given(probability=st.floats(0.01, 0.99), degrees=st.integers(1, 300))
def test_student_t_quantile_is_symmetric_and_inverts_the_cdf(probability, degrees):
    value = student_t_quantile(probability, degrees)

    assert value == pytest.approx(-student_t_quantile(1.0 - probability, degrees), abs=1e-9)
    assert student_t_cdf(value, degrees) == pytest.approx(probability, abs=1e-10)


def test_student_t_quantile_of_a_half_is_zero():
    assert math.isclose(student_t_quantile(0.5, 7), 0.0, abs_tol=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 5), (1.0, 5), (0.9, 0)])
def test_student_t_quantile_refuses_what_has_none(probability, degrees):
    with pytest.raises(ValueError, match="no Student t quantile"):
        student_t_quantile(probability, degrees)


@pytest.mark.parametrize(("x", "expected"), [(0.0, 0.0), (1.0, 1.0)])
def test_regularised_incomplete_beta_is_exact_at_the_ends(x, expected):
    assert regularised_incomplete_beta(x, 2.0, 3.0) == expected


@given(st.floats(0.0, 1.0))
def test_regularised_incomplete_beta_is_the_arcsine_law_at_halves(x):
    """The arcsine is computed from the nearer end, where no digits cancel."""
    near = 2.0 / math.pi * math.asin(math.sqrt(min(x, 1.0 - x)))
    expected = near if x < 0.5 else 1.0 - near

    assert regularised_incomplete_beta(x, 0.5, 0.5) == pytest.approx(expected, abs=1e-12)
