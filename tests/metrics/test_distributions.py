"""The quantiles against scipy's."""

import math

import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gymcli.metrics.distributions import (
    normal_quantile,
    regularised_incomplete_beta,
    student_t_cdf,
    student_t_quantile,
)


@pytest.mark.parametrize("probability", [0.001, 0.05, 0.5, 0.9, 0.975, 0.9999])
def test_normal_quantile_agrees_with_scipy(probability):
    assert normal_quantile(probability) == pytest.approx(scipy.stats.norm.ppf(probability))


@given(
    x=st.floats(0.0, 0.999999),  # beyond, scipy itself is off in the ninth digit
    a=st.floats(0.5, 500.0),
    b=st.floats(0.5, 500.0),
)
def test_regularised_incomplete_beta_agrees_with_scipy(x, a, b):
    expected = scipy.special.betainc(a, b, x)

    assert regularised_incomplete_beta(x, a, b) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(value=st.floats(-50.0, 50.0), degrees=st.integers(1, 2000))
def test_student_t_cdf_agrees_with_scipy(value, degrees):
    expected = scipy.stats.t.cdf(value, degrees)

    # Near the middle, scipy is the less exact of the two: at 1e-9 it gives one half.
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
    """The arcsine is taken from the nearer end, where it loses no digits."""
    near = 2.0 / math.pi * math.asin(math.sqrt(min(x, 1.0 - x)))
    expected = near if x < 0.5 else 1.0 - near

    assert regularised_incomplete_beta(x, 0.5, 0.5) == pytest.approx(expected, abs=1e-12)
